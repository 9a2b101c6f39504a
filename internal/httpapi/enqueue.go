package httpapi

import (
	"net/http"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *API) enqueue(w *exchange, r *http.Request) error {
	req, err := decode[wire.Enqueue](w, r)
	if err != nil {
		return err
	}
	in := store.EnqueueRequest{Jobs: make([]store.NewJob, len(req.Jobs)), Open: req.Open}
	if in.RequestKey, err = requestKey(r); err != nil {
		return err
	}
	for i, n := range req.Jobs {
		if err := checkWaits(i, n.After); err != nil {
			return err
		}
		in.Jobs[i] = n.Store(a.defaults)
	}
	ctx, cancel := a.within(r.Context())
	defer cancel()
	if err := a.hasRoom(ctx, w.bearer, in); err != nil {
		return err
	}
	added, err := paced(ctx, a, w, func() ([]store.Enqueued, error) {
		added, err := a.as(ctx).Enqueue(ctx, in)
		if a.hasQuota(w.bearer) {
			a.passes.note(in, err, a.clock.Now())
		}
		return added, err
	})
	if err != nil {
		return err
	}
	events := make([]Event, 0, len(added))
	for i, e := range added {
		if !e.Duplicate {
			events = append(events, Event{Job: wire.ID(e.ID), Queue: in.Jobs[i].Queue, Event: WasEnqueued})
			a.counter.Added(in.Jobs[i].Queue, in.Jobs[i].Kind)
		}
		if e.Replaced {
			events = append(events, Event{Job: wire.ID(e.ID), Queue: in.Jobs[i].Queue, Event: WasReplaced})
		}
	}
	a.Publish(events...)
	return a.answer(w, http.StatusCreated, wire.Enqueued{Jobs: wire.Listed(added)})
}

// checkWaits refuses what would get lost on the way to the store: an item beside an id or a group.
func checkWaits(item int, waits []wire.Wait) error {
	for _, w := range waits {
		named := 0
		for _, is := range []bool{w.ID != 0, w.Item != nil, w.Group != ""} {
			if is {
				named++
			}
		}
		if named != 1 {
			return &store.InvalidError{Item: item, Field: "after", Rule: "must name each job either by its id or by its item, and each group by its name"}
		}
	}
	return nil
}

// requestKey returns the request key in the header. It refuses an empty header, which is probably a mistake of the caller.
func requestKey(r *http.Request) (string, error) {
	switch values := r.Header.Values(wire.RequestKeyHeader); {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", refuse("request_key", "must be given once")
	case values[0] == "":
		return "", refuse("request_key", "must not be empty: leave the header out")
	default:
		return wire.KeyOf(values[0])
	}
}

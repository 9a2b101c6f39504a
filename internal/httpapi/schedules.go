package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-ed332417/jq/internal/schedule"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *API) schedules(w *exchange, r *http.Request) error {
	keeper, err := able[store.ScheduleKeeper](r.Context(), a)
	if err != nil {
		return err
	}
	filter, page, err := scheduleQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	return a.showBrief(w, r, func(ctx context.Context) (any, error) {
		found, err := keeper.Schedules(ctx, filter, page)
		return wire.SchedulePageOf(found), err
	})
}

// scheduleQuery reads the query parameters of a listing of schedules.
func scheduleQuery(raw string) (store.ScheduleFilter, store.Page, error) {
	var f store.ScheduleFilter
	var due, within string
	page := store.Page{Limit: 100}
	err := parameters(raw, map[string]*string{"name": &f.Name, "due": &due, "within": &within}, nil, &page)
	if err == nil && due != "" && due != "true" {
		err = refuse("due", "must be true: leave it out for all schedules")
	}
	f.Due = due != ""
	if err == nil && within != "" {
		if f.Within, err = time.ParseDuration(within); err != nil {
			err = refuse("within", `must be a duration such as "30s"`)
		}
	}
	return f, page, err
}

func (a *API) schedule(w *exchange, r *http.Request) error {
	keeper, err := able[store.ScheduleKeeper](r.Context(), a)
	if err != nil {
		return err
	}
	return a.showBrief(w, r, func(ctx context.Context) (any, error) {
		s, _, err := schedule.Get(ctx, keeper, r.PathValue("name"))
		return wire.ScheduleOf(s), err
	})
}

// setSchedule puts a schedule as a client in Go does. With a revision it is the SetSchedule of the contract, for a remote store.
func (a *API) setSchedule(w *exchange, r *http.Request) error {
	keeper, err := able[store.ScheduleKeeper](r.Context(), a)
	if err != nil {
		return err
	}
	req, err := decode[wire.Schedule](w, r)
	if err != nil {
		return err
	}
	w.noteRequest(req.Redact())
	if err := settable(req); err != nil {
		return err
	}
	s := req.Store(a.defaults)
	s.Name = r.PathValue("name")
	if w.bearer.limited() {
		if err := w.bearer.needsSchedule(s); err != nil { // before what is due fires
			return err
		}
	}
	ctx, cancel := a.within(r.Context())
	defer cancel()
	set := keeper.SetSchedule
	if req.Revision == nil {
		set = func(ctx context.Context, s store.Schedule) (store.Schedule, error) {
			return schedule.Put(ctx, keeper, s)
		}
	}
	kept, err := set(ctx, s)
	if err != nil {
		return err
	}
	return a.answer(w, http.StatusOK, wire.ScheduleOf(kept))
}

// settable refuses fields that a request can not set.
func settable(req wire.Schedule) error {
	switch {
	case req.Name != "":
		return refuse("name", "stands in the path: leave it out")
	case !req.LastAt.IsZero():
		return refuse("last_at", "is set by the store: leave it out")
	case req.LastJob != 0:
		return refuse("last_job", "is set by the store: leave it out")
	case req.Redacted:
		return refuse("redacted", "says that the payload was left out: read the schedule as an operator")
	case !req.NextAt.IsZero() && req.Revision == nil:
		return refuse("next_at", "goes with revision only: leave it out, and the server computes it")
	default:
		return nil
	}
}

// onSchedule returns the handler of a call on the schedule in the path, without a body.
func onSchedule(do func(ctx context.Context, a *API, w *exchange, keeper store.ScheduleKeeper, name string) (any, error)) handler {
	return func(a *API, w *exchange, r *http.Request) error {
		keeper, err := able[store.ScheduleKeeper](r.Context(), a)
		if err != nil {
			return err
		}
		if err := nothing(w, r); err != nil {
			return err
		}
		ctx, cancel := a.within(r.Context())
		defer cancel()
		answer, err := do(ctx, a, w, keeper, r.PathValue("name"))
		if err != nil {
			return err
		}
		return a.answer(w, http.StatusOK, answer)
	}
}

// changed returns the handler of a change to the schedule in the path.
func changed(change func(ctx context.Context, keeper store.ScheduleKeeper, name string) (store.Schedule, error)) handler {
	return onSchedule(func(ctx context.Context, _ *API, _ *exchange, keeper store.ScheduleKeeper, name string) (any, error) {
		s, err := change(ctx, keeper, name)
		return wire.ScheduleOf(s), err
	})
}

func pauseSchedule(ctx context.Context, keeper store.ScheduleKeeper, name string) (store.Schedule, error) {
	return schedule.SetPaused(ctx, keeper, name, true)
}

func resumeSchedule(ctx context.Context, keeper store.ScheduleKeeper, name string) (store.Schedule, error) {
	return schedule.SetPaused(ctx, keeper, name, false)
}

// runSchedule enqueues a job as an enqueue does, so it is subject to the same quotas.
func runSchedule(ctx context.Context, a *API, w *exchange, keeper store.ScheduleKeeper, name string) (any, error) {
	s, _, err := schedule.Get(ctx, keeper, name)
	if err != nil {
		return nil, err
	}
	if err := a.hasRoom(ctx, w.bearer, store.EnqueueRequest{Jobs: []store.NewJob{s.Job}}); err != nil {
		return nil, err
	}
	added, err := schedule.Run(ctx, keeper, name)
	if err != nil {
		return nil, err
	}
	a.tellFired(ctx, []store.Fired{{Job: &added}})
	return added, nil
}

// fire is the Fire of the contract. A worker only says which schedules are due: the server computes for which times they fire,
// so that a worker's token enqueues no job that is not due.
func (a *API) fire(w *exchange, r *http.Request) error {
	keeper, err := able[store.ScheduleKeeper](r.Context(), a)
	if err != nil {
		return err
	}
	req, err := decode[wire.Fire](w, r)
	if err != nil {
		return err
	}
	if !w.bearer.is(Operator) {
		keeper = &view{api: a, of: a.store, bearer: w.bearer}
	}
	ctx, cancel := a.within(r.Context())
	defer cancel()
	fired, err := paced(ctx, a, w, func() ([]store.Fired, error) { return keeper.Fire(ctx, wire.Each(req.Firings, wire.Firing.Store)) })
	if err != nil {
		return err
	}
	a.tellFired(ctx, fired)
	return a.answer(w, http.StatusOK, wire.Fired{Fired: wire.Listed(fired)})
}

// tellFired publishes and counts the jobs that schedules have enqueued. It reads their queues and kinds; if that fails, it tells
// nothing, because the jobs are added all the same.
func (a *API) tellFired(ctx context.Context, fired []store.Fired) {
	var ids []int64
	for _, f := range fired {
		if f.Job != nil && !f.Job.Duplicate {
			ids = append(ids, f.Job.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	added, err := a.store.List(ctx, store.Filter{IDs: ids}, store.Page{Limit: len(ids)})
	if err != nil {
		a.log.Warn("jq: jobs of schedules are not told of, for they can not be read", "error", err)
		return
	}
	for _, j := range added.Jobs {
		a.counter.Added(j.Queue, j.Kind)
		a.Publish(Event{Job: wire.ID(j.ID), Queue: j.Queue, Event: WasEnqueued})
	}
}

// preview returns the next times of an expression.
func (a *API) preview(ctx context.Context, req wire.Preview) (wire.Times, error) {
	count := limitOr(req.Count, 5)
	if count < 1 || count > store.MaxItems {
		return wire.Times{}, refuse("count", fmt.Sprintf("must be 1 to %d", store.MaxItems))
	}
	after := req.After.Time
	if after.IsZero() {
		now, err := store.Now(ctx, a.store)
		if err != nil {
			return wire.Times{}, err
		}
		after = now
	}
	times, err := schedule.Parse(req.Cron, req.Timezone, after)
	if err != nil {
		return wire.Times{}, err
	}
	return wire.TimesOf(times.Upcoming(after, count)), nil
}

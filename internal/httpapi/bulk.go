package httpapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/seed-ed332417/jq/internal/await"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *API) bulk(w *exchange, r *http.Request) error {
	req, err := decode[wire.Bulk](w, r)
	if err != nil {
		return err
	}
	w.noteRequest(req)
	ctx, cancel := a.within(r.Context())
	defer cancel()
	outcomes, err := a.act(ctx, req, req.Filter.Store(), limitOr(req.Limit, store.MaxItems))
	if err != nil {
		return err
	}
	w.noteChanged(outcomes)
	return a.answer(w, http.StatusOK, wire.ResultsOf(outcomes))
}

// one returns the handler of an action on the job in the path.
func one(action wire.Action) handler {
	return func(a *API, w *exchange, r *http.Request) error {
		req := wire.Bulk{Action: action}
		if err := readOne(w, r, &req); err != nil {
			return err
		}
		id, err := number("id", r.PathValue("id"))
		if err != nil {
			return err
		}
		ctx, cancel := a.within(r.Context())
		defer cancel()
		outcomes, err := a.act(ctx, req, store.Filter{IDs: []int64{id}}, 1)
		if err != nil {
			return err
		}
		w.noteChanged(outcomes)
		if err := outcomes[0].Err(); err != nil {
			if reason := outcomes[0].Reason; reason != "" {
				err = fmt.Errorf("%w: %s", err, reason)
			}
			return err
		}
		return a.answer(w, http.StatusOK, wire.ResultsOf(outcomes).Results[0])
	}
}

// readOne reads the body of an action on one job: only a reschedule may have one.
func readOne(w *exchange, r *http.Request, req *wire.Bulk) error {
	if req.Action != wire.Reschedule {
		return nothing(w, r)
	}
	due, err := decodeAny[wire.DueTime](w, r)
	if err != nil {
		return err
	}
	w.noteRequest(due)
	req.RunAt = due.RunAt
	return nil
}

func (a *API) act(ctx context.Context, req wire.Bulk, filter store.Filter, limit int) ([]store.Outcome, error) {
	var do func(context.Context, store.Filter, int) ([]store.Outcome, error)
	var event string
	s := a.as(ctx)
	if !req.RunAt.IsZero() && req.Action != wire.Reschedule {
		return nil, refuse("run_at", "goes with reschedule only")
	}
	switch req.Action {
	case wire.Cancel:
		do, event = s.Cancel, WasCancelled
	case wire.Requeue:
		do, event = s.Requeue, WasRequeued
	case wire.Reschedule:
		event = WasRescheduled
		do = func(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
			return s.Reschedule(ctx, filter, req.RunAt.Time, limit)
		}
	case wire.Delete:
		do, event = s.Delete, WasDeleted
	default:
		return nil, refuse("action", "must be cancel, requeue, reschedule or delete")
	}
	outcomes, err := do(ctx, filter, limit)
	await.Tell(a.store, outcomes)
	var events []Event
	for _, o := range outcomes {
		if o.Status == store.StatusOK {
			events = append(events, Event{Job: wire.ID(o.ID), Queue: filter.Queue, Event: event})
		}
	}
	a.Publish(events...)
	return outcomes, err
}

package httpapi

import (
	"context"
	"net/http"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/waited"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *API) jobs(w *exchange, r *http.Request) error {
	q, err := query(r.URL.RawQuery)
	if err != nil {
		return err
	}
	return named(a.listed(w, r, q), "states", "state")
}

func (a *API) list(w *exchange, r *http.Request) error {
	req, err := decode[wire.List](w, r)
	if err != nil {
		return err
	}
	return a.listed(w, r, jobQuery{req.Filter.Store(), store.Page{Limit: limitOr(req.Limit, 100), Cursor: req.Cursor}, true})
}

func (a *API) listed(w *exchange, r *http.Request, q jobQuery) error {
	return a.show(w, r, func(ctx context.Context) (any, error) {
		if err := w.expect(&w.own.listed, q.page.Limit); err != nil {
			return nil, err
		}
		found, err := a.as(ctx).List(ctx, q.filter, q.page)
		if err != nil {
			return nil, err
		}
		if !q.documents {
			dropDocuments(found.Jobs)
		}
		answer := wire.JobsOf(found.Jobs)
		answer.Next = found.Next
		return answer, nil
	})
}

// Results are jobs for the holder of a lease, whose job has waited for them. Their documents are not taken out.
type results struct{ wire.Jobs }

// waitedFor answers the holder of a lease with jobs that its job has waited for.
func (a *API) waitedFor(w *exchange, r *http.Request) error {
	req, err := decode[wire.Waited](w, r)
	if err != nil {
		return err
	}
	page := store.Page{Limit: limitOr(req.Limit, 100), Cursor: req.Cursor}
	return a.show(w, r, func(ctx context.Context) (any, error) {
		if err := w.expect(&w.own.listed, page.Limit); err != nil {
			return nil, err
		}
		found, err := waited.Jobs(ctx, a.as(ctx), waited.Request{Lease: req.Store(), Groups: req.Groups, Page: page})
		answer := wire.JobsOf(found.Jobs)
		answer.Next, answer.Waits = found.Next, found.Waits
		return results{answer}, err
	})
}

func dropDocuments(jobs []store.Job) {
	for i := range jobs {
		j := &jobs[i]
		j.Payload, j.Checkpoint, j.Progress, j.Result = nil, nil, nil, nil
	}
}

func (a *API) count(ctx context.Context, req wire.Count) (store.Counts, error) {
	return a.as(ctx).Count(ctx, req.Filter.Store())
}

func (a *API) stats(w *exchange, r *http.Request) error {
	return a.show(w, r, func(ctx context.Context) (any, error) { return a.count(ctx, wire.Count{}) })
}

func (a *API) due(w *exchange, r *http.Request) error {
	monitor, err := able[store.Monitor](r.Context(), a)
	if err != nil {
		return err
	}
	return a.showBrief(w, r, func(ctx context.Context) (any, error) { return monitor.OldestDue(ctx) })
}

// alive answers that the process is running.
func (a *API) alive(w *exchange, _ *http.Request) error {
	return a.answer(w, http.StatusOK, wire.Health{Status: "alive"})
}

func (a *API) metrics(w *exchange, r *http.Request) error {
	if a.options.Metrics == nil {
		return noMetrics
	}
	a.allow(w)
	var see func(string) bool
	if w.bearer.limited() {
		see = w.bearer.sees
	}
	a.options.Metrics(see).ServeHTTP(w, r)
	return nil
}

package httpapi

import (
	"context"
	"net/http"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *API) workers(w *exchange, r *http.Request) error {
	registry, err := able[store.Registry](r.Context(), a)
	if err != nil {
		return err
	}
	filter, page, err := workerQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	return a.showBrief(w, r, func(ctx context.Context) (any, error) {
		if err := w.expect(&w.own.workers, page.Limit); err != nil {
			return nil, err
		}
		return registry.Workers(ctx, filter, page)
	})
}

// beat stores what a worker reports about itself. The name is in the path, and the store sets the time.
func (a *API) beat(w *exchange, r *http.Request) error {
	registry, err := able[store.Registry](r.Context(), a)
	if err != nil {
		return err
	}
	req, err := decode[wire.Worker](w, r)
	if err != nil {
		return err
	}
	switch {
	case req.Name != "":
		return refuse("name", "stands in the path: leave it out")
	case !req.BeatAt.IsZero():
		return refuse("beat_at", "is set by the store: leave it out")
	case req.Stale:
		return refuse("stale", "is set by the store: leave it out")
	}
	worker := req.Store()
	worker.Name = r.PathValue("name")
	ctx, cancel := a.within(r.Context())
	defer cancel()
	if _, err := paced(ctx, a, w, func() (struct{}, error) { return struct{}{}, registry.Beat(ctx, worker) }); err != nil {
		return named(err, "worker", "name")
	}
	return done(w)
}

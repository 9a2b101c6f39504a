package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/seed-ed332417/jq/internal/graph"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *API) groups(w *exchange, r *http.Request) error {
	keeper, err := able[store.GroupKeeper](r.Context(), a)
	if err != nil {
		return err
	}
	filter, page, err := groupQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	return a.showBrief(w, r, func(ctx context.Context) (any, error) {
		found, err := keeper.Groups(ctx, filter, page)
		return wire.Groups{Groups: wire.Listed(found.Groups), Next: found.Next}, err
	})
}

// groupQuery reads the query parameters of a listing of groups.
func groupQuery(raw string) (store.GroupFilter, store.Page, error) {
	var f store.GroupFilter
	openFor, page := "", store.Page{Limit: 100}
	err := parameters(raw, map[string]*string{"name": &f.Name, "open_for": &openFor}, nil, &page)
	if err == nil && openFor != "" {
		if f.OpenFor, err = time.ParseDuration(openFor); err != nil {
			err = refuse("open_for", `must be a duration such as "1h"`)
		}
	}
	return f, page, err
}

// group answers with a group, how many jobs it has, and the graph around it.
func (a *API) group(w *exchange, r *http.Request) error {
	keeper, err := able[store.GroupKeeper](r.Context(), a)
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	return a.show(w, r, func(ctx context.Context) (any, error) {
		if err := store.CheckGroup(name); err != nil {
			return nil, named(err, "group", "name")
		}
		found, err := keeper.Groups(ctx, store.GroupFilter{Name: name}, store.Page{Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(found.Groups) == 0 {
			return nil, store.ErrNotFound
		}
		around, err := graph.OfGroup(ctx, a.as(ctx), name)
		return wire.GroupDetailOf(found.Groups[0], around), err
	})
}

// graph answers with the graph around a job.
func (a *API) graph(w *exchange, r *http.Request) error {
	id, err := number("id", r.PathValue("id"))
	if err != nil {
		return err
	}
	return a.show(w, r, func(ctx context.Context) (any, error) { return graph.OfJob(ctx, a.as(ctx), id) })
}

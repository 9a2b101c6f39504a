package httpapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *API) jobs(w http.ResponseWriter, r *http.Request) error {
	filter, page, err := query(r.URL.RawQuery)
	if err != nil {
		return err
	}
	ctx, cancel := a.within(r.Context())
	defer cancel()
	answer, err := a.listed(ctx, filter, page)
	if err != nil {
		return named(err, "states", "state")
	}
	return a.answer(w, http.StatusOK, answer)
}

func (a *API) list(ctx context.Context, req wire.List) (wire.Jobs, error) {
	return a.listed(ctx, req.Filter.Store(), store.Page{Limit: limitOr(req.Limit, 100), Cursor: req.Cursor})
}

func (a *API) listed(ctx context.Context, filter store.Filter, page store.Page) (wire.Jobs, error) {
	found, err := a.store.List(ctx, filter, page)
	if err != nil {
		return wire.Jobs{}, err
	}
	answer := wire.JobsOf(found.Jobs)
	answer.Next = found.Next
	return answer, nil
}

func (a *API) count(ctx context.Context, req wire.Count) (wire.Counts, error) {
	counts, err := a.store.Count(ctx, req.Filter.Store())
	if err != nil {
		return wire.Counts{}, err
	}
	return wire.CountsOf(counts), nil
}

func (a *API) stats(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := a.within(r.Context())
	defer cancel()
	answer, err := a.count(ctx, wire.Count{})
	if err != nil {
		return err
	}
	return a.answer(w, http.StatusOK, answer)
}

func (a *API) job(w http.ResponseWriter, r *http.Request) error {
	id, err := number("id", r.PathValue("id"))
	if err != nil {
		return err
	}
	ctx, cancel := a.within(r.Context())
	defer cancel()
	detail, err := a.store.Get(ctx, id)
	if err != nil {
		return err
	}
	return a.answer(w, http.StatusOK, wire.DetailOf(detail))
}

// alive says that the process answers.
func (a *API) alive(w http.ResponseWriter, _ *http.Request) error {
	return a.answer(w, http.StatusOK, health{Status: "alive"})
}

// ready says that the store answers, and names what people must look at all the same. Anybody may ask, so it names no more than that.
func (a *API) ready(w http.ResponseWriter, r *http.Request) error {
	if a.life.Err() != nil {
		return store.ErrClosed
	}
	ctx, cancel := a.within(r.Context())
	defer cancel()
	if _, err := a.store.Count(ctx, store.Filter{IDs: []int64{0}}); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	answer := health{Status: "ready"}
	if warner, ok := a.store.(store.Warner); ok {
		found, err := warner.Warnings(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
		}
		for _, f := range found {
			answer.Warnings = append(answer.Warnings, f.Name)
		}
	}
	return a.answer(w, http.StatusOK, answer)
}

type health struct {
	Status   string   `json:"status"`
	Warnings []string `json:"warnings,omitempty"`
}

func (a *API) metrics(w http.ResponseWriter, r *http.Request) error {
	if a.options.Metrics == nil {
		return noMetrics
	}
	a.allow(w)
	a.options.Metrics.ServeHTTP(w, r)
	return nil
}

package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

func (a *API) activity(w *exchange, r *http.Request) error {
	reader, err := able[store.ActivityReader](r.Context(), a)
	if err != nil {
		return err
	}
	filter, err := activityQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	return a.showBrief(w, r, func(ctx context.Context) (any, error) {
		page, err := reader.Activity(ctx, filter)
		return page, named(err, "queues", "queue")
	})
}

// activityQuery reads the query parameters of activity.
func activityQuery(raw string) (store.ActivityFilter, error) {
	var f store.ActivityFilter
	var by string
	last, step := "1h", ""
	values, err := url.ParseQuery(raw)
	if err == nil { // a query that cannot be read is refused below
		f.Queues = values["queue"]
		values.Del("queue")
		raw = values.Encode()
	}
	if err := parameters(raw, map[string]*string{"kind": &f.Kind, "last": &last, "step": &step, "by": &by}, nil, nil); err != nil {
		return f, err
	}
	f.By = store.ActivityBy(by)
	if f.Last, err = time.ParseDuration(last); err != nil {
		return f, refuse("last", `must be a duration such as "1h"`)
	}
	if step == "" {
		return f, nil
	}
	if f.Step, err = time.ParseDuration(step); err != nil || f.Step == 0 {
		return f, refuse("step", `must be a duration such as "1m"`)
	}
	return f, nil
}

// Activity adds up only the bearer's queues.
func (v *view) Activity(ctx context.Context, filter store.ActivityFilter) (store.ActivityPage, error) {
	if err := filter.Check(); err != nil {
		return store.ActivityPage{}, err
	}
	if len(v.bearer.Queues) == 0 {
		return v.of.(store.ActivityReader).Activity(ctx, filter)
	}
	own := both(filter.Queues, v.bearer.Queues)
	filter.Queues = own
	if len(own) == 0 {
		filter.Queues = v.bearer.Queues
	}
	page, err := v.of.(store.ActivityReader).Activity(ctx, filter)
	if len(own) == 0 {
		page.Spans = nil // the call was for the store's time
	}
	return page, err
}

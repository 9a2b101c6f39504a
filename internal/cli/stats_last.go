package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/wire"
)

// activity prints what servers did, a row for each queue and kind.
func (a *app) activity(ctx context.Context, s jq.Store, last time.Duration, asJSON bool) error {
	page, err := jq.NewClient(s, nil).Activity(ctx, jq.ActivityFilter{Last: last, By: jq.ByKind})
	switch {
	case err != nil:
		return err
	case asJSON:
		return wire.Encode(a.out, page)
	case len(page.Spans) == 0:
		_, err := fmt.Fprintf(a.out, "no server did anything since %s\n", moment(page.From))
		return err
	}
	table := newTable(a.out)
	row(table, "queue", "kind", "succeeded", "retried", "dead", "snoozed", "recovered", "expired", "stale",
		"wait p50", "wait p95", "run p50", "run p95")
	for _, one := range page.Spans {
		row(table, one.Queue, one.Kind, one.Succeeded, one.Retried, one.Dead, one.Snoozed, one.Recovered, one.Expired, one.Stale,
			quantile(one.Waited, 0.5), quantile(one.Waited, 0.95), quantile(one.Ran, 0.5), quantile(one.Ran, 0.95))
	}
	return table.Flush()
}

// quantile formats an estimate, which is true to one digit or two, or nothing if nothing was counted.
func quantile(h jq.Histogram, q float64) string {
	if h.Total() == 0 {
		return ""
	}
	d := h.Quantile(q)
	unit := time.Duration(1)
	for unit*100 <= d && unit < time.Second {
		unit *= 10
	}
	return d.Round(unit).String()
}

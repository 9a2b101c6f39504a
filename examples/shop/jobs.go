package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed-ed332417/jq"
)

// The payloads of the jobs. Whoever may list jobs sees them, so Card is the bank's token for a card, never its number.
type (
	Pay struct {
		Order, Cents int64
		Card         string
	}
	Pack    struct{ Order int64 }
	Invoice struct{ Order int64 }
	Ship    struct{ Order int64 }
	Report  struct{}
)

func (Pay) Kind() string     { return "pay" }
func (Pack) Kind() string    { return "pack" }
func (Invoice) Kind() string { return "invoice" }
func (Ship) Kind() string    { return "ship" }
func (Report) Kind() string  { return "report" }

// Defaults of a payment: about a day of retries, because banks can be away for long.
func (Pay) Defaults() jq.EnqueueOptions {
	return jq.EnqueueOptions{MaxRetries: new(40), Backoff: jq.Backoff{Base: time.Second, Cap: time.Hour}}
}

// books is what the handlers need of the table of the orders. Tests of the handlers bring another one.
type books interface {
	finish(ctx context.Context, run *jq.Run, done order) error
	refuse(ctx context.Context, id int64) error
	sold(ctx context.Context, from, until time.Time) (sales, error)
}

// A worker has what the handlers need.
type worker struct {
	client *jq.Client
	books  books
	bank   bank
}

func (w *worker) handlers() *jq.Handlers {
	var h jq.Handlers
	h.Use(logged)
	jq.Handle(&h, w.pay)
	jq.Handle(&h, w.pack)
	jq.Handle(&h, w.invoice)
	jq.Handle(&h, w.ship)
	jq.Handle(&h, w.report)
	return &h
}

// logged logs each run that succeeds. The server logs those that fail.
func logged(next jq.HandlerFunc) jq.HandlerFunc {
	return func(ctx context.Context, run *jq.Run) error {
		err := next(ctx, run)
		if err == nil {
			slog.InfoContext(ctx, "done", "job", run.ID, "kind", run.Kind, "attempt", run.Attempts)
		}
		return err
	}
}

// pay charges the card. After a crash it runs again, and the bank, which knows the order by its key, does not charge it again.
func (w *worker) pay(ctx context.Context, run *jq.Run, p Pay) error {
	err := w.bank.charge(ctx, p)
	switch {
	case errors.Is(err, errRefused):
		return w.giveUp(ctx, run, p, err)
	case err != nil:
		return err // jq tries again, with longer and longer waits
	}
	return w.books.finish(ctx, run, order{ID: p.Order, State: paid})
}

// giveUp ends an order whose card was refused. The jobs that wait for the payment are cancelled, or they would wait for ever.
func (w *worker) giveUp(ctx context.Context, run *jq.Run, p Pay, why error) error {
	if err := w.books.refuse(ctx, p.Order); err != nil {
		return err
	}
	if _, err := w.client.CancelAll(ctx, jq.Filter{WaitsFor: run.ID}); err != nil {
		return err
	}
	return jq.Never(why)
}

func (w *worker) pack(_ context.Context, run *jq.Run, p Pack) error {
	return run.SetResult(fmt.Sprintf("parcel-%06d", p.Order))
}

func (w *worker) invoice(_ context.Context, run *jq.Run, i Invoice) error {
	return run.SetResult(fmt.Sprintf("invoice-%06d", i.Order))
}

// ship gets what the jobs have returned for which it has waited: those that pack and write the invoice, in this order.
func (w *worker) ship(ctx context.Context, run *jq.Run, s Ship) error {
	before, err := run.WaitedFor(ctx)
	if err != nil {
		return err
	}
	parcel, err := jq.Result[string](before[0])
	if err != nil {
		return err
	}
	invoice, err := jq.Result[string](before[1])
	if err != nil {
		return err
	}
	return w.books.finish(ctx, run, order{ID: s.Order, State: shipped, Parcel: parcel, Invoice: invoice})
}

// report adds up the 24 hours before the time of the schedule. If the servers were away then, that time is past.
func (w *worker) report(ctx context.Context, run *jq.Run, _ Report) error {
	until := run.EnqueuedAt // of a report that somebody has enqueued by hand
	if at := run.Scheduled(); at != nil {
		until = at.For
	}
	day, err := w.books.sold(ctx, until.Add(-24*time.Hour), until)
	if err != nil {
		return err
	}
	slog.InfoContext(ctx, "report", "until", until, "orders", day.Orders, "cents", day.Cents)
	return run.SetResult(day)
}

// putSchedules adds the nightly report. Each start does so: it changes nothing unless Version is higher than before.
func putSchedules(ctx context.Context, client *jq.Client) error {
	job, err := client.NewJob(Report{}, &jq.EnqueueOptions{Queue: "reports"})
	if err != nil {
		return err
	}
	_, err = client.PutSchedule(ctx, jq.Schedule{
		Name: "nightly-report", Cron: "0 2 * * *", Timezone: "Europe/Berlin", Job: job, Owner: "shop", Version: 1,
	})
	return err
}

// Fencing shows how an external system refuses the late write of a worker that lost its lease: it remembers the greatest
// token that it has seen for each job.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// Charge is a payment that must not be made twice.
type Charge struct{ Cents int }

func (Charge) Kind() string { return "charge" }

// A Ledger stands for any service outside the queue's database.
type Ledger struct {
	greatest map[int64]int64 // token by job
	charged  map[int64]int   // cents by job
}

var errOld = errors.New("an older run: refused")

// Charge records the charge of a job, unless a newer run of the job has called it before.
func (l *Ledger) Charge(lease jq.Lease, cents int) error {
	if lease.Token < l.greatest[lease.ID] {
		return errOld
	}
	l.greatest[lease.ID] = lease.Token
	l.charged[lease.ID] = cents
	return nil
}

func main() {
	if err := story(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// story stops worker A in the middle of a job, and lets it continue after worker B has run the job. Time is simulated.
func story(ctx context.Context) error {
	now := clock.NewMock()
	store := jq.NewMemory(&jq.MemoryOptions{Clock: now})
	defer store.Close()
	ledger := &Ledger{greatest: map[int64]int64{}, charged: map[int64]int{}}
	if _, err := jq.NewClient(store, nil).Enqueue(ctx, Charge{Cents: 100}, nil); err != nil {
		return err
	}

	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, c Charge) error {
		if run.Worker == "A" {
			fmt.Printf("A: claimed the job under token %d, and falls silent\n", run.Token)
			now.Add(time.Minute)
			if err := recoverAndRunAs(ctx, "B", store, &handlers, now); err != nil {
				return err
			}
			fmt.Println("A: is back, and knows nothing of all that")
		}
		err := ledger.Charge(jq.RunFrom(ctx).Lease(), c.Cents)
		fmt.Printf("%s: charges %d cents under token %d: %v\n", run.Worker, c.Cents, run.Token, err)
		return err
	})
	if err := runAs(ctx, "A", store, &handlers); err != nil {
		return err
	}
	fmt.Printf("The ledger: %v\n", ledger.charged)
	return nil
}

// recoverAndRunAs does what any server does: it recovers expired leases and claims due jobs.
func recoverAndRunAs(ctx context.Context, worker string, store jq.Store, handlers *jq.Handlers, now *clock.Mock) error {
	recovered, err := store.RecoverExpiredLeases(ctx, contract.RecoverRequest{Limit: 1})
	if err != nil {
		return err
	}
	fmt.Printf("%s: recovers a lease; the job's token is %d now\n", worker, recovered[0].Token)
	now.Set(recovered[0].Next)
	return runAs(ctx, worker, store, handlers)
}

func runAs(ctx context.Context, worker string, store jq.Store, handlers *jq.Handlers) error {
	jobs, err := store.FetchAndClaim(ctx, contract.ClaimRequest{Queue: "default", Limit: 1, Worker: worker, TTL: 30 * time.Second})
	if err != nil {
		return err
	}
	outcome, err := handlers.RunJob(ctx, store, jobs[0])
	if err != nil {
		return err
	}
	fmt.Printf("%s: the store answers %q; the job has %s\n", worker, outcome.Status, outcome.State)
	return nil
}

package server

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// The jobs of a server that dies right after its claim are recovered within the lease, the interval and the grace, and another server
// finishes them: R17. The store refuses what the dead one would write: R20.
func TestCrashAfterTheClaim(t *testing.T) {
	const grace = 3 * time.Second
	inWorld(t, func(w *world) {
		g := w.gate()
		var mu sync.Mutex // guards causes
		var causes []error
		w.handlers["work"] = func(ctx context.Context, r *Run) error {
			if r.Job.Worker == "dead" {
				<-ctx.Done()
				r.SetResult([]byte(`"dead"`))
				mu.Lock()
				defer mu.Unlock()
				causes = append(causes, context.Cause(ctx))
				return nil // whatever is offered comes too late: see below
			}
			r.SetResult(fmt.Appendf(nil, "%q", r.Job.Worker))
			return work(time.Second)(ctx, r)
		}
		ids := w.enqueue(7, "work")
		dead := w.start(Options{Name: "dead", Slots: 5, Claim: ClaimOptions{Buffer: 2}}, g)
		g.away()
		other := w.start(Options{Name: "other", Recovery: RecoveryOptions{Grace: grace}})
		w.wait(50 * time.Second)
		assert.Equal(w, []error{ErrLeaseUnknown, ErrLeaseUnknown, ErrLeaseUnknown, ErrLeaseUnknown, ErrLeaseUnknown}, causes)
		late := DefaultLease + spreadMost(DefaultRecoveryInterval) + grace
		for _, id := range ids {
			j := w.job(id)
			require.Equal(w, store.Succeeded, j.State)
			require.Equal(w, `"other"`, string(j.Result))
			require.Len(w, j.History, 2)
			assert.Equal(w, store.EndExpired, j.History[0].Ending)
			assert.WithinRange(w, j.History[0].EndedAt, dawn.Add(DefaultLease+grace), dawn.Add(late))
			assert.WithinRange(w, j.History[1].StartedAt, j.History[0].EndedAt, j.History[0].EndedAt.Add(time.Second+DefaultPollInterval+firstPause))
			assert.Equal(w, 1, j.Retries)
			assert.Equal(w, 2, j.Attempts)
		}
		g.back()
		w.wait(time.Minute)
		for _, id := range ids {
			assert.Equal(w, `"other"`, string(w.job(id).Result))
		}
		warned := map[any]int{}
		for _, line := range w.said("jq: stale write refused") {
			warned[line["job"]]++
			assert.Equal(w, int64(1), line["token"])
			assert.Equal(w, int64(3), line["current_token"]) // after the recovery and the claim
		}
		assert.Len(w, warned, 7)
		for id, n := range warned {
			assert.Equal(w, 1, n, "job %d", id)
		}
		assert.Equal(w, Stats{Slots: 5}, dead.Stats())
		w.stop(dead)
		w.stop(other)
	})
}

// spreadMost returns the longest interval between two recoveries.
func spreadMost(d time.Duration) time.Duration { return d * 11 / 10 }

// A job that kills its server at every run becomes dead after MaxRetries and one runs: C2, C3.
func TestJobThatKillsItsServer(t *testing.T) {
	inWorld(t, func(w *world) {
		runs := 0
		var g *gate
		w.handlers["deadly"] = func(ctx context.Context, _ *Run) error {
			runs++
			g.away()
			<-ctx.Done()
			return ctx.Err()
		}
		id := w.enqueue(1, "deadly", func(n *store.NewJob) { n.MaxRetries = 3 })[0]
		keeper := w.start(Options{Queues: map[string]QueueOptions{"another": {}}})
		for w.job(id).Phase() != store.Dead && runs < 10 {
			g = w.gate()
			s := w.start(Options{Recovery: RecoveryOptions{Interval: -1}}, g)
			w.wait(2 * time.Minute)
			require.Error(w, s.Stop(w.Context()))
		}
		j := w.job(id)
		assert.Equal(w, 4, runs)
		assert.Equal(w, 4, j.Attempts)
		assert.Equal(w, store.LeaseExpired.Reason, j.Error)
		w.stop(keeper)
	})
}

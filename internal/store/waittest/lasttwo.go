// Package waittest ends the last two jobs that another one waits for at the same moment, many times, while processes are killed.
package waittest

import (
	"bufio"
	"context"
	crypto "crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/store"
)

// A Store is one in whose transactions a caller may enqueue and finish jobs.
type Store interface {
	store.Store
	InTx(tx store.Tx) store.Writer
}

// A DB begins transactions for a Store.
type DB interface {
	BeginTx(ctx context.Context, o *sql.TxOptions) (*sql.Tx, error)
}

// A Child is a process that runs [EndTogether].
type Child struct {
	*exec.Cmd
	Out *bufio.Scanner // of its standard output
}

// ttl of the leases, which the processes leave behind.
const ttl = 50 * time.Millisecond

// EndTogether enqueues two jobs and one that waits for both, by their ids or as a group, and acks the two at the same moment, again and
// again. Some of these calls are in transactions of callers, and sometimes the waiting job is enqueued while the others end. It prints a line
// for each job that waits. It returns the first error, also that of the context.
func EndTogether(ctx context.Context, s Store, db DB, out io.Writer) error {
	for {
		pair := store.NewJob{Queue: "first", Kind: "k", Payload: []byte(`1`), MaxRetries: 1000}
		if rand.IntN(2) == 0 {
			pair.Group = crypto.Text()
		}
		added, err := s.Enqueue(ctx, store.EnqueueRequest{Jobs: []store.NewJob{pair, pair}})
		if err != nil {
			return err
		}
		waits := store.NewJob{Queue: "then", Kind: "k", Payload: []byte(`1`), After: []store.Wait{{ID: added[0].ID}, {ID: added[1].ID}}}
		if pair.Group != "" {
			waits.After = []store.Wait{{Group: pair.Group}}
		}
		await := func() error {
			var then []store.Enqueued
			if err := sometimesInTx(ctx, s, db, func(w store.Writer) (err error) {
				then, err = w.Enqueue(ctx, store.EnqueueRequest{Jobs: []store.NewJob{waits}})
				return err
			}); err != nil {
				return err
			}
			_, err := fmt.Fprintln(out, then[0].ID)
			return err
		}
		late := rand.IntN(3) == 0
		if !late {
			if err := await(); err != nil {
				return err
			}
		}
		jobs, err := s.FetchAndClaim(ctx, store.ClaimRequest{Queue: "first", Limit: 2, RetryQuota: 2, Worker: "w", TTL: ttl})
		if err != nil {
			return err
		}
		var both sync.WaitGroup
		for _, j := range jobs {
			both.Go(func() {
				_ = sometimesInTx(ctx, s, db, func(w store.Writer) error { // a stale lease: another process has recovered the job
					_, err := w.Ack(ctx, []store.Ack{{Lease: j.Lease()}})
					return err
				})
			})
		}
		if late {
			err = await()
		}
		both.Wait()
		if err != nil {
			return err
		}
		if _, err := s.RecoverExpiredLeases(ctx, store.RecoverRequest{Limit: store.MaxItems}); err != nil {
			return err
		}
	}
}

func sometimesInTx(ctx context.Context, s Store, db DB, call func(w store.Writer) error) error {
	if rand.IntN(3) > 0 {
		return call(s)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := call(s.InTx(tx)); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return errors.Join(err, ctx.Err()) // once the context has ended the transaction, Commit may say only that it is done
	}
	return nil
}

// Killed runs two children at a time and kills both after a random number of jobs, in so many rounds or more, until they have enqueued so
// many jobs that wait. It returns the ids of these.
func Killed(t *testing.T, start func() Child, rounds, jobs int) (seen map[int64]bool) {
	t.Helper()
	seen = map[int64]bool{}
	read := func(c Child) bool {
		var id int64
		if !c.Out.Scan() {
			return false
		}
		_, err := fmt.Sscan(c.Out.Text(), &id)
		require.NoError(t, err)
		seen[id] = true
		return true
	}
	for round := 0; round < rounds || len(seen) < jobs; round++ {
		first, second := start(), start()
		for n := len(seen) + jobs/rounds/4 + rand.IntN(jobs/rounds/2); len(seen) < n; {
			require.True(t, read(first), "a process has ended by itself")
		}
		for _, c := range []Child{first, second} {
			require.NoError(t, c.Process.Signal(syscall.SIGKILL))
			for read(c) {
			}
			_ = c.Wait()
			require.Equal(t, "signal: killed", c.ProcessState.String(), "how a process has ended")
		}
	}
	return seen
}

// Check does what is left to do, and asserts that each job that waited became ready once.
func Check(t *testing.T, s Store, seen map[int64]bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	drain := func(queue string) (ids []int64) {
		jobs, err := s.FetchAndClaim(ctx, store.ClaimRequest{Queue: queue, Limit: store.MaxItems, RetryQuota: store.MaxItems, Worker: "w", TTL: time.Minute})
		require.NoError(t, err)
		acks := make([]store.Ack, len(jobs))
		for i, j := range jobs {
			acks[i] = store.Ack{Lease: j.Lease()}
			ids = append(ids, j.ID)
		}
		if len(acks) == 0 {
			return nil
		}
		outcomes, err := s.Ack(ctx, acks)
		require.NoError(t, err)
		for _, o := range outcomes {
			require.Equal(t, store.StatusOK, o.Status)
		}
		return ids
	}
	live := func() (n int) {
		counts, err := s.Count(ctx, store.Filter{States: []store.State{store.Blocked, store.InFlight, store.Ready, store.Retrying}})
		require.NoError(t, err)
		for _, q := range counts.Queues {
			for _, jobs := range q.Jobs {
				n += int(jobs)
			}
		}
		return n
	}
	ran := map[int64]int{}
	for live() > 0 {
		require.NoError(t, ctx.Err(), "jobs still wait after a minute")
		_, err := s.RecoverExpiredLeases(ctx, store.RecoverRequest{Limit: store.MaxItems})
		require.NoError(t, err)
		drain("first")
		_, err = s.Settle(ctx, store.MaxItems)
		require.NoError(t, err)
		for _, id := range drain("then") {
			ran[id]++
		}
	}
	assert.GreaterOrEqual(t, len(ran), len(seen), "what was acknowledged has run")
	for id := range seen {
		assert.Equal(t, 1, ran[id], "how often job %d ran", id)
	}
	figures.Print(t, "%d jobs of which the last two that they waited for ended at once: each ran once", len(ran))
	figures.Count(t, "last-twos", len(ran))
}

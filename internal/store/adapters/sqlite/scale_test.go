package sqlite

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	driver "modernc.org/sqlite"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
)

// crowd adds n jobs in the state, in one statement.
func crowd(t *testing.T, s *Store, n int, state store.State, priority int, due, finished, lease any) {
	t.Helper()
	_, err := s.DB().ExecContext(t.Context(), `
		WITH RECURSIVE numbers(n) AS (
			SELECT 1
			UNION ALL
			SELECT n + 1 FROM numbers WHERE n < ?1
		)
		INSERT INTO jobs (
			state, queue, kind, priority, run_at, rules,
			unique_key, unique_for, enqueued_at, trace, payload, finished_at, lease_expires_at)
		SELECT ?2, 'q', 'k', ?3, ?4 + n, '3 1000000 60000000 0 0', '', 0, ?4, '', '{"user":12345}', ?5 + n, ?6 + n
		FROM numbers`,
		n, string(state), priority, due, finished, lease)
	require.NoError(t, err)
}

var errMeasured = errors.New("measured")

// pages is how many pages of the file a call visits. What it does is undone.
func pages(t *testing.T, s *Store, run func(*txn) error) int {
	t.Helper()
	visited := 0
	look := func(sign int) {
		require.NoError(t, s.writer.kept.Raw(func(c any) error {
			for _, op := range []driver.DBStatusOp{driver.DBStatusCacheHit, driver.DBStatusCacheMiss} {
				n, _, err := c.(driver.DBStatus).Status(op, false)
				if err != nil {
					return err
				}
				visited += sign * n
			}
			return nil
		}))
	}
	err := s.writer.do(t.Context(), load{}, func(tx *txn) error {
		look(-1)
		err := run(tx)
		look(+1)
		return errors.Join(err, errMeasured)
	})
	require.ErrorIs(t, err, errMeasured)
	return visited
}

// operateMatching finds jobs and applies do to them, all in the transaction of the writer.
func operateMatching(
	t *txn, filter store.Filter, limit int, can string, do func(*txn, *store.Record) (store.Outcome, error),
) ([]store.Outcome, error) {
	ids, err := t.firstOf(filter, limit, can)
	if err != nil {
		return nil, err
	}
	return t.operateFound(filter, ids, limit, can, do)
}

// What a call costs must not grow with jobs that it has nothing to do with, nor with how many more of its own wait.
func TestCostDoesNotGrowWithTheCrowd(t *testing.T) {
	if race.Enabled {
		t.Skip("a million jobs of each sort take minutes under the race detector: go test without it runs this")
	}
	const many = 1_000_000
	clk := newClock()
	now, day := clk.Now().UnixMicro(), (24 * time.Hour).Microseconds()
	costs := map[string]func(*txn) error{
		"Claim":   func(t *txn) error { _, _, err := t.claim(claimOf(100), &limits{}); return err },
		"Recover": func(t *txn) error { _, err := t.recover(store.RecoverRequest{Limit: 100}); return err },
		"Prune": func(t *txn) error {
			prune := store.Filter{States: []store.State{store.Succeeded}, FinishedFor: 24 * time.Hour}
			_, err := operateMatching(t, prune, 100, `finished_at IS NOT NULL`, (*txn).delete)
			return err
		},
		"PruneMany": func(t *txn) error {
			prune := store.Filter{States: []store.State{store.Cancelled}, FinishedFor: 24 * time.Hour, Unneeded: true}
			_, err := operateMatching(t, prune, 100, `finished_at IS NOT NULL`, (*txn).delete)
			return err
		},
		"List": func(t *txn) error { _, err := t.list(store.Filter{}, store.Page{Limit: 100}, 0); return err },
		"ListOfQueue": func(t *txn) error {
			_, err := t.list(store.Filter{Queue: "q"}, store.Page{Limit: 100}, 0)
			return err
		},
		"ListOfDead": func(t *txn) error {
			_, err := t.list(store.Filter{Queue: "q", States: []store.State{store.Dead}}, store.Page{Limit: 100}, 0)
			return err
		},
		"Queues":    func(t *txn) error { _, err := t.queues(); return err },
		"OldestDue": func(t *txn) error { _, err := t.oldestDue(); return err },
	}
	fill := func(n int) *Store {
		s := openAt(t, newPath(t), &Options{Clock: clk, Synchronous: Normal})
		crowd(t, s, n, store.Cancelled, 0, now-2*day, now-2*day, nil)   // cancelled long ago
		crowd(t, s, n, store.Ready, 9, now+day, nil, nil)               // for later, before all others
		crowd(t, s, n, store.Ready, 0, now-day, nil, nil)               // waiting
		crowd(t, s, n, store.Succeeded, 0, now-day, now-day/2, nil)     // finished
		crowd(t, s, 200, store.Succeeded, 0, now-2*day, now-2*day, nil) // finished long ago
		crowd(t, s, 200, store.Failed, 0, now-2*day, now-2*day, nil)    // dead
		crowd(t, s, 200, store.InFlight, 0, now-2*day, nil, now-day)    // expired
		crowd(t, s, 1000, store.InFlight, 0, now-2*day, nil, now+day)   // running
		_, err := s.Enqueue(t.Context(), newJobs(1))                    // so that the writer has its connection
		require.NoError(t, err)
		return s
	}
	few, lots := fill(many/20), fill(many)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			for _, s := range []*Store{few, lots} {
				_, err := s.DB().Exec(`ANALYZE`)
				require.NoError(t, err)
				s.writer.disconnect() // a new connection knows what ANALYZE has found
				_, err = s.Enqueue(t.Context(), newJobs(1))
				require.NoError(t, err)
			}
		}
		for name, run := range costs {
			a, b := pages(t, few, run), pages(t, lots, run)
			// A tree twenty times as large is one level higher.
			assert.LessOrEqual(t, b, a+a/2+20, "pages visited by %s among %d of each sort, against %d among a twentieth (analyzed: %v)", name, many, a, analyzed)
			figures.Print(t, "%s visits %d pages among %d jobs of each sort and %d among %d (analyzed: %v)", name, a, many/20, b, many, analyzed)
		}
	}
}

// The row of a worker may be large: it has the names of its queues. A heartbeat must not read those of other workers.
func TestHeartbeatReadsNoOtherWorkers(t *testing.T) {
	t.Parallel()
	s := openAt(t, newPath(t), nil)
	beat := func(name string) store.Worker {
		w := store.Worker{Name: name, Slots: 1, StaleAfter: time.Minute}
		for i := range 100 {
			w.Queues = append(w.Queues, fmt.Sprintf("%s%03d", strings.Repeat("q", 240), i))
		}
		return w
	}
	crowded := func(from, to int) int {
		for i := from; i < to; i++ {
			require.NoError(t, s.Beat(t.Context(), beat(fmt.Sprintf("other %d", i))))
		}
		return pages(t, s, func(tx *txn) error { return tx.beat(beat("one")) })
	}
	few, many := crowded(0, 20), crowded(20, 100)
	assert.LessOrEqual(t, many, few+few/2+20, "pages that a heartbeat visits among 100 workers; among 20 it visits %d", few)
}

// Where many jobs have finished, the first ones are found among the next jobs or, if too few are there, elsewhere.
func TestFirstOfManyFinishedJobs(t *testing.T) {
	t.Parallel()
	clk := newClock()
	s := openAt(t, newPath(t), &Options{Clock: clk})
	long := clk.Now().Add(-48 * time.Hour).UnixMicro()
	crowd(t, s, 2, store.Succeeded, 0, long, long+int64(time.Hour/time.Microsecond), nil)
	crowd(t, s, nextJobs, store.Ready, 0, long, nil, nil)
	crowd(t, s, nextJobs, store.Succeeded, 0, long, long, nil)
	for _, filter := range []store.Filter{{}, {Queue: "q"}, {States: []store.State{store.Succeeded}, Kind: "k"}} {
		for after, want := range map[int64][]int64{0: {1, 2, nextJobs + 3}, 2: {nextJobs + 3, nextJobs + 4, nextJobs + 5}, nextJobs + 3: {nextJobs + 4, nextJobs + 5, nextJobs + 6}} {
			filter.FinishedFor, filter.After = 24*time.Hour, after
			require.ErrorIs(t, s.writer.do(t.Context(), load{}, func(tx *txn) error {
				found, err := tx.firstOf(filter, 3, `finished_at IS NOT NULL`)
				require.NoError(t, err)
				assert.Equal(t, want, found, "%+v", filter)
				return errMeasured
			}), errMeasured)
		}
	}
}

package sqlite

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// kept is what the tables have that calls write together.
func kept(t *testing.T, s *Store) string {
	t.Helper()
	var all strings.Builder
	for _, table := range []string{"jobs", "groups", "group_runs", "waits", "ends"} {
		rows, err := s.DB().Queryx(`SELECT * FROM ` + table)
		require.NoError(t, err)
		for rows.Next() {
			row, err := rows.SliceScan()
			require.NoError(t, err)
			fmt.Fprintln(&all, table, row)
		}
		require.NoError(t, rows.Err())
	}
	return all.String()
}

// When the disk is full, for one, SQLite itself ends the transaction of all, as these triggers do. Whatever the call wrote then would be committed
// by itself, although its caller hears that nothing was applied.
func TestCallWritesNothingAfterALostTransaction(t *testing.T) {
	t.Parallel()
	const finishing = `UPDATE ON jobs WHEN OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL`
	all := func(do func(*txn, *store.Record) (store.Outcome, error)) func(*txn) error {
		return func(t *txn) error { _, err := operateMatching(t, store.Filter{Queue: "q"}, 1, `TRUE`, do); return err }
	}
	for name, k := range map[string]struct {
		prepare string // what becomes of the first job beforehand
		lost    string // where
		run     func(*txn) error
	}{
		"Enqueue": {``, `INSERT ON jobs`, func(t *txn) error {
			_, err := t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{grouped()}})
			return err
		}},
		"Await": {``, `INSERT ON waits`, func(t *txn) error {
			waiting := newJob()
			waiting.After = []store.Wait{{ID: 2}}
			_, err := t.enqueue(store.EnqueueRequest{Jobs: []store.NewJob{waiting}})
			return err
		}},
		"Ack": {``, finishing, func(t *txn) error {
			_, err := t.ack([]store.Ack{{Lease: store.Lease{ID: 1, Token: 1}, Result: []byte(`1`)}})
			return err
		}},
		"Recover": {``, finishing, func(t *txn) error { _, err := t.recover(store.RecoverRequest{Limit: 1}); return err }},
		"Cancel":  {`state = 'ready', lease_expires_at = NULL`, finishing, all((*txn).cancel)},
		"Tell":    {`state = 'ready', lease_expires_at = NULL`, finishing + ` AND OLD.id = 3`, all((*txn).cancel)},
		"Requeue": {`state = 'cancelled', lease_expires_at = NULL, finished_at = 1, ended_at = 1`, `UPDATE OF result ON jobs`, all((*txn).requeue)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := newClock()
			s := openAt(t, newPath(t), &Options{Clock: clk})
			waiting := grouped()
			waiting.After = []store.Wait{{Item: 0}}
			_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{grouped(), grouped(), waiting}})
			require.NoError(t, err)
			_, err = s.FetchAndClaim(t.Context(), claimOf(1))
			require.NoError(t, err)
			clk.Add(time.Hour)
			if k.prepare != "" {
				_, err = s.DB().Exec(`UPDATE jobs SET ` + k.prepare + ` WHERE id = 1`)
				require.NoError(t, err)
			}
			_, err = s.DB().Exec(`CREATE TRIGGER lost BEFORE ` + k.lost + ` BEGIN SELECT RAISE(ROLLBACK, 'boom'); END`)
			require.NoError(t, err)
			before := kept(t, s)
			run := func(t *txn) error {
				t.groups = groups{}
				if err := k.run(t); err != nil {
					return err
				}
				_, err := t.follow(settledAtOnce)
				return err
			}
			beat := func(t *txn) error { return t.beat(store.Worker{Name: "w", StaleAfter: time.Minute}) }
			for _, err := range []error{s.writer.do(t.Context(), load{}, run), together(t, s, beat, run, beat)[1]} {
				assert.ErrorIs(t, err, store.ErrUnavailable)
				assert.ErrorContains(t, err, "boom")
				assert.Equal(t, before, kept(t, s))
			}
		})
	}
}

func grouped() store.NewJob {
	n := newJob()
	n.Group, n.MaxRetries = "g", 0
	return n
}

package postgres

import (
	"database/sql"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
)

// TestNothingStaysHidden lets transactions of callers end in any order while time passes and others claim, and then wants every
// job that is there from the store that has looked all the time. Nothing else writes in the server: what other tests do would
// keep its numbers moving.
func TestNothingStaysHidden(t *testing.T) {
	const rounds, steps = 40, 60
	shown := clock.NewMock()
	s, err := Open(t.Context(), ownServer(t, pgtest.Options{}).DSN, &Options{Clock: shown, MaxConns: 60, NotifyEvery: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	seed := rand.Uint64()
	dice := rand.New(rand.NewPCG(seed, 0))
	for round := range rounds {
		var open []*sql.Tx
		end := func(i int) {
			tx := open[i]
			open = append(open[:i], open[i+1:]...)
			if dice.IntN(4) > 0 {
				require.NoError(t, tx.Commit())
			} else {
				require.NoError(t, tx.Rollback())
			}
		}
		for range steps {
			switch dice.IntN(6) {
			case 0:
				tx, err := s.DB().BeginTx(t.Context(), nil)
				require.NoError(t, err)
				enqueue(t, s.InTx(tx), 1+dice.IntN(3))
				open = append(open, tx)
			case 1:
				if len(open) > 0 {
					end(dice.IntN(len(open)))
				}
			case 2:
				enqueue(t, s, 1)
			case 3:
				shown.Add(time.Duration(dice.IntN(500)) * time.Millisecond)
			default:
				claimTogether(t, s, 1+dice.IntN(3))
			}
		}
		for len(open) > 0 {
			end(0)
		}
		for len(claimN(t, s, 10)) > 0 {
		}
		require.Zero(t, countIn(t, s, store.Ready), "jobs stay hidden in round %d of seed %d", round, seed)
		passed := shown.Now()
		awaitMark(t, s, cursor.Position{At: passed, ID: 0}, func() {
			shown.Add(cursor.Slack)
			require.Empty(t, claimN(t, s, 1))
		})
	}
}

func TestRescheduledJobsAreFoundBesideTheCursor(t *testing.T) {
	findBesideTheCursor(t, func(tn *txn, waiting []store.Job, past time.Time) error {
		filter := store.Filter{IDs: []int64{waiting[0].ID, waiting[1].ID}}
		outcomes, err := tn.operate(filter, 2, ifWaiting, &rescheduling{at: past})
		for _, o := range outcomes {
			assert.Equal(t, store.StatusOK, o.Status)
		}
		return err
	})
}

func TestReplacedJobsAreFoundBesideTheCursor(t *testing.T) {
	findBesideTheCursor(t, func(tn *txn, waiting []store.Job, past time.Time) error {
		jobs := benchJobs(2)
		for i := range jobs {
			jobs[i].Kind, jobs[i].UniqueKey, jobs[i].Replace, jobs[i].RunAt = waiting[i].Kind, waiting[i].UniqueKey, true, past
		}
		answers, err := tn.addJobs(jobs, nil)
		for _, a := range answers {
			assert.True(t, a.Replaced, "%+v", a)
		}
		return err
	})
}

// findBesideTheCursor holds a change open that makes a ready and a retrying job due, until the cursors of the queue have passed
// the time that it read. The marks must not have, and claims find both jobs soon after its commit.
func findBesideTheCursor(t *testing.T, change func(tn *txn, waiting []store.Job, past time.Time) error) {
	shown := clock.NewMock()
	s, err := Open(t.Context(), ownServer(t, pgtest.Options{}).DSN, &Options{Clock: shown})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	jobs := benchJobs(2)
	jobs[0].UniqueKey, jobs[1].UniqueKey, jobs[1].Delay = "retrying", "delayed", time.Hour
	_, err = s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
	require.NoError(t, err)
	_, err = s.NAck(t.Context(), []store.NAck{{Lease: claimN(t, s, 1)[0].Lease(), Form: store.After, Delay: time.Hour}})
	require.NoError(t, err)
	page, err := s.List(t.Context(), store.Filter{}, store.Page{Limit: 2})
	require.NoError(t, err)
	require.Len(t, page.Jobs, 2)
	awaitMark(t, s, cursor.Position{At: shown.Now().Add(time.Minute)}, func() {
		shown.Add(time.Second)
		require.Empty(t, claimN(t, s, 1))
	})
	past := shown.Now().Add(-time.Minute) // the marks are behind it

	began, written, release := shown.Now(), make(chan struct{}), make(chan struct{})
	var slow sync.WaitGroup
	slow.Go(func() {
		_, err := write(t.Context(), s, nil, func(tn *txn) (struct{}, error) {
			err := change(tn, page.Jobs, past)
			close(written)
			<-release
			return struct{}{}, err
		})
		assert.NoError(t, err)
	})
	defer slow.Wait()
	awaitClosed(t, written, "the change has not written its jobs")
	for since := time.Now(); ; {
		shown.Add(time.Millisecond)
		enqueue(t, s, 1)
		require.Len(t, claimN(t, s, 1), 1, "the job that was just added")
		if at := s.cursors.Get("q").Lanes[cursor.Fresh].Cursor[cursor.LevelOf(0)].At; at.After(began) {
			break
		}
		require.Less(t, time.Since(since), time.Minute, "the cursor does not move on without the open transaction")
	}
	for lane, positions := range s.cursors.Get("q").Lanes {
		assert.False(t, positions.Mark[cursor.LevelOf(0)].At.After(began), "the mark of lane %d has passed the open transaction", lane)
	}
	close(release)
	slow.Wait()

	found := map[int64]bool{}
	for committed := time.Now(); len(found) < 2; {
		require.Less(t, time.Since(committed), bound, "a job stays hidden; found are %v", found)
		for _, j := range claimN(t, s, 10) {
			found[j.ID] = true
		}
	}
	assert.Equal(t, map[int64]bool{page.Jobs[0].ID: true, page.Jobs[1].ID: true}, found)
}

// awaitClosed waits for the channel to be closed, for a minute at most.
func awaitClosed(t *testing.T, done <-chan struct{}, otherwise string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(time.Minute):
		require.FailNow(t, otherwise)
	}
}

// claimTogether lets several claim at once, some of them where there is nothing.
func claimTogether(t *testing.T, s *Store, n int) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			req := claimOf(1 + i)
			if i == 1 {
				req.Queue = "other"
			}
			_, err := s.FetchAndClaim(t.Context(), req)
			assert.NoError(t, err)
		})
	}
	all.Wait()
}

package sqlite

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A process that opened the file before it knew of waits ends a job by statements that say nothing of them. All of them write the result.
// What waits goes on.
func TestEndsByOlderProgramsAreTold(t *testing.T) {
	s := openAt(t, newPath(t), nil)
	n := store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{}`)}
	next, last := n, n
	next.After = []store.Wait{{Item: 0}}
	last.After = []store.Wait{{Item: 2}}
	added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n, next, n, last}})
	require.NoError(t, err)
	for _, statement := range []string{
		`UPDATE jobs SET state = 'succeeded', lease_expires_at = NULL, result = NULL, error = '', finished_at = 1, finished_by = 'ack' WHERE id = ?`,
		`UPDATE jobs SET state = 'failed', retry_at = NULL, finished_at = 1, error = 'no', result = NULL WHERE id = 2 + ?`,
		`DELETE FROM jobs WHERE id = 2 + ?`,
	} {
		_, err := s.DB().Exec(statement, added[0].ID)
		require.NoError(t, err)
	}
	settled, err := s.Settle(t.Context(), 10)
	require.NoError(t, err)
	states := map[int64]store.State{}
	for _, one := range settled {
		states[one.ID] = one.State
	}
	assert.Equal(t, map[int64]store.State{added[1].ID: store.Ready, added[3].ID: store.Cancelled}, states)
}

// An Ack of jobs for which nobody waits writes no column on which there is a trigger.
func TestAckOfUnawaitedJobsHasNoTrigger(t *testing.T) {
	s := newStore(t)
	req := newJobs(5)
	req.Jobs[0].Group, req.Jobs[1].Group, req.Jobs[3].Group = "g", "g", "g"
	req.Jobs[4].Queue, req.Jobs[4].After = "last", []store.Wait{{Group: "g"}, {Item: 0}}
	_, err := s.Enqueue(t.Context(), req)
	require.NoError(t, err)
	_, err = s.DB().Exec(`
		CREATE TABLE fired (job_id INTEGER);
		CREATE TRIGGER fires AFTER UPDATE OF result ON jobs BEGIN INSERT INTO fired (job_id) VALUES (NEW.id); END`)
	require.NoError(t, err)
	jobs := claimAll(t, s, 4)
	acks := acksOf(jobs)
	_, err = s.Ack(t.Context(), acks[1:])
	require.NoError(t, err)
	var fired []int64
	require.NoError(t, s.DB().Select(&fired, `SELECT job_id FROM fired`))
	assert.Empty(t, fired)
	_, err = s.Ack(t.Context(), acks[:1])
	require.NoError(t, err)
	require.NoError(t, s.DB().Select(&fired, `SELECT DISTINCT job_id FROM fired ORDER BY job_id`))
	assert.Equal(t, []int64{jobs[0].ID, jobs[0].ID + 4}, fired, "the awaited job, and the one that waits")
	claim := claimOf(1)
	claim.Queue = "last"
	next, err := s.FetchAndClaim(t.Context(), claim)
	require.NoError(t, err)
	assert.Len(t, next, 1)
}

// While others call, a Settle of many jobs leaves them most of the time.
func TestSettleGivesWay(t *testing.T) {
	clk := clock.NewMock()
	s := openAt(t, newPath(t), &Options{Clock: clk})
	s.pace.work = 0
	s.pace.longest = time.Minute // so that pauses are in proportion to transactions on a slow machine too
	n := store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{}`), ExpiresAt: clk.Now().Add(time.Hour)}
	const parts = 10
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: slices.Repeat([]store.NewJob{n}, parts*settledAtOnce)})
	require.NoError(t, err)
	clk.Add(time.Hour)
	settled := make(chan int)
	go func() {
		all, err := s.Settle(t.Context(), store.MaxItems)
		assert.NoError(t, err)
		settled <- len(all)
	}()
	calls, late := 0, time.After(time.Minute)
	for done := false; !done; {
		select {
		case all := <-settled:
			assert.Equal(t, parts*settledAtOnce, all)
			done = true
		case <-late:
			require.FailNow(t, "Settle takes a minute")
		default:
			_, err := s.Extend(t.Context(), []store.Lease{{ID: 1, Token: 1}}, time.Minute)
			require.NoError(t, err)
			calls++
		}
	}
	assert.Greater(t, calls, 5*parts, "calls of others during %d transactions of Settle", parts)
}

// A Settle of many jobs takes several transactions, between which other calls get through. Here the tenth one fails, at the last of 250 jobs.
func TestSettleCommitsWhatItHasDone(t *testing.T) {
	clk := clock.NewMock()
	s := openAt(t, newPath(t), &Options{Clock: clk})
	s.pace.work = 0
	n := store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{}`), ExpiresAt: clk.Now().Add(time.Hour)}
	added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: slices.Repeat([]store.NewJob{n}, 250)})
	require.NoError(t, err)
	_, err = s.DB().Exec(`CREATE TRIGGER refuse BEFORE UPDATE ON jobs WHEN NEW.id = ` + fmt.Sprint(added[249].ID) + ` BEGIN SELECT RAISE(ABORT, 'refused'); END`)
	require.NoError(t, err)
	clk.Add(time.Hour)
	settled, err := s.Settle(t.Context(), store.MaxItems)
	require.NoError(t, err, "a part is committed")
	assert.Len(t, settled, 250-settledAtOnce)
	counts, err := s.Count(t.Context(), store.Filter{})
	require.NoError(t, err)
	assert.Equal(t, map[store.State]int64{store.Cancelled: 250 - settledAtOnce, store.Ready: settledAtOnce}, counts.Queues[0].Jobs)
	settled, err = s.Settle(t.Context(), store.MaxItems)
	require.ErrorContains(t, err, "refused")
	assert.Empty(t, settled)
}

package postgres

import (
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// A skewed clock shows the real time, and so much more.
type skewed struct {
	clock.Clock
	by atomic.Int64
}

func (s *skewed) Now() time.Time { return time.Now().Add(time.Duration(s.by.Load())) }

// A log that tests read while it is written.
type lines struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// The clock of all stores is an hour ahead for a while. When it is right again, and all stores were opened anew, the jobs whose
// workers died meanwhile were stuck for an hour.
func TestClockThatWasAheadCostsSeconds(t *testing.T) {
	t.Parallel()
	const jobs, lease, jump = 60, 2 * time.Second, time.Hour
	dsn := pgtest.DSN(t)
	shown, log := &skewed{Clock: clock.New()}, &lines{}
	o := Options{Schema: pgtest.Schema(t, dsn), Clock: shown, Logger: slog.New(slog.NewTextHandler(log, nil))}
	s, err := Open(t.Context(), dsn, &o)
	require.NoError(t, err)
	_, err = s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(jobs)})
	require.NoError(t, err)

	claim := store.ClaimRequest{Queue: "q", Limit: jobs / 3, Worker: "w", TTL: lease}
	before, err := s.FetchAndClaim(t.Context(), claim)
	require.NoError(t, err)
	require.Len(t, before, jobs/3)
	shown.by.Store(int64(jump))
	living, err := s.FetchAndClaim(t.Context(), claim)
	require.NoError(t, err)
	dead, err := s.FetchAndClaim(t.Context(), claim)
	require.NoError(t, err)
	require.Len(t, dead, jobs/3)
	_, err = s.Extend(t.Context(), leasesOf(before), lease) // by workers that die then
	require.NoError(t, err)
	shown.by.Store(0)

	_, err = s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 1})
	require.NoError(t, err)
	assert.Contains(t, log.String(), "the store's clock went back")
	assert.Equal(t, 1, strings.Count(log.String(), "\n"), "one line a jump")
	require.NoError(t, s.Close())

	s, err = Open(t.Context(), dsn, &o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	began, recovered, acked := time.Now(), map[int64]bool{}, false
	require.Eventually(t, func() bool {
		list, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: store.MaxItems})
		if !assert.NoError(t, err) {
			return true
		}
		for _, r := range list {
			recovered[r.ID] = true
		}
		if !acked { // the living have lost nothing
			acked = true
			outcomes, err := s.Ack(t.Context(), acksOf(living))
			assert.NoError(t, err)
			for _, o := range outcomes {
				assert.Equal(t, store.StatusOK, o.Status)
			}
		}
		return len(recovered) == len(before)+len(dead)
	}, lease+5*time.Second, 50*time.Millisecond, "all jobs of dead workers are recovered")
	t.Logf("all recovered %v after the stores were opened", time.Since(began).Round(time.Millisecond))
	assert.Zero(t, countIn(t, s, store.InFlight))
}

func leasesOf(jobs []store.Job) []store.Lease {
	held := make([]store.Lease, len(jobs))
	for i, j := range jobs {
		held[i] = j.Lease()
	}
	return held
}

// Jobs that were added, given back or failed while the clock was ahead wait for so much longer, until they are repaired.
func TestRepairBringsBackWaitingJobs(t *testing.T) {
	t.Parallel()
	shown := newClock()
	s := openStore(t, Options{Clock: shown})
	waiting := func(delay time.Duration) store.NewJob {
		return store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`1`), Delay: delay, MaxRetries: 3, Backoff: store.Backoff{Base: time.Minute, Cap: time.Minute}}
	}
	right, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{waiting(30 * time.Minute), waiting(0), waiting(0)}})
	require.NoError(t, err)
	shown.Add(time.Hour)
	held := claimN(t, s, 3)
	require.Len(t, held, 3)
	_, err = s.NAck(t.Context(), []store.NAck{
		{Lease: held[1].Lease(), Form: store.Fail}, {Lease: held[2].Lease(), Form: store.Snooze, Delay: time.Minute},
		{Lease: held[0].Lease(), Form: store.Release},
	})
	require.NoError(t, err)
	added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{waiting(time.Minute), waiting(0)}})
	require.NoError(t, err)
	shown.Set(shown.Now().Add(-time.Hour))
	late, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{waiting(24 * time.Hour)}})
	require.NoError(t, err)

	assert.Contains(t, findingsOf(t, s, alarming{connections: 1}), "written_ahead")
	for _, want := range []int{5, 0} {
		moved, err := s.Repair(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, moved, "jobs that were moved")
	}
	assert.NotContains(t, findingsOf(t, s, alarming{connections: 1}), "written_ahead")

	now := shown.Now()
	for id, due := range map[int64]time.Duration{
		held[0].ID: 0, held[1].ID: time.Minute, held[2].ID: time.Minute, added[0].ID: time.Minute, added[1].ID: 0, late[0].ID: 24 * time.Hour,
	} {
		j, err := s.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, now.Add(due), j.Next(), "job %d", id)
	}
	assert.Len(t, claimN(t, s, 10), 2)
	shown.Add(time.Minute)
	assert.Len(t, claimN(t, s, 10), 3)
	assert.Len(t, right, 3)
}

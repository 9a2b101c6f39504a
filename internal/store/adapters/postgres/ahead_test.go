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

package cli

import (
	"crypto/sha256"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/wire"
)

// A list says of an expired job that nobody has cancelled yet that it has expired, not that it is due.
func TestWhenOfAnExpiredJob(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	j := jq.Job{State: jq.Ready, RunAt: at.Add(-time.Hour), Extras: &jq.Extras{ExpiresAt: at}}
	assert.Equal(t, "expired 2026-03-01T12:00:00Z", when(j))
	j.Extras = j.Extras.WithExpiresAt(time.Now().Add(time.Hour))
	assert.Equal(t, "due 2026-03-01T11:00:00Z", when(j))
}

// An import leaves out jobs that could not start before they expire, and keeps the time of the others. Whether those have expired since
// the export, the store says: see TestRepeatedImportAddsNothingTwiceAfterJobsHaveExpired.
func TestImportLeavesOutExpiredJobs(t *testing.T) {
	now := time.Now().UTC()
	parse := func(due, expires time.Time) (jq.NewJob, *imported, error) {
		j := jq.Job{
			ID: 1, Queue: "q", Kind: "k", Payload: []byte(`1`), State: jq.Failed, RetryAt: due, EnqueuedAt: now, RunAt: now,
			Extras: &jq.Extras{ExpiresAt: expires},
		}
		line, err := json.Marshal(exported{Job: wire.JobOf(j)})
		require.NoError(t, err)
		i := &imported{lines: sha256.New()}
		n, err := i.parse(line)
		return n, i, err
	}
	later := now.Add(time.Hour)
	n, i, err := parse(now, later)
	require.NoError(t, err)
	assert.True(t, n.ExpiresAt.Equal(later))
	assert.Zero(t, i.expired)
	for name, times := range map[string][2]time.Time{
		"due when it expires":    {later, later},
		"due after it expires":   {later.Add(time.Hour), later},
		"expired before the due": {later, now.Add(-time.Hour)},
	} {
		_, i, err = parse(times[0], times[1])
		require.ErrorIs(t, err, errLeftOut, name)
		assert.Equal(t, int64(1), i.expired, name)
	}
}

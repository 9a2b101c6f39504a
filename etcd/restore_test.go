//go:build unix

package etcd_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/etcd/internal/etcdtest"
	"github.com/seed-ed332417/jq/kv"
)

// enqueued adds a job and returns its id.
func enqueued(t *testing.T, s *kv.Store) int64 {
	t.Helper()
	added, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{{Queue: "q", Kind: "k", Payload: []byte(`1`)}}})
	require.NoError(t, err)
	return added[0].ID
}

// claimed claims the job, and returns its lease.
func claimed(t *testing.T, s *kv.Store, id int64) contract.Lease {
	t.Helper()
	jobs, err := s.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "q", Limit: 1, RetryQuota: 1, Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.Equal(t, id, jobs[0].ID)
	return jobs[0].Lease()
}

// acked returns how an Ack of the lease ends.
func acked(t *testing.T, s *kv.Store, l contract.Lease) contract.Status {
	t.Helper()
	outcomes, err := s.Ack(t.Context(), []contract.Ack{{Lease: l}})
	require.NoError(t, err)
	return outcomes[0].Status
}

// released gives the job back, so that it can be claimed at once.
func released(t *testing.T, s *kv.Store, l contract.Lease) {
	t.Helper()
	outcomes, err := s.NAck(t.Context(), []contract.NAck{{Lease: l, Form: contract.Release}})
	require.NoError(t, err)
	require.Equal(t, contract.StatusOK, outcomes[0].Status)
}

// A snapshot is restored to a new cluster of three members, and the store is fenced: leases and ids of the time after the snapshot fit nothing there, and a
// lease from before it goes on.
func TestRestoredClusterIsFenced(t *testing.T) {
	old := start(t, etcdtest.Options{Members: 1, NoSync: true})
	s := storeAt(t, old.Endpoints()...)
	kept, held := enqueued(t, s), enqueued(t, s)
	first, holds := claimed(t, s, kept), claimed(t, s, held)
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	require.NoError(t, old.Snapshot(t.Context(), snapshot))
	released(t, s, first)
	lostLease := claimed(t, s, kept)
	lostJob := enqueued(t, s)
	lostJobsLease := claimed(t, s, lostJob)
	require.NoError(t, old.Kill(0))

	c := start(t, etcdtest.Options{NoSync: true, Restore: snapshot})
	restored := storeAt(t, c.Endpoints()...)
	epoch, err := restored.Fence(t.Context(), contract.FenceRequest{})
	require.NoError(t, err)
	assert.Positive(t, epoch)
	assert.Equal(t, contract.StatusOK, acked(t, restored, holds), "a lease from before the snapshot")
	released(t, restored, first)
	again := claimed(t, restored, kept)
	assert.NotEqual(t, lostLease, again)
	assert.Equal(t, contract.StatusStale, acked(t, restored, lostLease))
	assert.Equal(t, contract.StatusNotFound, acked(t, restored, lostJobsLease))
	assert.Greater(t, enqueued(t, restored), lostJob)
	assert.Equal(t, contract.StatusNotFound, acked(t, restored, lostJobsLease))
	assert.Equal(t, contract.StatusOK, acked(t, restored, again))
}

package memory_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// batch is how many jobs a call of the benchmarks has.
const batch = 64

func newJobs(n int) []store.NewJob {
	jobs := make([]store.NewJob, n)
	for i := range jobs {
		jobs[i] = store.NewJob{
			Queue: "q", Kind: "k", Payload: []byte(`{"to":"someone@example.org"}`), MaxRetries: 3,
			Backoff: store.Backoff{Base: time.Second, Cap: time.Minute},
		}
	}
	return jobs
}

func newStore(b *testing.B) *memory.Store {
	s := memory.New(memory.Options{})
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	return s
}

func perJob(b *testing.B, jobs int) {
	b.ReportMetric(float64(b.N*jobs)/b.Elapsed().Seconds(), "jobs/s")
}

func BenchmarkEnqueue(b *testing.B) {
	for _, size := range []int{1, batch} {
		b.Run(fmt.Sprintf("by%d", size), func(b *testing.B) {
			s := newStore(b)
			req := store.EnqueueRequest{Jobs: newJobs(size)}
			b.ReportAllocs()
			for b.Loop() {
				_, err := s.Enqueue(b.Context(), req)
				require.NoError(b, err)
			}
			perJob(b, size)
		})
	}
}

// BenchmarkClaimAck works off batches while others wait. As many are enqueued in between, which is not in its figure.
func BenchmarkClaimAck(b *testing.B) {
	for _, waiting := range []int{1_000, 50_000, 1_000_000} {
		b.Run(fmt.Sprintf("waiting%d", waiting), func(b *testing.B) {
			s := newStore(b)
			enqueue(b, s, waiting)
			runtime.GC()
			var took time.Duration
			for b.Loop() {
				enqueue(b, s, batch)
				began := time.Now()
				ids := work(b, s)
				took += time.Since(began)
				_, err := s.Delete(b.Context(), store.Filter{IDs: ids}, batch)
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.N*batch)/took.Seconds(), "claim+ack/s")
		})
	}
}

// BenchmarkLife is a job's whole life: enqueued, claimed, finished and deleted.
func BenchmarkLife(b *testing.B) {
	s := newStore(b)
	b.ReportAllocs()
	for b.Loop() {
		enqueue(b, s, batch)
		ids := work(b, s)
		_, err := s.Delete(b.Context(), store.Filter{IDs: ids}, batch)
		require.NoError(b, err)
	}
	perJob(b, batch)
}

func enqueue(b *testing.B, s *memory.Store, n int) {
	for n > 0 {
		size := min(n, store.MaxItems)
		_, err := s.Enqueue(b.Context(), store.EnqueueRequest{Jobs: newJobs(size)})
		require.NoError(b, err)
		n -= size
	}
}

// work claims a batch and acks it.
func work(b *testing.B, s *memory.Store) []int64 {
	jobs, err := s.FetchAndClaim(b.Context(), store.ClaimRequest{Queue: "q", Limit: batch, Worker: "w", TTL: time.Minute})
	require.NoError(b, err)
	require.Len(b, jobs, batch)
	acks, ids := make([]store.Ack, batch), make([]int64, batch)
	for i, j := range jobs {
		acks[i].Lease, ids[i] = j.Lease(), j.ID
	}
	outcomes, err := s.Ack(b.Context(), acks)
	require.NoError(b, err)
	require.Equal(b, store.StatusOK, outcomes[batch-1].Status)
	return ids
}

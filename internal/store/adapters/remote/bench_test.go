package remote

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

func benchStore(b *testing.B) *Store {
	b.Helper()
	server, err := serve(memory.New(memory.Options{}), httpapi.Options{})
	require.NoError(b, err)
	s, err := Open(b.Context(), server.url, nil)
	require.NoError(b, err)
	b.Cleanup(func() {
		require.NoError(b, s.Close())
		require.NoError(b, server.stop())
	})
	return s
}

func benchJobs(n int) []store.NewJob {
	jobs := make([]store.NewJob, n)
	for i := range jobs {
		jobs[i] = store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{"user":12345,"text":"hello there"}`), MaxRetries: 3}
	}
	return jobs
}

// BenchmarkLife is a job's whole life over a socket: enqueued, claimed and acked in batches.
func BenchmarkLife(b *testing.B) {
	for _, size := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := benchStore(b)
			jobs := benchJobs(size)
			var enqueue, claim, ack time.Duration
			done := 0
			for b.Loop() {
				at := time.Now()
				_, err := s.Enqueue(b.Context(), store.EnqueueRequest{Jobs: jobs})
				require.NoError(b, err)
				enqueue += time.Since(at)

				at = time.Now()
				claimed, err := s.FetchAndClaim(b.Context(), claimOf(size))
				require.NoError(b, err)
				require.Len(b, claimed, size)
				claim += time.Since(at)

				acks := make([]store.Ack, size)
				for i, j := range claimed {
					acks[i].Lease = j.Lease()
				}
				at = time.Now()
				_, err = s.Ack(b.Context(), acks)
				require.NoError(b, err)
				ack += time.Since(at)
				done += size
			}
			for what, took := range map[string]time.Duration{"enqueue": enqueue, "claim": claim, "ack": ack} {
				b.ReportMetric(float64(took.Nanoseconds())/float64(done), what+"-ns/job")
			}
			b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}

// BenchmarkWorkers claim and ack ten jobs at a time, beside each other.
func BenchmarkWorkers(b *testing.B) {
	s := benchStore(b)
	const each = 10
	var done atomic.Int64
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Enqueue(b.Context(), store.EnqueueRequest{Jobs: benchJobs(each)}); err != nil {
				b.Error(err)
				return
			}
			claimed, err := s.FetchAndClaim(b.Context(), claimOf(each))
			if err != nil {
				b.Error(err)
				return
			}
			acks := make([]store.Ack, len(claimed))
			for i, j := range claimed {
				acks[i].Lease = j.Lease()
			}
			if _, err := s.Ack(b.Context(), acks); err != nil {
				b.Error(err)
				return
			}
			done.Add(int64(len(claimed)))
		}
	})
	b.ReportMetric(float64(done.Load())/b.Elapsed().Seconds(), "jobs/s")
}

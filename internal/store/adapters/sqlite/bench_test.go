package sqlite

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

func BenchmarkOpen(b *testing.B) {
	for i := 0; b.Loop(); i++ {
		s, err := Open(b.Context(), filepath.Join(b.TempDir(), fmt.Sprint(i)), nil)
		require.NoError(b, err)
		require.NoError(b, s.Close())
	}
}

// BenchmarkLife is a job's whole life: enqueued, claimed and acked in batches.
func BenchmarkLife(b *testing.B) {
	for _, size := range []int{1, 10, 100, 1000} {
		for _, mode := range []Synchronous{Full, Normal} {
			b.Run(fmt.Sprintf("%s/%d", mode, size), func(b *testing.B) {
				s, err := Open(b.Context(), filepath.Join(b.TempDir(), "jobs.db"), &Options{Synchronous: mode})
				require.NoError(b, err)
				defer func() { require.NoError(b, s.Close()) }()
				jobs := make([]store.NewJob, size)
				for i := range jobs {
					jobs[i] = store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{"user":12345,"text":"hello there"}`), MaxRetries: 3}
				}
				var enqueue, claim, ack time.Duration
				done, cpu := 0, cpuTime(b)
				for b.Loop() {
					at := time.Now()
					_, err := s.Enqueue(b.Context(), store.EnqueueRequest{Jobs: jobs})
					require.NoError(b, err)
					enqueue += time.Since(at)

					at = time.Now()
					claimed, err := s.FetchAndClaim(b.Context(), store.ClaimRequest{Queue: "q", Limit: size, Worker: "w", TTL: time.Minute})
					require.NoError(b, err)
					require.Len(b, claimed, size)
					claim += time.Since(at)

					acks := make([]store.Ack, size)
					for i, j := range claimed {
						acks[i] = store.Ack{Lease: j.Lease()}
					}
					at = time.Now()
					_, err = s.Ack(b.Context(), acks)
					require.NoError(b, err)
					ack += time.Since(at)
					done += size
				}
				b.ReportMetric((cpuTime(b)-cpu).Seconds()*1e6/float64(done), "cpu-µs/job")
				per := func(d time.Duration) float64 { return float64(done) / d.Seconds() }
				b.ReportMetric(per(b.Elapsed()), "jobs/s")
				b.ReportMetric(per(enqueue), "enqueued/s")
				b.ReportMetric(per(claim), "claimed/s")
				b.ReportMetric(per(ack), "acked/s")
			})
		}
	}
}

// cpuTime is what the process has used: on a machine that others use too, it says more than the clock.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

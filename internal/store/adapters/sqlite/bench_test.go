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
				var enqueue, claim, ack phase
				done, cpu := 0, cpuTime(b)
				for b.Loop() {
					stop := enqueue.measure(b)
					_, err := s.Enqueue(b.Context(), store.EnqueueRequest{Jobs: jobs})
					stop()
					require.NoError(b, err)

					stop = claim.measure(b)
					claimed, err := s.FetchAndClaim(b.Context(), store.ClaimRequest{Queue: "q", Limit: size, Worker: "w", TTL: time.Minute})
					stop()
					require.NoError(b, err)
					require.Len(b, claimed, size)

					acks := make([]store.Ack, size)
					for i, j := range claimed {
						acks[i] = store.Ack{Lease: j.Lease()}
					}
					stop = ack.measure(b)
					_, err = s.Ack(b.Context(), acks)
					stop()
					require.NoError(b, err)
					done += size
				}
				b.ReportMetric((cpuTime(b)-cpu).Seconds()*1e6/float64(done), "cpu-µs/job")
				b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "jobs/s")
				enqueue.report(b, "enqueue", done)
				claim.report(b, "claim", done)
				ack.report(b, "ack", done)
			})
		}
	}
}

// A phase sums up what one of the three calls took.
type phase struct{ real, cpu time.Duration }

// measure begins to measure a call. The function that it returns ends that.
func (p *phase) measure(b *testing.B) (stop func()) {
	at, cpu := time.Now(), cpuTime(b)
	return func() {
		p.real += time.Since(at)
		p.cpu += cpuTime(b) - cpu
	}
}

func (p *phase) report(b *testing.B, name string, jobs int) {
	b.ReportMetric(p.cpu.Seconds()*1e6/float64(jobs), name+"-cpu-µs/job")
	b.ReportMetric(float64(jobs)/p.real.Seconds(), name+"/s")
}

// cpuTime is what the process has used: on a machine that others use too, it says more than the clock.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

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
				l := newLife(b, mode, size, "")
				for b.Loop() {
					l.live(b)
				}
				b.ReportMetric(float64(l.done)/b.Elapsed().Seconds(), "jobs/s")
				l.report(b, "")
			})
		}
	}
}

// BenchmarkMember is the life of jobs in a group for which another job waits, beside that of jobs in none, on stores of their own in turn.
func BenchmarkMember(b *testing.B) {
	for _, size := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			const group = "a-name-of-twenty-six-bytes"
			alone, member := newLife(b, Normal, size, ""), newLife(b, Normal, size, group)
			waits := store.NewJob{Queue: "then", Kind: "k", Payload: []byte(`1`), After: []store.Wait{{Group: group}}}
			_, err := member.s.Enqueue(b.Context(), store.EnqueueRequest{Jobs: []store.NewJob{waits}, Open: []string{group}})
			require.NoError(b, err)
			for b.Loop() {
				alone.live(b)
				member.live(b)
			}
			alone.report(b, "alone-")
			member.report(b, "member-")
		})
	}
}

// A life is that of as many jobs as one call takes, again and again.
type life struct {
	s                   *Store
	jobs                []store.NewJob
	enqueue, claim, ack phase
	done                int
}

func newLife(b *testing.B, mode Synchronous, size int, group string) *life {
	s, err := Open(b.Context(), filepath.Join(b.TempDir(), "jobs.db"), &Options{Synchronous: mode})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	l := &life{s: s, jobs: make([]store.NewJob, size)}
	for i := range l.jobs {
		l.jobs[i] = store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{"user":12345,"text":"hello there"}`), MaxRetries: 3, Group: group}
	}
	return l
}

func (l *life) live(b *testing.B) {
	stop := l.enqueue.measure(b)
	_, err := l.s.Enqueue(b.Context(), store.EnqueueRequest{Jobs: l.jobs})
	stop()
	require.NoError(b, err)

	stop = l.claim.measure(b)
	claimed, err := l.s.FetchAndClaim(b.Context(), store.ClaimRequest{Queue: "q", Limit: len(l.jobs), Worker: "w", TTL: time.Minute})
	stop()
	require.NoError(b, err)
	require.Len(b, claimed, len(l.jobs))

	acks := make([]store.Ack, len(claimed))
	for i, j := range claimed {
		acks[i] = store.Ack{Lease: j.Lease()}
	}
	stop = l.ack.measure(b)
	_, err = l.s.Ack(b.Context(), acks)
	stop()
	require.NoError(b, err)
	l.done += len(l.jobs)
}

func (l *life) report(b *testing.B, of string) {
	b.ReportMetric((l.enqueue.cpu+l.claim.cpu+l.ack.cpu).Seconds()*1e6/float64(l.done), of+"cpu-µs/job")
	l.enqueue.report(b, of+"enqueue", l.done)
	l.claim.report(b, of+"claim", l.done)
	l.ack.report(b, of+"ack", l.done)
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

// BenchmarkLimited claims and acks ten jobs of a thousand keys at a time, in a queue with and without a limit that is never reached.
func BenchmarkLimited(b *testing.B) {
	const keys, size = 1000, 10
	for _, k := range []struct {
		name   string
		policy store.Policy
	}{
		{"none", store.Policy{}},
		{"max_per_key", store.Policy{MaxPerKey: 50}},
		{"fair", store.Policy{Fair: true}},
		{"ordered", store.Policy{Ordered: true}},
	} {
		b.Run(k.name, func(b *testing.B) {
			s := newLife(b, Normal, size, "").s
			_, err := s.SetPolicy(b.Context(), "q", k.policy)
			require.NoError(b, err)
			for left := b.N * size; left > 0; left -= store.MaxItems {
				jobs := make([]store.NewJob, min(left, store.MaxItems))
				for i := range jobs {
					jobs[i] = store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`1`), LimitKey: fmt.Sprint("customer-", i%keys)}
				}
				_, err := s.Enqueue(b.Context(), store.EnqueueRequest{Jobs: jobs})
				require.NoError(b, err)
			}
			b.ResetTimer()
			var claim, ack phase
			for range b.N {
				stop := claim.measure(b)
				jobs, err := s.FetchAndClaim(b.Context(), store.ClaimRequest{Queue: "q", Limit: size, Worker: "w", TTL: time.Minute})
				stop()
				require.NoError(b, err)
				require.Len(b, jobs, size)
				acks := make([]store.Ack, size)
				for i, j := range jobs {
					acks[i].Lease = j.Lease()
				}
				stop = ack.measure(b)
				_, err = s.Ack(b.Context(), acks)
				stop()
				require.NoError(b, err)
			}
			claim.report(b, "claim", b.N*size)
			ack.report(b, "ack", b.N*size)
		})
	}
}

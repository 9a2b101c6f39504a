package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

func benchStore(b *testing.B) *Store {
	b.Helper()
	dsn := pgtest.DSN(b)
	s, err := Open(b.Context(), dsn, &Options{Schema: pgtest.Schema(b, dsn)})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	return s
}

func benchJobs(n int) []store.NewJob {
	jobs := make([]store.NewJob, n)
	for i := range jobs {
		jobs[i] = store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{"user":12345,"text":"hello there"}`), MaxRetries: 3}
	}
	return jobs
}

func acksOf(jobs []store.Job) []store.Ack {
	acks := make([]store.Ack, len(jobs))
	for i, j := range jobs {
		acks[i] = store.Ack{Lease: j.Lease()}
	}
	return acks
}

// BenchmarkLife is a job's whole life: enqueued, claimed and acked in batches.
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
				claimed, err := s.FetchAndClaim(b.Context(), store.ClaimRequest{Queue: "q", Limit: size, Worker: "w", TTL: time.Minute})
				require.NoError(b, err)
				require.Len(b, claimed, size)
				claim += time.Since(at)

				at = time.Now()
				_, err = s.Ack(b.Context(), acksOf(claimed))
				require.NoError(b, err)
				ack += time.Since(at)
				done += size
			}
			per := func(d time.Duration) float64 { return float64(done) / d.Seconds() }
			b.ReportMetric(per(b.Elapsed()), "jobs/s")
			b.ReportMetric(per(enqueue), "enqueued/s")
			b.ReportMetric(per(claim), "claimed/s")
			b.ReportMetric(per(ack), "acked/s")
		})
	}
}

// BenchmarkContinuous enqueues, claims and acks at the same time, in batches of a thousand, with and without the places that
// claims remember, and with and without a snapshot that another session holds open. Run it with -benchtime=60s: what grows,
// grows with time.
func BenchmarkContinuous(b *testing.B) {
	for _, snapshot := range []bool{false, true} {
		for _, head := range []bool{false, true} {
			b.Run(fmt.Sprintf("snapshot=%v/head=%v", snapshot, head), func(b *testing.B) {
				s := benchStore(b)
				if snapshot {
					hold(b, s)
				}
				continuous(b, s, head)
			})
		}
	}
}

// hold keeps a snapshot open beside the store.
func hold(b *testing.B, s *Store) {
	tx, err := s.DB().Begin()
	require.NoError(b, err)
	b.Cleanup(func() { _ = tx.Rollback() })
	_, err = tx.Exec(`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
	require.NoError(b, err)
	var one int
	require.NoError(b, tx.QueryRow(`SELECT 1 FROM pg_class LIMIT 1`).Scan(&one))
}

func continuous(b *testing.B, s *Store, head bool) {
	const size, backlog = 1000, 20
	ctx, cancel := context.WithCancel(b.Context())
	var work sync.WaitGroup
	var acked, enqueueing, claiming, acking atomic.Int64 // jobs, and nanoseconds
	since := func(at time.Time, sum *atomic.Int64) { sum.Add(int64(time.Since(at))) }
	room, claimed := make(chan struct{}, backlog), make(chan []store.Job, 4)
	work.Go(func() {
		jobs := benchJobs(size)
		for {
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return
			}
			at := time.Now()
			if _, err := s.Enqueue(b.Context(), store.EnqueueRequest{Jobs: jobs}); err != nil {
				b.Error(err)
				return
			}
			since(at, &enqueueing)
		}
	})
	work.Go(func() {
		defer close(claimed)
		for taken := 0; ctx.Err() == nil; {
			if head {
				s.cursors.Forget()
			}
			at := time.Now()
			jobs, err := s.FetchAndClaim(b.Context(), store.ClaimRequest{Queue: "q", Limit: size, Worker: "w", TTL: time.Minute})
			if err != nil {
				b.Error(err)
				return
			}
			since(at, &claiming)
			for taken += len(jobs); taken >= size; taken -= size {
				<-room
			}
			claimed <- jobs
		}
	})
	work.Go(func() {
		for jobs := range claimed {
			at := time.Now()
			if _, err := s.Ack(b.Context(), acksOf(jobs)); err != nil {
				b.Error(err)
			}
			since(at, &acking)
			acked.Add(int64(len(jobs)))
		}
	})
	began, last, count := time.Now(), time.Now(), int64(0)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for b.Loop() {
		<-tick.C
		if passed := time.Since(last); passed > 5*time.Second {
			now := acked.Load()
			per := func(sum *atomic.Int64) float64 { return float64(sum.Swap(0)) / float64(now-count) / 1e3 }
			b.Logf("at %2.0f s: %6.0f jobs/s; µs a job: enqueue %.1f, claim %.1f, ack %.1f", time.Since(began).Seconds(),
				float64(now-count)/passed.Seconds(), per(&enqueueing), per(&claiming), per(&acking))
			last, count = time.Now(), now
		}
	}
	b.ReportMetric(float64(acked.Load())/b.Elapsed().Seconds(), "jobs/s")
	cancel()
	work.Wait()
	counts, err := s.Count(b.Context(), store.Filter{States: []store.State{store.Succeeded}})
	require.NoError(b, err)
	require.Equal(b, acked.Load(), counts.Total(), "every job that was acked has succeeded")
}

// BenchmarkSingle enqueues one job a call, from so many goroutines at once.
func BenchmarkSingle(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			s := benchStore(b)
			b.SetParallelism((callers + 1) / 2) // times the two processors that are measured on
			if callers == 1 {
				for b.Loop() {
					_, err := s.Enqueue(b.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
					require.NoError(b, err)
				}
			} else {
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						if _, err := s.Enqueue(b.Context(), store.EnqueueRequest{Jobs: benchJobs(1)}); err != nil {
							b.Error(err)
						}
					}
				})
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}

// BenchmarkInTx enqueues one job in each of its transactions, which write nothing else, from so many goroutines at once.
func BenchmarkInTx(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			dsn := pgtest.DSN(b)
			s, err := Open(b.Context(), dsn, &Options{Schema: pgtest.Schema(b, dsn), MaxConns: callers + MinConns})
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, s.Close()) })
			acquainted(b, s)
			var left atomic.Int64
			left.Store(int64(b.N))
			var all sync.WaitGroup
			b.ResetTimer()
			for range callers {
				all.Go(func() {
					for left.Add(-1) >= 0 {
						tx, err := s.DB().BeginTx(b.Context(), nil)
						if assert.NoError(b, err) {
							_, err = s.InTx(tx).Enqueue(b.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
							assert.NoError(b, err)
							assert.NoError(b, tx.Commit())
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}

// BenchmarkLimited claims and acks ten jobs at a time, by several claimers, in a queue with and without a limit that is never reached.
// Claims on a queue with MaxInFlight or a rate wait for each other. The jobs with keys have a thousand, in turn.
func BenchmarkLimited(b *testing.B) {
	const keys = 1000
	for _, claimers := range []int{1, 8, 32} {
		for _, k := range []struct {
			name   string
			policy store.Policy
			keys   bool
		}{
			{"none", store.Policy{}, false},
			{"max_in_flight", store.Policy{MaxInFlight: store.MaxLimit}, false},
			{"rate", store.Policy{Rate: store.Rate{N: store.MaxRate, Per: store.MinPer}}, false},
			{"none_with_keys", store.Policy{}, true},
			{"max_per_key", store.Policy{MaxPerKey: 50}, true},
			{"fair", store.Policy{Fair: true}, true},
			{"ordered", store.Policy{Ordered: true}, true},
		} {
			b.Run(fmt.Sprintf("claimers=%d/%s", claimers, k.name), func(b *testing.B) {
				s := benchStore(b)
				_, err := s.SetPolicy(b.Context(), "q", k.policy)
				require.NoError(b, err)
				const size = 10
				for left := b.N * size; left > 0; left -= store.MaxItems {
					jobs := benchJobs(min(left, store.MaxItems))
					for i := range jobs {
						if k.keys {
							jobs[i].LimitKey = fmt.Sprint("customer-", i%keys)
						}
					}
					_, err := s.Enqueue(b.Context(), store.EnqueueRequest{Jobs: jobs})
					require.NoError(b, err)
				}
				var calls, claimed atomic.Int64
				var work sync.WaitGroup
				b.ResetTimer()
				for range claimers {
					work.Go(func() {
						for calls.Add(1) <= int64(b.N) {
							jobs, err := s.FetchAndClaim(b.Context(), store.ClaimRequest{Queue: "q", Limit: size, Worker: "w", TTL: time.Minute})
							if !assert.NoError(b, err) {
								return
							}
							claimed.Add(int64(len(jobs)))
							_, err = s.Ack(b.Context(), acksOf(jobs))
							assert.NoError(b, err)
						}
					})
				}
				work.Wait()
				b.ReportMetric(float64(claimed.Load())/b.Elapsed().Seconds(), "jobs/s")
				b.ReportMetric(float64(claimed.Load())/float64(b.N), "jobs/claim")
			})
		}
	}
}

package jqpgx_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/jqpgx"
	"github.com/seed-ed332417/jq/postgres"
)

// BenchmarkLife is a job's whole life, enqueued, claimed and acked in batches, on a pool of pgx and on connections of lib/pq.
func BenchmarkLife(b *testing.B) {
	dsn := pgtest.DSN(b)
	for name, open := range map[string]func(o *postgres.Options) (*postgres.Store, error){
		"pgx": func(o *postgres.Options) (*postgres.Store, error) {
			pool, err := pgxpool.New(b.Context(), dsn)
			if err != nil {
				return nil, err
			}
			b.Cleanup(pool.Close)
			return jqpgx.Open(b.Context(), pool, o)
		},
		"pq": func(o *postgres.Options) (*postgres.Store, error) { return postgres.Open(b.Context(), dsn, o) },
		"pq pooled": func(o *postgres.Options) (*postgres.Store, error) {
			o.Pooled, o.ListenDSN = true, dsn
			return postgres.Open(b.Context(), dsn, o)
		},
	} {
		for _, size := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				s, err := open(&postgres.Options{Schema: pgtest.Schema(b, dsn)})
				require.NoError(b, err)
				b.Cleanup(func() { require.NoError(b, s.Close()) })
				jobs := make([]contract.NewJob, size)
				for i := range jobs {
					jobs[i] = contract.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{"user":12345,"text":"hello there"}`), MaxRetries: 3}
				}
				before := roundTrips(b, s)
				for b.Loop() {
					_, err := s.Enqueue(b.Context(), contract.EnqueueRequest{Jobs: jobs})
					require.NoError(b, err)
					claimed, err := s.FetchAndClaim(b.Context(), contract.ClaimRequest{Queue: "q", Limit: size, Worker: "w", TTL: time.Minute})
					require.NoError(b, err)
					require.Len(b, claimed, size)
					acks := make([]contract.Ack, size)
					for i, j := range claimed {
						acks[i].Lease = j.Lease()
					}
					_, err = s.Ack(b.Context(), acks)
					require.NoError(b, err)
				}
				b.ReportMetric(float64(roundTrips(b, s)-before)/float64(b.N), "trips/op")
				b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "jobs/s")
			})
		}
	}
}

func roundTrips(b *testing.B, s *postgres.Store) int64 {
	b.Helper()
	spent, err := s.Spent(b.Context())
	require.NoError(b, err)
	i := slices.IndexFunc(spent, func(c contract.Cost) bool { return c.Name == "round trips" })
	return spent[i].Total
}

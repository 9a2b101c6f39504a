package bench

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/postgres"
	"github.com/seed-ed332417/jq/sqlite"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(pgtest.Tests{M: m})
}

// small are options for a run of a moment.
func small(workload string) Options {
	return Options{
		Workload: workload, Jobs: 60, Duration: 100 * time.Millisecond, Concurrency: 8, Buffer: 8, Producers: 2, Batch: 10, Rate: 300,
		beside: 40,
	}
}

// stores open one of each kind.
func stores() map[string]func(t *testing.T) jq.Store {
	return map[string]func(t *testing.T) jq.Store{
		"memory": func(t *testing.T) jq.Store { return kept(t, jq.NewMemory(nil), nil) },
		"sqlite": func(t *testing.T) jq.Store {
			s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"), &sqlite.Options{Synchronous: sqlite.Normal})
			return kept(t, s, err)
		},
		"postgres": func(t *testing.T) jq.Store {
			dsn := pgtest.DSN(t)
			s, err := postgres.Open(t.Context(), dsn, &postgres.Options{Schema: pgtest.Schema(t, dsn)})
			return kept(t, s, err)
		},
	}
}

func kept(t *testing.T, s jq.Store, err error) jq.Store {
	t.Helper()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// stranger leaves a job of somebody else in the store, whose worker has died, and returns what asserts that nothing else is in
// the store, and that nobody touched it.
func stranger(t *testing.T, s jq.Store) (alone func()) {
	t.Helper()
	added, err := jq.NewClient(s, nil).Enqueue(t.Context(), jq.Raw{Name: kind, Document: []byte("{}")}, nil)
	require.NoError(t, err)
	claimed, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: jq.DefaultQueue, Limit: 1, Worker: "w", TTL: time.Microsecond})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	return func() {
		t.Helper()
		counts, err := s.Count(t.Context(), jq.Filter{})
		require.NoError(t, err)
		require.Len(t, counts.Queues, 1, "queues with jobs")
		assert.Equal(t, map[jq.State]int64{jq.InFlight: 1}, counts.Queues[0].Jobs)
		job, err := s.Get(t.Context(), added.ID)
		require.NoError(t, err)
		assert.EqualValues(t, 1, job.Token, "the job of somebody else was touched")
		workers, err := store.AllWorkers(t.Context(), s.(store.Registry))
		require.NoError(t, err)
		for _, w := range workers {
			assert.Equal(t, "bench", w.Name, "only the worker of idle stands in the list")
			assert.Empty(t, w.Queues, "it has said goodbye")
			assert.Equal(t, store.WorkerLife, w.StaleAfter, "nobody takes it for one that fell silent")
		}
	}
}

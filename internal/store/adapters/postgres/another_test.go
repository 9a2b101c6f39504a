package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// The server behind PgBouncer comes back without what the store did last. Its connections go on, and no sweep helps: all jobs
// that are due again, and a lease that has expired again, are found by signs alone.
func TestJobsThatAreDueAgainOnAnotherServerAreFound(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		claim  string
		before func(t *testing.T, c *pgtest.Cluster) (goBack func() (dsn string))
	}{
		{"AfterAFailoverWithLoss", func(t *testing.T, c *pgtest.Cluster) func() string {
			standby, err := c.Standby(t.Context())
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, standby.Stop()) })
			require.NoError(t, standby.Detach(t.Context()))
			return func() string {
				require.NoError(t, c.Crash(t.Context()))
				require.NoError(t, standby.Promote(t.Context()))
				return standby.DSN
			}
		}},
		{"AfterARestore", func(t *testing.T, c *pgtest.Cluster) func() string {
			require.NoError(t, c.Keep(t.Context()))
			return func() string {
				require.NoError(t, c.PutBack(t.Context()))
				return c.DSN
			}
		}},
	} {
		t.Run(k.claim, func(t *testing.T) {
			t.Parallel()
			const many = 200
			c := ownServer(t, lasting)
			direct := openOn(t, c.DSN, "direct")
			ids := enqueue(t, direct, many)
			short := claimOf(1)
			short.TTL = time.Microsecond
			expired, err := direct.FetchAndClaim(t.Context(), short)
			require.NoError(t, err)
			require.Equal(t, ids[0], expired[0].ID)
			require.NoError(t, direct.Close())
			goBack := k.before(t, c)

			p := pgtest.NewPooler(t, c.DSN)
			s, err := Open(t.Context(), p.DSN, &Options{Pooled: true})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, s.Close()) })
			s.sweeper.pace(never)
			recovery := func() []store.Recovered {
				done, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 1})
				require.NoError(t, err)
				return done
			}
			require.Len(t, recovery(), 1)
			_, err = s.Ack(t.Context(), acksOf(claimN(t, s, many)))
			require.NoError(t, err)
			_, err = s.Cancel(t.Context(), store.Filter{IDs: ids[:1]}, 1)
			require.NoError(t, err)
			past := time.Now()
			require.Eventually(t, func() bool {
				require.Empty(t, claimN(t, s, 1))
				require.Empty(t, recovery())
				leases, _ := s.leases.get()
				return s.trails.get("q").fresh.mark[levelOf(0)].at.After(past) && leases.at.After(past)
			}, time.Minute, time.Millisecond, "the marks do not move")

			require.NoError(t, p.Pause(t.Context()))
			require.NoError(t, p.PointAt(t.Context(), goBack()))
			require.NoError(t, p.Resume(t.Context()))
			began := time.Now()
			assert.Len(t, recovery(), 1, "the lease stays hidden")
			for left := many - 1; left > 0; {
				left -= len(claimN(t, s, many))
				require.Less(t, time.Since(began), 10*bound, "%d jobs stay hidden", left)
			}
		})
	}
}

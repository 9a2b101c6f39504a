package postgres

import (
	"database/sql"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
)

// TestNothingStaysHidden lets transactions of callers end in any order while time passes and others claim, and then wants every
// job that is there from the store that has looked all the time. Nothing else writes in the server: what other tests do would
// keep its numbers moving.
func TestNothingStaysHidden(t *testing.T) {
	const rounds, steps = 40, 60
	shown := clock.NewMock()
	s, err := Open(t.Context(), ownServer(t, pgtest.Options{}).DSN, &Options{Clock: shown})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	seed := rand.Uint64()
	dice := rand.New(rand.NewPCG(seed, 0))
	for round := range rounds {
		var open []*sql.Tx
		end := func(i int) {
			tx := open[i]
			open = append(open[:i], open[i+1:]...)
			if dice.IntN(4) > 0 {
				require.NoError(t, tx.Commit())
			} else {
				require.NoError(t, tx.Rollback())
			}
		}
		for range steps {
			switch dice.IntN(6) {
			case 0:
				tx, err := s.DB().BeginTx(t.Context(), nil)
				require.NoError(t, err)
				enqueue(t, s.InTx(tx), 1+dice.IntN(3))
				open = append(open, tx)
			case 1:
				if len(open) > 0 {
					end(dice.IntN(len(open)))
				}
			case 2:
				enqueue(t, s, 1)
			case 3:
				shown.Add(time.Duration(dice.IntN(500)) * time.Millisecond)
			default:
				claimTogether(t, s, 1+dice.IntN(3))
			}
		}
		for len(open) > 0 {
			end(0)
		}
		for len(claimN(t, s, 10)) > 0 {
		}
		require.Zero(t, countIn(t, s, store.Ready), "jobs stay hidden in round %d of seed %d", round, seed)
		passed := shown.Now()
		awaitMark(t, s, cursor.Position{At: passed, ID: 0}, func() {
			shown.Add(cursor.Slack)
			require.Empty(t, claimN(t, s, 1))
		})
	}
}

// claimTogether lets several claim at once, some of them where there is nothing.
func claimTogether(t *testing.T, s *Store, n int) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			req := claimOf(1 + i)
			if i == 1 {
				req.Queue = "other"
			}
			_, err := s.FetchAndClaim(t.Context(), req)
			assert.NoError(t, err)
		})
	}
	all.Wait()
}

package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
)

// All places are forgotten while a claim is under way: after its look, when it has found jobs, or when it has given leases. A recovery
// writes its mark after its look. None is written back.
func TestCallsUnderWayWriteNoPlaceBack(t *testing.T) {
	t.Parallel()
	claim := func(t *testing.T, s *Store) { require.Len(t, claimN(t, s, 1), 1) }
	recovery := func(t *testing.T, s *Store) {
		done, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 1})
		require.NoError(t, err)
		require.Len(t, done, 1)
	}
	for _, k := range []struct {
		name, at string
		call     func(t *testing.T, s *Store)
	}{
		{"Look", "SELECT 0 AS lane, place.priority", claim},
		{"Find", "FOR UPDATE SKIP LOCKED", claim},
		{"Leases", "attempts = jobs.attempts + 1", claim},
		{"Recovery", "(due_at, id) >= ($1::text", recovery},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, Options{})
			enqueue(t, s, 3)
			require.Eventually(t, func() bool { // the marks have moved
				_, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 1})
				require.NoError(t, err)
				at := s.leases()
				return !at.At.IsZero()
			}, time.Minute, time.Millisecond, "the mark of the leases does not move")
			short := claimOf(1)
			short.TTL = time.Microsecond
			_, err := s.FetchAndClaim(t.Context(), short)
			require.NoError(t, err)
			inQueue(s, func(q *cursor.Queue) { q.Looked = time.Time{} })

			var meanwhile func()
			wrapped(t, s, func(c Conn) Conn { return &slowConn{c, k.at, &meanwhile} })
			meanwhile = s.cursors.Forget
			k.call(t, s)
			require.Nil(t, meanwhile, "nothing was forgotten meanwhile")
			assert.Empty(t, s.cursors.All())
			at := s.leases()
			assert.Zero(t, at)
		})
	}
}

package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// placesAlone is what a store remembers of its places, without the store.
func placesAlone() *Store {
	return &Store{horizon: &horizon{}, cursors: newClaimCursors(), leases: &leaseMark{}}
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// movedOn is what a claim writes that has looked.
func movedOn(q *claimCursor) {
	q.fresh.mark[0], q.fresh.cursor[0], q.looked = position{noon, 7}, position{noon, 8}, noon
}

// All places of all queues are forgotten at once, and what was under way writes none of them back. What begins then is kept.
func TestForgottenPlacesStayForgotten(t *testing.T) {
	t.Parallel()
	s := placesAlone()
	queues := []string{"a", "b", "c"}
	for round := range int64(3) {
		underWay := map[string]claimCursor{}
		for _, q := range queues {
			s.cursors.change(q, s.cursors.get(q), movedOn)
			underWay[q] = s.cursors.get(q)
			require.Equal(t, position{noon, 7}, underWay[q].fresh.mark[0], "round %d: what a claim of %s has learned is lost", round, q)
		}
		_, age := s.leases.get()
		s.leases.set(position{noon, 9}, age)
		at, _ := s.leases.get()
		require.Equal(t, position{noon, 9}, at)
		for i := range int64(3) {
			s.horizon.note(noon.Add(time.Duration(10*round+i)*time.Second), 1000*round+2, 1000*round+2+i, time.Now())
		}
		require.Equal(t, noon.Add(time.Duration(10*round)*time.Second), s.horizon.known())

		s.forget()
		for range 2 { // before and after what was under way ends
			for _, q := range queues {
				assert.Equal(t, claimCursor{age: s.cursors.age}, s.cursors.get(q), "round %d, queue %s", round, q)
				s.cursors.change(q, underWay[q], movedOn)
			}
			at, _ = s.leases.get()
			assert.Zero(t, at)
			s.leases.set(position{noon, 9}, age)
			assert.Zero(t, s.horizon.known())
		}
		past, _, _ := s.horizon.note(noon, 9999, 9999, time.Time{})
		assert.Zero(t, past, "numbers from before say nothing")
	}
}

// A mark that a sweep has brought back stays there, whatever was under way in any queue. Others are as they were, and go on.
func TestMarksThatWereBroughtBackStay(t *testing.T) {
	t.Parallel()
	s := placesAlone()
	early := position{noon.Add(-time.Hour), 1}
	underWay := map[string]claimCursor{}
	for _, q := range []string{"a", "b"} {
		s.cursors.change(q, s.cursors.get(q), movedOn)
		underWay[q] = s.cursors.get(q)
	}
	_, age := s.leases.get()
	s.leases.set(position{noon, 9}, age)
	s.cursors.bringBack("a", func(q *claimCursor) *places { return &q.fresh }, 0, early)
	s.leases.bringBack(early)
	for q := range underWay {
		s.cursors.change(q, underWay[q], func(q *claimCursor) { q.fresh.mark[0], q.fresh.cursor[0] = position{noon, 10}, position{noon, 10} })
	}
	s.leases.set(position{noon, 10}, age)
	a, b := s.cursors.get("a"), s.cursors.get("b")
	assert.Equal(t, early, a.fresh.start()[0])
	assert.True(t, a.told && a.looked.IsZero(), "the next claim looks")
	assert.Equal(t, position{noon, 8}, b.fresh.start()[0])
	at, now := s.leases.get()
	assert.Equal(t, early, at)

	s.leases.set(position{noon, 11}, now)
	at, _ = s.leases.get()
	assert.Equal(t, position{noon, 11}, at)
	for _, q := range []string{"a", "b"} {
		s.cursors.change(q, s.cursors.get(q), func(q *claimCursor) { q.fresh.mark[0] = position{noon, 11} })
		assert.Equal(t, position{noon, 11}, s.cursors.get(q).fresh.mark[0], "queue %s stands still", q)
	}
}

// What is known of the transactions goes first: a claim that begins in between would move a new mark by it.
func TestTheHorizonIsForgottenFirst(t *testing.T) {
	t.Parallel()
	s := placesAlone()
	s.horizon.note(noon, 1, 1, time.Now())
	require.Equal(t, noon, s.horizon.known())
	s.cursors.mu.Lock()
	done := make(chan struct{})
	go func() { s.forget(); close(done) }()
	assert.Eventually(t, func() bool { return s.horizon.known().IsZero() }, 10*time.Second, time.Millisecond, "places are forgotten first")
	s.cursors.mu.Unlock()
	<-done
}

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
		{"Look", "SELECT 0, place.priority", claim},
		{"Find", "FOR UPDATE SKIP LOCKED", claim},
		{"Leases", "attempts = attempts + 1", claim},
		{"Recovery", "SELECT lease_expires_at, id", recovery},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, Options{})
			enqueue(t, s, 3)
			require.Eventually(t, func() bool { // the marks have moved
				_, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 1})
				require.NoError(t, err)
				at, _ := s.leases.get()
				return !at.at.IsZero()
			}, time.Minute, time.Millisecond, "the mark of the leases does not move")
			short := claimOf(1)
			short.TTL = time.Microsecond
			_, err := s.FetchAndClaim(t.Context(), short)
			require.NoError(t, err)
			inQueue(s, func(q *claimCursor) { q.looked = time.Time{} })

			var meanwhile func()
			wrapped(t, s, func(c connection) connection { return &slowConn{c, k.at, &meanwhile} })
			meanwhile = s.forget
			k.call(t, s)
			require.Nil(t, meanwhile, "nothing was forgotten meanwhile")
			assert.Empty(t, s.cursors.all())
			at, _ := s.leases.get()
			assert.Zero(t, at)
		})
	}
}

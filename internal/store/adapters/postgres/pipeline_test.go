package postgres

import (
	"context"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
)

// warm is a store with one connection, which has prepared what calls about a few jobs need.
func warm(t *testing.T, o Options) *Store {
	t.Helper()
	s := narrow(openStore(t, o))
	for range 3 {
		enqueue(t, s, 1)
		jobs := claimN(t, s, 1)
		require.Len(t, jobs, 1)
		require.Empty(t, claimN(t, s, 1))
		_, err := s.Ack(t.Context(), acksOf(jobs))
		require.NoError(t, err)
	}
	return s
}

// inQueue lets a test look at what is remembered of the queue q, or change it.
func inQueue(s *Store, f func(*cursor.Queue)) {
	s.cursors.Change("q", s.cursors.Get("q"), f)
}

// Messages are counted, since each takes longer than what it is about.
func TestWhatGoesTogetherSavesMessages(t *testing.T) {
	t.Parallel()
	s := warm(t, Options{})
	other := openStore(t, Options{Schema: s.options.Schema})
	s.limiter.mu.Lock()
	s.limiter.latest[store.Wakeup{Queue: "q"}] = time.Now().Add(time.Hour) // so that it sends no message of its own
	s.limiter.mu.Unlock()
	some := func() { require.Len(t, claimN(t, s, 1), 1) }
	none := func() { require.Empty(t, claimN(t, s, 1)) }
	for _, call := range []struct {
		name   string
		before func()
		call   func()
		want   int64
	}{
		{"a claim that was told of jobs begins with a look, finds, and ends with its leases", func() { enqueue(t, s, 2) }, some, 3},
		{"one after another needs no look", func() { inQueue(s, func(q *cursor.Queue) { q.Looked = time.Now().Add(time.Hour) }) }, some, 3},
		{"one that finds neither fresh jobs nor retries looks then", nil, none, 5},
		{"one after that looks, and has no more to say", nil, none, 1},
		{"unless it sees something", func() { enqueue(t, other, 1) }, some, 4},
	} {
		if call.before != nil {
			call.before()
		}
		assert.Equal(t, call.want, spentBy(t, s, call.call)["round trips"], call.name)
	}
}

// What is written out comes to the server as it is.
func TestArgumentsThatAreWrittenOutStayAsTheyAre(t *testing.T) {
	t.Parallel()
	s := alone(t)
	for _, text := range []string{
		`'`, `''`, `\`, `\'`, `'); COMMIT; DROP TABLE jobs; --`, `$1 $$ $tag$`, `{"`, `NULL`, `,`, "\n\t", `ü 🦊`, `E'\x41'`, `\u0041`,
		strings.Repeat(`'`, store.MaxNameBytes),
	} {
		for range 3 {
			n := store.NewJob{Queue: text, Kind: "k", Payload: []byte(`1`)}
			added, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n}})
			require.NoError(t, err)
			for _, want := range []int{1, 0} {
				jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: text, Limit: 1, Worker: text, TTL: time.Minute})
				require.NoError(t, err)
				require.Len(t, jobs, want)
				if want > 0 {
					detail, err := s.Get(t.Context(), added[0].ID)
					require.NoError(t, err)
					assert.Equal(t, jobs[0], detail.Job)
				}
			}
		}
	}
}

// Leases that are refused take the COMMIT behind them along, and the session goes on.
func TestWhatIsRefusedIsNotCommitted(t *testing.T) {
	t.Parallel()
	s := warm(t, Options{})
	ids := enqueue(t, s, 2)
	before := prepared(t, s)
	_, err := s.DB().ExecContext(t.Context(), s.sql(`ALTER TABLE {schema}.jobs ADD CHECK (worker <> 'bad')`))
	require.NoError(t, err)
	bad := claimOf(1)
	bad.Worker = "bad"
	for range 3 {
		_, err = s.FetchAndClaim(t.Context(), bad)
		require.ErrorIs(t, err, store.ErrUnavailable)
		require.NotErrorIs(t, err, store.ErrInDoubt)
	}
	require.Equal(t, int64(2), countIn(t, s, store.Ready))
	jobs := claimN(t, s, 2)
	require.Len(t, jobs, 2)
	assert.Equal(t, ids[0], jobs[0].ID)
	assert.Equal(t, int64(1), jobs[0].Token)
	assert.Equal(t, before, prepared(t, s), "it is the same session")
}

// A look that went with the opening was made from marks that hold no longer, if the opening tells that the clock was set back.
func TestALookThatCameTooEarlyIsMadeAnew(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{false, true} {
		noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		shown := clock.NewMock()
		shown.Set(noon)
		s := narrow(openStore(t, Options{Clock: shown}))
		other := openStore(t, Options{Clock: shown, Schema: s.options.Schema})
		awaitMark(t, s, cursor.Position{At: noon.Add(store.Resolution), ID: 0}, func() {
			shown.Add(time.Second)
			require.Empty(t, claimN(t, s, 1))
		})
		shown.Set(noon)
		enqueue(t, other, 1)
		inQueue(s, func(q *cursor.Queue) { q.Told = told })
		assert.Len(t, claimN(t, s, 1), 1)
	}
}

// A look that has to wait for a table that is written anew must see the new one.
func TestALookDuringAChangeOfTheTableMissesNothing(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{false, true} {
		s := warm(t, Options{})
		other := openStore(t, Options{Schema: s.options.Schema})
		enqueue(t, other, 2)
		inQueue(s, func(q *cursor.Queue) { q.Told = told })
		change, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = change.ExecContext(t.Context(), s.sql(`ALTER TABLE {schema}.jobs ALTER COLUMN priority TYPE integer`))
		require.NoError(t, err)
		claimed := make(chan int, 1)
		go func() {
			jobs, err := s.FetchAndClaim(t.Context(), claimOf(1))
			assert.NoError(t, err)
			claimed <- len(jobs)
		}()
		awaitWaiting(t, s, 1, time.Minute)
		require.NoError(t, change.Commit())
		assert.Equal(t, 1, <-claimed)
		assert.Len(t, claimN(t, s, 2), 1)
	}
}

// A slowConn is a connection on which something else happens between a message and its answer.
type slowConn struct {
	Conn
	at        string // is in the message
	meanwhile *func()
}

func (c *slowConn) await(query string) {
	if f := *c.meanwhile; f != nil && strings.Contains(query, c.at) {
		*c.meanwhile = nil
		f()
	}
}

// QueryContext is part of driver.QueryerContext.
func (c *slowConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.Conn.QueryContext(ctx, query, args)
	c.await(query)
	return rows, err
}

// ExecContext is part of driver.ExecerContext.
func (c *slowConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	result, err := c.Conn.ExecContext(ctx, query, args)
	c.await(query)
	return result, err
}

// A transaction ends after a look, and another claim has learned of it before the answer is there.
func TestALookKnowsOfNothingThatEndedAfterIt(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{false, true} {
		shown := clock.NewMock()
		s := openStore(t, Options{Clock: shown})
		var meanwhile func()
		wrapped(t, s, func(c Conn) Conn { return &slowConn{c, "LOCK TABLE", &meanwhile} })
		for range 4 {
			require.Empty(t, claimN(t, s, 1))
		}
		tx, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		enqueue(t, s.InTx(tx), 1)
		shown.Add(time.Second)
		claimOther(t, s)
		inQueue(s, func(q *cursor.Queue) { q.Told = told })
		took := 0
		meanwhile = func() {
			require.Eventually(t, func() bool {
				var looking int
				err := s.callers.GetContext(t.Context(), &looking, `
					SELECT count(*)
					FROM pg_stat_activity
					WHERE application_name = $1 AND state = 'active' AND query LIKE 'BEGIN%LOCK TABLE%'`, s.options.Schema)
				return err == nil && looking == 0
			}, time.Minute, time.Millisecond)
			require.NoError(t, tx.Commit())
			awaitHorizon(t, s, shown.Now())
		}
		for range 2 {
			took += len(claimN(t, s, 1))
		}
		require.Nil(t, meanwhile, "no look has gone with an opening")
		assert.Equal(t, 1, took)
	}
}

// Another claim has found the clock set back before the look is answered: what this one began from holds no longer.
func TestALookWhosePlacesWereForgottenIsMadeAnew(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{false, true} {
		s := narrow(openStore(t, Options{}))
		other := openStore(t, Options{Schema: s.options.Schema})
		var meanwhile func()
		wrapped(t, s, func(c Conn) Conn { return &slowConn{c, "LOCK TABLE", &meanwhile} })
		for range 4 {
			require.Empty(t, claimN(t, s, 1))
		}
		enqueue(t, other, 1)
		inQueue(s, func(q *cursor.Queue) {
			q.Lanes[cursor.Fresh].Mark[cursor.LevelOf(0)] = cursor.Position{At: time.Now().Add(time.Hour)}
			q.Told = told
		})
		meanwhile = s.cursors.Forget
		assert.Len(t, claimN(t, s, 1), 1)
		require.Nil(t, meanwhile, "no look has gone with an opening")
	}
}

// A look that fails has seen nothing, which does not mean that nothing is there.
func TestALookThatFailsMovesNoMark(t *testing.T) {
	t.Parallel()
	s := warm(t, Options{LockTimeout: 50 * time.Millisecond})
	other := openStore(t, Options{Schema: s.options.Schema})
	enqueue(t, other, 1)
	for _, told := range []bool{false, true} {
		inQueue(s, func(q *cursor.Queue) { q.Told = told })
		change, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = change.ExecContext(t.Context(), s.sql(`LOCK TABLE {schema}.jobs`))
		require.NoError(t, err)
		before := s.cursors.Get("q")
		_, err = s.FetchAndClaim(t.Context(), claimOf(1))
		assert.ErrorIs(t, err, store.ErrUnavailable)
		assert.Equal(t, before, s.cursors.Get("q"))
		require.NoError(t, change.Rollback())
	}
	assert.Len(t, claimN(t, s, 1), 1)
}

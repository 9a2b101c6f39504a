package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
)

// TestLostClaimsAreFoundAgain lets a server lose, with its life, claims that it had answered, as it may where
// synchronous_commit is off. The jobs are as they were before, and a store that goes on finds them again.
func TestLostClaimsAreFoundAgain(t *testing.T) {
	const deaths, jobs = 2, 1000
	c := ownServer(t, lasting)
	safe, s := openOn(t, c.DSN, "safe"), openOn(t, c.DSN+" synchronous_commit=off", "store")
	lost := 0
	for range deaths {
		enqueue(t, safe, jobs)
		// Without the process that writes the log by and by, nothing of the claims is kept.
		pids, _ := freeze(t, safe, `SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'`)
		for range jobs / 100 {
			require.Len(t, claimN(t, s, 100), 100)
		}
		last := time.Now()
		awaitMark(t, s, cursor.Position{At: last, ID: 1}, func() { require.Empty(t, claimN(t, s, 100)) }) // the next claims begin behind the jobs
		require.NoError(t, c.KillSession(t.Context(), pids[0]))
		_, err := safe.db.ExecContext(t.Context(), `SELECT pg_sleep(60)`)
		require.Error(t, err, "it dies")
		newLoad(safe).look(t, "q") // as soon as it is back
		waiting := int(countIn(t, safe, store.Ready))
		lost += waiting
		for began := time.Now(); waiting > 0; {
			waiting -= len(claimN(t, s, 1000))
			require.Less(t, time.Since(began), 10*bound, "%d jobs are ready and stay hidden", waiting)
		}
	}
	assert.Positive(t, lost, "the server has lost some claims")
	figures.Print(t, "a server that answers before it syncs has lost %d of %d claims in %d deaths, all of them found again by the open store",
		lost, deaths*jobs, deaths)
	figures.Count(t, "deaths of the server", deaths)
	figures.Count(t, "claims that the server lost", lost)
}

// TestLateReleaseSparesTheNextClaim: what a claim in doubt may have taken is released behind the call. If it took nothing,
// the next claim gives leases with the same tokens, and those are somebody else's.
func TestLateReleaseSparesTheNextClaim(t *testing.T) {
	s := openStore(t, Options{})
	enqueue(t, s, 5)
	inCommits(t, s, "UPDATE", `pg_terminate_backend(pg_backend_pid())`)
	before := time.Now()
	_, err := s.FetchAndClaim(t.Context(), claimOf(5))
	require.ErrorIs(t, err, store.ErrInDoubt, "its session ended in the middle of the commit")
	s.running.Wait()
	_, err = s.db.ExecContext(t.Context(), s.sql(`DROP TRIGGER in_commits ON {schema}.jobs`))
	require.NoError(t, err)

	held := claimN(t, s, 5)
	require.Len(t, held, 5)
	lost := &claim{ClaimRequest: claimOf(5), at: before}
	for _, j := range held {
		require.Equal(t, int64(1), j.Token, "the first claim was not applied")
		lost.leases = append(lost.leases, j.Lease())
	}
	s.release(t.Context(), lost)
	outcomes, err := s.Ack(t.Context(), acksOf(held))
	require.NoError(t, err)
	for _, o := range outcomes {
		assert.Equal(t, store.StatusOK, o.Status)
	}
}

// inCommits lets the server perform something in the middle of every commit that writes jobs in that way.
func inCommits(t *testing.T, s *Store, written, what string) {
	t.Helper()
	for _, statement := range []string{`
		CREATE FUNCTION {schema}.in_commits() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN PERFORM ` + what + `; RETURN NULL; END'`, `
		CREATE CONSTRAINT TRIGGER in_commits AFTER ` + written + ` ON {schema}.jobs DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION {schema}.in_commits()`,
	} {
		_, err := s.db.ExecContext(t.Context(), s.sql(statement))
		require.NoError(t, err)
	}
}

// A lossyConn is a connection that loses the answer to a query with a text, which it has not prepared yet.
type lossyConn struct {
	Conn
	at   string
	lost *int
}

// QueryContext is part of driver.QueryerContext.
func (c lossyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.Conn.QueryContext(ctx, query, args)
	if err != nil || !strings.Contains(query, c.at) {
		return rows, err
	}
	*c.lost++
	return nil, errors.Join(rows.Close(), io.ErrUnexpectedEOF)
}

// A claim whose answer was lost knows no jobs that it could release. They are recovered when their leases expire.
func TestJobsOfALostToldClaimAreRecovered(t *testing.T) {
	t.Parallel()
	shown := newClock()
	s := warm(t, Options{Clock: shown})
	lost := 0
	wrapped(t, s, func(c Conn) Conn { return lossyConn{c, "given.until", &lost} })
	narrow(s)
	id := enqueue(t, s, 1)[0]
	lively(s)
	_, err := s.FetchAndClaim(t.Context(), claimOf(2))
	require.ErrorIs(t, err, store.ErrInDoubt)
	require.Equal(t, 1, lost)
	s.running.Wait()
	detail, err := s.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, store.InFlight, detail.Job.State, "it was applied")
	recovered := func() []store.Recovered {
		list, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 10})
		require.NoError(t, err)
		return list
	}
	shown.Add(time.Minute - store.Resolution)
	require.Empty(t, recovered())
	shown.Add(store.Resolution)
	list := recovered()
	require.Len(t, list, 1)
	assert.Equal(t, id, list[0].ID)
	assert.Equal(t, "w", list[0].Worker)
}

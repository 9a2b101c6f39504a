package postgres

import (
	"context"
	"database/sql/driver"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// BenchmarkHistory is the life of jobs of which nothing fails, in batches of a thousand, with the history of attempts and without.
// Both take turns, so that what else goes on in the machine befalls both, and time is told apart by turns.
func BenchmarkHistory(b *testing.B) {
	const size = 1000
	kept, none := benchStore(b), benchStore(b)
	f := &forgetful{left: map[string]bool{}}
	wrapped(b, none, func(c Conn) Conn { return &forgetfulConn{c, f} })
	took := map[*Store]time.Duration{}
	jobs := benchJobs(size)
	for b.Loop() {
		for _, s := range []*Store{kept, none} {
			at := time.Now()
			_, err := s.Enqueue(b.Context(), store.EnqueueRequest{Jobs: jobs})
			require.NoError(b, err)
			claimed, err := s.FetchAndClaim(b.Context(), store.ClaimRequest{Queue: "q", Limit: size, Worker: "w", TTL: time.Minute})
			require.NoError(b, err)
			require.Len(b, claimed, size)
			_, err = s.Ack(b.Context(), acksOf(claimed))
			require.NoError(b, err)
			took[s] += time.Since(at)
		}
	}
	require.Len(b, f.left, len(historyParts), "the statements of claims and of acks, from which parts were left out")
	b.ReportMetric(100*(took[kept].Seconds()/took[none].Seconds()-1), "%-more")
}

// A forgetful driver leaves the history out of claims and acks.
type forgetful struct {
	mu   sync.Mutex
	left map[string]bool // the parts that were left out of a statement
}

type forgetfulConn struct {
	Conn
	f *forgetful
}

// ExecContext is part of driver.ExecerContext.
func (c *forgetfulConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.ExecContext(ctx, c.f.without(query), args)
}

// QueryContext is part of driver.QueryerContext.
func (c *forgetfulConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.QueryContext(ctx, c.f.without(query), args)
}

// PrepareContext is part of driver.ConnPrepareContext.
func (c *forgetfulConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.Conn.PrepareContext(ctx, c.f.without(query))
}

// without returns the statement without the parts that write the history.
func (f *forgetful) without(query string) string {
	for part, rest := range historyParts {
		if less := strings.Replace(query, part, rest, 1); less != query {
			f.mu.Lock()
			f.left[part] = true
			f.mu.Unlock()
			query = less
		}
	}
	return query
}

// historyParts are the parts of statements that write the history of attempts, each with its replacement.
var historyParts = map[string]string{
	// of a claim, whose time the job has as well
	`
			claim_token = greatest(jobs.token, $5::bigint) + 1,
			claimed_at = $4,
			ended_at = NULL,
			ending = '',
			reason = ''`: `
			claimed_at = $4`,
	// of an Ack
	`,
			ended_at = $4,
			ending = 'succeeded'`: ``,
}

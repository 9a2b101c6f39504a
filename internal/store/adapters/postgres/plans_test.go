package postgres

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A recorder keeps the texts of the statements that a store sends.
type recorder struct {
	mu    sync.Mutex
	texts map[string]bool
}

type recordedConn struct {
	Conn
	r *recorder
}

// QueryContext is part of driver.QueryerContext.
func (c *recordedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.r.add(query)
	return c.Conn.QueryContext(ctx, query, args)
}

// ExecContext is part of driver.ExecerContext.
func (c *recordedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.r.add(query)
	return c.Conn.ExecContext(ctx, query, args)
}

func (r *recorder) add(query string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts[query] = true
}

// recurring are the texts that are prepared: not those of several statements, nor those without arguments.
func (r *recorder) recurring() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.texts)), func(text string) bool { return !strings.Contains(text, "$1") })
}

// A comparison compares rows with all of a table.
type comparison struct{ Statement, Table, By string }

// comparesIn adds those of a plan: joins, and subqueries that the server answers for all rows at once.
func (p plan) comparesIn(statement string, found *[]comparison) {
	for _, below := range p.Plans {
		below.comparesIn(statement, found)
		for len(below.Plans) == 1 && (below.Node == "Materialize" || below.Node == "Memoize") {
			below = below.Plans[0]
		}
		var by string
		switch {
		case below.Relation == "":
		case below.Role == "SubPlan" && below.Index == "":
			by = "a subquery"
		case below.Role != "SubPlan" && below.Role != "InitPlan" && !strings.Contains(below.Index, "."): // which would name another table
			by = p.Joins
		}
		if by != "" {
			*found = append(*found, comparison{strings.Join(strings.Fields(statement), " "), below.Relation, by})
		}
	}
}

// While the server knows of no rows, it might as well compare all rows of two tables, and a prepared statement keeps its plan when the tables have grown.
// So the statements leave it no choice but an index.
func TestNoStatementComparesAllRowsOfATable(t *testing.T) {
	t.Parallel()
	clk := clock.NewMock()
	clk.Set(time.Now())
	s := openStore(t, Options{Clock: clk})
	r := &recorder{texts: map[string]bool{}}
	wrapped(t, s, func(c Conn) Conn { return &recordedConn{c, r} })
	callMuch(t, s, clk)

	empty := openStore(t, Options{})
	analyzed(t, empty)
	conn, err := empty.db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()) }()
	var found []comparison
	texts := r.recurring()
	require.Greater(t, len(texts), 60, "the calls were many")
	for _, text := range texts {
		text = strings.ReplaceAll(text, s.schema, empty.schema)
		_, err := conn.ExecContext(t.Context(), `PREPARE planned AS `+text)
		if !assert.NoError(t, err, text) {
			continue
		}
		var n int
		require.NoError(t, conn.QueryRowContext(t.Context(), `SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'planned'`).Scan(&n))
		var answer string
		list := strings.TrimSuffix(strings.Repeat(`NULL,`, n), `,`)
		require.NoError(t, conn.QueryRowContext(t.Context(), `EXPLAIN (FORMAT JSON) EXECUTE planned (`+list+`)`).Scan(&answer))
		var plans []struct{ Plan plan }
		require.NoError(t, json.Unmarshal([]byte(answer), &plans))
		plans[0].Plan.comparesIn(text, &found)
		_, err = conn.ExecContext(t.Context(), `DEALLOCATE planned`)
		require.NoError(t, err)
	}
	for _, c := range found {
		t.Errorf("%s is compared by %s, in: %s", c.Table, c.By, c.Statement)
	}
}

// analyzed lets the server know what the tables have.
func analyzed(t *testing.T, s *Store) {
	t.Helper()
	var tables []string
	require.NoError(t, s.callers.Select(&tables, `SELECT tablename FROM pg_tables WHERE schemaname = $1`, s.options.Schema))
	for _, table := range tables {
		_, err := s.callers.ExecContext(t.Context(), s.sql(`ANALYZE {schema}.`+table))
		require.NoError(t, err)
	}
}

// callMuch makes most kinds of calls.
func callMuch(t *testing.T, s *Store, clk *clock.Mock) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		clk.Add(time.Second)
		doSomethingWithGroups(t.Context(), t, s, random)
	}
	limits := []store.Policy{
		{}, {MaxInFlight: 50}, {MaxPerKey: 5}, {MaxPerKey: 1, Ordered: true}, {Fair: true}, {Ordered: true}, {Rate: store.Rate{N: 100, Per: time.Second}}, {},
	}
	for _, p := range limits {
		limitTo(t, s, p)
		for range 5 {
			enqueueKeyed(t, s, 3, "a", "b", "", "c")
			finish(t, s, claimN(t, s, 2))
			for i, j := range claimN(t, s, 4) {
				nack(t, s, j, []store.Form{store.After, store.Never, store.Release}[i%3], 0)
			}
			claimN(t, s, 2)
			clk.Add(time.Hour)
			_, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 100})
			require.NoError(t, err)
			settle(t, s)
		}
	}
	job := member("")
	job.Queue, job.MaxRetries, job.UniqueKey = "crowded", 2*store.MaxAttemptsKept, "u"
	enqueueOne(t, s, job)
	for range store.MaxAttemptsKept + 2 {
		jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "crowded", Limit: 1, RetryQuota: 1, Worker: "w", TTL: time.Minute})
		require.NoError(t, err)
		require.Len(t, jobs, 1)
		nack(t, s, jobs[0], store.After, 0)
	}
}

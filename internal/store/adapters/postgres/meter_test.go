package postgres

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A cost is what a call visits on the server: pages of tables and indexes, as often as it looks at them, and rows of tables.
type cost struct{ pages, rows int }

// or is the larger cost of both.
func (c cost) or(other cost) cost { return cost{max(c.pages, other.pages), max(c.rows, other.rows)} }

func (c cost) String() string { return fmt.Sprintf("%d pages and %d rows", c.pages, c.rows) }

// A meter stands between a store and the driver. While it counts, the server explains each statement before it is run, by
// running it in a subtransaction: what is counted is what the store's own call does, with its own settings and arguments.
type meter struct {
	t      *testing.T
	schema string // quoted

	mu       sync.Mutex // guards what follows
	counting bool
	cost
}

// metered puts a meter before the store's connections.
func metered(t *testing.T, s *Store) *meter {
	t.Helper()
	m := &meter{t: t, schema: s.schema}
	wrapped(t, s, func(c Conn) Conn { return &meteredConn{c, m} })
	return m
}

// of is what the call visits.
func (m *meter) of(call func() error) cost {
	m.t.Helper()
	m.mu.Lock()
	m.counting, m.cost = true, cost{}
	m.mu.Unlock()
	require.NoError(m.t, call())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counting = false
	require.NotZero(m.t, m.pages, "a call that visits nothing went past the meter")
	return m.cost
}

type meteredConn struct {
	Conn
	m *meter
}

// QueryContext is part of driver.QueryerContext.
func (c *meteredConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.count(ctx, query, args)
	return c.Conn.QueryContext(ctx, query, args)
}

// ExecContext is part of driver.ExecerContext.
func (c *meteredConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.count(ctx, query, args)
	return c.Conn.ExecContext(ctx, query, args)
}

// PrepareContext is part of driver.ConnPrepareContext.
func (c *meteredConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.Conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &meteredStmt{Stmt: stmt, statement: stmt.(statement), c: c, query: query}, nil
}

// A meteredStmt is a statement that is planned for whatever its arguments will be.
type meteredStmt struct {
	driver.Stmt
	statement
	c     *meteredConn
	query string
}

// QueryContext is part of driver.StmtQueryContext.
func (s *meteredStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.count(ctx, args)
	return s.statement.QueryContext(ctx, args)
}

// ExecContext is part of driver.StmtExecContext.
func (s *meteredStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.count(ctx, args)
	return s.statement.ExecContext(ctx, args)
}

// count adds what the plan of the prepared statement visits.
func (s *meteredStmt) count(ctx context.Context, args []driver.NamedValue) {
	s.c.m.mu.Lock()
	defer s.c.m.mu.Unlock()
	if !s.c.m.counting {
		return
	}
	values := make([]string, len(args))
	for i, arg := range args {
		switch v := arg.Value.(type) {
		case time.Time:
			values[i] = pq.QuoteLiteral(string(pq.FormatTimestamp(v)))
		case []byte:
			values[i] = pq.QuoteLiteral(string(v))
		default:
			values[i] = pq.QuoteLiteral(fmt.Sprint(v))
		}
	}
	s.c.run(ctx, `PREPARE measured AS `+s.query)
	s.c.visits(ctx, `EXECUTE measured (`+strings.Join(values, ", ")+`)`, nil)
	s.c.run(ctx, `DEALLOCATE measured`)
}

// executed is what openings and commits execute on their way.
var executed = regexp.MustCompile(`(?s)EXECUTE jq_\d+ \(.*\)`)

// count adds what the statement visits, if it is about the store's tables, or executes one that is.
func (c *meteredConn) count(ctx context.Context, query string, args []driver.NamedValue) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	switch inside := executed.FindString(query); {
	case !c.m.counting || strings.HasPrefix(query, "PREPARE "):
	case strings.HasPrefix(query, "BEGIN") && inside != "":
		c.run(ctx, `BEGIN`)
		c.visits(ctx, inside, nil)
		c.run(ctx, `ROLLBACK`)
	case inside != "":
		c.visits(ctx, inside, nil)
	case strings.Contains(query, c.m.schema+"."):
		c.visits(ctx, query, args)
	}
}

// visits runs the statement in order to see what it visits, and undoes it.
func (c *meteredConn) visits(ctx context.Context, query string, args []driver.NamedValue) {
	c.run(ctx, `SAVEPOINT explained`)
	rows, err := c.Conn.QueryContext(ctx, `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) `+query, args)
	require.NoError(c.m.t, err, query)
	row := make([]driver.Value, 1)
	require.NoError(c.m.t, rows.Next(row))
	var answer []struct {
		Plan plan
		JIT  json.RawMessage
	}
	require.NoError(c.m.t, json.Unmarshal(row[0].([]byte), &answer))
	assert.Empty(c.m.t, answer[0].JIT, "the server compiled a statement that is done sooner than that: %s", query)
	require.ErrorIs(c.m.t, rows.Next(row), io.EOF)
	require.NoError(c.m.t, rows.Close())
	c.run(ctx, `ROLLBACK TO explained`)
	c.run(ctx, `RELEASE explained`)
	c.m.pages += answer[0].Plan.Hit + answer[0].Plan.Read
	c.m.rows += int(answer[0].Plan.visited())
}

func (c *meteredConn) run(ctx context.Context, text string) {
	_, err := c.Conn.ExecContext(ctx, text, nil)
	require.NoError(c.m.t, err)
}

// A plan is what the server tells of a node and of those below it, whose pages are counted in its own.
type plan struct {
	Node      string  `json:"Node Type"`
	Relation  string  `json:"Relation Name"`
	Hit       int     `json:"Shared Hit Blocks"`
	Read      int     `json:"Shared Read Blocks"`
	Loops     float64 `json:"Actual Loops"`
	Rows      float64 `json:"Actual Rows"` // a loop, as the next two
	Filtered  float64 `json:"Rows Removed by Filter"`
	Rechecked float64 `json:"Rows Removed by Index Recheck"`
	Plans     []plan
}

// visited is how many rows of tables were looked at, those that were of no use included.
func (p plan) visited() float64 {
	var sum float64
	if p.Relation != "" && strings.HasSuffix(p.Node, "Scan") {
		sum = p.Loops * (p.Rows + p.Filtered + p.Rechecked)
	}
	for _, below := range p.Plans {
		sum += below.visited()
	}
	return sum
}

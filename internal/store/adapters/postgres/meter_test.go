package postgres

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
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
	wrapped(t, s, func(c Conn) Conn { return &meteredConn{Conn: c, m: m} })
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
	m    *meter
	open bool // a transaction
}

// CheckNamedValue is part of driver.NamedValueChecker. EXECUTE needs arrays as texts.
func (c *meteredConn) CheckNamedValue(v *driver.NamedValue) error {
	if a, ok := v.Value.(*array); ok {
		v.Value = a.String()
		return nil
	}
	return c.Conn.CheckNamedValue(v)
}

// QueryContext is part of driver.QueryerContext.
func (c *meteredConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.count(ctx, query, args); err != nil {
		return nil, err
	}
	return c.Conn.QueryContext(ctx, query, args)
}

// ExecContext is part of driver.ExecerContext.
func (c *meteredConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.count(ctx, query, args); err != nil {
		return nil, err
	}
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
	if err := s.count(ctx, args); err != nil {
		return nil, err
	}
	return s.statement.QueryContext(ctx, args)
}

// ExecContext is part of driver.StmtExecContext.
func (s *meteredStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.count(ctx, args); err != nil {
		return nil, err
	}
	return s.statement.ExecContext(ctx, args)
}

// count adds what the plan of the prepared statement visits.
func (s *meteredStmt) count(ctx context.Context, args []driver.NamedValue) error {
	s.c.m.mu.Lock()
	defer s.c.m.mu.Unlock()
	if !s.c.m.counting {
		return nil
	}
	values := make([]string, len(args))
	for i, arg := range args {
		switch v := arg.Value.(type) {
		case nil:
			values[i] = `NULL`
		case time.Time:
			values[i] = pq.QuoteLiteral(string(pq.FormatTimestamp(v)))
		default:
			values[i] = pq.QuoteLiteral(fmt.Sprint(v))
		}
	}
	if err := s.c.run(ctx, `PREPARE measured AS `+s.query); err != nil {
		return err
	}
	if err := s.c.visits(ctx, `EXECUTE measured (`+strings.Join(values, ", ")+`)`, nil); err != nil {
		return err
	}
	return s.c.run(ctx, `DEALLOCATE measured`)
}

// count adds what the statement visits, if it is about the store's tables.
func (c *meteredConn) count(ctx context.Context, query string, args []driver.NamedValue) error {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	switch {
	case strings.HasPrefix(query, "BEGIN"):
		c.open = true
	case strings.HasSuffix(query, "COMMIT") || query == "ROLLBACK":
		c.open = false
	case c.m.counting && strings.Contains(query, c.m.schema+"."):
		return c.visits(ctx, query, args)
	}
	return nil
}

// visits runs the statement in order to see what it visits, and undoes it. It fails as the statement would: the end of a test
// within a call of the driver would wait for that call.
func (c *meteredConn) visits(ctx context.Context, query string, args []driver.NamedValue) error {
	begin, undo := `SAVEPOINT explained`, `ROLLBACK TO explained; RELEASE explained`
	if !c.open { // it is a transaction of its own
		begin, undo = `BEGIN`, `ROLLBACK`
	}
	if err := c.run(ctx, begin); err != nil {
		return err
	}
	rows, err := c.Conn.QueryContext(ctx, `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) `+query, args)
	if err != nil {
		return err
	}
	row := make([]driver.Value, 1)
	if err := errors.Join(rows.Next(row), rows.Close()); err != nil {
		return err
	}
	var answer []struct {
		Plan plan
		JIT  json.RawMessage
	}
	if err := json.Unmarshal(row[0].([]byte), &answer); err != nil {
		return err
	}
	assert.Empty(c.m.t, answer[0].JIT, "the server compiled a statement that is done sooner than that: %s", query)
	c.m.pages += answer[0].Plan.Hit + answer[0].Plan.Read
	c.m.rows += int(answer[0].Plan.visited())
	return c.run(ctx, undo)
}

func (c *meteredConn) run(ctx context.Context, text string) error {
	_, err := c.Conn.ExecContext(ctx, text, nil)
	return err
}

// A plan is what the server tells of a node and of those below it, whose pages are counted in its own.
type plan struct {
	Node      string  `json:"Node Type"`
	Role      string  `json:"Parent Relationship"`
	Relation  string  `json:"Relation Name"`
	Index     string  `json:"Index Cond"`
	IndexName string  `json:"Index Name"`
	Joins     string  `json:"Join Filter"`
	Hit       int     `json:"Shared Hit Blocks"`
	Read      int     `json:"Shared Read Blocks"`
	Loops     float64 `json:"Actual Loops"`
	Rows      float64 `json:"Actual Rows"` // a loop, as the next two
	Filtered  float64 `json:"Rows Removed by Filter"`
	Rechecked float64 `json:"Rows Removed by Index Recheck"`
	Unjoined  float64 `json:"Rows Removed by Join Filter"`
	Plans     []plan
}

// visited is how many rows of tables were looked at, those that were of no use included, as often as they were compared with others.
func (p plan) visited() float64 {
	sum := p.Loops * p.Unjoined
	if p.Relation != "" && strings.HasSuffix(p.Node, "Scan") {
		sum = p.Loops * (p.Rows + p.Filtered + p.Rechecked)
	}
	for _, below := range p.Plans {
		sum += below.visited()
	}
	return sum
}

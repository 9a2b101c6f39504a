package jqpgx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/benbjohnson/clock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/jqpgx"
	"github.com/seed-ed332417/jq/postgres"
)

// TestConformance runs the cases of callers' transactions, each of which is a pgx.Tx.
func TestConformance(t *testing.T) {
	dsn := pgtest.DSN(t)
	schemas := pgtest.NewSchemas(t, dsn)
	pool := open(t, dsn)
	adapter := conformance.Adapter{New: func(ctx context.Context, clk clock.Clock) (*conformance.Instance, error) {
		o := &postgres.Options{Clock: clk, Schema: schemas.Take()}
		s, err := postgres.Open(ctx, dsn, o)
		if err != nil {
			return nil, err
		}
		began := &transactions{pool: pool}
		db := sql.OpenDB(began)
		return &conformance.Instance{
			Store: store{s, began}, DB: db,
			Remove: func() error { return errors.Join(db.Close(), s.Close(), schemas.Return(o.Schema)) },
		}, nil
	}}
	ran := 0
	for _, k := range conformance.Cases() {
		if strings.HasPrefix(k.Name, "Tx/") {
			ran++
			t.Run(k.Name, func(t *testing.T) { conformance.Test(t, adapter, k) })
		}
	}
	require.NotZero(t, ran)
}

func open(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// A store is given the pgx.Tx for each *sql.Tx that a case hands over.
type store struct {
	*postgres.Store
	began *transactions
}

func (s store) InTx(tx contract.Tx) contract.Writer {
	if inner := s.began.of(tx); inner != nil {
		tx = jqpgx.Tx(inner)
	}
	return s.Store.InTx(tx)
}

// Transactions are begun by a *sql.DB, and are those of pgx.
type transactions struct {
	pool *pgxpool.Pool
	mu   sync.Mutex
	all  []pgx.Tx
}

// of asks what tx passes its statements on to: nil if it runs none.
func (t *transactions) of(tx contract.Tx) pgx.Tx {
	var index int
	if contract.CheckTx(tx) != nil || tx.QueryRowContext(context.Background(), `which`).Scan(&index) != nil {
		return nil
	}
	if index < 0 {
		return pretended{pool: t.pool}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[index]
}

func (t *transactions) Connect(context.Context) (driver.Conn, error) {
	return &connection{of: t, index: -1}, nil
}
func (t *transactions) Driver() driver.Driver { return nil }

type connection struct {
	driver.Conn
	of    *transactions
	index int // -1 outside of a transaction
}

func (c *connection) Close() error { return nil }

func (c *connection) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	tx, err := c.of.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.index = len(c.of.all)
	c.of.all = append(c.of.all, tx)
	return ending{c, tx}, nil
}

func (c *connection) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &one{value: int64(c.index)}, nil
}

// An ending is the caller's own end of a transaction.
type ending struct {
	c  *connection
	tx pgx.Tx
}

func (e ending) Commit() error {
	e.c.index = -1
	return e.tx.Commit(context.Background())
}

func (e ending) Rollback() error {
	e.c.index = -1
	return e.tx.Rollback(context.Background())
}

// One is an answer of one value.
type one struct {
	value driver.Value
	done  bool
}

func (o *one) Columns() []string { return []string{"index"} }
func (o *one) Close() error      { return nil }

func (o *one) Next(into []driver.Value) error {
	if o.done {
		return io.EOF
	}
	o.done, into[0] = true, o.value
	return nil
}

// A pretended transaction passes its statements on to a pool.
type pretended struct {
	pgx.Tx
	pool *pgxpool.Pool
}

func (p pretended) Conn() *pgx.Conn { return nil }

func (p pretended) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	return p.pool.Exec(ctx, query, args...)
}

func (p pretended) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	return p.pool.Query(ctx, query, args...)
}

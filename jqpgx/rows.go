package jqpgx

import (
	"cmp"
	"context"
	"database/sql/driver"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// formats asks for the types that database/sql knows in binary. All others come as text.
var formats = pgx.QueryResultFormatsByOID{
	pgtype.BoolOID: pgx.BinaryFormatCode, pgtype.ByteaOID: pgx.BinaryFormatCode,
	pgtype.Int2OID: pgx.BinaryFormatCode, pgtype.Int4OID: pgx.BinaryFormatCode, pgtype.Int8OID: pgx.BinaryFormatCode,
	pgtype.Float4OID: pgx.BinaryFormatCode, pgtype.Float8OID: pgx.BinaryFormatCode,
	pgtype.DateOID: pgx.BinaryFormatCode, pgtype.TimestampOID: pgx.BinaryFormatCode, pgtype.TimestamptzOID: pgx.BinaryFormatCode,
}

// A resultRows is the answer to a query.
type resultRows struct {
	conn conn
	rows pgx.Rows
	read bool // the present row was not given out yet
}

// Columns is part of driver.Rows.
func (r *resultRows) Columns() []string {
	var names []string
	for _, f := range r.rows.FieldDescriptions() {
		names = append(names, f.Name)
	}
	return names
}

// Close is part of driver.Rows.
func (r *resultRows) Close() error {
	r.rows.Close()
	if err := r.rows.Err(); err != nil {
		return r.conn.explain(err)
	}
	return nil
}

// Next is part of driver.Rows.
func (r *resultRows) Next(into []driver.Value) error {
	read, err := r.next(into)
	if !read && err == nil {
		return io.EOF
	}
	return err
}

// next reads a row, and reports whether there was one.
func (r *resultRows) next(into []driver.Value) (read bool, err error) {
	if !r.read && !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return false, r.conn.explain(err)
		}
		return false, nil
	}
	r.read = false
	for i, raw := range r.rows.RawValues() {
		if into[i], err = valueOf(r.rows.TypeMap(), r.rows.FieldDescriptions()[i], raw); err != nil {
			return false, err
		}
	}
	return true, nil
}

// queries runs a text of any statements, and returns the rows of those that return some.
func (s *session) queries(ctx context.Context, text string) (driver.Rows, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ctx, ended := s.trace(ctx, text)
	r := &resultSets{resultRows: resultRows{conn: s.conn}, all: s.on.Conn().PgConn().Exec(ctx, text), ended: ended}
	switch {
	case r.advance():
		return r, r.NextResultSet()
	case r.Close() != nil:
		return nil, r.Close()
	default:
		return noRows{}, nil
	}
}

// noRows is the answer to statements that return no rows.
type noRows struct{}

func (noRows) Columns() []string         { return nil }
func (noRows) Close() error              { return nil }
func (noRows) Next([]driver.Value) error { return io.EOF }

// resultSets are the answers to several queries.
type resultSets struct {
	resultRows
	all   *pgconn.MultiResultReader
	more  bool                           // another set was reached
	ended func(pgconn.CommandTag, error) // nil once it was called
}

// advance goes to the next set, past rows that were not read and statements that return none.
func (r *resultSets) advance() bool {
	if r.rows != nil {
		r.rows.Close()
	}
	for r.more = false; !r.more && r.all.NextResult(); {
		r.more = len(r.all.ResultReader().FieldDescriptions()) > 0
	}
	return r.more
}

// HasNextResultSet is part of driver.RowsNextResultSet.
func (r *resultSets) HasNextResultSet() bool { return r.more }

// NextResultSet is part of driver.RowsNextResultSet.
func (r *resultSets) NextResultSet() error {
	if !r.more && !r.advance() {
		return cmp.Or(r.Close(), io.EOF)
	}
	r.more = false
	r.rows = pgx.RowsFromResultReader(r.conn.on.Conn().TypeMap(), r.all.ResultReader())
	return nil
}

// Next is part of driver.Rows. With the last row it looks for the next set, or for the error of what comes after.
func (r *resultSets) Next(into []driver.Value) error {
	read, err := r.next(into)
	switch {
	case read || err != nil:
		return err
	case r.more || r.advance():
		return io.EOF
	default:
		return cmp.Or(r.Close(), io.EOF)
	}
}

// Close is part of driver.Rows.
func (r *resultSets) Close() error {
	err := r.all.Close()
	if err != nil {
		err = r.conn.explain(err)
	}
	if r.ended != nil {
		r.ended(pgconn.CommandTag{}, err)
		r.ended = nil
	}
	return err
}

// valueOf returns the field as one of the types that database/sql knows: text for a type that it does not know.
func valueOf(m *pgtype.Map, f pgconn.FieldDescription, raw []byte) (driver.Value, error) {
	if raw == nil {
		return nil, nil
	}
	switch f.DataTypeOID {
	case pgtype.BoolOID:
		return scanned[bool](m, f, raw)
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
		return scanned[int64](m, f, raw)
	case pgtype.Float4OID, pgtype.Float8OID:
		return scanned[float64](m, f, raw)
	case pgtype.ByteaOID:
		return scanned[[]byte](m, f, raw)
	case pgtype.DateOID:
		return evaluated[pgtype.Date](m, f, raw)
	case pgtype.TimestampOID:
		return evaluated[pgtype.Timestamp](m, f, raw)
	case pgtype.TimestamptzOID:
		return evaluated[pgtype.Timestamptz](m, f, raw)
	default:
		return string(raw), nil
	}
}

func scanned[T any](m *pgtype.Map, f pgconn.FieldDescription, raw []byte) (v T, err error) {
	err = m.Scan(f.DataTypeOID, f.Format, raw, &v)
	return v, err
}

// evaluated is scanned for types of pgx. Their values of database/sql also know infinity.
func evaluated[T driver.Valuer](m *pgtype.Map, f pgconn.FieldDescription, raw []byte) (driver.Value, error) {
	v, err := scanned[T](m, f, raw)
	if err != nil {
		return nil, err
	}
	return v.Value()
}

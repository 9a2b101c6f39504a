package postgres

import (
	"database/sql/driver"
	"fmt"
	"io"
)

// Damaged answers.
//
// When a server dies in the middle of a row, a pooling proxy may send its error message where the client expects the rest of that row. The
// driver trusts what it reads, and panics. Such a panic would leave rows open, whose connection could never be given back.

// damaged turns a panic of the driver into an error, and discards the connection, of which no further message can be understood. It must
// be deferred.
func (s *session) damaged(err *error) {
	if cause := recover(); cause != nil {
		s.damage = fmt.Errorf("%w: the server's answer is damaged: %v", driver.ErrBadConn, cause)
		s.Discard()
		*err = s.damage
	}
}

// The guarded rows are those of a query on a session.
type guarded struct {
	driver.Rows
	s *session
}

// Next is part of driver.Rows.
func (g *guarded) Next(dest []driver.Value) (err error) {
	defer g.s.damaged(&err)
	return g.Rows.Next(dest)
}

// Close is part of driver.Rows. The driver would read what is left.
func (g *guarded) Close() (err error) {
	if g.s.damage != nil {
		return g.s.damage
	}
	defer g.s.damaged(&err)
	return g.Rows.Close()
}

// HasNextResultSet is part of driver.RowsNextResultSet.
func (g *guarded) HasNextResultSet() bool {
	more, ok := g.Rows.(driver.RowsNextResultSet)
	return ok && more.HasNextResultSet()
}

// NextResultSet is part of driver.RowsNextResultSet.
func (g *guarded) NextResultSet() (err error) {
	more, ok := g.Rows.(driver.RowsNextResultSet)
	if !ok {
		return io.EOF
	}
	defer g.s.damaged(&err)
	return more.NextResultSet()
}

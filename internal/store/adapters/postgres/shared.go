package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/lib/pq"
)

// OpenDB opens a store on the connections of your own *sql.DB, which must be one of lib/pq. See [OpenOn].
func OpenDB(ctx context.Context, db *sql.DB, options *Options) (*Store, error) {
	if db == nil {
		return nil, errors.New("jq: the *sql.DB is nil: want one of lib/pq")
	}
	if _, ok := db.Driver().(*pq.Driver); !ok {
		return nil, fmt.Errorf("jq: OpenDB does not support the driver %T: want a *sql.DB of lib/pq, or use jqpgx.Open for a pool of pgx", db.Driver())
	}
	return OpenOn(ctx, Driver{Connector: source{db}}, options)
}

// A source takes connections from somebody's *sql.DB.
type source struct{ db *sql.DB }

// Driver is part of driver.Connector.
func (s source) Driver() driver.Driver { return s.db.Driver() }

// Connect is part of driver.Connector.
func (s source) Connect(ctx context.Context) (driver.Conn, error) {
	from, err := s.db.Conn(ctx)
	if err != nil {
		if all := s.db.Stats(); errors.Is(err, context.DeadlineExceeded) && all.MaxOpenConnections > 0 && all.InUse >= all.MaxOpenConnections {
			err = fmt.Errorf("all %d connections of the *sql.DB are in use, raise its SetMaxOpenConns: %w", all.MaxOpenConnections, err)
		}
		return nil, err
	}
	b := &borrowed{from: from}
	err = from.Raw(func(conn any) error {
		if wrapped, ok := conn.(*confirmed); ok {
			conn = wrapped.Conn.(*pqConn).standard
		}
		own, ok := conn.(standard)
		if !ok {
			return fmt.Errorf("jq: OpenDB does not support connections of the type %T: want those of lib/pq", conn)
		}
		b.notices = pq.NoticeHandler(own)
		b.pqConn = newPQConn(own, nil)
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, from.Close())
	}
	return b, nil
}

// A borrowed connection is one of somebody's *sql.DB, until it is closed.
type borrowed struct {
	*pqConn
	from    *sql.Conn
	notices func(*pq.Error) // its owner's handler
	spoilt  bool
}

// Discard is part of Conn.
func (b *borrowed) Discard() { b.spoilt = true }

// IsValid is part of driver.Validator.
func (b *borrowed) IsValid() bool { return !b.spoilt && b.pqConn.IsValid() }

// Close is part of driver.Conn. It gives the connection back.
func (b *borrowed) Close() error {
	err := b.from.Raw(func(any) error {
		pq.SetNoticeHandler(b.standard, b.notices)
		if b.spoilt {
			return driver.ErrBadConn // database/sql then closes it
		}
		return nil
	})
	if errors.Is(err, driver.ErrBadConn) {
		err = nil
	}
	return errors.Join(err, b.from.Close())
}

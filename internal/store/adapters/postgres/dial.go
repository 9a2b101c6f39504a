package postgres

import (
	"context"
	"database/sql/driver"
	"net"
	"sync"
	"time"

	"github.com/lib/pq"
)

// patience is how long to keep listening to a server after asking it to cancel.
const patience = time.Second

// A connector opens connections that can be given up. When a context ends, the driver keeps waiting for the server; it only
// asks it, over another connection, to cancel. A server that hangs or cannot be reached does not answer that either.
type connector struct{ config pq.Config }

// Driver is part of driver.Connector.
func (c connector) Driver() driver.Driver { return &pq.Driver{} }

// Connect is part of driver.Connector. When the context ends, the driver gives up dialing; Connect also gives up the handshake.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	l := &line{}
	opening, err := pq.NewConnectorConfig(c.config)
	if err != nil {
		return nil, err
	}
	opening.Dialer(l)
	goesOn := context.AfterFunc(ctx, func() { l.giveUp(0) })
	conn, err := opening.Connect(ctx)
	if !goesOn() {
		if err == nil {
			_ = conn.Close()
		}
		return nil, ctx.Err()
	}
	l.stands()
	if err != nil {
		return nil, err
	}
	inner := &confirmed{connection: conn.(connection)} // for migrations, which begin and commit through the driver
	inner.warned.listen(conn)
	own := newSession(inner, l)
	own.warned.listen(conn)
	return own, nil
}

// A line is the network connection of a driver's connection. Once that is open, the driver dials only to cancel.
type line struct {
	mu       sync.Mutex // guards the fields below
	conn     net.Conn
	standing bool
	givenUp  bool
}

// DialContext is part of pq.DialerContext.
func (l *line) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	cancels := l.standing
	l.mu.Unlock()
	if cancels {
		l.giveUp(patience)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	switch {
	case err != nil:
		return nil, err
	case cancels:
		return conn, conn.SetDeadline(time.Now().Add(patience))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = conn
	return conn, nil
}

// Dial is part of pq.Dialer; the driver prefers DialContext.
func (l *line) Dial(network, address string) (net.Conn, error) {
	return l.DialContext(context.Background(), network, address)
}

// DialTimeout is part of pq.Dialer; the driver prefers DialContext.
func (l *line) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return l.DialContext(ctx, network, address)
}

func (l *line) stands() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.standing = true
}

// giveUp sets a deadline for all waiting on the connection.
func (l *line) giveUp(in time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.givenUp = true
	if l.conn != nil {
		_ = l.conn.SetDeadline(time.Now().Add(in))
	}
}

// lasts reports whether the connection has not been given up. One that was given up may still answer in time, but would fail
// the next call.
func (l *line) lasts() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.givenUp
}

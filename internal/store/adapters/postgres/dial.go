package postgres

import (
	"context"
	"database/sql/driver"
	"net"
	"sync"
	"time"

	"github.com/lib/pq"
)

// patience is for how long a server is listened to that was asked to cancel what a call waits for.
const patience = time.Second

// A connector opens connections that can be given up. The driver goes on waiting for the server when a context ends: it only
// asks, over another connection, that the server cancel. A server that has fallen silent, or that no message reaches any
// more, does not answer that either.
type connector struct{ config pq.Config }

// Driver is part of the interface.
func (c connector) Driver() driver.Driver { return &pq.Driver{} }

// Connect is part of the interface. The driver gives up a dial when the context ends, and here also what follows it.
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
	inner := &confirmed{connection: conn.(connection)} // for migrations, which begin and commit by the driver
	inner.warned.listen(conn)
	own := newSession(inner, l)
	own.warned.listen(conn)
	return own, nil
}

// A line is the connection under one of the driver's. Once it stands, the driver dials only in order to cancel.
type line struct {
	mu       sync.Mutex // guards what follows
	conn     net.Conn
	standing bool
	givenUp  bool
}

// DialContext is part of the driver's interface.
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

// Dial is part of the driver's interface, which prefers DialContext.
func (l *line) Dial(network, address string) (net.Conn, error) {
	return l.DialContext(context.Background(), network, address)
}

// DialTimeout is part of the driver's interface, which prefers DialContext.
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

// giveUp ends all waiting on the connection in a while.
func (l *line) giveUp(in time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.givenUp = true
	if l.conn != nil {
		_ = l.conn.SetDeadline(time.Now().Add(in))
	}
}

// lasts says that nobody has given the connection up: one that was answers a call that comes soon, and breaks off its next.
func (l *line) lasts() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.givenUp
}

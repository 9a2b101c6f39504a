package postgres

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// The driver of stores that are opened by a DSN: lib/pq.

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
	own := newPQConn(conn, l)
	if err := own.watch(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return own, nil
}

// A pqConn is a connection of lib/pq.
type pqConn struct {
	standard
	line   *line // nil for a connection that is never given up
	warned bool

	watched driver.Rows // whose context is that of interrupt
	cancel  func()      // ends that context
}

// watch makes the driver wait for interrupt as long as the connection is open. The driver starts a goroutine for each call whose
// context can end, and keeps it until the rows are closed, here with the connection. So other calls can do without.
func (c *pqConn) watch(ctx context.Context) (err error) {
	ended, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	if c.watched, err = c.standard.QueryContext(ended, `;`, nil); err != nil || !stop() {
		cancel()
		return cmp.Or(ctx.Err(), err)
	}
	c.cancel = cancel
	return nil
}

// interrupt makes the driver ask the server to cancel the present call, as the end of a context does. The connection is not used
// again.
func (c *pqConn) interrupt() { c.cancel() }

// Close is part of driver.Conn.
func (c *pqConn) Close() error {
	if c.watched != nil {
		_ = c.watched.Close()
		c.cancel()
	}
	return c.standard.Close()
}

// newPQConn makes the connection note warnings. That costs nothing while the server sends no notices.
func newPQConn(conn driver.Conn, l *line) *pqConn {
	own := &pqConn{standard: conn.(standard), line: l}
	before := pq.NoticeHandler(conn)
	pq.SetNoticeHandler(conn, func(n *pq.Error) {
		own.warned = own.warned || n.Code == CodeWarning
		if before != nil {
			before(n)
		}
	})
	return own
}

// Warned is part of Conn.
func (c *pqConn) Warned() bool {
	warned := c.warned
	c.warned = false
	return warned
}

// Discard is part of Conn. Close ends every connection of lib/pq.
func (c *pqConn) Discard() {}

// IsValid is part of driver.Validator. The driver considers a connection valid even after cancelling a prepared statement on it.
func (c *pqConn) IsValid() bool { return (c.line == nil || c.line.lasts()) && c.standard.IsValid() }

// A plainConnector opens connections of somebody's connector of lib/pq.
type plainConnector struct{ driver.Connector }

// Connect is part of driver.Connector.
func (c plainConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if _, ok := c.Driver().(*pq.Driver); !ok {
		return nil, fmt.Errorf("jq: ConfirmCommits does not support the driver %T: want a connector of lib/pq", c.Driver())
	}
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return newPQConn(conn, nil), nil
}

// listenTo returns a Driver's Listen for the server of a DSN.
func listenTo(dsn string) func(context.Context, string, func(), func(string)) {
	return listenBy(func(d pq.Dialer) *pq.Listener {
		return pq.NewDialListener(d, dsn, 100*time.Millisecond, 10*time.Second, nil)
	})
}

// listensAgain is how long after a server has refused to listen it is asked again: it may be a standby that is about to be promoted.
const listensAgain = time.Second

// listenBy returns a Driver's Listen that opens its listeners in this way.
func listenBy(open func(pq.Dialer) *pq.Listener) func(context.Context, string, func(), func(string)) {
	return func(ctx context.Context, channel string, connected func(), heard func(payload string)) {
		for again := true; again; again = sqlkit.Rest(ctx, listensAgain) {
			listen(ctx, open(ending{ctx}), channel, connected, heard)
		}
	}
}

// listen listens until the context ends, or the server refuses to.
func listen(ctx context.Context, server *pq.Listener, channel string, connected func(), heard func(payload string)) {
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer func() {
		stop()
		_ = server.Close() // closing twice is harmless
	}()
	if err := server.Listen(channel); err != nil {
		return
	}
	connected()
	for {
		select {
		case <-ctx.Done():
			return
		case n, open := <-server.Notify:
			switch {
			case !open:
				return
			case n == nil:
				connected()
			default:
				heard(n.Extra)
			}
		}
	}
}

// An ending dialer opens network connections that end with the context: a listener can be closed only when it waits for no server.
type ending struct{ ctx context.Context }

// DialContext is part of pq.DialerContext.
func (e ending) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &endingConn{conn, context.AfterFunc(e.ctx, func() { _ = conn.Close() })}, nil
}

// Dial is part of pq.Dialer; the driver prefers DialContext.
func (e ending) Dial(network, address string) (net.Conn, error) {
	return e.DialContext(e.ctx, network, address)
}

// DialTimeout is part of pq.Dialer; the driver prefers DialContext.
func (e ending) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(e.ctx, timeout)
	defer cancel()
	return e.DialContext(ctx, network, address)
}

// An endingConn is one that ends with a context, unless it is closed before.
type endingConn struct {
	net.Conn
	stop func() bool
}

// Close is part of net.Conn.
func (e *endingConn) Close() error {
	e.stop()
	return e.Conn.Close()
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

// silent reports whether nothing has arrived that was not read.
func (l *line) silent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn != nil && !arrived(l.conn)
}

// lasts reports whether the connection has not been given up. One that was given up may still answer in time, but would fail
// the next call.
func (l *line) lasts() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.givenUp
}

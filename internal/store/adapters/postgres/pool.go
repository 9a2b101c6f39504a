package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"
)

// A class says what a connection is needed for.
type class int

const (
	urgent  class = iota // heartbeats and Ping
	usual                // all other calls
	slow                 // listings and counts, which can take long
	classes = 3
)

const (
	idleFor = 3 * time.Second // how long a connection stays open that nobody uses

	// leastPatience is how long a connection may take to open, if that is longer than the time-out of calls.
	leastPatience = 5 * time.Second

	soonest   = 100 * time.Millisecond // how long to wait before asking again a server that has refused, at first
	latest    = time.Second            // and at most
	sayAtMost = time.Minute            // how often to log that the server refuses
)

// A pool opens the store's own connections and shares them among calls.
//
// Calls that are not urgent together leave one connection to those that are, and slow calls leave one more to the usual ones. Urgent
// calls are served first, all others in their order. If connections are kept, the last one is never closed for being idle. So a
// store that has once reached the server can work, even if the server then admits nobody else: calls wait for that connection, or
// until the server admits another one.
type pool struct {
	connector driver.Connector // opens sessions
	most      int              // connections at once
	slowest   int              // how many of them slow calls may have at once
	keeps     bool             // else connections go back to somebody's own pool after each call
	patience  time.Duration    // how long to wait for a server that refuses
	life      context.Context  // ends when the pool is closed
	end       context.CancelFunc
	logger    *slog.Logger

	mu      sync.Mutex // guards the fields below
	idle    []*session // slow calls take the first, others the last; the first is closed next
	open    int        // idle, in use, or being opened
	used    [classes]int
	waiting []*waiter // the urgent ones first
	prune   *time.Timer
	closed  bool

	refusal error // the server's last answer was that it has no free connection
	mayTry  bool  // somebody may ask again
	pause   time.Duration
	ask     *time.Timer
	said    time.Time // when this was logged
}

// A waiter is a call that waits for a connection.
type waiter struct {
	class class
	given chan *session // nil is the right to open one
}

func newPool(connector driver.Connector, o Options, most int, keeps bool) *pool {
	p := &pool{connector: connector, most: most, slowest: most / 2, keeps: keeps, patience: o.Timeout, logger: o.Logger}
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// of returns the pool as a database whose connections are all for one class.
func (p *pool) of(c class) *sqlx.DB {
	db := sqlx.NewDb(sql.OpenDB(classOf{p, c}), "postgres")
	db.SetMaxIdleConns(-1) // the pool keeps them
	return db
}

// A classOf is a pool for the calls of one class.
type classOf struct {
	*pool
	class class
}

// Connect is part of driver.Connector.
func (c classOf) Connect(ctx context.Context) (driver.Conn, error) {
	s, err := c.take(ctx, c.class)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Driver is part of driver.Connector.
func (p *pool) Driver() driver.Driver { return p.connector.Driver() }

// take waits for a connection, which its Close gives back.
func (p *pool) take(ctx context.Context, c class) (*session, error) {
	since := time.Now()
	for again := false; ; again = true {
		s, err := p.wait(ctx, c, since, again)
		switch {
		case err != nil:
			return nil, err
		case s == nil:
			if s, err = p.connect(ctx, c); err == nil {
				return s, nil
			}
			if codeOf(err) != codeTooMany {
				return nil, err
			}
		case s.ResetSession(ctx) == nil && s.IsValid():
			return s, nil
		default:
			s.Discard()
			_ = s.Close()
		}
	}
}

// wait returns a connection, or nil for the right to open one. A call that was refused one comes again, and is the next of its
// class.
func (p *pool) wait(ctx context.Context, c class, since time.Time, again bool) (*session, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, sql.ErrConnDone
	}
	if s, ok := p.grant(c); ok {
		p.mu.Unlock()
		return s, nil
	}
	w := &waiter{class: c, given: make(chan *session, 1)}
	p.enqueue(w, again)
	p.mu.Unlock()
	late := time.NewTimer(p.patience - time.Since(since))
	defer late.Stop()
	for {
		select {
		case s, open := <-w.given:
			if !open {
				return nil, sql.ErrConnDone
			}
			return s, nil
		case <-ctx.Done():
			return nil, p.leave(w, ctx.Err())
		case <-late.C:
			if refusal := p.refused(); refusal != nil {
				return nil, p.leave(w, refusal)
			}
			late.Reset(p.patience) // connections are only busy
		}
	}
}

func (p *pool) enqueue(w *waiter, first bool) {
	begin := slices.IndexFunc(p.waiting, func(other *waiter) bool { return other.class != urgent })
	if begin < 0 {
		begin = len(p.waiting)
	}
	at := begin
	switch {
	case w.class == urgent && first:
		at = 0
	case w.class != urgent && !first:
		at = len(p.waiting)
	}
	p.waiting = slices.Insert(p.waiting, at, w)
}

// leave ends the wait with the error.
func (p *pool) leave(w *waiter, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, w); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		return err
	}
	if s, open := <-w.given; open { // just now
		p.used[w.class]--
		if s == nil {
			p.open--
			p.mayTry = true
		} else {
			p.idle = append(p.idle, s)
		}
		p.dispatch()
	}
	return err
}

func (p *pool) refused() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusal
}

// grant gives a call of the class a connection, or nil for the right to open one, if it may have one now.
func (p *pool) grant(c class) (s *session, ok bool) {
	others := p.open - p.used[slow] // not used by slow calls
	switch {
	case p.closed,
		c != urgent && p.used[usual]+p.used[slow] >= p.most-1,
		c == slow && p.used[slow] >= p.slowest:
		return nil, false
	case len(p.idle) > 0 && (c != slow || others > 1):
		at := 0
		if c != slow {
			at = len(p.idle) - 1
		}
		s = p.idle[at]
		s.class, p.idle = c, slices.Delete(p.idle, at, at+1)
	case p.open < p.most && (p.refusal == nil || p.mayTry):
		p.open++
		p.mayTry = false
	default:
		return nil, false
	}
	p.used[c]++
	return s, true
}

// dispatch serves those who wait. What one cannot have, nobody after it can have either, unless the one is slow.
func (p *pool) dispatch() {
	for i := 0; i < len(p.waiting); {
		w := p.waiting[i]
		s, ok := p.grant(w.class)
		switch {
		case ok:
			p.waiting = slices.Delete(p.waiting, i, i+1)
			w.given <- s
		case w.class == slow:
			i++
		default:
			return
		}
	}
}

// connect opens a connection, for which the call has the right. If the call ends before the connection is there, others get it: a
// server that has much to do after its start would otherwise spend its time on connections that everybody has given up, and so never
// get to one in time.
func (p *pool) connect(ctx context.Context, c class) (*session, error) {
	if !p.keeps {
		conn, err := p.connector.Connect(ctx)
		return p.connected(c, conn, err)
	}
	type answer struct {
		conn driver.Conn
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(p.patience, leastPatience))
		defer cancel()
		defer context.AfterFunc(p.life, cancel)()
		conn, err := p.connector.Connect(ctx)
		answered <- answer{conn, err}
	}()
	select {
	case a := <-answered:
		return p.connected(c, a.conn, a.err)
	case <-ctx.Done():
		go func() {
			a := <-answered
			if s, err := p.connected(c, a.conn, a.err); err == nil {
				_ = p.put(s)
			}
		}()
		return nil, ctx.Err()
	}
}

// connected notes how it ended that a connection was opened.
func (p *pool) connected(c class, conn driver.Conn, err error) (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.refusal, p.pause = nil, 0
		p.dispatch()
		s := conn.(*session)
		s.pool, s.class = p, c
		return s, nil
	case codeOf(err) == codeTooMany && !p.closed:
		p.refuse(err)
	default:
		p.mayTry = true
	}
	p.open--
	p.used[c]--
	p.dispatch()
	return nil, err
}

// refuse lets somebody ask the server again after a while.
func (p *pool) refuse(err error) {
	if p.refusal = err; time.Since(p.said) > sayAtMost {
		p.said = time.Now()
		p.logger.Warn("jq: the server has no free connection; calls wait: give each process fewer (max_conns), connect through a pooler, or raise max_connections",
			"connections", p.open-1, "error", err)
	}
	p.pause = min(max(2*p.pause, soonest), latest)
	p.ask = time.AfterFunc(p.pause/2+rand.N(p.pause), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mayTry = true
		p.dispatch()
	})
}

// put takes back a connection.
func (p *pool) put(s *session) (err error) {
	keep := p.keeps && s.IsValid()
	if !keep {
		err = s.Conn.Close()
	}
	p.mu.Lock()
	p.used[s.class]--
	if keep && !p.closed {
		s.since = time.Now()
		at := len(p.idle)
		if s.class == slow { // it has prepared nothing that other calls need
			at = 0
		}
		p.idle = slices.Insert(p.idle, at, s)
		if p.prune == nil {
			p.prune = time.AfterFunc(idleFor, p.closeIdle)
		}
		s = nil
	} else {
		p.open--
	}
	p.dispatch()
	p.mu.Unlock()
	if keep && s != nil {
		err = s.Conn.Close()
	}
	return err
}

// closeIdle closes connections that nobody has used for a while, except the last one that is left to calls that are not slow.
func (p *pool) closeIdle() {
	p.mu.Lock()
	var old []*session
	for len(p.idle) > 0 && p.open-p.used[slow] > 1 && time.Since(p.idle[0].since) >= idleFor {
		old = append(old, p.idle[0])
		p.idle = slices.Delete(p.idle, 0, 1)
		p.open--
	}
	if p.prune = nil; len(p.idle) > 0 && p.open > 1 && !p.closed {
		p.prune = time.AfterFunc(max(idleFor-time.Since(p.idle[0].since), idleFor/3), p.closeIdle)
	}
	p.mu.Unlock()
	for _, s := range old {
		_ = s.Conn.Close()
	}
}

// unused returns how many connections are idle.
func (p *pool) unused() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}

// close closes the idle connections, and the others when they come back.
func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.open -= len(idle)
	p.idle, p.closed = nil, true
	p.end()
	for _, w := range p.waiting {
		close(w.given)
	}
	p.waiting = nil
	for _, timer := range []*time.Timer{p.prune, p.ask} {
		if timer != nil {
			timer.Stop()
		}
	}
	p.mu.Unlock()
	for _, s := range idle {
		_ = s.Conn.Close()
	}
}

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

	// opensAfter is how long calls wait in all, beyond a hundredth of the time, before another connection is opened for them. Opening one, and
	// planning there what it prepares, takes the server longer. So calls that only seldom meet share one.
	opensAfter = 10 * time.Millisecond

	// leastPatience is how long a connection may take to open, if that is longer than the time-out of calls.
	leastPatience = 5 * time.Second

	soonest   = 100 * time.Millisecond // how long to wait before asking again a server that has refused, at first
	latest    = time.Second            // and at most
	hangs     = time.Second            // after this time, an attempt to open a connection takes a place, and nobody counts on it
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
	open    int        // idle or in use
	dials   []*dial    // under way
	used    [classes]int
	waiting []*waiter // the urgent ones first
	prune   *time.Timer
	closed  bool

	waited time.Duration // what calls have waited, beyond a hundredth of the time, since a connection was opened for one
	asOf   time.Time     // when that was added up
	opens  *time.Timer   // grows the pool when they have waited for long enough

	refusal error // the server's last answer was that it has no free connection
	mayTry  bool  // the server may be asked again
	pause   time.Duration
	ask     *time.Timer
	said    time.Time // when this was logged
}

// A waiter is a call that waits for a connection, or for the error of the attempt to open one.
type waiter struct {
	ctx   context.Context
	class class
	since time.Time // when it began to wait, or when the latest connection was opened: see openFor
	has   bool      // a connection is being opened for it, or has just been opened
	given chan gift
}

type gift struct {
	s   *session
	err error
}

// A dial is an attempt to open a connection for a waiter, which may have got another one or have left.
type dial struct {
	of    *waiter
	since time.Time
}

func (d *dial) hangs() bool { return time.Since(d.since) >= hangs }

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
		if err != nil {
			return nil, err
		}
		if s.since.IsZero() || s.ResetSession(ctx) == nil && s.IsValid() { // it was opened just now, or it can be used again
			return s, nil
		}
		s.Discard()
		_ = s.Close()
	}
}

// wait returns the first connection that comes free or has been opened. A call that was given a dead one comes again, and is the next of
// its class.
func (p *pool) wait(ctx context.Context, c class, since time.Time, again bool) (*session, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, sql.ErrConnDone
	}
	if s := p.grant(c); s != nil {
		p.mu.Unlock()
		return s, nil
	}
	w := &waiter{ctx: ctx, class: c, since: time.Now(), given: make(chan gift, 1)}
	p.enqueue(w, again)
	p.grow()
	p.mu.Unlock()
	late := time.NewTimer(p.patience - time.Since(since))
	defer late.Stop()
	for {
		select {
		case g := <-w.given:
			return g.s, g.err
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
	if p.dismiss(w) {
		return err
	}
	if g := <-w.given; g.s != nil { // just now
		_ = p.put(g.s)
	}
	return err
}

// dismiss takes the waiter out of the queue, and reports whether it was there.
func (p *pool) dismiss(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	waits := takeOut(&p.waiting, w)
	if waits {
		p.served(w)
	}
	return waits
}

// takeOut takes one out of the list, and reports whether it was there.
func takeOut[T comparable](list *[]T, one T) bool {
	i := slices.Index(*list, one)
	if i < 0 {
		return false
	}
	*list = slices.Delete(*list, i, i+1)
	return true
}

func (p *pool) refused() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusal
}

// mayHave reports whether a call of the class may have one connection more than these.
func (p *pool) mayHave(c class, used [classes]int) bool {
	return !p.closed && (c == urgent || used[usual]+used[slow] < p.most-1) && (c != slow || used[slow] < p.slowest)
}

// grant gives a call of the class an idle connection, if it may have one now.
func (p *pool) grant(c class) *session {
	last := p.keeps && p.open-p.used[slow] == 1 // it is left to calls that are not slow
	if !p.mayHave(c, p.used) || len(p.idle) == 0 || c == slow && last {
		return nil
	}
	at := 0
	if c != slow {
		at = len(p.idle) - 1
	}
	s := p.idle[at]
	p.idle = slices.Delete(p.idle, at, at+1)
	s.class = c
	p.used[c]++
	return s
}

// dispatch serves those who wait. What one cannot have, nobody after it can have either, unless the one is slow.
func (p *pool) dispatch() {
	defer p.grow()
	for i := 0; i < len(p.waiting); {
		w := p.waiting[i]
		s := p.grant(w.class)
		switch {
		case s != nil:
			p.waiting = slices.Delete(p.waiting, i, i+1)
			p.served(w)
			w.given <- gift{s: s}
		case w.class == slow:
			i++
		default:
			return
		}
	}
}

// grow opens a connection for each of those who wait, may have one, and for whom none is being opened yet, once calls have waited for long enough.
func (p *pool) grow() {
	if p.full() {
		return
	}
	used := p.used
	soon, spare := map[*waiter]bool{}, 0
	for _, d := range p.dials {
		switch {
		case d.hangs():
			used[d.of.class]++
			d.of.has = false
		case slices.Contains(p.waiting, d.of):
			soon[d.of] = true
		default:
			spare++
		}
	}
	for _, w := range p.waiting {
		switch {
		case !p.mayHave(w.class, used):
			continue
		case soon[w]:
		case spare > 0:
			spare--
		case p.full() || !p.worthwhile():
			return
		default:
			p.openFor(w)
		}
		used[w.class]++
	}
}

// openFor opens a connection for the waiter. What calls have waited so far is paid with it.
func (p *pool) openFor(w *waiter) {
	now := time.Now()
	w.has, p.waited, p.mayTry = true, 0, false
	for _, other := range p.waiting {
		other.since = now
	}
	d := &dial{w, now}
	p.dials = append(p.dials, d)
	go p.connect(d)
}

// worthwhile reports whether calls have waited for so long that another connection is worth what it costs. If not yet, it lets the pool grow when they have.
// An idle connection is one that whoever waits may not have.
func (p *pool) worthwhile() bool {
	if !p.keeps || len(p.idle) > 0 || p.open == 0 && !slices.ContainsFunc(p.dials, func(d *dial) bool { return !d.hangs() }) {
		return true
	}
	now := time.Now()
	p.hasWaited(0, now)
	left, waiting := opensAfter-p.waited, time.Duration(0)
	for _, w := range p.waiting {
		if !w.has && p.mayHave(w.class, p.used) {
			left -= now.Sub(w.since)
			waiting++
		}
		if left <= 0 {
			return true
		}
	}
	if left = max(left/max(waiting, 1), opensAfter/100); p.opens != nil {
		p.opens.Reset(left)
		return false
	}
	p.opens = time.AfterFunc(left, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.grow()
	})
	return false
}

// served adds what a waiter has waited that waits no more.
func (p *pool) served(w *waiter) {
	if now := time.Now(); !w.has {
		p.hasWaited(now.Sub(w.since), now)
	}
}

func (p *pool) hasWaited(d time.Duration, now time.Time) {
	p.waited = min(opensAfter, max(0, p.waited-now.Sub(p.asOf)/100)+d)
	p.asOf = now
}

// full reports whether no connection can be opened now.
func (p *pool) full() bool {
	return p.open+len(p.dials) >= p.most || p.refusal != nil && !p.mayTry
}

// connect opens a connection for a waiter, or for whoever waits when it is there. If it went with the waiter, a server that has much to do
// after its start would spend its time on connections that everybody has given up, and so never get to one in time. A connection from
// somebody's own pool is given up with the waiter.
func (p *pool) connect(d *dial) {
	ctx := d.of.ctx
	if p.keeps {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(p.life, max(p.patience, leastPatience))
		defer cancel()
	}
	conn, err := p.connector.Connect(ctx)
	switch {
	case err == nil:
		p.connected(d, conn.(*session))
	case codeOf(err) == codeTooMany:
		p.refuse(d, err)
	default:
		p.failed(d, err)
	}
}

// connected takes in a connection that has been opened.
func (p *pool) connected(d *dial, s *session) {
	s.pool, s.class = p, d.of.class
	p.mu.Lock()
	takeOut(&p.dials, d)
	p.refusal, p.pause = nil, 0
	p.open++
	p.rest(s)
	p.dispatch()
	surplus := (p.closed || !p.keeps) && takeOut(&p.idle, s)
	switch {
	case surplus:
		p.open--
	case slices.Contains(p.idle, s):
		s.since = time.Now()
	}
	p.mu.Unlock()
	if surplus {
		_ = s.Conn.Close()
	}
}

// failed gives the error to the waiter, unless it waits no more.
func (p *pool) failed(d *dial, err error) {
	if p.dismiss(d.of) {
		d.of.given <- gift{err: err}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	takeOut(&p.dials, d)
	p.mayTry = true
	p.dispatch()
}

// refuse lets the server be asked again after a while. Whoever waits goes on waiting.
func (p *pool) refuse(d *dial, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	takeOut(&p.dials, d)
	d.of.has = false
	if p.closed {
		return
	}
	if p.refusal = err; time.Since(p.said) > sayAtMost {
		p.said = time.Now()
		p.logger.Warn("jq: the server has no free connection; calls wait: give each process fewer (max_conns), connect through a pooler, or raise max_connections",
			"connections", p.open, "error", err)
	}
	if p.ask == nil || !p.ask.Stop() { // otherwise several were refused at once
		p.pause = min(max(2*p.pause, soonest), latest)
	}
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
		err = s.Conn.Close() // before another one is opened in its place
	}
	p.mu.Lock()
	p.used[s.class]--
	late := keep && p.closed
	if keep && !late {
		s.since = time.Now()
		p.rest(s)
	} else {
		p.open--
	}
	p.dispatch()
	p.mu.Unlock()
	if late {
		err = s.Conn.Close()
	}
	return err
}

// rest adds a connection to the idle ones.
func (p *pool) rest(s *session) {
	at := len(p.idle)
	if s.class == slow { // it has prepared nothing that other calls need
		at = 0
	}
	p.idle = slices.Insert(p.idle, at, s)
	if p.prune == nil && !p.closed {
		p.prune = time.AfterFunc(idleFor, p.closeIdle)
	}
}

// closeIdle closes connections that nobody has used for a while, except the last one that is left to calls that are not slow. Another one
// that is being opened does not count: the server may refuse it.
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
		w.given <- gift{err: sql.ErrConnDone}
	}
	p.waiting = nil
	for _, timer := range []*time.Timer{p.prune, p.ask, p.opens} {
		if timer != nil {
			timer.Stop()
		}
	}
	p.mu.Unlock()
	for _, s := range idle {
		_ = s.Conn.Close()
	}
}

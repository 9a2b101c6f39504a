package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/store"
)

// A gate is a server that admits only so many connections.
type gate struct {
	driver.Connector
	mu                  sync.Mutex // guards the fields below
	admits, open, asked int
	takes               time.Duration // to answer
}

// admit changes how many connections the server admits.
func (g *gate) admit(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admits = n
}

// slow changes how long the server takes to answer.
func (g *gate) slow(takes time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.takes = takes
}

// left is how many connections are open, without those that the test never gives back.
func (g *gate) left() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

func (g *gate) forget(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open -= n
}

func (g *gate) asks() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

var errTooMany = &pq.Error{Code: codeTooMany, Message: "sorry, too many clients already"}

// Connect is part of driver.Connector.
func (g *gate) Connect(ctx context.Context) (driver.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	if takes := g.takes; takes > 0 {
		g.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(takes):
		}
		if g.mu.Lock(); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if g.open >= g.admits {
		return nil, errTooMany
	}
	g.open++
	return newSession(&admitted{of: g}), nil
}

// An admitted connection does nothing.
type admitted struct {
	Conn
	of   *gate
	dead bool
}

func (c *admitted) Close() error                       { c.of.forget(1); return nil }
func (c *admitted) Discard()                           { c.dead = true }
func (c *admitted) IsValid() bool                      { return !c.dead }
func (c *admitted) ResetSession(context.Context) error { return nil }

// pooled runs the test with a pool of that many connections to a server that admits so many.
func pooled(t *testing.T, most, admits int, test func(t *testing.T, p *pool, g *gate)) {
	t.Helper()
	pooling(t, most, admits, true, test)
}

func pooling(t *testing.T, most, admits int, keeps bool, test func(t *testing.T, p *pool, g *gate)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		g := &gate{admits: admits}
		p := newPool(g, Options{Timeout: 8 * time.Second, Logger: slog.New(slog.DiscardHandler)}, most, keeps)
		test(t, p, g)
		p.close()
		synctest.Wait()
		assert.Zero(t, g.left(), "connections that are left")
	})
}

// taken takes a connection that must be had at once, or once calls have waited for long enough.
func taken(t *testing.T, p *pool, c class) *session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), opensAfter+time.Millisecond)
	defer cancel()
	s, err := p.take(ctx, c)
	require.NoError(t, err)
	return s
}

// refusedNow asserts that a call gets no connection.
func refusedNow(t *testing.T, p *pool, c class) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*opensAfter)
	defer cancel()
	_, err := p.take(ctx, c)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// soonTaken takes a connection in the background.
func soonTaken(t *testing.T, p *pool, c class, order *[]string, name string) {
	t.Helper()
	go func() {
		s, err := p.take(t.Context(), c)
		if err != nil {
			name += ": " + err.Error()
		}
		*order = append(*order, name)
		if err == nil {
			_ = s.Close()
		}
	}()
	synctest.Wait()
}

func TestEachClassOfCallsLeavesConnectionsToOthers(t *testing.T) {
	pooled(t, 4, 100, func(t *testing.T, p *pool, g *gate) {
		listings := []*session{taken(t, p, slow), taken(t, p, slow)}
		refusedNow(t, p, slow)
		claim := taken(t, p, usual)
		refusedNow(t, p, usual)
		beat := taken(t, p, urgent)
		refusedNow(t, p, urgent)
		for _, s := range append(listings, claim, beat) {
			require.NoError(t, s.Close())
		}
		for range 3 {
			taken(t, p, usual)
		}
		refusedNow(t, p, usual)
		refusedNow(t, p, slow)
		taken(t, p, urgent)
		g.forget(4)
	})
}

// A connection is opened for calls that wait long or often. Calls that seldom meet share one, because another one would cost the server more than they wait.
func TestCallsThatSeldomMeetShareAConnection(t *testing.T) {
	pooled(t, 4, 9, func(t *testing.T, p *pool, g *gate) {
		var order []string
		meet := func() {
			first := taken(t, p, usual)
			soonTaken(t, p, usual, &order, "second")
			pass(time.Millisecond)
			require.NoError(t, first.Close())
			synctest.Wait()
		}
		for range 1_000 {
			meet()
			pass(100 * time.Millisecond)
		}
		require.Len(t, order, 1_000)
		assert.Equal(t, 1, g.asks(), "calls waited for less than a hundredth of the time")

		for range 10 {
			meet()
		}
		assert.Equal(t, 1, g.asks())
		meet()
		meet()
		assert.Equal(t, 2, g.asks(), "they have waited for longer in all")

		held := taken(t, p, usual)
		for range 9 {
			meet()
		}
		assert.Equal(t, 2, g.asks(), "what they had waited before is paid for")
		require.NoError(t, held.Close())
	})
	pooled(t, 4, 9, func(t *testing.T, p *pool, g *gate) {
		held := taken(t, p, usual)
		g.slow(50 * time.Millisecond)
		var orders [3][]string
		for n := range orders {
			soonTaken(t, p, usual, &orders[n], "served")
		}
		for after, asks := range []int{1, 1, 1, 2, 2, 2, 2, 2, 3, 3} { // three calls wait, and then one; the fourth connection is left to heartbeats
			assert.Equal(t, asks, g.asks(), "after %d ms and a half", after)
			pass(time.Millisecond)
			if after == 0 {
				pass(time.Millisecond / 2)
			}
		}
		pass(100 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, [3][]string{{"served"}, {"served"}, {"served"}}, orders)
		assert.Equal(t, 3, g.asks())
		require.NoError(t, held.Close())
	})
	pooled(t, 4, 9, func(t *testing.T, p *pool, g *gate) {
		g.slow(5 * time.Millisecond)
		held := []*session{taken(t, p, usual)}
		for n := range 2 {
			second := make(chan *session)
			go func() {
				s, err := p.take(t.Context(), usual)
				assert.NoError(t, err)
				second <- s
			}()
			pass(opensAfter - time.Millisecond)
			assert.Equal(t, 1+n, g.asks(), "what another call has waited is paid for")
			pass(2 * time.Millisecond)
			assert.Equal(t, 2+n, g.asks())
			held = append(held, <-second)
		}
		for _, s := range held {
			require.NoError(t, s.Close())
		}
	})
}

// A listing may not have the last connection, and so waits for none that is idle.
func TestAListingOpensAConnectionAtOnce(t *testing.T) {
	pooled(t, 4, 9, func(t *testing.T, p *pool, g *gate) {
		require.NoError(t, taken(t, p, usual).Close())
		began := time.Now()
		list := taken(t, p, slow)
		assert.Equal(t, began, time.Now())
		assert.Equal(t, 2, g.asks())
		require.NoError(t, list.Close())
	})
}

func TestUrgentCallsAreServedFirstAndOthersInTheirOrder(t *testing.T) {
	pooled(t, 3, 100, func(t *testing.T, p *pool, _ *gate) {
		held := []*session{taken(t, p, usual), taken(t, p, usual), taken(t, p, urgent)}
		var order []string
		soonTaken(t, p, slow, &order, "list")
		soonTaken(t, p, usual, &order, "claim")
		soonTaken(t, p, usual, &order, "ack")
		soonTaken(t, p, urgent, &order, "beat")
		for _, s := range held {
			require.NoError(t, s.Close())
			synctest.Wait()
		}
		assert.Equal(t, "beat list claim ack", strings.Join(order, " "))
	})
}

// A listing that must wait for other listings holds up nobody behind it.
func TestASlowCallHoldsUpNobody(t *testing.T) {
	pooled(t, 4, 100, func(t *testing.T, p *pool, _ *gate) {
		held := []*session{taken(t, p, slow), taken(t, p, slow), taken(t, p, usual)}
		var order []string
		soonTaken(t, p, slow, &order, "list")
		soonTaken(t, p, usual, &order, "claim")
		require.NoError(t, held[2].Close())
		synctest.Wait()
		assert.Equal(t, []string{"claim"}, order)
		require.NoError(t, errors.Join(held[0].Close(), held[1].Close()))
		synctest.Wait()
		assert.Equal(t, []string{"claim", "list"}, order)
	})
}

// A server that is slow to answer after its start is not asked for ever new connections, each of which is given up before it is there.
func TestAConnectionThatACallDidNotWaitForServesAnother(t *testing.T) {
	pooled(t, 2, 9, func(t *testing.T, p *pool, g *gate) {
		within := func(d time.Duration) (*session, error) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			return p.take(ctx, usual)
		}
		g.slow(3 * time.Second)
		for range 2 {
			_, err := within(time.Second)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		s, err := within(2 * time.Second)
		require.NoError(t, err)
		assert.Equal(t, 1, g.asks())
		s.Discard()
		require.NoError(t, s.Close())

		g.slow(time.Hour)
		_, err = within(time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = within(10 * time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 3, g.asks(), "a server that does not answer at all is asked again")
	}) // which closes the pool while a connection is being opened
}

// While a connection is being opened for a call, another one comes back. The call takes that one. And the connection that has been
// opened is not closed for being idle as long as it is the only one: the server may refuse the next one.
func TestACallTakesTheConnectionThatComesFirst(t *testing.T) {
	pooled(t, 4, 9, func(t *testing.T, p *pool, g *gate) {
		claim := taken(t, p, usual)
		g.slow(time.Minute)
		var order []string
		soonTaken(t, p, urgent, &order, "beat")
		pass(opensAfter + time.Millisecond)
		require.NoError(t, claim.Close())
		synctest.Wait()
		assert.Equal(t, []string{"beat"}, order)
		assert.Equal(t, 2, g.asks(), "one is being opened")
		pass(leastPatience)
		assert.Equal(t, 1, g.left())
		require.NoError(t, taken(t, p, urgent).Close())
	})
}

// An opening that hangs keeps nobody else from trying, and one that a call has for itself is not counted for another.
func TestNobodyCountsOnAnOpeningThatHangs(t *testing.T) {
	pooled(t, 4, 9, func(t *testing.T, p *pool, g *gate) {
		within := func(d time.Duration, c class) error {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			s, err := p.take(ctx, c)
			if err == nil {
				err = s.Close()
			}
			return err
		}
		g.slow(time.Hour)
		require.ErrorIs(t, within(hangs, usual), context.DeadlineExceeded)
		g.slow(0)
		require.NoError(t, within(time.Millisecond, usual))
		assert.Equal(t, 2, g.asks())
	})
	pooling(t, 4, 9, false, func(t *testing.T, p *pool, g *gate) {
		g.slow(100 * time.Millisecond)
		ack, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer leave()
		go func() { _, _ = p.take(ack, usual) }()
		synctest.Wait()
		var order []string
		soonTaken(t, p, urgent, &order, "beat")
		assert.Equal(t, 2, g.asks())
		pass(101 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, []string{"beat"}, order)
		assert.Equal(t, 2, g.asks())
	})
}

// Connections that are somebody else's go back after each call, and so does one for which nobody waits any more.
func TestOthersConnectionsGoBack(t *testing.T) {
	pooling(t, 4, 9, false, func(t *testing.T, p *pool, g *gate) {
		for c := range class(classes) {
			s := taken(t, p, c)
			assert.Equal(t, 1, g.left())
			require.NoError(t, s.Close())
			assert.Zero(t, g.left())
		}
		g.slow(time.Second)
		var order []string
		soonTaken(t, p, usual, &order, "ack")
		refusedNow(t, p, urgent)
		pass(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"ack"}, order)
		assert.Zero(t, g.left())
		assert.Equal(t, 5, g.asks())
	})
}

// Of the connections that a burst has opened, one is left after some seconds, and it is never closed.
func TestIdleConnectionsAreClosed(t *testing.T) {
	pooled(t, 4, 100, func(t *testing.T, p *pool, g *gate) {
		held := []*session{taken(t, p, usual), taken(t, p, usual), taken(t, p, usual)}
		for _, s := range held {
			require.NoError(t, s.Close())
		}
		pass(idleFor - time.Millisecond)
		assert.Equal(t, 3, g.left())
		pass(idleFor / 3)
		assert.Equal(t, 1, g.left())
		pass(time.Hour)
		assert.Equal(t, 1, g.left())

		// While a listing goes on, another one is left too.
		list := taken(t, p, slow)
		require.NoError(t, taken(t, p, usual).Close())
		assert.Equal(t, 2, g.left())
		pass(time.Hour)
		assert.Equal(t, 2, g.left())
		require.NoError(t, list.Close())
		pass(2 * idleFor)
		assert.Equal(t, 1, g.left())
		assert.Equal(t, 4, g.asks())
	})
}

// The server admits one connection to this process. Everything but listings goes over it, heartbeats first.
func TestAStoreWorksOnTheOneConnectionThatItHas(t *testing.T) {
	pooled(t, 4, 1, func(t *testing.T, p *pool, g *gate) {
		claim := taken(t, p, usual)
		var order []string
		soonTaken(t, p, usual, &order, "ack")
		soonTaken(t, p, urgent, &order, "beat")
		soonTaken(t, p, usual, &order, "enqueue")
		pass(p.patience / 2)
		synctest.Wait()
		assert.Empty(t, order)
		assert.Less(t, g.asks(), 15, "the server is asked now and then")
		require.NoError(t, claim.Close())
		synctest.Wait()
		assert.Equal(t, "beat", order[0])
		assert.Len(t, order, 3)
		refusedNow(t, p, slow)

		// When the server admits another one, whoever waits gets it.
		claim = taken(t, p, usual)
		soonTaken(t, p, usual, &order, "late ack")
		g.admit(2)
		pass(2 * latest)
		synctest.Wait()
		assert.Equal(t, "late ack", order[len(order)-1])
		list := taken(t, p, slow)
		require.NoError(t, errors.Join(claim.Close(), list.Close()))
	})
}

// The only call that waits gets a connection when the server admits another one, although it was refused before and the others stay in use.
func TestACallThatWasRefusedIsServedLater(t *testing.T) {
	pooled(t, 4, 1, func(t *testing.T, p *pool, g *gate) {
		held := taken(t, p, usual)
		var order []string
		soonTaken(t, p, usual, &order, "ack")
		pass(time.Second)
		assert.Greater(t, g.asks(), 1, "it was refused")
		assert.Empty(t, order)
		g.admit(2)
		pass(2 * latest)
		synctest.Wait()
		assert.Equal(t, []string{"ack"}, order)
		require.NoError(t, held.Close())
	})
}

func TestAServerThatRefusesSeveralAtOnceIsAskedNowAndThen(t *testing.T) {
	pooled(t, 9, 0, func(t *testing.T, p *pool, g *gate) {
		g.slow(2 * opensAfter) // so that all of them have asked before the first answer
		var orders [5][]string
		for n := range orders {
			soonTaken(t, p, usual, &orders[n], "served")
		}
		pass(p.patience / 2)
		assert.Greater(t, g.asks(), len(orders))
		assert.Less(t, g.asks(), len(orders)+15)
		g.admit(9)
		pass(2 * latest)
		synctest.Wait()
		for _, one := range orders {
			assert.Equal(t, []string{"served"}, one)
		}
	})
}

// A call of which nothing comes says why. One that waits for busy connections only goes on waiting.
func TestAServerWithoutAFreeConnectionIsWaitedFor(t *testing.T) {
	pooled(t, 4, 0, func(t *testing.T, p *pool, g *gate) {
		began := time.Now()
		_, err := p.take(t.Context(), usual)
		require.ErrorIs(t, err, errTooMany)
		assert.Equal(t, p.patience, time.Since(began))
		said := ours(err)
		require.ErrorIs(t, said, store.ErrUnavailable)
		assert.ErrorContains(t, said, "give each process fewer (max_conns)")

		g.admit(100)
		pass(2 * latest)
		held := []*session{taken(t, p, usual), taken(t, p, usual), taken(t, p, usual)}
		var order []string
		soonTaken(t, p, usual, &order, "patient")
		pass(10 * p.patience)
		synctest.Wait()
		assert.Empty(t, order)
		for _, s := range held {
			require.NoError(t, s.Close())
		}
		synctest.Wait()
		assert.Equal(t, []string{"patient"}, order)
	})
}

// Dead connections are closed, and calls that leave or find the pool closed take nothing along.
func TestConnectionsComeBackWhateverHappens(t *testing.T) {
	pooled(t, 4, 100, func(t *testing.T, p *pool, g *gate) {
		s := taken(t, p, usual)
		s.Discard()
		require.NoError(t, s.Close())
		assert.Zero(t, g.left())
		s = taken(t, p, usual)
		require.NoError(t, s.Close())
		s.Conn.Discard() // it dies in the pool
		s = taken(t, p, usual)
		assert.Equal(t, 1, g.left())

		var order []string
		for range 2 {
			taken(t, p, usual)
		}
		soonTaken(t, p, usual, &order, "waits")
		p.close()
		synctest.Wait()
		assert.Equal(t, []string{"waits: " + sql.ErrConnDone.Error()}, order)
		_, err := p.take(t.Context(), urgent)
		require.ErrorIs(t, err, sql.ErrConnDone)
		require.NoError(t, s.Close())
		assert.Equal(t, 2, g.left())
		g.forget(2) // they are never given back
	})
}

// Calls leave and come at random. Afterwards nothing is lost.
func TestAPoolLosesNoConnection(t *testing.T) {
	pooled(t, 4, 2, func(t *testing.T, p *pool, g *gate) {
		for i := range 300 {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%17)*time.Millisecond)
				defer cancel()
				if s, err := p.take(ctx, class(i%classes)); err == nil {
					pass(time.Duration(1+i%3) * time.Millisecond)
					_ = s.Close()
				}
			}()
			if i%7 == 0 {
				pass(time.Millisecond)
			}
		}
		pass(time.Minute)
		p.mu.Lock()
		assert.Equal(t, [classes]int{}, p.used)
		assert.Len(t, p.idle, p.open)
		assert.Empty(t, p.dials)
		assert.Empty(t, p.waiting)
		p.mu.Unlock()
		g.admit(100)
		pass(time.Minute)
		held := []*session{taken(t, p, usual), taken(t, p, usual), taken(t, p, usual), taken(t, p, urgent)}
		for _, s := range held {
			require.NoError(t, s.Close())
		}
	})
}

func TestMaxConnsOfADSN(t *testing.T) {
	for dsn, want := range map[string]struct {
		rest  string
		conns int
	}{
		"postgres://u:p@h/d":                                    {"postgres://u:p@h/d", 0},
		"postgres://u:p@h/d?max_conns=8":                        {"postgres://u:p@h/d", 8},
		"postgres://u:p@h/d?sslmode=disable&max_conns=8&port=1": {"postgres://u:p@h/d?sslmode=disable&port=1", 8},
		"host=h max_conns=8 dbname=d":                           {"host=h  dbname=d", 8},
		"max_conns = '9'":                                       {"", 9},
		`password='a max_conns=3 \' max_conns=2' user=u`:        {`password='a max_conns=3 \' max_conns=2' user=u`, 0},
		`password=\ max_conns=2 user=u`:                         {`password=\ max_conns=2 user=u`, 0},
		"host=h other_max_conns=3":                              {"host=h other_max_conns=3", 0},
	} {
		rest, conns, err := cutMaxConns(dsn)
		require.NoError(t, err, dsn)
		assert.Equal(t, want.rest, rest)
		assert.Equal(t, want.conns, conns)
	}
	for _, value := range []string{"", "x", "3", "-1", "8.5"} {
		for _, dsn := range []string{"postgres://u:p@h/d?max_conns=%s", "host=h password=p max_conns='%s'"} {
			_, err := Open(t.Context(), fmt.Sprintf(dsn, value), nil)
			require.EqualError(t, err, fmt.Sprintf("jq: max_conns in the DSN is %q: want a number of at least 4", value))
		}
	}
}

// pass lets time pass, in a bubble of fake time.
func pass(d time.Duration) { <-time.After(d) }

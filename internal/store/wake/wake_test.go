package wake_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/wake"
)

// TestMain fails where a test has left a goroutine behind.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func subscribe(t *testing.T, h *wake.Hub, queues ...string) <-chan store.Wakeup {
	t.Helper()
	wakeups, err := h.Subscribe(t.Context(), queues)
	require.NoError(t, err)
	return wakeups
}

// unread are the queues of the wake-ups that wait, and whether the channel was closed behind them.
func unread(wakeups <-chan store.Wakeup) (queues []string, closed bool) {
	for {
		select {
		case w, open := <-wakeups:
			if !open {
				return queues, true
			}
			queues = append(queues, w.Queue)
		default:
			return queues, false
		}
	}
}

func assertUnread(t *testing.T, want []string, wakeups <-chan store.Wakeup, who string) {
	t.Helper()
	got, closed := unread(wakeups)
	assert.Equal(t, want, got, "wake-ups of %s", who)
	assert.False(t, closed, "the channel of %s is closed", who)
}

func TestTellReachesWhoeverListensToTheQueue(t *testing.T) {
	var h wake.Hub
	defer h.Close()
	a, ab, all := subscribe(t, &h, "a"), subscribe(t, &h, "a", "b"), subscribe(t, &h)
	h.Tell(wake.For([]string{"a", "b", "c"})...)
	h.Tell()
	h.Tell(wake.For([]string{"b"})...)
	assertUnread(t, []string{"a"}, a, "who listens to a")
	assertUnread(t, []string{"a", "b", "b"}, ab, "who listens to a and b")
	assertUnread(t, []string{"a", "b", "c", "b"}, all, "who listens to all")
}

func TestTellPassesOnCancellations(t *testing.T) {
	var h wake.Hub
	defer h.Close()
	a := subscribe(t, &h, "a")
	h.Tell(store.Wakeup{Queue: "b", Cancelled: true}, store.Wakeup{Queue: "a", Cancelled: true})
	assert.Equal(t, store.Wakeup{Queue: "a", Cancelled: true}, <-a)
	assert.Empty(t, a)
}

func TestSlowReaderLosesWakeupsAndHoldsUpNobody(t *testing.T) {
	var h wake.Hub
	defer h.Close()
	slow, quick := subscribe(t, &h), subscribe(t, &h)
	const told = 1000
	for range told {
		h.Tell(wake.For([]string{"q"})...)
		assertUnread(t, []string{"q"}, quick, "the quick reader")
	}
	kept, _ := unread(slow)
	assert.Len(t, kept, 64, "wake-ups of the slow reader")
	h.Tell(wake.For([]string{"q"})...)
	assertUnread(t, []string{"q"}, slow, "the slow reader, once it has read")
}

func TestEndOfTheContextEndsOneSubscription(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var h wake.Hub
		defer h.Close()
		ctx, cancel := context.WithCancel(t.Context())
		ending, err := h.Subscribe(ctx, nil)
		require.NoError(t, err)
		other := subscribe(t, &h, "q")
		h.Tell(wake.For([]string{"q"})...)
		cancel()
		synctest.Wait()
		h.Tell(wake.For([]string{"q"})...)
		got, closed := unread(ending)
		assert.Equal(t, []string{"q"}, got, "wake-ups of the one that has ended: those before its end")
		assert.True(t, closed, "its channel is closed")
		assertUnread(t, []string{"q", "q"}, other, "the other one")
		assert.False(t, h.TellNamed(false), "somebody still listens to all")
	})
}

func TestContextThatHasEndedEndsTheSubscriptionAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var h wake.Hub
		defer h.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wakeups, err := h.Subscribe(ctx, nil)
		require.NoError(t, err)
		synctest.Wait()
		_, closed := unread(wakeups)
		assert.True(t, closed, "its channel is closed")
		assert.True(t, h.Silent(), "nobody listens")
	})
}

func TestCloseEndsEverySubscriptionAndRefusesNewOnes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var h wake.Hub
		ctx, cancel := context.WithCancel(t.Context())
		one, err := h.Subscribe(ctx, nil)
		require.NoError(t, err)
		two := subscribe(t, &h, "q")
		h.Tell(wake.For([]string{"q"})...)
		h.Close()
		h.Close()
		h.Tell(wake.For([]string{"q"})...)
		for who, wakeups := range map[string]<-chan store.Wakeup{"one": one, "two": two} {
			got, closed := unread(wakeups)
			assert.Equal(t, []string{"q"}, got, "wake-ups of %s: those before the end", who)
			assert.True(t, closed, "the channel of %s is closed", who)
		}
		cancel() // which must not close a channel once more
		synctest.Wait()
		_, err = h.Subscribe(t.Context(), nil)
		assert.ErrorIs(t, err, store.ErrClosed)
		assert.True(t, h.Silent(), "nobody listens")
	})
}

// Of both ends, only one may close the channel. The context's comes on a goroutine of its own, which is often the later one here.
func TestEndOfTheContextMayMeetClose(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 {
			var h wake.Hub
			wakeups, err := h.Subscribe(ended, nil)
			require.NoError(t, err)
			h.Close()
			synctest.Wait() // a channel that is closed once more ends the process
			_, closed := unread(wakeups)
			assert.True(t, closed, "the channel is closed")
		}
	})
}

// A lastingContext counts the calls for its end that it was asked to make, less those that it was asked to forget.
type lastingContext struct {
	context.Context
	calls int
}

func (c *lastingContext) AfterFunc(func()) (forget func() bool) {
	c.calls++
	return func() bool {
		c.calls--
		return true
	}
}

func (c *lastingContext) Done() <-chan struct{} { return make(chan struct{}) } // one that can end

func TestCloseLeavesNothingWithContexts(t *testing.T) {
	var h wake.Hub
	ctx := &lastingContext{Context: t.Context()}
	_, err := h.Subscribe(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, 1, ctx.calls, "calls while the subscription lasts")
	h.Close()
	assert.Zero(t, ctx.calls, "calls once the hub is closed")
}

func TestSubscribeRefusesBadNames(t *testing.T) {
	var h wake.Hub
	defer h.Close()
	for name, queue := range map[string]string{"Empty": "", "TooLong": strings.Repeat("x", store.MaxNameBytes+1), "NUL": "a\x00b"} {
		t.Run(name, func(t *testing.T) {
			_, err := h.Subscribe(t.Context(), []string{"fine", queue})
			assert.ErrorIs(t, err, store.ErrInvalid)
		})
	}
	assert.True(t, h.Silent(), "nobody listens")
}

func TestSubscribeKeepsNoSliceOfItsCaller(t *testing.T) {
	var h wake.Hub
	defer h.Close()
	queues := []string{"a"}
	wakeups := subscribe(t, &h, queues...)
	queues[0] = "b"
	h.Tell(wake.For([]string{"a", "b"})...)
	assertUnread(t, []string{"a"}, wakeups, "who listens to a")
}

func TestTellNamedWakesForNamedQueuesOnly(t *testing.T) {
	var h wake.Hub
	defer h.Close()
	assert.False(t, h.TellNamed(false), "somebody has named none, before anybody listens")
	ab, ac := subscribe(t, &h, "a", "b"), subscribe(t, &h, "a", "c")
	assert.False(t, h.TellNamed(false), "somebody has named none")
	all := subscribe(t, &h)
	assert.True(t, h.TellNamed(false), "somebody has named none")
	assertUnread(t, []string{"a", "b", "a", "b"}, ab, "who listens to a and b")
	assertUnread(t, []string{"a", "c", "a", "c"}, ac, "who listens to a and c")
	assertUnread(t, nil, all, "who listens to all")
	h.TellNamed(true)
	assert.Equal(t, store.Wakeup{Queue: "a", Cancelled: true}, <-ab)
	assertUnread(t, nil, all, "who listens to all")
}

func TestSilentUntilSomebodyListens(t *testing.T) {
	var h wake.Hub
	defer h.Close()
	assert.True(t, h.Silent(), "before anybody listens")
	subscribe(t, &h, "q")
	assert.False(t, h.Silent(), "while somebody listens")
}

// Everything at once, for the race detector: contexts that end while others tell and the hub is closed. Every channel must be
// closed in the end, or its reader would wait for ever.
func TestEveryChannelIsClosedInTheEnd(t *testing.T) {
	var h wake.Hub
	var readers, tellers sync.WaitGroup
	stop := make(chan struct{})
	tellers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				h.Tell(wake.For([]string{"a", "b"})...)
				h.TellNamed(false)
			}
		}
	})
	const each = 50
	ready := make(chan struct{}, 3*each)
	for i := range 3 * each {
		ctx, cancel := context.WithCancel(t.Context())
		readers.Go(func() {
			defer cancel()
			wakeups, err := h.Subscribe(ctx, []string{"a"})
			ready <- struct{}{}
			if err != nil {
				return
			}
			if i%3 == 0 {
				cancel()
			}
			for range wakeups {
				if i%3 == 1 {
					cancel()
				}
			}
		})
	}
	for range 3 * each {
		<-ready
	}
	h.Close()
	readers.Wait()
	close(stop)
	tellers.Wait()
	assert.True(t, h.Silent(), "nobody listens")
}

// A wake-up with Settle reaches everybody, also who has left as many unread as there is room for: one of these makes room.
func TestSettleIsNotLostBehindOthers(t *testing.T) {
	var h wake.Hub
	defer h.Close()
	a := subscribe(t, &h, "a")
	for range 1000 {
		h.Tell(wake.For([]string{"a"})...)
	}
	h.Tell(store.Wakeup{Settle: true})
	var last store.Wakeup
	for more := true; more; {
		select {
		case last = <-a:
		default:
			more = false
		}
	}
	assert.Equal(t, store.Wakeup{Settle: true}, last)
}

func TestTellLaterTellsAtTheEarliestTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var h wake.Hub
		defer h.Close()
		clk := clock.New()
		a, b := subscribe(t, &h, "a"), subscribe(t, &h, "b")
		later := func(wait time.Duration, queue string) { h.TellLater(clk, wait, queue) }
		pass := func(d time.Duration) {
			clk.Sleep(d)
			synctest.Wait()
		}
		later(3*time.Second, "a")
		later(2*time.Second, "a")
		later(5*time.Second, "a")
		later(4*time.Second, "b")
		pass(2*time.Second - 1)
		assertUnread(t, nil, a, "who listens to a, too early")
		pass(1)
		assertUnread(t, []string{"a"}, a, "who listens to a, when it is time")
		pass(time.Minute)
		assertUnread(t, nil, a, "who listens to a, when others were asked for")
		assertUnread(t, []string{"b"}, b, "who listens to b")
		later(time.Second, "a")
		pass(time.Second)
		assertUnread(t, []string{"a"}, a, "who listens to a, another time")
	})
}

func TestTellLaterTellsNobodyAfterClose(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var h wake.Hub
		clk := clock.New()
		a := subscribe(t, &h, "a")
		h.TellLater(clk, time.Second, "a")
		h.Close()
		h.TellLater(clk, time.Second, "a")
		clk.Sleep(time.Minute)
		synctest.Wait()
		queues, closed := unread(a)
		assert.Empty(t, queues)
		assert.True(t, closed)
	})
}

package httpapi

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// A turnOf is a heavy write that waits for its turn, or has it.
type turnOf struct {
	got  chan func() // what ends it, once it has begun
	left chan error
}

func heavyOn(ctx context.Context, p *pacer) turnOf {
	turn := turnOf{make(chan func(), 1), make(chan error, 1)}
	go func() {
		if done, err := p.heavy(ctx); err != nil {
			turn.left <- err
		} else {
			turn.got <- done
		}
	}()
	synctest.Wait()
	return turn
}

func (t turnOf) begun() bool { return len(t.got) == 1 }

func (t turnOf) end() {
	(<-t.got)()
	synctest.Wait()
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// While there are light writes, heavy ones run one by one and rest for as long as each took: light ones have half of the time at least, and
// heavy ones come to their turn all the same.
func TestHeavyWritesGiveWayToLightOnes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPacer(clock.New())
		defer p.light()() // somebody always writes
		first := heavyOn(t.Context(), p)
		require.True(t, first.begun())
		second := heavyOn(t.Context(), p)
		pass(30 * time.Millisecond)
		assert.False(t, second.begun(), "beside the first")
		first.end()
		pass(29 * time.Millisecond)
		assert.False(t, second.begun(), "before the first has rested")
		third := heavyOn(t.Context(), p)
		pass(time.Millisecond)
		require.True(t, second.begun(), "in the order in which they came")
		assert.False(t, third.begun())
		second.end() // at once
		assert.True(t, third.begun(), "a short one rests shortly")
		third.end()
	})
}

// A client that goes on writing has gaps between its calls, which are no reason to let heavy writes begin.
func TestHeavyWritesGiveWayBetweenLightOnes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPacer(clock.New())
		first := heavyOn(t.Context(), p)
		pass(10 * time.Millisecond)
		p.light()()
		pass(10 * time.Millisecond)
		first.end()
		second := heavyOn(t.Context(), p)
		assert.False(t, second.begun(), "a light write ended while the first ran")
		pass(20 * time.Millisecond)
		require.True(t, second.begun())
		p.light()()
		second.end() // at once, which tells little of those to come
		third := heavyOn(t.Context(), p)
		require.True(t, third.begun())
		pass(30 * time.Millisecond)
		third.end()
		p.light()()
		pass(30 * time.Millisecond)
		assert.True(t, heavyOn(t.Context(), p).begun(), "no light write for as long as the latest heavy one took")
	})
}

// A short heavy write does not end the rest after a long one that ran beside it.
func TestAShortHeavyWriteEndsNoRest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPacer(clock.New())
		pass(time.Second)
		long := heavyOn(t.Context(), p)
		pass(20 * time.Millisecond)
		short := heavyOn(t.Context(), p)
		pass(10 * time.Millisecond)
		long.end()
		defer p.light()()
		short.end()
		next := heavyOn(t.Context(), p)
		pass(29 * time.Millisecond)
		assert.False(t, next.begun())
		pass(time.Millisecond)
		assert.True(t, next.begun())
	})
}

// Heavy writes that are alone run at the same time, and do not rest.
func TestHeavyWritesAloneDoNotWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPacer(clock.New())
		pass(time.Second)
		var turns []turnOf
		for range 3 {
			turn := heavyOn(t.Context(), p)
			require.True(t, turn.begun())
			turns = append(turns, turn)
		}
		pass(time.Second)
		for _, turn := range turns {
			turn.end()
		}
		assert.True(t, heavyOn(t.Context(), p).begun())
	})
}

// A heavy write that the store kept for long does not keep the others from writing for as long.
func TestHeavyWritesRestForASecondAtMost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPacer(clock.New())
		defer p.light()()
		first := heavyOn(t.Context(), p)
		pass(time.Minute)
		first.end()
		second := heavyOn(t.Context(), p)
		pass(longestRest - 1)
		assert.False(t, second.begun())
		pass(1)
		assert.True(t, second.begun())
	})
}

// A call that ends while it waits for its turn has written nothing, and takes no turn from others.
func TestACallCanLeaveBeforeItsTurn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPacer(clock.New())
		defer p.light()()
		first := heavyOn(t.Context(), p)
		leaving, leave := context.WithCancel(t.Context())
		left := heavyOn(leaving, p)
		leave()
		err := <-left.left
		assert.ErrorIs(t, err, store.ErrUnavailable)
		assert.ErrorIs(t, err, context.Canceled)
		first.end()
		assert.True(t, heavyOn(t.Context(), p).begun())
	})
}

// Large bodies, and claims whose answer will probably be large, are heavy writes. Others do not wait for them.
func TestCallsThatWriteMuchWaitForTheirTurn(t *testing.T) {
	large := strings.Repeat("x", 70_000)
	for name, call := range map[string]struct{ method, path, body string }{
		"enqueue":          {"POST", wire.PathJobs, `{"jobs":[{"kind":"k","payload":"` + large + `"}]}`},
		"ack":              {"POST", wire.PathAck, `{"jobs":[{"id":"1","token":"1","result":"` + large + `"}]}`},
		"checkpoint":       {"POST", wire.PathCheckpoint, `{"jobs":[{"id":"1","token":"1","checkpoint":"` + large + `"}]}`},
		"claim":            {"POST", wire.PathClaim, `{"worker":"w","limit":10}`},
		"claim that waits": {"POST", wire.PathClaim, `{"worker":"w","limit":10,"wait":"1m"}`},
		"beat":             {"PUT", fmt.Sprintf(wire.PathWorker, "w"), `{"queues":["` + strings.Repeat(strings.Repeat("q", 200)+`","`, 400) + `q"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{})
			w.enqueue("default")
			w.enqueue("default")
			w.claim(`{"worker":"w"}`)
			w.api.all.claimed.Store(&extent{1 << 20, 10})
			light := w.api.pacer.light()
			other, err := w.api.pacer.heavy(t.Context())
			require.NoError(t, err)

			answers := make(chan answered, 1)
			go func() {
				got, err := w.try(t.Context(), call.method, call.path, call.body)
				assert.NoError(t, err)
				answers <- got
			}()
			w.eventually("the call waits", func() bool { return len(w.api.all.heavy) == 1 })
			assert.Equal(t, 201, w.ask("POST", wire.PathJobs, `{"jobs":[{"queue":"other","kind":"k"}]}`).status)
			assert.Empty(t, answers)

			other()
			got := <-answers
			assert.Less(t, got.status, 300, got.text)
			light()
			w.nothingIsTakenUp()
			assert.Empty(t, w.api.all.heavy)
		})
	}
}

// A claim that waited for jobs waits for its turn too, while others write. It takes nothing if its token, its client or the API is gone, and no
// wake-up is lost.
func TestAWaitingClaimWaitsForItsTurn(t *testing.T) {
	begin := func(t *testing.T, client context.Context) (w *world, done func(), answer <-chan answered) {
		t.Helper()
		w = newWorld(t, Options{PollPause: time.Hour})
		w.api.all.claimed.Store(&extent{1 << 20, 10})
		answers := make(chan answered, 1)
		w.enqueue("other") // the store is in use
		go func() {
			got, _ := w.try(client, "POST", wire.PathClaim, `{"worker":"w","limit":10,"wait":"1m"}`)
			answers <- got
		}()
		w.asleep(1)
		light := w.api.pacer.light()
		ended, err := w.api.pacer.heavy(t.Context())
		require.NoError(t, err)
		w.enqueue("default")
		w.eventually("the claim waits for its turn", func() bool { return len(w.api.all.heavy) == 1 })
		return w, func() {
			ended()
			light()
		}, answers
	}
	t.Run("its turn", func(t *testing.T) {
		w, done, answers := begin(t, t.Context())
		assert.Empty(t, answers)
		done()
		assert.Contains(t, (<-answers).text, `"state":"in_flight"`)
		w.nothingIsTakenUp()
	})
	t.Run("too late", func(t *testing.T) {
		w, done, answers := begin(t, t.Context())
		defer done()
		w.clock.Add(longestTurn)
		got := <-answers
		assert.Equal(t, urn+"busy", got.fail(t).Type)
		assert.Equal(t, map[store.State]int64{store.Ready: 2}, w.counts())
	})
	t.Run("closed", func(t *testing.T) {
		w, done, answers := begin(t, t.Context())
		defer done()
		require.NoError(t, w.api.Close())
		assert.JSONEq(t, `{"jobs":[]}`, (<-answers).text)
		assert.Equal(t, map[store.State]int64{store.Ready: 2}, w.counts())
	})
	t.Run("the client leaves", func(t *testing.T) {
		client, leave := context.WithCancel(t.Context())
		w, done, answers := begin(t, client)
		w.api.all.claimed.Store(nil) // another claim is light
		leave()
		<-answers
		w.eventually("its place is free", func() bool { return len(w.api.all.heavy) == 0 })
		done()
		w.nothingIsTakenUp()
	})
}

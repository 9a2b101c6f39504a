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
		second.end() // at once
		third, fourth := heavyOn(t.Context(), p), heavyOn(t.Context(), p)
		require.True(t, third.begun())
		assert.False(t, fourth.begun(), "a short heavy write tells nothing of the others")
		pass(10 * time.Millisecond)
		third.end()
		assert.False(t, fourth.begun(), "before the third has rested")
		pass(10 * time.Millisecond)
		require.True(t, fourth.begun())
		fourth.end()
		pass(longestRest)
		assert.True(t, heavyOn(t.Context(), p).begun(), "no light write for a long time")
		assert.True(t, heavyOn(t.Context(), p).begun())
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

// A claim that waited for jobs waits for its turn too, while others write. If it takes nothing, the next one does.
func TestAWaitingClaimWaitsForItsTurn(t *testing.T) {
	const taken, none = `"state":"in_flight"`, `{"jobs":[]}`
	for name, one := range map[string]struct {
		end           func(w *world, begin, leave func())
		first, second string // what is in their answers
	}{
		"its turn":            {func(_ *world, begin, _ func()) { begin() }, taken, ""},
		"too late":            {func(w *world, _, _ func()) { w.clock.Add(longestTurn) }, urn + "busy", taken},
		"the client has left": {func(_ *world, _, leave func()) { leave() }, "", taken},
		"the token is gone": {func(w *world, begin, _ func()) {
			w.api.SetTokens(&Tokens{})
			begin()
		}, urn + "unauthorized", urn + "unauthorized"},
		"the API is closed": {func(w *world, _, _ func()) { assert.NoError(w, w.api.Close()) }, none, none},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{PollPause: time.Hour})
			share := newShare(w.api.options, 2)
			share.claimed.Store(&extent{1 << 20, 10})
			token := w.onlyToken(Operator, share)
			client, leave := context.WithCancel(t.Context())
			defer leave()
			claim := func(ctx context.Context, n int) <-chan string {
				answer := make(chan string, 1)
				go func() {
					got, _ := w.try(ctx, "POST", wire.PathClaim, `{"worker":"w","limit":10,"wait":"1m"}`, "Authorization", "Bearer "+token)
					answer <- got.text
				}()
				w.asleep(n)
				return answer
			}
			first, second := claim(client, 1), claim(t.Context(), 2)
			light := w.api.pacer.light()
			other, err := w.api.pacer.heavy(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 201, w.ask("POST", wire.PathJobs, `{"jobs":[{"kind":"k"}]}`, "Authorization", "Bearer "+token).status)
			w.eventually("the first waits for its turn", func() bool { return len(w.api.all.heavy) == 1 })
			share.claimed.Store(nil) // the second will be light
			assert.Empty(t, first)

			one.end(w, other, leave)
			assert.Contains(t, <-first, one.first)
			if one.second == "" { // nothing is left for it
				require.NoError(t, w.api.Close())
				one.second = none
			}
			assert.Contains(t, <-second, one.second)
			light()
			w.nothingIsTakenUp()
			assert.Empty(t, w.api.all.heavy)
		})
	}
}

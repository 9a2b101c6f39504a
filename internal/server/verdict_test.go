package server

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A typedNil is the error of a function that returns a nil pointer as an error. It panics when asked for its text.
type typedNil struct{ text string }

func (e *typedNil) Error() string { return e.text }

// What a handler does decides what happens to its job: R31, R39. The process survives in any case.
func TestWhatAHandlerReturnsDecides(t *testing.T) {
	huge := strings.Repeat("é", store.MaxErrorBytes)
	cases := map[string]struct {
		handle Handler
		phase  store.State
		next   time.Duration // until the job is due again
		begins string        // the error
		holds  string        // somewhere in the error
	}{
		"an error": {
			func(context.Context, *Run) error { return errors.New("no luck") },
			store.Retrying, time.Minute, "no luck", "no luck",
		},
		"never": {
			func(context.Context, *Run) error {
				return fmt.Errorf("outer: %w", &Wish{Form: store.Never, Err: errors.New("inner")})
			},
			store.Dead, 0, "outer: inner", "inner",
		},
		"after": {
			func(context.Context, *Run) error {
				return &Wish{Form: store.After, Delay: 17 * time.Second, Err: errors.New("soon")}
			},
			store.Retrying, 17 * time.Second, "soon", "soon",
		},
		"snooze": {
			func(context.Context, *Run) error { return &Wish{Form: store.Snooze, Delay: 3 * time.Hour} },
			store.Ready, 3 * time.Hour, "", "",
		},
		"snooze with a reason": {
			func(context.Context, *Run) error {
				return &Wish{Form: store.Snooze, Delay: 3 * time.Hour, Err: errors.New("not yet")}
			},
			store.Ready, 3 * time.Hour, "", "",
		},
		"a wish that can not be": {
			func(context.Context, *Run) error {
				return &Wish{Form: store.After, Delay: -time.Second, Err: errors.New("hurry")}
			},
			store.Retrying, time.Minute, "hurry\nthis could not be written: jq: invalid: delay", "delay",
		},
		"a snooze that can not be": {
			func(context.Context, *Run) error { return &Wish{Form: store.Snooze, Delay: 2 * store.MaxDuration} },
			store.Retrying, time.Minute, "the result could not be written: jq: invalid: delay", "delay",
		},
		"a panic": {
			func(context.Context, *Run) error { panic("ouch") },
			store.Retrying, time.Minute, "panic: ouch\n", "verdict_test.go",
		},
		"a panic with nil": {
			func(context.Context, *Run) error { panic(nil) },
			store.Retrying, time.Minute, "panic: panic called with nil argument", "verdict_test.go",
		},
		"a huge panic": {
			func(context.Context, *Run) error { panic(huge) },
			store.Retrying, time.Minute, "panic: éé", "verdict_test.go",
		},
		"a panic with a wish": {
			func(context.Context, *Run) error { panic(&Wish{Form: store.Never, Err: errors.New("thrown")}) },
			store.Retrying, time.Minute, "panic: thrown\n", "verdict_test.go",
		},
		"the end of its goroutine": {
			func(context.Context, *Run) error { runtime.Goexit(); return nil },
			store.Retrying, time.Minute, "handler ended its goroutine (runtime.Goexit)", "",
		},
		"an error without a text": {
			func(context.Context, *Run) error { var e *typedNil; return e },
			store.Retrying, time.Minute, "panic: runtime error: invalid memory address", "typedNil",
		},
		"a huge error": {
			func(context.Context, *Run) error { return errors.New(huge) },
			store.Retrying, time.Minute, "éé", "(cut)",
		},
		"an error that is no text": {
			func(context.Context, *Run) error { return errors.New("a\x00b\xff") },
			store.Retrying, time.Minute, "a\uFFFDb\uFFFD", "",
		},
		"a context error of its own": {
			func(context.Context, *Run) error { return context.Canceled },
			store.Retrying, time.Minute, "context canceled", "",
		},
		"a result over the limit": {
			func(_ context.Context, r *Run) error {
				r.SetResult([]byte(`"` + strings.Repeat("x", store.MaxDocBytes) + `"`))
				return nil
			},
			store.Dead, 0, "result refused: it must", "",
		},
		"a result that is no JSON": {
			func(_ context.Context, r *Run) error { r.SetResult([]byte("<xml/>")); return nil },
			store.Dead, 0, "result refused: it must", "JSON",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.handlers["odd"], w.handlers["quick"] = c.handle, work(0)
				id := w.enqueue(1, "odd", func(n *store.NewJob) { n.Backoff.Base = time.Minute })[0]
				s := w.start(Options{Slots: 1})
				w.wait(10 * time.Second)
				j := w.job(id)
				require.Equal(w, c.phase, j.Phase())
				assert.Len(w, j.History, 1)
				assert.True(w, strings.HasPrefix(j.Error, c.begins), "%.200q", j.Error)
				assert.Contains(w, j.Error, c.holds)
				assert.LessOrEqual(w, len(j.Error), store.MaxErrorBytes)
				if c.next > 0 {
					assert.Equal(w, j.History[0].EndedAt.Add(c.next), j.Next())
				}
				quick := w.enqueue(1, "quick")[0]
				w.wait(2 * time.Second)
				assert.Equal(w, store.Succeeded, w.job(quick).State, "the slot goes on")
				assert.Equal(w, Stats{Slots: 1}, s.Stats())
				w.stop(s)
			})
		})
	}
}

// Results of the greatest allowed size are written, even if many end at once and one call cannot carry them.
func TestGreatResultsAreWritten(t *testing.T) {
	inWorld(t, func(w *world) {
		doc := `"` + strings.Repeat("x", store.MaxDocBytes-2) + `"`
		w.handlers["great"] = func(_ context.Context, r *Run) error { r.SetResult([]byte(doc)); return nil }
		ids := w.enqueue(20, "great")
		g := w.gate()
		s := w.start(Options{Slots: 20}, g)
		w.wait(time.Second)
		for _, id := range ids {
			assert.Len(w, w.job(id).Result, store.MaxDocBytes)
		}
		assert.Equal(w, 3, g.count("ack"), "8 MiB a call")
		w.stop(s)
	})
}

// The result is kept as it was when it was set: the handler may reuse its buffer.
func TestResultIsACopy(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["buffer"] = func(_ context.Context, r *Run) error {
			buffer := []byte(`"first"`)
			r.SetResult(buffer)
			copy(buffer, `"other"`)
			return nil
		}
		id := w.enqueue(1, "buffer")[0]
		s := w.start(Options{})
		w.wait(time.Second)
		assert.Equal(w, `"first"`, string(w.job(id).Result))
		w.stop(s)
	})
}

// The observer gets the store's answer about how a run ended.
func TestObserverHearsOfEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["second"] = work(time.Second)
		w.handlers["fail"] = func(context.Context, *Run) error { return errors.New("no luck") }
		w.handlers["refused"] = func(_ context.Context, r *Run) error { r.SetResult([]byte("{")); return nil }
		w.handlers["long"] = work(time.Hour)
		heard := &ends{}
		s := w.start(Options{Slots: 3, Claim: ClaimOptions{Buffer: 1}, Observer: heard})
		w.enqueue(1, "second")
		w.wait(2 * time.Second)
		w.enqueue(1, "fail", func(n *store.NewJob) { n.Backoff.Base = time.Hour })
		w.enqueue(1, "refused")
		w.wait(2 * time.Second)
		w.enqueue(4, "long")
		w.wait(2 * time.Second)
		w.stop(s)
		w.wait(time.Second)
		assert.ElementsMatch(w, []end{
			{"second", store.EndSucceeded, store.Succeeded, time.Second},
			{"fail", store.EndFailed, store.Retrying, 0},
			{"refused", store.EndFailed, store.Dead, 0},
			{"long", store.EndReleased, store.Ready, 0}, // from the buffer: it has not run
			{"long", store.EndReleased, store.Ready, 32 * time.Second},
			{"long", store.EndReleased, store.Ready, 32 * time.Second},
			{"long", store.EndReleased, store.Ready, 32 * time.Second},
		}, heard.all)
	})
}

// ends records what an observer is told.
type ends struct {
	NopObserver
	all []end
}

type end struct {
	kind   string
	ending store.Ending
	phase  store.State
	ran    time.Duration
}

func (e *ends) Ended(job store.Job, ending store.Ending, phase store.State, ran time.Duration) {
	e.all = append(e.all, end{job.Kind, ending, phase, ran.Round(time.Second)})
}

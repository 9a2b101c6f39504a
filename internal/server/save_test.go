package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// The next attempt finds the checkpoint, whatever ended the attempt that saved it: R64. Later saves win.
func TestCheckpointReachesTheNextAttempt(t *testing.T) {
	ends := map[string]func() error{
		"an error": func() error { return errors.New("no luck") },
		"a panic":  func() error { panic("ouch") },
		"a snooze": func() error { return &Wish{Form: store.Snooze, Delay: time.Second} },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.handlers["steps"] = func(ctx context.Context, r *Run) error {
					step := len(r.Job.Checkpoint)
					if step == 3 {
						return nil
					}
					for more := range 2 { // the second one is that which stays
						if err := r.Save(ctx, []byte(strings.Repeat("1", step+more)), fmt.Appendf(nil, `"step %d.%d"`, step, more)); err != nil {
							return err
						}
					}
					return end()
				}
				id := w.enqueue(1, "steps", func(n *store.NewJob) { n.Backoff.Cap = time.Second })[0]
				s := w.start(Options{})
				w.wait(20 * time.Second)
				j := w.job(id)
				assert.Equal(w, store.Succeeded, j.State)
				assert.Len(w, j.History, 4)
				assert.Equal(w, "111", string(j.Checkpoint))
				assert.Equal(w, `"step 2.1"`, string(j.Progress))
				w.stop(s)
			})
		})
	}
}

// Saves by many goroutines have their own numbers: the save with the highest number stays.
func TestSavesOfManyGoroutines(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["many"] = func(ctx context.Context, r *Run) error {
			var saving sync.WaitGroup
			for range 50 {
				saving.Go(func() { assert.NoError(w, r.Save(ctx, []byte("0"), nil)) })
			}
			saving.Wait()
			return r.Save(ctx, []byte("1"), nil)
		}
		id := w.enqueue(1, "many")[0]
		s := w.start(Options{})
		w.wait(time.Second)
		j := w.job(id)
		assert.Equal(w, "1", string(j.Checkpoint))
		assert.Equal(w, int64(51), j.CheckpointSeq)
		w.stop(s)
	})
}

// A save that is refused because of its lease tells the handler at once, by the error and by the context. One loss is one warning: R21,
// R48.
func TestRefusedSaveCancelsTheHandler(t *testing.T) {
	cases := map[string]struct {
		end   func(w *world, id int64) error
		cause error
		err   error
		warn  int
	}{
		"stale": {func(w *world, _ int64) error { w.fence(); return nil }, ErrLeaseLost, store.ErrStaleLease, 1},
		"cancelled": {func(w *world, id int64) error {
			_, err := w.store.Cancel(w.Context(), store.Filter{IDs: []int64{id}}, 1)
			return err
		}, ErrCancelled, store.ErrStaleLease, 1},
		"gone": {func(w *world, id int64) error {
			_, err := w.store.Cancel(w.Context(), store.Filter{IDs: []int64{id}}, 1)
			if err == nil {
				_, err = w.store.Delete(w.Context(), store.Filter{IDs: []int64{id}}, 1)
			}
			return err
		}, ErrLeaseLost, store.ErrNotFound, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var cause error
				w.handlers["save"] = func(ctx context.Context, r *Run) error {
					if err := pause(ctx, 2*time.Second); err != nil {
						return err
					}
					for range 2 {
						if err := r.Save(ctx, []byte("1"), nil); !errors.Is(err, c.err) && !errors.Is(err, store.ErrUnavailable) {
							w.Errorf("got %v, want %v", err, c.err)
						}
					}
					cause = context.Cause(ctx)
					return nil
				}
				id := w.enqueue(1, "save")[0]
				s := w.start(Options{}, w.hook().plain()) // without wake-ups, so that the save comes before the heartbeat
				w.wait(time.Second)
				require.NoError(w, c.end(w, id))
				w.wait(20 * time.Second)
				require.ErrorIs(w, cause, c.cause)
				lines := w.said("jq: stale write refused")
				require.Len(w, lines, c.warn)
				if c.warn > 0 {
					assert.Equal(w, "save", lines[0]["op"])
				}
				assert.Equal(w, Stats{Slots: DefaultSlots}, s.Stats())
				w.stop(s)
			})
		})
	}
}

// A document that cannot be stored is an error of the save, and nothing else.
func TestInvalidSaveIsAnErrorOnly(t *testing.T) {
	inWorld(t, func(w *world) {
		var invalid error
		w.handlers["save"] = func(ctx context.Context, r *Run) error {
			invalid = r.Save(ctx, []byte("{"), nil)
			return r.Save(ctx, []byte("{}"), nil)
		}
		id := w.enqueue(1, "save")[0]
		s := w.start(Options{})
		w.wait(time.Second)
		require.ErrorIs(w, invalid, store.ErrInvalid)
		assert.Equal(w, 1, strings.Count(invalid.Error(), "jq: invalid"), "%v", invalid)
		assert.Equal(w, store.Succeeded, w.job(id).State)
		w.stop(s)
	})
}

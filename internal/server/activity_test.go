package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// activityOf returns the rows of the last hour by queue and kind, without their begin.
func (w *world) activityOf() []store.Activity {
	w.Helper()
	page, err := w.store.Activity(w.Context(), store.ActivityFilter{Last: time.Hour, By: store.ByKind})
	require.NoError(w, err)
	for i := range page.Spans {
		page.Spans[i].At = time.Time{}
	}
	return page.Spans
}

// What the server did is in the store ten seconds later, each job once, and what it did last is there when it has stopped.
func TestServerHandsOverWhatItDid(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["good"] = func(ctx context.Context, _ *Run) error { return travel(ctx, 2*time.Second) }
		w.handlers["bad"] = func(ctx context.Context, _ *Run) error {
			return errors.Join(errors.New("no luck"), travel(ctx, 20*time.Millisecond))
		}
		w.handlers["busy"] = func(context.Context, *Run) error { return &Wish{Form: store.Snooze, Delay: time.Hour} }
		w.handlers["long"] = func(ctx context.Context, _ *Run) error { return travel(ctx, time.Hour) }
		w.enqueue(30, "good", func(j *store.NewJob) { j.Queue = "a" })
		w.enqueue(5, "bad", func(j *store.NewJob) { j.Queue, j.MaxRetries = "b", 1 })
		w.enqueue(2, "busy", func(j *store.NewJob) { j.Queue = "b" })
		w.orphan(4)
		w.orphanForGood(2)
		expiring := w.expiring(3)
		w.wait(time.Minute)
		h := w.hook()
		s := w.start(Options{Slots: 100, Queues: map[string]QueueOptions{"a": {}, "b": {}, "c": {}}}, h)
		w.wait(9 * time.Second)
		assert.Empty(w, w.activityOf(), "before ten seconds have passed")
		w.wait(2 * time.Second)
		expired, err := w.store.Get(w.Context(), expiring[0])
		require.NoError(w, err)
		const minute, quick, second = 10, 3, 7 // the classes of a minute, of 20 ms and of 2 s
		of := func(class int, n int64) (h store.Histogram) { h[class] = n; return h }
		want := []store.Activity{
			{Queue: "a", Kind: "good", Succeeded: 30, Waited: of(minute, 30), Ran: of(second, 30)},
			{Queue: "a queue of the dead", Kind: "any", Recovered: 4},
			{Queue: "another queue of the dead", Kind: "any", Recovered: 2, Dead: 2},
			{Queue: "b", Kind: "bad", Retried: 5, Dead: 5, Waited: of(minute, 5), Ran: of(quick, 10)},
			{Queue: "b", Kind: "busy", Snoozed: 2, Waited: of(minute, 2)},
			{Queue: expired.Queue, Kind: "any", Expired: 3},
		}
		assert.ElementsMatch(w, want, w.activityOf())
		w.wait(time.Hour / 2)
		assert.Equal(w, 1, h.count("addactivity"), "calls of a server that did nothing more")

		w.enqueue(1, "long", func(j *store.NewJob) { j.Queue = "c" })
		w.wait(time.Second)
		w.fence()
		w.wait(11 * time.Second)
		w.enqueue(1, "good", func(j *store.NewJob) { j.Queue = "c" })
		w.wait(3 * time.Second)
		w.stop(s)
		assert.Subset(w, w.activityOf(), []store.Activity{
			{Queue: "c", Kind: "good", Succeeded: 1, Waited: of(0, 1), Ran: of(second, 1)},
			{Queue: "c", Kind: "long", Stale: 1, Waited: of(0, 1)},
		})
	})
}

// A store that keeps no activity, or that fails, does not disturb the work. What was surely not written is written later.
func TestServerWorksWithoutActivity(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["good"] = func(context.Context, *Run) error { return nil }
		h := w.hook()
		s := w.start(Options{}, h.plain())
		w.enqueue(1, "good")
		w.wait(time.Minute)
		w.stop(s)
		assert.Zero(w, h.count("addactivity"))

		var answer error
		h.every(func(_ context.Context, method string) error {
			if method == "addactivity" {
				return answer
			}
			return nil
		})
		s = w.start(Options{Name: "w2"}, h)
		for _, answer = range []error{store.ErrUnavailable, store.ErrInDoubt, store.ErrDenied} {
			w.enqueue(1, "good")
			w.wait(11 * time.Second)
		}
		answer = nil
		w.enqueue(1, "good")
		w.wait(11 * time.Second)
		w.stop(s)
		assert.Equal(w, 1, w.log.said("jq: the store does not take activity; what this process does is missing there"))
		require.Len(w, w.activityOf(), 1)
		assert.EqualValues(w, 1, w.activityOf()[0].Succeeded, "but for those that were in doubt or denied")
	})
}

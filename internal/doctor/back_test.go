package doctor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/doctor"
	"github.com/seed-ed332417/jq/internal/store"
)

// heldBack returns what holds the job back.
func (o ordered) heldBack(id int64) []string {
	o.Helper()
	detail, err := o.Get(o.Context(), id)
	require.NoError(o, err)
	reasons, err := doctor.HeldBack(o.Context(), o.Store, detail.Job)
	require.NoError(o, err)
	return reasons
}

// What holds back a due job is named, and only of a due job.
func TestHeldBack(t *testing.T) {
	limit := func(o ordered, p store.Policy) {
		p.Version = 1
		_, err := o.SetPolicy(o.Context(), "q", p)
		require.NoError(o, err)
	}
	for name, k := range map[string]struct {
		arrange func(ordered) int64
		want    []string
	}{
		"nothing": {func(o ordered) int64 { return o.add("a") }, nil},
		"a paused queue": {func(o ordered) int64 {
			require.NoError(o, o.SetPaused(o.Context(), "q", true))
			return o.add("")
		}, []string{"its queue q is paused"}},
		"a paused queue, but it is not due": {func(o ordered) int64 {
			require.NoError(o, o.SetPaused(o.Context(), "q", true))
			return o.add("a", in(time.Minute))
		}, nil},
		"a paused queue, but it is blocked": {func(o ordered) int64 {
			require.NoError(o, o.SetPaused(o.Context(), "q", true))
			return o.add("a", func(n *store.NewJob) { n.After = []store.Wait{{ID: o.add("b")}} })
		}, nil},
		"a paused queue, but it is in flight": {func(o ordered) int64 {
			id := o.add("a")
			o.claim(id)
			require.NoError(o, o.SetPaused(o.Context(), "q", true))
			return id
		}, nil},
		"a full queue": {func(o ordered) int64 {
			limit(o, store.Policy{MaxInFlight: 1})
			o.claim(o.add("a"))
			return o.add("")
		}, []string{"its queue q has as many jobs in flight as its policy allows (1)"}},
		"a full key": {func(o ordered) int64 {
			limit(o, store.Policy{MaxPerKey: 2})
			o.claim(o.add("a"))
			o.claim(o.add("b"))
			o.claim(o.add("a"))
			return o.add("a")
		}, []string{"its limit key a has as many jobs in flight as its queue q allows (2): jobs 1, 3"}},
		"a full key of one job": {func(o ordered) int64 {
			limit(o, store.Policy{MaxPerKey: 1})
			o.claim(o.add("a"))
			return o.add("a")
		}, []string{"its limit key a has as many jobs in flight as its queue q allows (1): job 1"}},
		"a full key of many jobs": {func(o ordered) int64 {
			limit(o, store.Policy{MaxPerKey: 7})
			for range 7 {
				o.claim(o.add("a"))
			}
			return o.add("a")
		}, []string{"its limit key a has as many jobs in flight as its queue q allows (7): jobs 1, 2, 3, 4, 5, and 2 more"}},
		"a key with room": {func(o ordered) int64 {
			limit(o, store.Policy{MaxPerKey: 2})
			o.claim(o.add("a"))
			return o.add("a")
		}, nil},
		"another key that is full": {func(o ordered) int64 {
			limit(o, store.Policy{MaxPerKey: 1})
			o.claim(o.add("a"))
			return o.add("b")
		}, nil},
		"no key": {func(o ordered) int64 {
			o.claim(o.add(""))
			return o.add("")
		}, nil},
		"an earlier job in flight": {func(o ordered) int64 {
			o.claim(o.add("a"))
			o.add("a")
			id := o.add("a")
			o.clock.Add(time.Minute)
			return id
		}, []string{"its queue q is ordered, and job 1 of its limit key a goes first: it has been in flight for 1m0s (worker w)"}},
		"an earlier job that failed": {func(o ordered) int64 {
			o.fail(o.claim(o.add("a")), store.After, time.Minute)
			o.add("a")
			return o.add("a")
		}, []string{"its queue q is ordered, and job 1 of its limit key a goes first: it has failed once and waits another 1m0s for its retry"}},
		"an earlier job that is not due": {func(o ordered) int64 {
			o.add("b")
			o.add("a", in(time.Minute))
			return o.add("a")
		}, []string{"its queue q is ordered, and job 2 of its limit key a goes first: it is not due for another 1m0s"}},
		"an earlier job that is blocked": {func(o ordered) int64 {
			o.add("a", func(n *store.NewJob) { n.After = []store.Wait{{ID: o.add("b")}} })
			return o.add("a")
		}, []string{"its queue q is ordered, and job 2 of its limit key a goes first: it is blocked by others"}},
		"an earlier job that is due, in a paused queue": {func(o ordered) int64 {
			o.add("a")
			require.NoError(o, o.SetPaused(o.Context(), "q", true))
			return o.add("a")
		}, []string{"its queue q is paused", "its queue q is ordered, and job 1 of its limit key a goes first: it is due"}},
		"a later job in flight": {func(o ordered) int64 {
			first := o.add("a")
			outcomes, err := o.Cancel(o.Context(), store.Filter{IDs: []int64{first}}, 1)
			require.NoError(o, err)
			require.Equal(o, store.StatusOK, outcomes[0].Status)
			o.claim(o.add("a"))
			_, err = o.Requeue(o.Context(), store.Filter{IDs: []int64{first}}, 1)
			require.NoError(o, err)
			return first
		}, []string{"its queue q is ordered, and job 2 of its limit key a goes first: it has been in flight for 0s (worker w)"}},
		"an earlier job that has ended": {func(o ordered) int64 {
			o.ack(o.claim(o.add("a")))
			return o.add("a")
		}, nil},
		"an earlier job far behind": {func(o ordered) int64 {
			first := o.add("a")
			var id int64
			for range store.MaxItems + 1 {
				id = o.add("a")
			}
			require.EqualValues(o, 1, first)
			return id
		}, []string{fmt.Sprintf("its queue q is ordered, and job %d of its limit key a goes first: it is due", 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrdered(t)
			assert.Equal(t, k.want, o.heldBack(k.arrange(o)))
		})
	}
}

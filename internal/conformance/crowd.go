package conformance

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A crowd is a set of jobs that differ in everything a filter knows, with filters and whom each chooses, by number.
type crowd struct {
	ids     []int64
	phases  []string // queue and phase
	filters []choice
}

type choice struct {
	filter store.Filter
	want   []int
}

// crowd fills the store. None of its jobs is claimable at the end.
func (c *C) crowd() crowd {
	var jobs crowd
	join := func(name, kind, by string, change func(*store.NewJob), finish func(store.Lease)) {
		n := plainBut(change)
		n.Queue, n.Kind = name, kind
		jobs.ids = append(jobs.ids, c.Enqueue(n)[0])
		if finish == nil {
			return
		}
		claimed := c.ClaimBy(store.ClaimRequest{Queue: name, Limit: 1, Worker: by, TTL: time.Hour})
		c.Equal(ids(claimed), jobs.ids[len(jobs.ids)-1:], "the job that was claimed to make a crowd")
		finish(claimed[0].Lease())
	}
	nothing := func(*store.NewJob) {}
	later := func(tags ...string) func(*store.NewJob) {
		return func(n *store.NewJob) { n.Delay, n.Tags = time.Hour, tags }
	}
	join("q", "k", "", later("t1"), nil)
	join("q", "k2", "w", func(n *store.NewJob) { n.LimitKey = "l" }, func(store.Lease) {})
	join("q", "k", "w2", nothing, func(l store.Lease) { c.NAck(l, store.After, time.Hour, "boom") })
	join("q", "k", "w", func(n *store.NewJob) { n.Tags = []string{"t1", "t2"} }, func(l store.Lease) { c.Ack(l) })
	c.Advance(time.Minute)
	join("q2", "k", "w2", nothing, func(l store.Lease) { c.NAck(l, store.Never, 0, "boom") })
	join("q2", "k2", "", func(n *store.NewJob) { n.UniqueKey, n.LimitKey = "u", "l" }, nil)
	c.Cancel(jobs.ids[5])
	c.Advance(time.Minute)
	join("q2", "k", "", later("t2"), nil)
	join("q", "k", "w", func(n *store.NewJob) { n.LimitKey = "l2" }, func(l store.Lease) { c.Cancel(l.ID) })
	jobs.phases = []string{
		"q ready", "q in_flight", "q retrying", "q succeeded", "q2 dead", "q2 cancelled", "q2 ready", "q cancelled",
	}
	in := func(states ...store.State) store.Filter { return store.Filter{States: states} }
	jobs.filters = []choice{
		{only(jobs.ids[5], jobs.ids[0], noJob, jobs.ids[3], jobs.ids[0]), []int{0, 3, 5}},
		{only(noJob), nil},
		{store.Filter{After: jobs.ids[4]}, []int{5, 6, 7}},
		{store.Filter{After: jobs.ids[7]}, nil},
		{store.Filter{Queue: "q2"}, []int{4, 5, 6}},
		{store.Filter{Queue: "Q"}, nil},
		{store.Filter{Kind: "k2"}, []int{1, 5}},
		{store.Filter{Kind: "k"}, []int{0, 2, 3, 4, 6, 7}},
		{store.Filter{Tag: "t1"}, []int{0, 3}},
		{store.Filter{Tag: "t2"}, []int{3, 6}},
		{store.Filter{Tag: "t"}, nil},
		{store.Filter{Worker: "w"}, []int{1, 3, 7}},
		{store.Filter{Worker: "w2"}, []int{2, 4}},
		{store.Filter{UniqueKey: "u"}, []int{5}},
		{store.Filter{LimitKey: "l"}, []int{1, 5}},
		{store.Filter{LimitKey: "l2"}, []int{7}},
		{in(store.Ready), []int{0, 6}},
		{in(store.InFlight), []int{1}},
		{in(store.Retrying), []int{2}},
		{in(store.Dead), []int{4}},
		{in(store.Failed), []int{2, 4}},
		{in(store.Succeeded), []int{3}},
		{in(store.Cancelled), []int{5, 7}},
		{in(store.Succeeded, store.Retrying), []int{2, 3}},
		{store.Filter{FinishedFor: store.Resolution}, []int{3, 4, 5}},
		{store.Filter{FinishedFor: 2 * time.Minute}, []int{3}},
		{store.Filter{FinishedFor: time.Hour}, nil},
		{store.Filter{WaitsFor: jobs.ids[0]}, nil},
		{store.Filter{WaitsForGroup: "g"}, nil},
		{store.Filter{Unneeded: true}, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{store.Filter{Queues: []string{"q2"}}, []int{4, 5, 6}},
		{store.Filter{Queues: []string{"q2*", "x"}}, []int{4, 5, 6}},
		{store.Filter{Queues: []string{"q"}}, []int{0, 1, 2, 3, 7}},
		{store.Filter{Queues: []string{"*"}}, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		{store.Filter{Queues: []string{"Q*"}}, nil},
	}
	return jobs
}

func (w crowd) newestFirst(numbers []int) []int64 {
	var list []int64
	for _, n := range slices.Backward(numbers) {
		list = append(list, w.ids[n])
	}
	return list
}

func (w crowd) counts(numbers []int) map[string]int64 {
	counts := map[string]int64{}
	for _, n := range numbers {
		counts[w.phases[n]]++
	}
	return counts
}

// countOf is what Count answers, by queue and phase.
func (c *C) countOf(filter store.Filter) map[string]int64 {
	flat := map[string]int64{}
	for _, q := range c.count(filter).Queues {
		for phase, n := range q.Jobs {
			flat[q.Queue+" "+string(phase)] = n
		}
	}
	return flat
}

// join is both filters in one, if they set different fields.
func join(a, b store.Filter) (joined store.Filter, ok bool) {
	into, from := reflect.ValueOf(&a).Elem(), reflect.ValueOf(b)
	for i := range into.NumField() {
		if from.Field(i).IsZero() {
			continue
		}
		if !into.Field(i).IsZero() {
			return a, false
		}
		into.Field(i).Set(from.Field(i))
	}
	return a, true
}

// wrongFilters each break one limit.
func wrongFilters() []store.Filter {
	wrong := []store.Filter{
		{Queue: queue, IDs: make([]int64, store.MaxItems+1)},
		{Queue: queue, States: []store.State{"lost"}},
		{Queue: queue, States: []store.State{store.Gone}},
		{Queue: queue, States: []store.State{""}},
		{Queue: queue, States: slices.Repeat([]store.State{store.Ready}, store.MaxItems+1)},
		{Queue: queue, FinishedFor: -store.Resolution},
		{Queue: queue, WaitsFor: -1},
		{Queue: queue, FinishedFor: store.MaxDuration + store.Resolution},
	}
	wrong = append(wrong, store.Filter{Queues: []string{""}}, store.Filter{Queues: slices.Repeat([]string{"q"}, store.MaxPatterns+1)})
	for _, name := range []string{strings.Repeat("x", store.MaxNameBytes+1), "a\x00b", "\xff"} {
		wrong = append(wrong, store.Filter{Queues: []string{"q", name}}, store.Filter{Queues: []string{name + "*"}})
		wrong = append(wrong, store.Filter{Queue: name}, store.Filter{Kind: name}, store.Filter{Tag: name},
			store.Filter{Worker: name}, store.Filter{UniqueKey: name}, store.Filter{LimitKey: name}, store.Filter{WaitsForGroup: name})
	}
	return wrong
}

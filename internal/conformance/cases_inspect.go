package conformance

import (
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var inspectCases = []Case{
	{"Inspect/FieldsTogetherMustAllMatch", "A Filter selects the jobs that match every field that is set.\nList returns the jobs that match, the newest first: in descending order of id.\nAn empty filter matches every job.", inspectFieldsTogetherMustAllMatch},
	{"Inspect/NamesMatchAsAWhole", "A Filter selects the jobs that match every field that is set.", inspectNamesMatchAsAWhole},
	{"Inspect/PatternsChooseQueues", "the queue matches one of these: a name, or a prefix followed by *", inspectPatternsChooseQueues},
	{"Inspect/PagesOfEverySizeJoinUp", "The last page has an empty Next.", inspectPagesOfEverySizeJoinUp},
	{"Inspect/PagesSkipAndRepeatNothing", "The pages neither skip nor repeat a job if it was committed before the first page was read and if its match did not change.", inspectPagesSkipAndRepeatNothing},
	{"Inspect/PageEndsBeforeItWeighsTooMuch", "A page ends early before the first job that would raise the total size of the page's documents above MaxAnswerBytes.", inspectPageEndsBeforeItWeighsTooMuch},
	{"Inspect/CursorOfAnotherFilterIsRefused", "The call returns ErrInvalid for a cursor from another filter.", inspectCursorOfAnotherFilterIsRefused},
	{"Inspect/CountsByQueueAndPhase", "Count counts the jobs that match, by queue and phase.", inspectCountsByQueueAndPhase},
	{"Inspect/DueIsWhatAClaimCouldTake", "Due is how many of these jobs a claim could take now if no queue were paused or limited. OldestDue is the earliest due time among them.", inspectDueIsWhatAClaimCouldTake},
	{"Inspect/LimitsAreKept", "ErrInvalid: the request breaks a limit and nothing was applied.", inspectLimitsAreKept},
	{"Inspect/RacingReadersNeverMissAJob", "A call takes effect as a whole, at one moment between its start and its return, or not at all.", inspectRacingReadersNeverMissAJob},
}

// Every filter is tried alone, and every two that set different fields together: what both choose is known from what each does.
func inspectFieldsTogetherMustAllMatch(c *C) {
	crowd := c.crowd()
	check := func(filter store.Filter, want []int) {
		c.Equal(ids(c.List(filter, 100)), crowd.newestFirst(want), "List %+v", filter)
		c.Equal(c.countOf(filter), crowd.counts(want), "Count %+v", filter)
	}
	check(store.Filter{}, []int{0, 1, 2, 3, 4, 5, 6, 7})
	joined := 0
	for i, a := range crowd.filters {
		check(a.filter, a.want)
		for _, b := range crowd.filters[i+1:] {
			if filter, ok := join(a.filter, b.filter); ok {
				joined++
				check(filter, slices.DeleteFunc(slices.Clone(a.want), func(n int) bool { return !slices.Contains(b.want, n) }))
			}
		}
	}
	c.True(joined > 100, "more than 100 pairs of filters were joined, but %d", joined)
}

// A store that searches by patterns, folds case or trims blanks finds too much.
func inspectNamesMatchAsAWhole(c *C) {
	names := []string{"a", "A", "a ", " a", "ab", "a%", "%", "a_", "_b", `a"`, `"a"`, "a,b", "a'b", `a\`, "ä", "a\u0308", "*", "[a]"}
	var list []int64
	for _, name := range names {
		list = append(list, c.Enqueue(plainBut(func(n *store.NewJob) {
			n.Queue, n.Kind, n.UniqueKey, n.Tags = name, name, name, []string{name, "common"}
		}))...)
	}
	for i, name := range names {
		jobs := c.ClaimBy(store.ClaimRequest{Queue: name, Limit: 10, Worker: name, TTL: ttl})
		c.Equal(ids(jobs), list[i:i+1], "claimed from the queue %q", name)
	}
	for i, name := range names {
		for _, filter := range []store.Filter{{Queue: name}, {Kind: name}, {Tag: name}, {UniqueKey: name}, {Worker: name}} {
			c.Equal(ids(c.List(filter, 100)), list[i:i+1], "List %+v", filter)
		}
	}
	c.Equal(len(c.List(store.Filter{Tag: "common"}, 100)), len(names), "jobs with the common tag")
}

func inspectPatternsChooseQueues(c *C) {
	names := []string{
		"a", "ab", "a_b", "axb", "a%b", `a\b`, "a*", "a*b", "*a", "A", "ä", "ä-1", "é",
		"o\x01", "o\x7f", "o\u0080", "o\u0308", "o\ud7ff", "o\ue000", "o\U0010ffff", "o\U0010ffffb", "o\U0010ffff\U0010ffff", "\U0010ffff",
	}
	of := map[int64]string{}
	for _, name := range names {
		of[c.Enqueue(plainBut(func(n *store.NewJob) { n.Queue = name }))[0]] = name
	}
	for _, k := range []struct {
		patterns []string
		want     []string
	}{
		{[]string{"*"}, names}, {[]string{"a"}, []string{"a"}}, {[]string{"b*", "A"}, []string{"A"}}, {[]string{"nothing", "no*"}, nil},
		{[]string{"a*"}, []string{"a", "ab", "a_b", "axb", "a%b", `a\b`, "a*", "a*b"}}, {[]string{"a_*"}, []string{"a_b"}},
		{[]string{"a%*"}, []string{"a%b"}}, {[]string{`a\*`}, []string{`a\b`}}, {[]string{"a**"}, []string{"a*", "a*b"}},
		{[]string{"*a"}, []string{"*a"}}, {[]string{"ä*", "é", "é"}, []string{"ä", "ä-1", "é"}},
		{[]string{"o\x01*"}, []string{"o\x01"}}, {[]string{"o\x7f*"}, []string{"o\x7f"}}, {[]string{"o\ud7ff*"}, []string{"o\ud7ff"}},
		{[]string{"o\U0010ffff*"}, []string{"o\U0010ffff", "o\U0010ffffb", "o\U0010ffff\U0010ffff"}},
		{[]string{"o\U0010ffff*", "o*", "o\x01"}, names[13:22]}, {[]string{"\U0010ffff*"}, []string{"\U0010ffff"}},
	} {
		listed := each(c.List(store.Filter{Queues: k.patterns}, 100), func(j store.Job) string { return of[j.ID] })
		slices.Reverse(listed)
		c.Equal(listed, k.want, "the queues of the jobs for %q", k.patterns)
		counts := c.countOf(store.Filter{Queues: k.patterns})
		c.Equal(len(counts), len(k.want), "how many queues are counted for %q", k.patterns)
	}
	both := c.List(store.Filter{Queue: "ab", Queues: []string{"a_*", "a"}}, 100)
	c.Equal(ids(both), []int64{}, "jobs of a queue that no pattern chooses")
	page := c.page(store.Filter{Queues: []string{"a*"}}, store.Page{Limit: 1})
	_, err := c.Store.List(c.Ctx, store.Filter{Queues: []string{"a"}}, store.Page{Limit: 1, Cursor: page.Next})
	c.ErrorIs(err, store.ErrInvalid, "a cursor of other patterns")
	outcomes, err := c.Store.Cancel(c.Ctx, store.Filter{Queues: []string{"a_*", "A"}}, 100)
	c.OK(err, "Cancel")
	cancelled := each(outcomes, func(o store.Outcome) string { return of[o.ID] })
	c.Equal(cancelled, []string{"a_b", "A"}, "the queues of the cancelled jobs")
}

func inspectCountsByQueueAndPhase(c *C) {
	for _, phase := range []store.State{store.Dead, store.Dead, store.Retrying, store.InFlight, store.Succeeded, store.Cancelled, store.Cancelled} {
		c.JobIn(phase)
	}
	for _, name := range []string{"b", "Z", "b"} {
		c.Enqueue(plainBut(func(n *store.NewJob) { n.Queue, n.Delay = name, time.Hour }))
	}
	c.JobIn(store.Ready)

	c.Equal(c.count(store.Filter{}), store.Counts{Now: c.Now(), Queues: []store.QueueCount{
		{Queue: "Z", Jobs: map[store.State]int64{store.Ready: 1}},
		{Queue: "b", Jobs: map[store.State]int64{store.Ready: 2}},
		{Queue: queue, Jobs: map[store.State]int64{
			store.Ready: 1, store.InFlight: 1, store.Retrying: 1, store.Succeeded: 1, store.Dead: 2, store.Cancelled: 2,
		}, Due: 1, OldestDue: c.Now()},
	}}, "counts, with the queues byte by byte")
	c.Equal(c.count(store.Filter{States: []store.State{store.Dead}}), store.Counts{Now: c.Now(), Queues: []store.QueueCount{
		{Queue: queue, Jobs: map[store.State]int64{store.Dead: 2}},
	}}, "counts of the dead")
}

func inspectDueIsWhatAClaimCouldTake(c *C) {
	c.JobIn(store.Dead)
	c.JobIn(store.InFlight)
	start := c.Now()
	retry := c.JobIn(store.Retrying) // due after a second
	c.Enqueue(plainBut(func(n *store.NewJob) { n.Delay = 2 * time.Second }), plainBut(func(n *store.NewJob) { n.Delay = time.Hour }))
	due := func(filter store.Filter, n int64, oldest time.Time) {
		counts := c.count(filter)
		if len(counts.Queues) != 1 {
			c.Fatalf("Count %+v: got %d queues, want 1", filter, len(counts.Queues))
		}
		q := counts.Queues[0]
		c.Equal([]any{q.Due, q.OldestDue}, []any{n, oldest}, "Due and OldestDue of %+v at %v", filter, c.Now().Sub(start))
	}
	due(store.Filter{}, 0, time.Time{})
	c.Advance(time.Second - store.Resolution)
	due(store.Filter{}, 0, time.Time{})
	c.Advance(store.Resolution)
	due(store.Filter{}, 1, retry.RetryAt)
	c.Advance(time.Second)
	due(store.Filter{}, 2, retry.RetryAt)
	due(store.Filter{States: []store.State{store.Ready}}, 1, start.Add(2*time.Second))
	due(store.Filter{States: []store.State{store.Dead}}, 0, time.Time{})
	c.Equal(len(c.Claim(10)), 2, "what a claim takes")
	due(store.Filter{}, 0, time.Time{})
}

func inspectLimitsAreKept(c *C) {
	c.EnqueueOne()
	for _, limit := range []int{-1, 0, store.MaxItems + 1} {
		_, err := c.Store.List(c.Ctx, store.Filter{}, store.Page{Limit: limit})
		c.ErrorIs(err, store.ErrInvalid, "a page of %d", limit)
	}
	for _, filter := range wrongFilters() {
		_, err := c.Store.List(c.Ctx, filter, store.Page{Limit: 1})
		c.ErrorIs(err, store.ErrInvalid, "List %+v", filter)
		_, err = c.Store.Count(c.Ctx, filter)
		c.ErrorIs(err, store.ErrInvalid, "Count %+v", filter)
	}
	long := strings.Repeat("x", store.MaxNameBytes)
	widest := store.Filter{
		IDs: slices.Repeat([]int64{1}, store.MaxItems), Queue: long, Kind: long, Tag: long, Worker: long, UniqueKey: long,
		States: slices.Repeat([]store.State{store.Ready}, store.MaxItems), FinishedFor: store.MaxDuration,
	}
	c.page(widest, store.Page{Limit: store.MaxItems})
	c.count(widest)
}

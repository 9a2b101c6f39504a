package conformance

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var activityCases = []Case{
	{"Activity/AddedToTheMinuteOfNow", "Activity adds up what AddActivity was given for the minutes that the filter selects, and returns the sums by span.\nAddActivity adds the numbers of the items to those of the minute of the store's now. The At of an item is ignored.", activityAddedToTheMinuteOfNow},
	{"Activity/SameQueueAndKindAddedTogether", "Items with the same queue and kind are added together, and calls at the same time lose no numbers.", activitySameQueueAndKindAddedTogether},
	{"Activity/CallsAtTheSameTimeLoseNothing", "It is not safe to repeat an AddActivity: the repeat adds the numbers once more.\nItems with the same queue and kind are added together, and calls at the same time lose no numbers.", activityCallsAtTheSameTimeLoseNothing},
	{"Activity/SpansBeginAtMultiplesOfTheStep", "Spans begin at multiples of Step since the beginning of 1970 in UTC. The answer has the spans that begin later than now minus Last.\nFrom is the begin of the first span.", activitySpansBeginAtMultiples},
	{"Activity/OneSpanWithoutAStep", "Without a Step, it has one span, which begins with the first minute that is later than now minus Last, or with the first such hour if Last is longer than MaxFineActivity.", activityOneSpanWithoutAStep},
	{"Activity/RowsAsByAsks", "A span is one row, or one for each queue, or one for each queue and kind, as By says.\nIt is in order of At, then in bytewise order of queue and kind.", activityRowsAsByAsks},
	{"Activity/QueuesAndKindSelect", "A row adds up what matches Queues and Kind.", activityQueuesAndKindSelect},
	{"Activity/EmptyRowsAreLeftOut", "The answer leaves out rows in which nothing happened.\nIf nothing matches, the call returns an empty answer and no error.\nA call without items does nothing.", activityEmptyRowsAreLeftOut},
	{"Activity/KeptForAWeek", "The store keeps the sums for MaxActivity.", activityKeptForAWeek},
	{"Activity/LimitsAreKept", "If one item breaks a limit, nothing is added.\nThe queue and the kind of an activity may be empty as well, and its numbers are 0 to 1,000,000,000. An answer of Activity goes back a minute to 7 days; its Step is whole minutes and at most Last, whole hours if Last is longer than 24 hours, and zero with By.", activityLimitsAreKept},
	{"Activity/AffectsNoJob", "It is for people: nothing in it affects jobs.", activityAffectsNoJob},
	{"Activity/RefusesAsTheCoreDoes", sentenceRefusals, activityRefusesAsTheCoreDoes},
}

func (c *C) activityKeeper() store.ActivityKeeper { return ability[store.ActivityKeeper](c) }

func (c *C) addActivity(items ...store.Activity) {
	c.Helper()
	c.OK(c.activityKeeper().AddActivity(c.Ctx, items), "AddActivity of %d items", len(items))
}

func (c *C) activity(filter store.ActivityFilter) store.ActivityPage {
	c.Helper()
	page, err := c.activityKeeper().Activity(c.Ctx, filter)
	c.OK(err, "Activity %+v", filter)
	return page
}

// eachNumber is an activity of which every number is another one, from first on.
func eachNumber(queue, kind string, first int64) store.Activity {
	a := store.Activity{Queue: queue, Kind: kind}
	for i, n := range a.Numbers() {
		*n = first + int64(i)
	}
	return a
}

// succeeded is an activity of n jobs.
func succeeded(queue, kind string, n int64) store.Activity {
	return store.Activity{Queue: queue, Kind: kind, Succeeded: n}
}

// at returns the activity as a row of an answer.
func at(t time.Time, a store.Activity) store.Activity {
	a.At = t
	return a
}

// thisMinute is the minute of now.
func (c *C) thisMinute() time.Time { return c.Now().Truncate(time.Minute) }

var (
	byMinute = store.ActivityFilter{Last: time.Hour, Step: time.Minute}
	byKind   = store.ActivityFilter{Last: time.Hour, By: store.ByKind}
)

func activityAddedToTheMinuteOfNow(c *C) {
	first := c.thisMinute()
	a, b := eachNumber(queue, "k", 1), eachNumber(queue, "k", 1000)
	c.addActivity(at(first.Add(-time.Hour), a))
	c.Advance(first.Add(time.Minute - store.Resolution).Sub(c.Now()))
	c.addActivity(at(first.Add(-time.Minute), b))
	c.Advance(store.Resolution)
	c.addActivity(b)
	sum := a.Plus(b)
	sum.Queue, sum.Kind, b.Queue, b.Kind = "", "", "", ""
	c.Equal(c.activity(byMinute), store.ActivityPage{
		Now: c.Now(), From: first.Add(-58 * time.Minute), Step: time.Minute,
		Spans: []store.Activity{at(first, sum), at(first.Add(time.Minute), b)},
	}, "two adds within a minute, and one as the next one begins")
}

func activitySameQueueAndKindAddedTogether(c *C) {
	a, b, other := eachNumber("x", "k", 1), eachNumber("x", "k", 100), eachNumber("x", "l", 5)
	c.addActivity(a, other, b, a)
	want := []store.Activity{a.Plus(b).Plus(a), other}
	for i := range want {
		want[i].At = c.activity(byKind).From
	}
	c.Equal(c.activity(byKind).Spans, want, "items of the same queue and kind in one call")
}

// The calls have the same keys in different orders. Each caller repeats its own.
func activityCallsAtTheSameTimeLoseNothing(c *C) {
	const callers, calls = 8, 6
	keeper := c.activityKeeper()
	items := []store.Activity{eachNumber("a", "k", 1), eachNumber("b", "k", 2), eachNumber("b", "l", 3), eachNumber("c", "k", 4)}
	c.Parallel(callers, func(i int) {
		mine := slices.Concat(items[i%len(items):], items[:i%len(items)])
		for range calls {
			if err := keeper.AddActivity(c.Ctx, mine); err != nil {
				c.Errorf("AddActivity: %v", err)
			}
		}
	})
	page := c.activity(byKind)
	var want []store.Activity
	for _, one := range items {
		sum := store.Activity{At: page.From, Queue: one.Queue, Kind: one.Kind}
		for range callers * calls {
			sum = sum.Plus(one)
		}
		want = append(want, sum)
	}
	c.Equal(page.Spans, want, "the sums of all calls")
}

// Seven minutes divide neither an hour nor a day, so that their multiples depend on where counting begins.
func activitySpansBeginAtMultiples(c *C) {
	began := c.thisMinute()
	for range 30 {
		c.addActivity(succeeded(queue, "k", 1))
		c.Advance(time.Minute)
	}
	for _, step := range []time.Duration{time.Minute, 5 * time.Minute, 7 * time.Minute, 10 * time.Minute, 15 * time.Minute, 20 * time.Minute, time.Hour} {
		for _, last := range []time.Duration{step, 2*step + time.Second, time.Hour, 24 * time.Hour} {
			from := store.AtMultiple(c.Now().Add(-last), step).Add(step)
			c.True(from.Unix()%int64(step/time.Second) == 0, "%v is a multiple of %v", from, step)
			want := store.ActivityPage{Now: c.Now(), From: from, Step: step}
			for i := range 30 {
				minute := began.Add(time.Duration(i) * time.Minute)
				span := store.AtMultiple(minute, step)
				if minute.Before(from) {
					continue
				}
				if n := len(want.Spans); n == 0 || !want.Spans[n-1].At.Equal(span) {
					want.Spans = append(want.Spans, store.Activity{At: span})
				}
				want.Spans[len(want.Spans)-1].Succeeded++
			}
			c.Equal(c.activity(store.ActivityFilter{Last: last, Step: step}), want, "the last %v in steps of %v", last, step)
		}
	}
}

func activityOneSpanWithoutAStep(c *C) {
	began := c.thisMinute()
	const minutes = 200
	for range minutes {
		c.addActivity(succeeded(queue, "k", 1))
		c.Advance(time.Minute)
	}
	c.Advance(began.Add(minutes * time.Minute).Sub(c.Now())) // now is a full minute
	expect := func(last time.Duration, from time.Time) {
		want := store.ActivityPage{Now: c.Now(), From: from}
		first := max(0, int64(from.Sub(began)/time.Minute))
		if n := minutes - first; n > 0 {
			want.Spans = []store.Activity{{At: from, Succeeded: n}}
		}
		c.Equal(c.activity(store.ActivityFilter{Last: last}), want, "the last %v", last)
	}
	for range 2 {
		for _, minutes := range []int{1, 2, 7, 60, 64, 100, 137, 180, 200, 201, 1440} {
			last := time.Duration(minutes) * time.Minute
			expect(last, c.thisMinute().Add(time.Minute-last))
			if last > time.Minute && last < 24*time.Hour {
				expect(last+30*time.Second, store.AtMultiple(c.Now().Add(-last-30*time.Second), time.Minute).Add(time.Minute))
			}
		}
		for _, last := range []time.Duration{24*time.Hour + 1, 30 * time.Hour, store.MaxActivity} {
			expect(last, store.AtMultiple(c.Now().Add(-last), time.Hour).Add(time.Hour))
		}
		c.Advance(22*time.Hour + 59*time.Second) // from here on the first minutes are older than a day
	}
}

func activityRowsAsByAsks(c *C) {
	numbers := map[[2]string]int64{}
	total := store.Activity{}
	perQueue := map[string]int64{}
	for i := range trickyNames {
		name := trickyNames[i*8%len(trickyNames)] // in no order, each once
		for j, kind := range []string{"k", "K", ""} {
			n := int64(1 + 3*i + j)
			c.addActivity(succeeded(name, kind, n))
			numbers[[2]string{name, kind}] = n
			perQueue[name] += n
			total.Succeeded += n
		}
	}
	c.addActivity(succeeded("", "", 7))
	page := c.activity(store.ActivityFilter{Last: time.Hour})
	from := page.From
	total.At, total.Succeeded = from, total.Succeeded+7
	c.Equal(page.Spans, []store.Activity{total}, "one row")

	queues, kinds := []store.Activity{at(from, succeeded("", "", 7))}, []store.Activity{at(from, succeeded("", "", 7))}
	for _, name := range trickyNames {
		queues = append(queues, at(from, succeeded(name, "", perQueue[name])))
		for _, kind := range []string{"", "K", "k"} {
			kinds = append(kinds, at(from, succeeded(name, kind, numbers[[2]string{name, kind}])))
		}
	}
	c.Equal(c.activity(store.ActivityFilter{Last: time.Hour, By: store.ByQueue}).Spans, queues, "a row for each queue")
	c.Equal(c.activity(byKind).Spans, kinds, "a row for each queue and kind")
}

func activityQueuesAndKindSelect(c *C) {
	names := []string{"", "a", "a-1", "a_1", "a-", "b", "a*", "A"}
	for i, name := range names {
		c.addActivity(succeeded(name, "k", 1<<(2*i)), succeeded(name, "l", 2<<(2*i)))
	}
	for _, patterns := range [][]string{nil, {"a"}, {"a*"}, {"a-*"}, {"*"}, {"b", "A"}, {"a_*", "a"}, {"nothing"}, {"a", "a", "a*"}} {
		for _, kind := range []string{"", "k", "l", "m"} {
			for _, step := range []time.Duration{0, time.Minute, time.Hour} {
				want := int64(0)
				for i, name := range names {
					if store.QueueMatches(patterns, name) && (kind == "" || kind == "k") {
						want += 1 << (2 * i)
					}
					if store.QueueMatches(patterns, name) && (kind == "" || kind == "l") {
						want += 2 << (2 * i)
					}
				}
				got := int64(0)
				for _, row := range c.activity(store.ActivityFilter{Queues: patterns, Kind: kind, Last: time.Hour, Step: step}).Spans {
					got += row.Succeeded
				}
				c.Equal(got, want, "the sum of the queues %q, kind %q, step %v", patterns, kind, step)
			}
		}
	}
	rows := c.activity(store.ActivityFilter{Queues: []string{"a-*"}, Kind: "l", Last: time.Hour, By: store.ByKind})
	c.Equal(rows.Spans, []store.Activity{at(rows.From, succeeded("a-", "l", 2<<8)), at(rows.From, succeeded("a-1", "l", 2<<4))}, "rows of a pattern")
}

func activityEmptyRowsAreLeftOut(c *C) {
	c.addActivity()
	c.addActivity(store.Activity{Queue: queue, Kind: "k"})
	empty := func(what string, filter store.ActivityFilter, from time.Time) {
		c.Equal(c.activity(filter), store.ActivityPage{Now: c.Now(), From: from, Step: filter.Step}, "%s", what)
	}
	from := c.thisMinute().Add(-59 * time.Minute)
	empty("nothing was added", byMinute, from)
	empty("nothing was added", byKind, from)
	c.addActivity(store.Activity{Queue: queue, Kind: "k", Waited: store.Histogram{3: 1}}, store.Activity{Queue: queue, Kind: "other"})
	other := byKind
	other.Kind = "other"
	empty("of a kind with an empty item", other, from)
	c.Equal(len(c.activity(byKind).Spans), 1, "rows with a histogram alone")
	c.Equal(len(c.activity(byMinute).Spans), 1, "spans with a histogram alone")
}

// Other calls on the way give the store occasion to forget.
func activityKeptForAWeek(c *C) {
	hour := store.AtMultiple(c.Now(), time.Hour)
	c.Advance(hour.Add(time.Hour).Sub(c.Now())) // now is a full hour
	hour = c.Now()
	first := eachNumber("first", "k", 1)
	c.addActivity(first)
	c.Advance(24*time.Hour - store.Resolution)
	c.addActivity(succeeded("other", "k", 1))
	first.At = hour
	day := store.ActivityFilter{Queues: []string{"first"}, Last: 24 * time.Hour, By: store.ByKind}
	c.Equal(c.activity(day).Spans, []store.Activity{first}, "what is a microsecond less than a day old")
	for range 6 {
		c.Advance(24 * time.Hour)
		c.addActivity(succeeded("other", "k", 1))
	}
	week := store.ActivityFilter{Queues: []string{"first"}, Last: store.MaxActivity, By: store.ByKind}
	c.Equal(c.activity(week).Spans, []store.Activity{first}, "what is a microsecond less than a week old")
	first.Queue, first.Kind = "", ""
	week.By, week.Step = store.ByNothing, time.Hour
	c.Equal(c.activity(week).Spans, []store.Activity{first}, "the same by the hour")
	c.Advance(store.Resolution)
	c.addActivity(succeeded("other", "k", 1))
	c.Equal(c.activity(week).Spans, []store.Activity{}, "what is a week old")
	c.Advance(time.Hour)
	c.addActivity(succeeded("other", "k", 1))
	week.Queues = []string{"other"}
	c.Equal(len(c.activity(week).Spans), 9, "hours of the other queue")
}

func activityLimitsAreKept(c *C) {
	good, wrong := succeeded(queue, "k", 1), strings.Repeat("x", store.MaxNameBytes+1)
	refused := func(what string, items ...store.Activity) {
		c.ErrorIs(c.activityKeeper().AddActivity(c.Ctx, items), store.ErrInvalid, "AddActivity with %s", what)
	}
	for _, name := range []string{wrong, "a\x00", "\xff"} {
		refused("a wrong queue", good, succeeded(name, "k", 1))
		refused("a wrong kind", succeeded(queue, name, 1), good)
	}
	for i := range good.Numbers() {
		for _, n := range []int64{-1, store.MaxActivityNum + 1} {
			bad := good
			*bad.Numbers()[i] = n
			refused("a number out of range", good, bad)
		}
	}
	refused("too many items", slices.Repeat([]store.Activity{good}, store.MaxItems+1)...)
	c.Equal(c.activity(byKind).Spans, []store.Activity{}, "rows after refused calls")

	for _, filter := range wrongActivityFilters() {
		page, err := c.activityKeeper().Activity(c.Ctx, filter)
		c.ErrorIs(err, store.ErrInvalid, "Activity %.200v", filter)
		c.Equal(page, store.ActivityPage{}, "the answer to a refused filter")
	}
	for _, filter := range []store.ActivityFilter{
		{Last: time.Minute, Step: time.Minute}, {Last: store.MaxActivity, Step: store.MaxActivity}, {Last: store.MaxActivity, By: store.ByKind},
		{Last: store.MaxFineActivity, Step: 7 * time.Minute}, {Last: store.MaxFineActivity + 1, Step: time.Hour},
		{Last: time.Hour, Queues: slices.Repeat([]string{"q"}, store.MaxPatterns)},
	} {
		c.activity(filter)
	}

	most := succeeded(strings.Repeat("q", store.MaxNameBytes), strings.Repeat("k", store.MaxNameBytes), 0)
	for _, n := range most.Numbers() {
		*n = store.MaxActivityNum
	}
	all := slices.Repeat([]store.Activity{most}, store.MaxItems)
	c.addActivity(all...)
	page := c.activity(byKind)
	for _, n := range most.Numbers() {
		*n *= store.MaxItems
	}
	c.Equal(page.Spans, []store.Activity{at(page.From, most)}, "as many items as there can be, of the greatest numbers")
}

func wrongActivityFilters() []store.ActivityFilter {
	wrong := strings.Repeat("x", store.MaxNameBytes+1)
	return []store.ActivityFilter{
		{}, {Last: time.Minute - 1}, {Last: -time.Hour}, {Last: store.MaxActivity + 1},
		{Last: time.Hour, Step: -time.Minute}, {Last: time.Hour, Step: time.Second}, {Last: time.Hour, Step: 90 * time.Second},
		{Last: time.Hour, Step: 61 * time.Minute},
		{Last: store.MaxFineActivity + 1, Step: time.Minute}, {Last: store.MaxActivity, Step: 90 * time.Minute},
		{Last: time.Hour, By: "worker"}, {Last: time.Hour, Step: time.Minute, By: store.ByQueue}, {Last: time.Hour, Step: time.Hour, By: store.ByKind},
		{Last: time.Hour, Kind: wrong}, {Last: time.Hour, Kind: "a\x00"}, {Last: time.Hour, Queues: []string{""}},
		{Last: time.Hour, Queues: []string{"q", wrong}}, {Last: time.Hour, Queues: []string{"\xff*"}},
		{Last: time.Hour, Queues: slices.Repeat([]string{"q"}, store.MaxPatterns+1)},
	}
}

func activityAffectsNoJob(c *C) {
	c.JobIn(store.InFlight)
	c.JobIn(store.Dead)
	c.changesNothing("activity of jobs", func() {
		c.addActivity(eachNumber(queue, "k", 1), succeeded("another", "k", 1))
		c.activity(byKind)
	})
	if keeper, ok := c.instance.Store.(store.QueueKeeper); ok {
		queues, err := keeper.Queues(c.Ctx)
		c.OK(err, "Queues")
		c.Equal(queues, []store.Queue{{Name: queue}}, "queues after activity of another one")
	}
}

func activityRefusesAsTheCoreDoes(c *C) {
	keeper := c.activityKeeper()
	c.addActivity(succeeded(queue, "k", 1))
	before := c.activity(byKind)
	c.refusesAsTheCoreDoes(abilityCalls{
		"AddActivity": unnamed(func(ctx context.Context) error {
			return keeper.AddActivity(ctx, []store.Activity{succeeded(queue, "k", 1)})
		}),
		"Activity": unnamed(func(ctx context.Context) error { _, err := keeper.Activity(ctx, byKind); return err }),
	}, func() { c.Equal(c.activity(byKind), before, "activity after the refusals") })
}

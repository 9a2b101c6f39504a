package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var registryCases = []Case{
	{"Registry/BeatWritesTheRow", "Beat writes the worker's row under its name, with the store's now as the time of the beat.\nA store must not keep a slice that it was given, and must not return a slice that it keeps.", registryBeatWritesTheRow},
	{"Registry/FilterChoosesByName", "A filter with a name selects the worker with that name, and an empty filter selects every worker.\nWorkers returns the workers in bytewise order of name.", registryFilterChoosesByName},
	{"Registry/StaleAndForgottenToTheTick", "A worker is stale once StaleAfter has passed since its last beat, and the store forgets it 24 hours after its last beat.", registryStaleAndForgottenToTheTick},
	{"Registry/PagesOfEverySizeJoinUp", "The last page has an empty Next.", registryPagesOfEverySizeJoinUp},
	{"Registry/PagesSkipAndRepeatNoWorker", "The pages neither skip nor repeat a worker that was listed the whole time.", registryPagesSkipAndRepeatNoWorker},
	{"Registry/PageEndsBeforeItNamesTooMuch", "A page ends early before the first worker that would raise the total size of the page's queue names above MaxPageNames bytes.", registryPageEndsBeforeItNamesTooMuch},
	{"Registry/CursorOfAnotherListingIsRefused", "The call returns ErrInvalid for a cursor that does not come from a page of the same filter.", registryCursorOfAnotherListingIsRefused},
	{"Registry/LeaveRemovesTheRow", "Leave removes the row of a worker that shuts down, so that nobody takes it for a worker that died.\nIf there is no such row, Leave does nothing.\nIt is safe to repeat a Leave.\nA later Beat writes the row again.", registryLeaveRemovesTheRow},
	{"Registry/AffectsNoJob", "It is for people: nothing in it affects jobs.", registryAffectsNoJob},
	{"Registry/LimitsAreKept", "ErrInvalid: the request breaks a limit and nothing was applied.\ntrace and host may also be empty.", registryLimitsAreKept},
	{"Registry/RefusesAsTheCoreDoes", sentenceAbility, registryRefusesAsTheCoreDoes},
}

func (c *C) registry() store.Registry { return ability[store.Registry](c) }

// beat returns the row as it is listed then.
func (c *C) beat(w store.Worker) store.Worker {
	c.OK(c.registry().Beat(c.Ctx, w), "Beat %+v", w)
	w.BeatAt = c.Now()
	return w
}

// beats is a beat of each worker, with nothing but its name.
func (c *C) beats(names ...string) {
	for _, name := range names {
		c.beat(store.Worker{Name: name, StaleAfter: time.Hour})
	}
}

func (c *C) leave(name string) { c.OK(c.registry().Leave(c.Ctx, name), "Leave %s", name) }

func (c *C) workers() []store.Worker {
	workers, err := store.AllWorkers(c.Ctx, c.registry())
	c.OK(err, "Workers")
	return workers
}

// workersPage is one page of the workers.
func (c *C) workersPage(filter store.WorkerFilter, page store.Page) store.WorkerPage {
	found, err := c.registry().Workers(c.Ctx, filter, page)
	c.OK(err, "Workers %+v %+v", filter, page)
	return found
}

func namesOf(workers []store.Worker) []string {
	return each(workers, func(w store.Worker) string { return w.Name })
}

func registryBeatWritesTheRow(c *C) {
	c.Equal(c.workers(), []store.Worker{}, "workers before the first beat")
	row := store.Worker{
		Name: "w", Host: "h", PID: 7, Queues: []string{"q2", "q1"}, Slots: 5, Running: 3, StaleAfter: time.Minute + 999,
		BeatAt: c.Now().Add(time.Hour), Stale: true, // both are the store's to say
	}
	want := c.beat(row)
	want.Queues, want.Stale, want.StaleAfter = []string{"q2", "q1"}, false, time.Minute
	clear(row.Queues)
	clear(c.workers()[0].Queues)
	c.Equal(c.workers(), []store.Worker{want}, "the worker after its first beat, with its slices written over")

	c.Advance(time.Second)
	other := c.beat(store.Worker{Name: "other", StaleAfter: time.Hour})
	c.Advance(time.Second)
	second := c.beat(store.Worker{Name: "w", Queues: []string{"q3"}, Slots: 1, StaleAfter: time.Second})
	c.Equal(c.workers(), []store.Worker{other, second}, "the workers after a second beat")
}

func registryFilterChoosesByName(c *C) {
	rows := map[string]store.Worker{}
	for i, name := range slices.Backward(trickyNames) {
		rows[name] = c.beat(store.Worker{Name: name, Queues: []string{name}, Slots: i, StaleAfter: time.Hour})
	}
	for name, want := range rows {
		for _, limit := range []int{1, store.MaxItems} {
			found := c.workersPage(store.WorkerFilter{Name: name}, store.Page{Limit: limit})
			c.Equal(found, store.WorkerPage{Workers: []store.Worker{want}}, "the worker %q, in a page of %d", name, limit)
		}
	}
	for _, name := range []string{"nobody", "a  ", "aaa", "%", "*"} {
		c.Equal(c.workersPage(store.WorkerFilter{Name: name}, store.Page{Limit: 2}), store.WorkerPage{}, "the worker %q, which is not there", name)
	}
	c.Equal(namesOf(c.workersPage(store.WorkerFilter{}, store.Page{Limit: store.MaxItems}).Workers), trickyNames, "every worker")
	c.Advance(store.WorkerLife)
	c.Equal(c.workersPage(store.WorkerFilter{Name: "a"}, store.Page{Limit: 1}), store.WorkerPage{}, "a worker that is forgotten")
}

// Workers that are forgotten have no place on a page, not even on the next one.
func registryPagesOfEverySizeJoinUp(c *C) {
	c.beats("b2", "zz", "\U0001f600\U0001f600")
	c.Advance(store.WorkerLife)
	c.beats(trickyNames...)
	joinsUp(c, trickyNames, func(page store.Page) ([]string, string) {
		part := c.workersPage(store.WorkerFilter{}, page)
		return namesOf(part.Workers), part.Next
	})
}

// Between the pages the workers beat, and others come: now and then one that the next page begins with.
func registryPagesSkipAndRepeatNoWorker(c *C) {
	var all []string
	for i := range 30 {
		all = append(all, fmt.Sprintf("w-%02d", i))
	}
	c.beats(all...)
	skipsNothing(c, all, func(page store.Page) ([]string, string) {
		part := c.workersPage(store.WorkerFilter{}, page)
		return namesOf(part.Workers), part.Next
	}, c.leave, func(part []string, even bool) []string {
		late := part[len(part)-1] + "-late"
		if even {
			late = "a" + late
		}
		c.beats(append(part, late)...)
		return []string{late}
	})
}

// registryPageEndsBeforeItNamesTooMuch has four workers with as many queues as there can be, and others that just fit beside them.
// Their names are longer in most forms of writing than they are.
func registryPageEndsBeforeItNamesTooMuch(c *C) {
	queuesOf := func(size int) []string {
		var names []string
		for ; size > store.MaxNameBytes; size -= store.MaxNameBytes {
			names = append(names, strings.Repeat("\"<\x01", store.MaxNameBytes/3))
		}
		return append(names, strings.Repeat("\n", size))
	}
	beat := func(name string, queues []string) {
		c.beat(store.Worker{Name: name, Queues: queues, StaleAfter: time.Hour})
	}
	const most = store.MaxItems * store.MaxNameBytes
	for _, name := range []string{"a", "b", "c", "d"} {
		beat(name, queuesOf(most))
	}
	pages := func(want ...[]string) {
		page := store.Page{Limit: store.MaxItems}
		for i, names := range want {
			part := c.workersPage(store.WorkerFilter{}, page)
			c.Equal(namesOf(part.Workers), names, "page %d", i)
			c.Equal(part.Next != "", i < len(want)-1, "page %d has a next one", i)
			for _, w := range part.Workers {
				if w.Name <= "d" {
					c.True(slices.Equal(w.Queues, queuesOf(most)), "the queues of %s are whole", w.Name)
				}
			}
			page.Cursor = part.Next
		}
	}
	const rest = store.MaxPageNames - 4*most
	beat("e", queuesOf(rest))
	pages([]string{"a", "b", "c", "d", "e"})
	beat("f", nil)
	pages([]string{"a", "b", "c", "d", "e", "f"})
	beat("g", []string{"q"})
	pages([]string{"a", "b", "c", "d", "e", "f"}, []string{"g"})
	beat("e", queuesOf(rest+1))
	pages([]string{"a", "b", "c", "d"}, []string{"e", "f", "g"})
	beat("0", queuesOf(most))
	beat("00", queuesOf(most))
	pages([]string{"0", "00", "a", "b"}, []string{"c", "d", "e", "f", "g"})
}

func registryCursorOfAnotherListingIsRefused(c *C) {
	c.beats("a", "b", "c")
	c.EnqueueN(2)
	jobs, err := c.Store.List(c.Ctx, store.Filter{}, store.Page{Limit: 1})
	c.OK(err, "a page of jobs")
	first := c.workersPage(store.WorkerFilter{}, store.Page{Limit: 1})
	c.Equal(namesOf(c.workersPage(store.WorkerFilter{}, store.Page{Limit: 5, Cursor: first.Next}).Workers), []string{"b", "c"}, "a second page of another size")

	refused := func(filter store.WorkerFilter, cursor string) {
		page, err := c.registry().Workers(c.Ctx, filter, store.Page{Limit: 1, Cursor: cursor})
		c.ErrorIs(err, store.ErrInvalid, "the cursor %q with %+v", cursor, filter)
		c.Equal(page, store.WorkerPage{}, "the page of a refused cursor")
	}
	for _, name := range []string{"a", "b", "nobody"} {
		refused(store.WorkerFilter{Name: name}, first.Next)
	}
	for _, after := range []string{"", "a\x00", "\xff", strings.Repeat("x", store.MaxNameBytes+1)} {
		refused(store.WorkerFilter{}, store.WorkerFilter{}.Cursor(after))
	}
	for _, cursor := range append(wrongCursors(first.Next), "b", first.Next+"\n", jobs.Next) {
		refused(store.WorkerFilter{}, cursor)
	}
	_, err = c.Store.List(c.Ctx, store.Filter{}, store.Page{Limit: 1, Cursor: first.Next})
	c.ErrorIs(err, store.ErrInvalid, "the cursor of a page of workers in a list of jobs")
}

func registryStaleAndForgottenToTheTick(c *C) {
	c.beat(store.Worker{Name: "w", StaleAfter: time.Minute})
	c.Advance(30 * time.Second)
	row := c.beat(store.Worker{Name: "w", StaleAfter: time.Minute})
	expect := func(after time.Duration, stale, listed bool) {
		c.Advance(row.BeatAt.Add(after).Sub(c.Now()))
		var want []store.Worker
		if row.Stale = stale; listed {
			want = []store.Worker{row}
		}
		c.Equal(c.workers(), want, "workers %v after the last beat", after)
	}
	expect(time.Minute-store.Resolution, false, true)
	expect(time.Minute, true, true)
	expect(store.WorkerLife-store.Resolution, true, true)
	expect(store.WorkerLife, false, false)

	back := c.beat(store.Worker{Name: "w", StaleAfter: time.Minute})
	c.Equal(c.workers(), []store.Worker{back}, "the worker that is back")
}

func registryLeaveRemovesTheRow(c *C) {
	c.leave("nobody")
	rows := map[string]store.Worker{}
	for _, name := range trickyNames {
		rows[name] = c.beat(store.Worker{Name: name, StaleAfter: time.Second})
	}
	c.Advance(time.Minute)
	var want []store.Worker
	for i, name := range trickyNames {
		if i%2 == 0 {
			c.leave(name)
			continue
		}
		row := rows[name]
		row.Stale = true
		want = append(want, row)
	}
	c.Equal(c.workers(), want, "the workers that have not left")
	c.leave(trickyNames[0])
	c.Equal(c.workers(), want, "the workers after Leave once more")
	want = slices.Insert(want, 0, c.beat(rows[trickyNames[0]]))
	c.Equal(c.workers(), want, "the workers after a later Beat of one that has left")
}

// A silent worker keeps its leases until they expire, and a living one loses them all the same.
func registryAffectsNoJob(c *C) {
	silent := c.JobIn(store.InFlight)
	c.changesNothing("beats, and a worker that falls silent", func() {
		c.beat(store.Worker{Name: worker, Queues: []string{queue}, StaleAfter: store.Resolution})
		c.Advance(ttl - time.Second)
		c.True(c.workers()[0].Stale, "the worker is stale")
		c.Equal(c.Recover(10), []store.Recovered{}, "recovered of a stale worker whose lease is good")
	})
	c.changesNothing("a worker that leaves", func() { c.leave(worker) })
	c.beat(store.Worker{Name: worker, Queues: []string{queue}, StaleAfter: time.Hour, Running: 1})
	c.Advance(time.Second)
	c.Equal(len(c.Recover(10)), 1, "recovered of a living worker whose lease ran out")

	c.beat(store.Worker{Name: "w2", Queues: []string{"another"}, Slots: 0, StaleAfter: time.Hour})
	c.Advance(time.Hour)
	jobs := c.ClaimBy(store.ClaimRequest{Queue: queue, Limit: 1, Worker: "w2", TTL: ttl})
	c.Equal(ids(jobs), []int64{silent.ID}, "claimed by a worker that says it has other queues and no slot")
}

func registryLimitsAreKept(c *C) {
	long, wrong := strings.Repeat("x", store.MaxNameBytes), strings.Repeat("x", store.MaxNameBytes+1)
	for _, row := range []store.Worker{
		{}, {Name: wrong}, {Name: "a\x00"}, {Name: "\xff"},
		{Name: "w", Host: wrong}, {Name: "w", Host: "a\x00"},
		{Name: "w", Queues: []string{""}}, {Name: "w", Queues: []string{"q", wrong}}, {Name: "w", Queues: []string{"\xff"}},
		{Name: "w", Queues: slices.Repeat([]string{"q"}, store.MaxItems+1)},
		{Name: "w", StaleAfter: -store.Resolution}, {Name: "w", StaleAfter: store.MaxDuration + store.Resolution},
	} {
		c.ErrorIs(c.registry().Beat(c.Ctx, row), store.ErrInvalid, "Beat %.100v", row)
	}
	c.Equal(c.workers(), []store.Worker{}, "workers after refused beats")

	row := c.beat(store.Worker{Name: long, Host: long, Queues: slices.Repeat([]string{"q"}, store.MaxItems), StaleAfter: store.MaxDuration})
	for _, limit := range []int{0, -1, store.MaxItems + 1} {
		_, err := c.registry().Workers(c.Ctx, store.WorkerFilter{}, store.Page{Limit: limit})
		c.ErrorIs(err, store.ErrInvalid, "a page of %d workers", limit)
	}
	for _, name := range []string{"a\x00", "\xff", wrong} {
		_, err := c.registry().Workers(c.Ctx, store.WorkerFilter{Name: name}, store.Page{Limit: 1})
		c.ErrorIs(err, store.ErrInvalid, "the worker %.10q", name)
	}
	found := c.workersPage(store.WorkerFilter{}, store.Page{Limit: store.MaxItems})
	c.Equal(found.Workers, []store.Worker{row}, "the worker with every field at its limit")
}

func registryRefusesAsTheCoreDoes(c *C) {
	registry := c.registry()
	want := []store.Worker{c.beat(store.Worker{Name: queue, StaleAfter: time.Hour})}
	c.refusesAsTheCoreDoes(abilityCalls{
		"Beat": func(ctx context.Context, name string) error {
			return registry.Beat(ctx, store.Worker{Name: name, Slots: 1})
		},
		"Leave": registry.Leave,
		"Workers": unnamed(func(ctx context.Context) error {
			_, err := registry.Workers(ctx, store.WorkerFilter{}, store.Page{Limit: 10})
			return err
		}),
	}, func() { c.Equal(c.workers(), want, "workers after the refusals") })
}

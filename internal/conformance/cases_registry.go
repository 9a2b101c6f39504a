package conformance

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var registryCases = []Case{
	{"Registry/BeatWritesTheRow", []int{50}, "Beat writes the worker's row, under its name, with the store's now.", registryBeatWritesTheRow},
	{"Registry/ListedByNameByteByByte", []int{50}, "Workers returns the workers by name, byte by byte.", registryListedByNameByteByByte},
	{"Registry/StaleAndForgottenToTheTick", []int{50}, "A worker is stale when StaleAfter has passed since its last beat, and forgotten after 24 hours.", registryStaleAndForgottenToTheTick},
	{"Registry/LeaveRemovesTheRow", []int{50}, "Leave removes the row of a worker that ends, so that nobody takes it for one that died.", registryLeaveRemovesTheRow},
	{"Registry/LeaveOfNobody", []int{50}, "If there is no such row, nothing happens.", registryLeaveOfNobody},
	{"Registry/BeatAfterLeave", []int{50}, "A later Beat writes the row anew.", registryBeatAfterLeave},
	{"Registry/LeaveIsSafeToRepeat", []int{50, 71}, "To repeat a Leave is safe.", registryLeaveOfNobody},
	{"Registry/AffectsNoJob", []int{45, 50}, "It is for people: nothing in it has any effect on jobs.", registryAffectsNoJob},
	{"Registry/LimitsAreKept", []int{3}, "trace and host may also be empty.", registryLimitsAreKept},
	{"Registry/KeepsNoSlice", []int{50}, "A store keeps no slice that it was given and hands out none that it keeps.", registryKeepsNoSlice},
	{"Registry/ManyBeatsAtOnce", []int{50}, "Any method may be called at any time, from any goroutine, also for one job.", registryManyBeatsAtOnce},
	{"Registry/EndedContextAppliesNothing", []int{71}, "A context that has ended before the call keeps it from being applied: the error is ErrUnavailable and matches the context's own.", registryEndedContextAppliesNothing},
	{"Registry/ClosedStoreSaysSo", []int{71}, "Every later call is ErrClosed.", registryClosedStoreSaysSo},
}

func (c *C) registry() store.Registry {
	registry, ok := c.Store.(store.Registry)
	if !ok {
		c.Fatalf("the store is no Registry: exclude the case with a reason")
	}
	return registry
}

func (c *C) beat(w store.Worker) { c.OK(c.registry().Beat(c.Ctx, w), "Beat %+v", w) }

func (c *C) workers() []store.Worker {
	workers, err := c.registry().Workers(c.Ctx)
	c.OK(err, "Workers")
	return workers
}

func registryBeatWritesTheRow(c *C) {
	c.Equal(c.workers(), []store.Worker{}, "workers before the first beat")
	row := store.Worker{
		Name: "w", Host: "h", PID: 7, Queues: []string{"q2", "q1"}, Slots: 5, Running: 3, StaleAfter: time.Minute + 999,
		BeatAt: c.Now().Add(time.Hour), Stale: true, // both are the store's to say
	}
	want := row
	want.BeatAt, want.Stale, want.StaleAfter = c.Now(), false, time.Minute
	c.beat(row)
	c.Equal(c.workers(), []store.Worker{want}, "the worker after its first beat")

	c.Advance(time.Second)
	c.beat(store.Worker{Name: "other", StaleAfter: time.Hour})
	other := store.Worker{Name: "other", StaleAfter: time.Hour, BeatAt: c.Now()}
	c.Advance(time.Second)
	second := store.Worker{Name: "w", Queues: []string{"q3"}, Slots: 1, StaleAfter: time.Second}
	c.beat(second)
	second.BeatAt = c.Now()
	c.Equal(c.workers(), []store.Worker{other, second}, "the workers after a second beat")
}

func registryListedByNameByteByByte(c *C) {
	for _, name := range slices.Backward(trickyNames) {
		c.beat(store.Worker{Name: name, StaleAfter: time.Hour})
	}
	var got []string
	for _, w := range c.workers() {
		got = append(got, w.Name)
	}
	c.Equal(got, trickyNames, "names of the workers")
}

func registryStaleAndForgottenToTheTick(c *C) {
	row := store.Worker{Name: "w", StaleAfter: time.Minute}
	c.beat(row)
	c.Advance(30 * time.Second)
	c.beat(row)
	row.BeatAt = c.Now()
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

	c.beat(store.Worker{Name: "w", StaleAfter: time.Minute})
	c.Equal(c.workers(), []store.Worker{{Name: "w", StaleAfter: time.Minute, BeatAt: c.Now()}}, "the worker that is back")
}

func (c *C) leave(name string) { c.OK(c.registry().Leave(c.Ctx, name), "Leave %s", name) }

func registryLeaveRemovesTheRow(c *C) {
	for _, name := range trickyNames {
		c.beat(store.Worker{Name: name, StaleAfter: time.Second})
	}
	c.Advance(time.Minute)
	var want []store.Worker
	for i, name := range trickyNames {
		if i%2 == 0 {
			c.leave(name)
		} else {
			want = append(want, store.Worker{Name: name, StaleAfter: time.Second, BeatAt: c.Now().Add(-time.Minute), Stale: true})
		}
	}
	c.Equal(c.workers(), want, "the workers that have not left")
}

func registryLeaveOfNobody(c *C) {
	c.leave("nobody")
	row := store.Worker{Name: "w", StaleAfter: time.Hour}
	c.beat(row)
	row.BeatAt = c.Now()
	c.beat(store.Worker{Name: "v", StaleAfter: time.Hour})
	for range 2 {
		c.leave("v")
		c.Equal(c.workers(), []store.Worker{row}, "workers after Leave")
	}
	for _, name := range []string{"", strings.Repeat("x", store.MaxNameBytes+1), "a\x00"} {
		c.ErrorIs(c.registry().Leave(c.Ctx, name), store.ErrInvalid, "Leave %.10q", name)
	}
}

func registryBeatAfterLeave(c *C) {
	row := store.Worker{Name: "w", Queues: []string{"q"}, StaleAfter: time.Hour}
	c.beat(row)
	c.leave("w")
	c.Equal(c.workers(), []store.Worker{}, "workers after Leave")
	c.Advance(time.Second)
	c.beat(row)
	row.BeatAt = c.Now()
	c.Equal(c.workers(), []store.Worker{row}, "workers after the later Beat")
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

	row := store.Worker{Name: long, Host: long, Queues: slices.Repeat([]string{"q"}, store.MaxItems), StaleAfter: store.MaxDuration}
	c.beat(row)
	row.BeatAt = c.Now()
	c.Equal(c.workers(), []store.Worker{row}, "the worker with every field at its limit")
}

func registryKeepsNoSlice(c *C) {
	row := store.Worker{Name: "w", Queues: []string{"q1", "q2"}, StaleAfter: time.Hour}
	c.beat(row)
	clear(row.Queues)
	clear(c.workers()[0].Queues)
	c.Equal(c.workers()[0].Queues, []string{"q1", "q2"}, "queues of the worker")
}

func registryManyBeatsAtOnce(c *C) {
	registry := c.registry()
	c.Parallel(8, func(i int) {
		for n := range 10 {
			row := store.Worker{Name: trickyNames[n], PID: i, StaleAfter: time.Hour}
			if err := registry.Beat(c.Ctx, row); err != nil {
				c.Errorf("Beat: %v", err)
			}
			if workers, err := registry.Workers(c.Ctx); err != nil || len(workers) <= n {
				c.Errorf("Workers: got %d, error %v, want more than %d", len(workers), err, n)
			}
		}
	})
	c.Equal(len(c.workers()), 10, "workers")
}

func registryEndedContextAppliesNothing(c *C) {
	registry := c.registry()
	c.endedContexts(map[string]func(context.Context) error{
		"Beat":    func(ctx context.Context) error { return registry.Beat(ctx, store.Worker{Name: "w"}) },
		"Workers": func(ctx context.Context) error { _, err := registry.Workers(ctx); return err },
	})
	c.Equal(c.workers(), []store.Worker{}, "workers afterwards")
	c.beat(store.Worker{Name: "w", StaleAfter: time.Hour})
	c.endedContexts(map[string]func(context.Context) error{
		"Leave": func(ctx context.Context) error { return registry.Leave(ctx, "w") },
	})
	c.Equal(len(c.workers()), 1, "workers that nobody has let leave")
}

func registryClosedStoreSaysSo(c *C) {
	registry := c.registry()
	c.OK(c.Store.Close(), "Close")
	_, err := registry.Workers(c.Ctx)
	c.ErrorIs(err, store.ErrClosed, "Workers")
	c.ErrorIs(registry.Beat(c.Ctx, store.Worker{Name: "w"}), store.ErrClosed, "Beat")
	c.ErrorIs(registry.Leave(c.Ctx, "w"), store.ErrClosed, "Leave")
}

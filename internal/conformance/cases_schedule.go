package conformance

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

var scheduleCases = []Case{
	{"Schedule/SetAddsAndReplaces", "SetSchedule replaces the schedule of that name as a whole with s, or adds it, and returns it as it is kept.", scheduleSetAddsAndReplaces},
	{"Schedule/SetComparesTheRevision", "The Revision of s must be the revision of the schedule to replace, or 0 if there is none by that name.\nIf the schedule has another revision, or is gone, SetSchedule returns ErrConflict and changes nothing.", scheduleSetComparesTheRevision},
	{"Schedule/SetKeepsTheLastTime", "LastAt and LastJob stay as they were.", scheduleSetKeepsTheLastTime},
	{"Schedule/RevisionsNeverComeBack", "Each change of a schedule, by SetSchedule or by Fire, gives it a revision that no schedule of the store had before.", scheduleRevisionsNeverComeBack},
	{"Schedule/SetIsSafeToRepeat", "If the schedule already is as s says, but for LastAt, LastJob and Revision, SetSchedule returns it, changes nothing and compares no revision.\nSo it is safe to repeat a SetSchedule.", scheduleSetIsSafeToRepeat},
	{"Schedule/LimitsAreKept", "A schedule's name and expression are names as well; its time zone and its owner may also be empty, and its job has a payload of at most 64 KiB, no due time, no ExpiresAt, no Replace, no waits and no group.\nA call has at most 1,000 items, and a call of Fire at most 100.", scheduleLimitsAreKept},
	{"Schedule/KeepsNoSlice", "A store must not keep a slice that it was given, and must not return a slice that it keeps.", scheduleKeepsNoSlice},
	{"Schedule/DeleteLeavesJobs", "DeleteSchedule removes the schedule.\nIts jobs stay.\nIf there is no such schedule, DeleteSchedule does nothing.\nIt is safe to repeat a DeleteSchedule.", scheduleDeleteLeavesJobs},
	{"Schedule/DueToTheTick", "A filter with Due selects the schedules whose NextAt is set and lies at most Within after the store's now.", scheduleDueToTheTick},
	{"Schedule/PagesOfEverySizeJoinUpByName", "Schedules returns the schedules that match the filter, in bytewise order of name.\nThe pages neither skip nor repeat a schedule that matched the whole time.\nThe last page has an empty Next.", schedulePagesJoinUp},
	{"Schedule/PageEndsBeforeItIsTooHeavy", "A page ends early before the first schedule that would raise the total size of the page's payloads above MaxPageTemplates bytes.", schedulePageEndsEarly},
	{"Schedule/CursorOfAnotherListingIsRefused", "The call returns ErrInvalid for a cursor that does not come from a page of the same filter.", scheduleCursorIsRefused},
	{"Schedule/PriorityIsKeptInAnOrderedQueue", sentenceNoRank, schedulePriorityIsKept},
	{"Schedule/FireEnqueues", "Fire moves schedules to their next times and enqueues their jobs.\nIf For is set, Fire also enqueues the job of the schedule, with the schedule's name as Schedule and For as ScheduledFor, and keeps For as LastAt and the job's id as LastJob.", scheduleFireEnqueues},
	{"Schedule/FireWithoutATime", "If a schedule has the Revision of its item, Fire sets its NextAt to Next.\nok the schedule has its new NextAt; Job has the job, if one was enqueued or holds the unique key;", scheduleFireWithoutATime},
	{"Schedule/FireItemByItem", "Each item takes effect as a whole or not at all, and the outcomes have the order of the items.\nstale the schedule has another revision; nothing changed;\nnot_found there is no such schedule.", scheduleFireItemByItem},
	{"Schedule/FireNeverEarly", "wrong_state For is not due yet; nothing changed;", scheduleFireNeverEarly},
	{"Schedule/FireNeverGoesBack", "invalid Next lies before the schedule's NextAt, or is set although the schedule has none; nothing changed;", scheduleFireNeverGoesBack},
	{"Schedule/FireMeetsAUniqueKey", "If another job holds the unique key, no job is enqueued, and LastJob is that job.", scheduleFireMeetsAUniqueKey},
	{"Schedule/FireDoesNotOverlap", "If Overlap is OverlapSkip and LastJob exists and has not ended, no job is enqueued, and LastAt and LastJob stay as they were.", scheduleFireDoesNotOverlap},
	{"Schedule/FireIsSafeToRepeat", "It is safe to repeat a Fire: an item that took effect is stale from then on.", scheduleFireIsSafeToRepeat},
	{"Schedule/ManyFireOnce", "Any goroutine may call any method at any time, even while other goroutines make calls for the same job.", scheduleManyFireOnce},
	{"Schedule/RefusesAsTheCoreDoes", sentenceAbility, scheduleRefusesAsTheCoreDoes},
}

func (c *C) schedules() store.ScheduleKeeper { return ability[store.ScheduleKeeper](c) }

// daily is a schedule that fires next in a minute.
func (c *C) daily(name string) store.Schedule {
	return store.Schedule{
		Name: name, Cron: "0 8 * * *", Job: plain(), CatchUp: store.CatchUpOne, Overlap: store.OverlapAllow, NextAt: c.Now().Add(time.Minute),
	}
}

// full is a schedule with every field that a caller can set.
func (c *C) full(name string) store.Schedule {
	return store.Schedule{
		Name: name, Cron: "@every 90s", Timezone: "Europe/Berlin", CatchUp: store.CatchUpSkip, Overlap: store.OverlapSkip,
		Owner: "billing", Version: 3, NextAt: c.Now().Add(time.Hour),
		Job: store.NewJob{
			Queue: "q2", Kind: "k2", Payload: []byte(` {"a": "<b>"} `), Priority: -3, Tags: []string{"t", "u"}, Trace: "trace", Delay: time.Second,
			MaxRetries: 7, Backoff: store.Backoff{Base: time.Second, Cap: time.Minute, Jitter: 10}, Timeout: time.Hour, UniqueKey: "key", UniqueFor: time.Hour,
			LimitKey: "customer",
		},
	}
}

func (c *C) setSchedule(s store.Schedule) store.Schedule {
	c.Helper()
	kept, err := c.schedules().SetSchedule(c.Ctx, s)
	c.OK(err, "SetSchedule %s", s.Name)
	return kept
}

func (c *C) schedulePage(filter store.ScheduleFilter, page store.Page) store.SchedulePage {
	c.Helper()
	found, err := c.schedules().Schedules(c.Ctx, filter, page)
	c.OK(err, "Schedules %+v %+v", filter, page)
	c.Equal(found.Now, c.Now(), "the time of a page of schedules")
	return found
}

// allSchedules are the schedules of one long page.
func (c *C) allSchedules() []store.Schedule {
	c.Helper()
	return c.schedulePage(store.ScheduleFilter{}, store.Page{Limit: store.MaxItems}).Schedules
}

// scheduleNow is the schedule as it is.
func (c *C) scheduleNow(name string) store.Schedule {
	c.Helper()
	found := c.schedulePage(store.ScheduleFilter{Name: name}, store.Page{Limit: 1}).Schedules
	if len(found) != 1 {
		c.Fatalf("found %d schedules by the name %s", len(found), name)
	}
	return found[0]
}

func scheduleNames(list []store.Schedule) []string {
	return each(list, func(s store.Schedule) string { return s.Name })
}

// firing fires a schedule now, and moves it on by an hour.
func (c *C) firing(s store.Schedule) store.Firing {
	return store.Firing{Name: s.Name, Revision: s.Revision, For: c.Now(), Next: c.Now().Add(time.Hour)}
}

func (c *C) fire(firings ...store.Firing) []store.Fired {
	c.Helper()
	fired, err := c.schedules().Fire(c.Ctx, firings)
	c.OK(err, "Fire of %d schedules", len(firings))
	if len(fired) != len(firings) {
		c.Fatalf("Fire of %d schedules: got %d outcomes", len(firings), len(fired))
	}
	return fired
}

// statusesOf are those of the outcomes, and says that each has a reason where people need one.
func (c *C) statusesOf(fired []store.Fired) []store.Status {
	var list []store.Status
	for _, f := range fired {
		list = append(list, f.Status)
		c.True(f.Reason != "" || f.Status != store.StatusInvalid, "an item that is invalid says why: %+v", f)
	}
	return list
}

func scheduleSetAddsAndReplaces(c *C) {
	c.Equal(c.allSchedules(), []store.Schedule{}, "schedules of a new store")
	asked := c.full("nightly")
	asked.LastAt, asked.LastJob = c.Now(), 7 // both are the store's to say
	want := c.full("nightly")
	got := c.setSchedule(asked)
	want.Revision = got.Revision
	c.True(got.Revision > 0, "the revision %d is positive", got.Revision)
	c.Equal(got, want, "the schedule that was added")
	c.Equal(c.allSchedules(), []store.Schedule{want}, "all schedules")

	c.Advance(time.Second)
	by := store.Schedule{Name: "nightly", Cron: "@hourly", Job: plain(), Paused: true, Revision: got.Revision}
	by.Job.Delay = 1500 * time.Nanosecond
	other := c.setSchedule(c.daily("other"))
	replaced := c.setSchedule(by)
	by.CatchUp, by.Overlap, by.Revision, by.Job.Delay = store.CatchUpOne, store.OverlapAllow, replaced.Revision, time.Microsecond
	c.Equal(replaced, by, "the schedule that was replaced, with the defaults")
	c.Equal(c.allSchedules(), []store.Schedule{by, other}, "all schedules after that")

	fine := c.daily("fine")
	fine.NextAt = fine.NextAt.Add(999).In(time.FixedZone("", 3600))
	c.Equal(c.setSchedule(fine).NextAt, c.Now().Add(time.Minute), "NextAt to the microsecond")
	c.Equal(c.scheduleNow("fine").NextAt, c.Now().Add(time.Minute), "NextAt as it is kept")
}

func scheduleSetComparesTheRevision(c *C) {
	conflict := func(s store.Schedule, what string) {
		before := c.allSchedules()
		_, err := c.schedules().SetSchedule(c.Ctx, s)
		c.ErrorIs(err, store.ErrConflict, "%s", what)
		c.Equal(c.allSchedules(), before, "all schedules after %s", what)
	}
	s := c.daily("s")
	s.Revision = 5
	conflict(s, "a revision where there is no schedule")
	s.Revision = 0
	first := c.setSchedule(s)
	s.Cron = "@weekly"
	conflict(s, "no revision where there is a schedule")
	s.Revision = first.Revision + 1
	conflict(s, "a revision that was never given")
	s.Revision = first.Revision
	second := c.setSchedule(s)
	s.Cron = "@monthly"
	conflict(s, "the revision before")
	c.OK(c.schedules().DeleteSchedule(c.Ctx, "s"), "DeleteSchedule")
	s.Revision = second.Revision
	conflict(s, "the revision of a schedule that is gone")
}

func scheduleSetKeepsTheLastTime(c *C) {
	s := c.setSchedule(c.daily("s"))
	job := c.fire(c.firing(s))[0].Job
	s = c.scheduleNow("s")
	s.Cron, s.LastAt, s.LastJob = "@weekly", time.Time{}, 0
	kept := c.setSchedule(s)
	c.Equal(kept.LastAt, c.Now(), "LastAt of the replaced schedule")
	c.Equal(kept.LastJob, job.ID, "LastJob of the replaced schedule")
	c.Equal(c.scheduleNow("s"), kept, "the replaced schedule")
}

func scheduleRevisionsNeverComeBack(c *C) {
	seen := map[int64]string{}
	given := func(revision int64, what string) {
		c.Equal(seen[revision], "", "what had the revision %d of %s before", revision, what)
		seen[revision] = what
	}
	for range 2 {
		a, b := c.setSchedule(c.daily("a")), c.setSchedule(c.daily("b"))
		given(a.Revision, "a new schedule")
		given(b.Revision, "another new schedule")
		a.Cron = "@weekly"
		a = c.setSchedule(a)
		given(a.Revision, "a replaced schedule")
		fired := c.fire(c.firing(a))[0].Revision
		given(fired, "a schedule that fired")
		c.Equal(c.scheduleNow("a").Revision, fired, "the revision of the schedule that fired")
		c.OK(c.schedules().DeleteSchedule(c.Ctx, "a"), "DeleteSchedule a")
		c.OK(c.schedules().DeleteSchedule(c.Ctx, "b"), "DeleteSchedule b")
	}
}

func scheduleSetIsSafeToRepeat(c *C) {
	asked := c.full("s")
	first := c.setSchedule(asked)
	c.Equal(c.setSchedule(asked), first, "the repeat of the call that added it")
	asked.Revision = 77
	c.Equal(c.setSchedule(asked), first, "a repeat with another revision")
	asked.Revision, asked.LastAt, asked.LastJob = first.Revision, c.Now(), 9
	c.Equal(c.setSchedule(asked), first, "a repeat with the present revision")
	c.Equal(c.allSchedules(), []store.Schedule{first}, "all schedules")
}

func scheduleLimitsAreKept(c *C) {
	long, wrong := strings.Repeat("x", store.MaxNameBytes), strings.Repeat("x", store.MaxNameBytes+1)
	broken := map[string]func(*store.Schedule){
		"no expression":        func(s *store.Schedule) { s.Cron = "" },
		"a long expression":    func(s *store.Schedule) { s.Cron = wrong },
		"a long zone":          func(s *store.Schedule) { s.Timezone = wrong },
		"an owner with NUL":    func(s *store.Schedule) { s.Owner = "a\x00" },
		"a job without kind":   func(s *store.Schedule) { s.Job.Kind = "" },
		"a job with Replace":   func(s *store.Schedule) { s.Job.UniqueKey, s.Job.Replace = "key", true },
		"a job with a time":    func(s *store.Schedule) { s.Job.RunAt = c.Now() },
		"a job that expires":   func(s *store.Schedule) { s.Job.ExpiresAt = c.Now().Add(time.Hour) },
		"a large payload":      func(s *store.Schedule) { s.Job.Payload = docOf(store.MaxTemplateBytes + 1) },
		"a wrong catch-up":     func(s *store.Schedule) { s.CatchUp = "all" },
		"a wrong overlap":      func(s *store.Schedule) { s.Overlap = "queue" },
		"a negative version":   func(s *store.Schedule) { s.Version = -1 },
		"a negative revision":  func(s *store.Schedule) { s.Revision = -1 },
		"a pause with a time":  func(s *store.Schedule) { s.Paused = true },
		"a time that is late":  func(s *store.Schedule) { s.NextAt = store.MaxTime },
		"a job of a schedule":  func(s *store.Schedule) { s.Job.Scheduled = &store.Scheduled{Name: "s"} },
		"a name that is wrong": func(s *store.Schedule) { s.Name = "\xff" },
	}
	for what, change := range broken {
		s := c.daily("s")
		change(&s)
		_, err := c.schedules().SetSchedule(c.Ctx, s)
		c.ErrorIs(err, store.ErrInvalid, "SetSchedule with %s", what)
	}
	c.Equal(c.allSchedules(), []store.Schedule{}, "schedules after refused ones")
	most := c.daily(long)
	most.Cron, most.Timezone, most.Owner, most.Job.Payload = long, long, long, docOf(store.MaxTemplateBytes)
	most = c.setSchedule(most)
	c.Equal(c.allSchedules(), []store.Schedule{most}, "a schedule with every field at its limit")

	f := c.firing(most)
	for what, firings := range map[string][]store.Firing{
		"101 items":         slices.Repeat([]store.Firing{f}, store.MaxFirings+1),
		"an item unnamed":   {f, {}},
		"a time too late":   {{Name: long, Revision: f.Revision, For: f.For, Next: store.MaxTime}},
		"a moment too late": {{Name: long, Revision: f.Revision, For: store.MaxTime}},
	} {
		_, err := c.schedules().Fire(c.Ctx, firings)
		c.ErrorIs(err, store.ErrInvalid, "Fire with %s", what)
	}
	c.Equal(c.allSchedules(), []store.Schedule{most}, "the schedule after refused firings")
	c.Equal(len(c.fire(slices.Repeat([]store.Firing{f}, store.MaxFirings)...)), store.MaxFirings, "outcomes of 100 firings")
	c.Equal(c.fire(), []store.Fired{}, "outcomes of no firing")
	_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{plainBut(func(n *store.NewJob) { n.Scheduled = &store.Scheduled{Name: "s"} })}})
	c.ErrorIs(err, store.ErrInvalid, "Enqueue of a job that says that a schedule enqueues it")
}

func scheduleKeepsNoSlice(c *C) {
	s := c.full("s")
	kept := c.setSchedule(s)
	clear(s.Job.Payload)
	clear(s.Job.Tags)
	clear(kept.Job.Payload)
	clear(kept.Job.Tags)
	listed := c.scheduleNow("s")
	clear(listed.Job.Payload)
	clear(listed.Job.Tags)
	c.Equal(c.scheduleNow("s").Job, c.full("s").Job, "the job of the schedule")
	id := c.fire(c.firing(listed))[0].Job.ID
	job := c.Get(id)
	clear(job.Payload)
	job.Extras.Scheduled.Name = "another"
	c.Equal(c.Get(id).Payload, c.full("s").Job.Payload, "the payload of its job")
	c.Equal(c.Get(id).Extras.Scheduled.Name, "s", "the schedule of its job")
}

func scheduleDeleteLeavesJobs(c *C) {
	s, other := c.setSchedule(c.daily("s")), c.setSchedule(c.daily("other"))
	id := c.fire(c.firing(s))[0].Job.ID
	for range 2 {
		c.OK(c.schedules().DeleteSchedule(c.Ctx, "s"), "DeleteSchedule")
		c.Equal(c.allSchedules(), []store.Schedule{other}, "schedules after DeleteSchedule")
	}
	c.OK(c.schedules().DeleteSchedule(c.Ctx, "nobody"), "DeleteSchedule of a schedule that never was")
	c.Equal(c.Get(id).Scheduled(), &store.Scheduled{Name: "s", For: c.Now()}, "the schedule of a job whose schedule is gone")
}

func scheduleDueToTheTick(c *C) {
	const tick = store.Resolution
	for name, after := range map[string]time.Duration{"a": -time.Hour, "b": 0, "c": tick, "d": time.Second, "e": time.Second + tick} {
		s := c.daily(name)
		s.NextAt = c.Now().Add(after)
		c.setSchedule(s)
	}
	paused := c.daily("f")
	paused.Paused, paused.NextAt = true, time.Time{}
	c.setSchedule(paused)
	due := func(within time.Duration, want ...string) {
		found := c.schedulePage(store.ScheduleFilter{Due: true, Within: within}, store.Page{Limit: 10})
		c.Equal(scheduleNames(found.Schedules), want, "schedules that are due within %v", within)
	}
	due(0, "a", "b")
	due(tick+999, "a", "b", "c")
	due(time.Second, "a", "b", "c", "d")
	due(store.MaxDuration, "a", "b", "c", "d", "e")
	c.Advance(tick)
	due(0, "a", "b", "c")
	found := c.schedulePage(store.ScheduleFilter{Due: true, Name: "d"}, store.Page{Limit: 10})
	c.Equal(found.Schedules, []store.Schedule{}, "a schedule by name that is not due")
	for _, filter := range []store.ScheduleFilter{{Within: time.Second}, {Due: true, Within: -1}, {Due: true, Within: store.MaxDuration + 1}, {Name: "a\x00"}} {
		_, err := c.schedules().Schedules(c.Ctx, filter, store.Page{Limit: 1})
		c.ErrorIs(err, store.ErrInvalid, "the filter %+v", filter)
	}
}

// Between the pages, the schedules at their edges are deleted, and others come.
func schedulePagesJoinUp(c *C) {
	for _, name := range slices.Backward(trickyNames) {
		c.setSchedule(c.daily(name))
	}
	for _, name := range trickyNames {
		found := c.schedulePage(store.ScheduleFilter{Name: name}, store.Page{Limit: 2})
		c.Equal(scheduleNames(found.Schedules), []string{name}, "the schedule %q", name)
	}
	for _, name := range []string{"nobody", "%", "*"} {
		c.Equal(c.schedulePage(store.ScheduleFilter{Name: name}, store.Page{Limit: 2}).Schedules, []store.Schedule{}, "the schedule %q", name)
	}
	joinsUp(c, trickyNames, func(page store.Page) ([]string, string) {
		part := c.schedulePage(store.ScheduleFilter{}, page)
		return scheduleNames(part.Schedules), part.Next
	})
	first := c.schedulePage(store.ScheduleFilter{}, store.Page{Limit: 2})
	c.OK(c.schedules().DeleteSchedule(c.Ctx, trickyNames[1]), "DeleteSchedule of the last one of the page")
	rest := c.schedulePage(store.ScheduleFilter{}, store.Page{Limit: store.MaxItems, Cursor: first.Next})
	c.Equal(scheduleNames(rest.Schedules), trickyNames[2:], "the page behind a schedule that is gone")
	for _, limit := range []int{0, -1, store.MaxItems + 1} {
		_, err := c.schedules().Schedules(c.Ctx, store.ScheduleFilter{}, store.Page{Limit: limit})
		c.ErrorIs(err, store.ErrInvalid, "a page of %d schedules", limit)
	}
}

func schedulePageEndsEarly(c *C) {
	const most = store.MaxPageTemplates / store.MaxTemplateBytes
	add := func(name string, size int) {
		s := c.daily(name)
		s.Job.Payload = docOf(size)
		c.setSchedule(s)
	}
	for i := range most {
		add(string(rune('a'+i)), store.MaxTemplateBytes)
	}
	names := scheduleNames(c.allSchedules())
	c.Equal(len(names), most, "schedules of a page that is just full")
	add("zz", 2)
	page := c.schedulePage(store.ScheduleFilter{}, store.Page{Limit: store.MaxItems})
	c.Equal(scheduleNames(page.Schedules), names, "schedules of a page that would be too heavy")
	page = c.schedulePage(store.ScheduleFilter{}, store.Page{Limit: store.MaxItems, Cursor: page.Next})
	c.Equal(scheduleNames(page.Schedules), []string{"zz"}, "the page behind it")
	c.Equal(page.Next, "", "what follows it")
}

func scheduleCursorIsRefused(c *C) {
	c.setSchedule(c.daily("a"))
	c.setSchedule(c.daily("b"))
	next := c.schedulePage(store.ScheduleFilter{}, store.Page{Limit: 1}).Next
	for cursor, filter := range map[string]store.ScheduleFilter{
		next: {Name: "a"}, next + "\n": {}, "x": {}, store.WorkerFilter{}.Cursor("a"): {}, store.Filter{}.Cursor(1): {},
		store.ScheduleFilter{}.Cursor(""): {}, store.ScheduleFilter{Due: true}.Cursor("a"): {Due: true, Within: 1000},
	} {
		_, err := c.schedules().Schedules(c.Ctx, filter, store.Page{Limit: 1, Cursor: cursor})
		c.ErrorIs(err, store.ErrInvalid, "the cursor %q with %+v", cursor, filter)
	}
}

func scheduleFireEnqueues(c *C) {
	asked := c.full("s")
	s := c.setSchedule(asked)
	c.Advance(90 * time.Minute)
	f := store.Firing{Name: "s", Revision: s.Revision, For: s.NextAt.Add(700), Next: s.NextAt.Add(24*time.Hour + 700)}
	fired := c.fire(f)[0]
	if fired.Job == nil {
		c.Fatalf("Fire enqueued no job: %+v", fired)
	}
	c.Equal(fired, store.Fired{
		Name: "s", Status: store.StatusOK, Revision: fired.Revision, Job: &store.Enqueued{ID: fired.Job.ID, State: store.Ready},
	}, "the outcome")
	want := asked.Job.Row(fired.Job.ID, c.Now())
	want.Extras = &store.Extras{Scheduled: &store.Scheduled{Name: "s", For: s.NextAt}, LimitKey: asked.Job.LimitKey}
	c.Equal(c.Get(fired.Job.ID).Job, want, "the job that was enqueued")
	s.LastAt, s.LastJob, s.NextAt, s.Revision = s.NextAt, fired.Job.ID, s.NextAt.Add(24*time.Hour), fired.Revision
	c.Equal(c.scheduleNow("s"), s, "the schedule that fired")
	c.Advance(time.Second)
	claimed := c.ClaimBy(store.ClaimRequest{Queue: "q2", Limit: 1, Worker: worker, TTL: ttl})
	c.Equal(claimed[0].Scheduled(), want.Scheduled(), "what a claim says of the schedule")
	c.Equal(c.List(store.Filter{}, 10)[0].Scheduled(), want.Scheduled(), "what a listing says of the schedule")
	c.Equal(c.Get(c.EnqueueOne()).Scheduled(), (*store.Scheduled)(nil), "the schedule of another job")
}

func scheduleFireWithoutATime(c *C) {
	s := c.setSchedule(c.daily("s"))
	f := c.firing(s)
	f.For = time.Time{}
	fired := c.fire(f)[0]
	c.Equal(fired, store.Fired{Name: "s", Status: store.StatusOK, Revision: fired.Revision}, "the outcome of a firing without a time")
	s.NextAt, s.Revision = f.Next, fired.Revision
	c.Equal(c.scheduleNow("s"), s, "the schedule that has moved on")
	c.Equal(c.All(), []store.Job{}, "jobs")

	f = c.firing(s)
	f.Next = time.Time{}
	c.Equal(c.statusesOf(c.fire(f)), []store.Status{store.StatusOK}, "the outcome of the last time")
	c.True(c.scheduleNow("s").NextAt.IsZero(), "a schedule without a next time")
	f.Revision = c.scheduleNow("s").Revision
	c.Equal(c.statusesOf(c.fire(f)), []store.Status{store.StatusOK}, "the outcome of a firing by hand")
	c.Equal(len(c.All()), 2, "jobs of two times")
}

func scheduleFireItemByItem(c *C) {
	a, b, d := c.setSchedule(c.daily("a")), c.setSchedule(c.daily("b")), c.setSchedule(c.daily("d"))
	stale := c.firing(b)
	stale.Revision++
	gone := c.firing(store.Schedule{Name: "gone", Revision: 1})
	fired := c.fire(c.firing(d), stale, gone, c.firing(a), c.firing(a))
	c.Equal(c.statusesOf(fired), []store.Status{store.StatusOK, store.StatusStale, store.StatusNotFound, store.StatusOK, store.StatusStale}, "the outcomes")
	c.Equal(fired[1], store.Fired{Name: "b", Status: store.StatusStale, Revision: b.Revision}, "the outcome of the stale item")
	c.Equal(fired[2], store.Fired{Name: "gone", Status: store.StatusNotFound}, "the outcome without a schedule")
	c.Equal(c.scheduleNow("b"), b, "the schedule of the stale item")
	jobs := c.All()
	c.Equal(len(jobs), 2, "jobs")
	c.Equal(c.scheduleNow("a").LastJob, fired[3].Job.ID, "the last job of a")
	c.Equal(c.scheduleNow("d").LastJob, fired[0].Job.ID, "the last job of d")
	c.Equal(c.Get(fired[3].Job.ID).Extras.Scheduled.Name, "a", "the schedule of the job of a")
}

func scheduleFireNeverEarly(c *C) {
	s := c.setSchedule(c.daily("s"))
	f := c.firing(s)
	f.For = c.Now().Add(store.Resolution)
	c.Equal(c.fire(f), []store.Fired{{Name: "s", Status: store.StatusWrongState, Revision: s.Revision}}, "the outcome a microsecond early")
	c.Equal(c.scheduleNow("s"), s, "the schedule after that")
	c.Equal(c.All(), []store.Job{}, "jobs after that")
	c.Advance(store.Resolution)
	c.Equal(c.statusesOf(c.fire(f)), []store.Status{store.StatusOK}, "the outcome on time")
}

func scheduleFireNeverGoesBack(c *C) {
	s := c.setSchedule(c.daily("s"))
	paused := c.daily("paused")
	paused.Paused, paused.NextAt = true, time.Time{}
	paused = c.setSchedule(paused)
	back := c.firing(s)
	back.Next = s.NextAt.Add(-store.Resolution)
	fired := c.fire(back, c.firing(paused))
	c.Equal(c.statusesOf(fired), []store.Status{store.StatusInvalid, store.StatusInvalid}, "the outcomes")
	c.Equal(c.allSchedules(), []store.Schedule{paused, s}, "the schedules after that")
	c.Equal(c.All(), []store.Job{}, "jobs after that")
	back.Next = s.NextAt
	c.Equal(c.statusesOf(c.fire(back)), []store.Status{store.StatusOK}, "the outcome with the same next time")
}

func scheduleFireMeetsAUniqueKey(c *C) {
	asked := c.daily("s")
	asked.Job.UniqueKey = "key"
	s := c.setSchedule(asked)
	holder := c.Enqueue(asked.Job)[0]
	fired := c.fire(c.firing(s))[0]
	c.Equal(fired.Status, store.StatusOK, "the outcome")
	c.Equal(fired.Job, &store.Enqueued{ID: holder, State: store.Ready, Duplicate: true}, "the job of the outcome")
	c.True(fired.Reason != "", "the outcome says why nothing was enqueued")
	s = c.scheduleNow("s")
	c.Equal(s.LastJob, holder, "LastJob")
	c.Equal(s.LastAt, c.Now(), "LastAt")
	c.Equal(len(c.All()), 1, "jobs")
	c.Equal(c.Get(holder).Scheduled(), (*store.Scheduled)(nil), "the schedule of the holder")
	c.Cancel(holder)
	c.Equal(c.fire(c.firing(s))[0].Job.Duplicate, false, "the next job is a duplicate")

	asked = c.daily("window")
	asked.Job.UniqueKey, asked.Job.UniqueFor = "window", time.Minute
	c.Enqueue(asked.Job)
	s = c.setSchedule(asked)
	c.Advance(time.Minute - store.Resolution)
	c.Equal(c.fire(c.firing(s))[0].Job.Duplicate, true, "the job at the end of a window is a duplicate")
	c.Advance(store.Resolution)
	c.Equal(c.fire(c.firing(c.scheduleNow("window")))[0].Job.Duplicate, false, "the job after a window is a duplicate")
}

func scheduleFireDoesNotOverlap(c *C) {
	asked := c.daily("s")
	asked.Overlap = store.OverlapSkip
	s := c.setSchedule(asked)
	first := c.fire(c.firing(s))[0].Job.ID
	skipped := func(phase store.State) {
		c.Advance(time.Second)
		before := c.scheduleNow("s")
		f := c.firing(before)
		fired := c.fire(f)[0]
		c.Equal(c.statusesOf([]store.Fired{fired}), []store.Status{store.StatusOK}, "the outcome while the last job is %s", phase)
		c.Equal(fired.Job, (*store.Enqueued)(nil), "the job while the last one is %s", phase)
		c.True(fired.Reason != "", "the outcome says why nothing was enqueued")
		before.NextAt, before.Revision = f.Next, fired.Revision
		c.Equal(c.scheduleNow("s"), before, "the schedule while the last job is %s", phase)
	}
	skipped(store.Ready)
	lease := c.ClaimOne().Lease()
	skipped(store.InFlight)
	c.NAck(lease, store.After, time.Hour, "later")
	skipped(store.Retrying)
	c.Cancel(first)
	second := c.fire(c.firing(c.scheduleNow("s")))[0].Job
	if second == nil {
		c.Fatalf("no job was enqueued after the last one had ended")
	}
	c.Cancel(second.ID)
	c.Delete(second.ID)
	c.True(c.fire(c.firing(c.scheduleNow("s")))[0].Job != nil, "a job is enqueued after the last one is gone")
}

func scheduleFireIsSafeToRepeat(c *C) {
	s := c.setSchedule(c.daily("s"))
	f := c.firing(s)
	fired := c.fire(f)[0]
	after := c.scheduleNow("s")
	c.Equal(c.fire(f, f), slices.Repeat([]store.Fired{{Name: "s", Status: store.StatusStale, Revision: fired.Revision}}, 2), "the outcomes of the repeats")
	c.Equal(c.scheduleNow("s"), after, "the schedule after the repeats")
	c.Equal(len(c.All()), 1, "jobs after the repeats")
}

func scheduleManyFireOnce(c *C) {
	const rounds = 10
	keeper := c.schedules()
	s := c.setSchedule(c.daily("s"))
	for range rounds {
		c.Advance(time.Second)
		f := c.firing(c.scheduleNow("s"))
		fired := make([]store.Fired, 4)
		c.Parallel(len(fired), func(i int) {
			answer, err := keeper.Fire(c.Ctx, []store.Firing{f})
			if err != nil {
				c.Errorf("Fire: %v", err)
				return
			}
			fired[i] = answer[0]
		})
		got := c.statusesOf(fired)
		slices.Sort(got)
		c.Equal(got, []store.Status{store.StatusOK, store.StatusStale, store.StatusStale, store.StatusStale}, "the outcomes of servers that fire at once")
	}
	c.Equal(len(c.All()), rounds, "jobs of %s", s.Name)
}

func scheduleRefusesAsTheCoreDoes(c *C) {
	keeper := c.schedules()
	s := c.setSchedule(c.daily(queue))
	c.refusesAsTheCoreDoes(abilityCalls{
		"SetSchedule": func(ctx context.Context, name string) error {
			other := c.daily(name)
			other.Cron, other.Revision = "@weekly", s.Revision
			_, err := keeper.SetSchedule(ctx, other)
			return err
		},
		"DeleteSchedule": keeper.DeleteSchedule,
		"Schedules": unnamed(func(ctx context.Context) error {
			_, err := keeper.Schedules(ctx, store.ScheduleFilter{}, store.Page{Limit: 1})
			return err
		}),
		"Fire": func(ctx context.Context, name string) error {
			_, err := keeper.Fire(ctx, []store.Firing{{Name: name, Revision: s.Revision, For: c.Now(), Next: c.Now().Add(time.Hour)}})
			return err
		},
	}, func() { c.Equal(c.allSchedules(), []store.Schedule{s}, "schedules after the refusals") })
}

func schedulePriorityIsKept(c *C) {
	if c.noKeyLimits {
		return
	}
	c.keepInOrder(queue, store.Policy{})
	s := c.daily("s")
	s.Job.LimitKey, s.Job.Priority = "a", 7
	fired := c.fire(c.firing(c.setSchedule(s)))[0]
	c.Equal(fired.Status, store.StatusOK, "the status of a firing")
	c.Equal(c.Get(fired.Job.ID).Priority, 7, "the priority of the job of a schedule")
}

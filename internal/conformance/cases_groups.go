package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	sentenceInGroup       = "A job with Group is in this group; a duplicate is in none."
	sentenceOpen          = "Open opens groups, which are open from then on until SealGroup seals them. It is no error if a group is open already."
	sentenceGroupMet      = "A wait for a group is met while the group is not open, no job in it is live and, without Any, none is dead and the group is not spoiled."
	sentenceWaitsForGroup = "A filter with WaitsForGroup matches jobs that wait for the group with this name, or have waited for it."
	sentenceSpoils        = "A job in a group spoils it when it is cancelled, or is deleted when it is dead."
	sentenceTogether      = "The waits of a job for groups are looked at together, once its waits for jobs are met: it becomes ready at a moment when each of them is met. What becomes of the groups later does not matter to it."
	sentenceSpoiled       = "A blocked job that needs the success of a group is cancelled as by Cancel when the group is spoiled, and its Error names the group."
	sentenceNamesJob      = "If the job needs the one that spoils the group too, its Error names that one."
)

var groupCases = []Case{
	{"Groups/BlockedUntilAllHaveSucceeded", "A GroupKeeper keeps groups of jobs, for which others can wait as a whole.\n" + sentenceInGroup + "\n" + sentenceGroupMet, groupsBlock},
	{"Groups/OpenUntilItIsSealed", sentenceOpen + "\nSealGroup seals a group that an Enqueue has opened: it has all its jobs, and waits for it can be met.", groupsOpen},
	{"Groups/OnlyAnOpenOneIsSealed", "The call returns ErrInvalid with the field group if the group is not open. So a repeat after a lost answer may find that the group is sealed already.", groupsSealed},
	{"Groups/EveryLivePhaseKeepsItFromBeingDone", sentenceGroupMet, groupsLive},
	{"Groups/DeadJobHoldsUp", sentenceGroupMet, groupsDead},
	{"Groups/SpoiledOneCancelsWhatNeedsIt", sentenceSpoils + "\n" + sentenceSpoiled, groupsSpoiled},
	{"Groups/ErrorNamesTheJobThatSpoils", sentenceNamesJob, groupsNameTheJob},
	{"Groups/ErrorNamesTheFirstThatIsSpoiled", sentenceSpoiled, groupsNameTheFirst},
	{"Groups/NeedsASpoiledOne", "A job that needs the success of a spoiled group is added as cancelled.", groupsAddedCancelled},
	{"Groups/SpoiledUntilItIsGone", "The group stays spoiled until no job is in it, and none waits or has waited for it.", groupsStaySpoiled},
	{"Groups/MetTogether", sentenceTogether, groupsTogether},
	{"Groups/JobsAndWaitersOfOneCall", "A call takes effect as a whole, at one moment between its start and its return, or not at all.\n" + sentenceGroupMet, groupsInOneCall},
	{"Groups/RequeueIsNotUndone", "What was cancelled, deleted or spoiled before does not cancel the job again: it stays blocked.", groupsRequeue},
	{"Groups/CirclesAndLimitsAreRefused", "A job that waits for its own group is invalid, and so is one that waits for a group whose jobs wait for it, as far as the call shows it.\nA call opens at most 100 groups, and none without a job.", groupsRefused},
	{"Groups/ReplaceKeepsTheGroup", sentenceReplace, groupsReplace},
	{"Groups/FiltersKnowThem", sentenceUnneeded, groupsFiltered},
	{"Groups/FiltersKnowWhoWaits", sentenceWaitsForGroup, groupsWaitedFor},
	{"Groups/Listed", "Groups returns the groups that match the filter, in bytewise order of name. A group exists while it is open, a job is in it, or a job waits or has waited for it. A filter with OpenFor selects the groups that were opened at least this long ago and are still open.", groupsListed},
	{"Groups/Pages", "The pages neither skip nor repeat a group that matched the whole time. The last page has an empty Next. The call returns ErrInvalid for a cursor that does not come from a page of the same filter.", groupsPaged},
	{"Groups/LastTwoAtOnce", "A call takes effect as a whole, at one moment between its start and its return, or not at all.\n" + sentenceGroupMet, groupsLastTwo},
}

// groups is the store as a GroupKeeper.
func (c *C) groups() store.GroupKeeper {
	c.Helper()
	keeper, ok := c.instance.Store.(store.GroupKeeper)
	if !ok {
		c.Fatalf("the store is no GroupKeeper: exclude the case with a reason")
	}
	return keeper
}

// in is a plain job of the first queue in a group.
func in(group string, change ...func(n *store.NewJob)) store.NewJob {
	return plainBut(func(n *store.NewJob) {
		n.Queue, n.Group = first, group
		for _, f := range change {
			f(n)
		}
	})
}

// needingGroups is a plain job that needs the success of groups.
func needingGroups(names ...string) store.NewJob {
	return plainBut(func(n *store.NewJob) {
		n.After = each(names, func(name string) store.Wait { return store.Wait{Group: name} })
	})
}

func (c *C) seal(name string) {
	c.Helper()
	c.OK(c.groups().SealGroup(c.Ctx, name), "SealGroup of %s", name)
	c.settleAll()
}

// open opens groups with a job that is gone at once.
func (c *C) open(names ...string) {
	c.Helper()
	added := c.asked(store.EnqueueRequest{Jobs: []store.NewJob{plain()}, Open: names})
	c.Cancel(added[0].ID)
	c.Delete(added[0].ID)
}

func (c *C) group(name string) (store.Group, bool) {
	c.Helper()
	page, err := c.groups().Groups(c.Ctx, store.GroupFilter{Name: name}, store.Page{Limit: 10})
	c.OK(err, "Groups of one name")
	if len(page.Groups) == 0 {
		return store.Group{}, false
	}
	c.Equal(len(page.Groups), 1, "how many groups have the name")
	c.Equal(page.Groups[0].Name, name, "its name")
	return page.Groups[0], true
}

func groupsBlock(c *C) {
	members := c.Enqueue(in("g"), in("g"))
	job := c.Get(c.Enqueue(needingGroups("g"))[0])
	c.Equal(job.State, store.Blocked, "the state of a job that waits for a group")
	c.Equal(c.Get(members[0]).Group(), "g", "the group of a job")
	c.Equal(job.Waits, []store.Waiting{{Group: "g", State: store.InFlight}}, "its waits")
	c.Ack(c.hold(members[0]))
	c.in(store.Blocked, "after the first has succeeded", job.ID)
	c.Advance(time.Second)
	c.Ack(c.hold(members[1]))
	ready := becomes(store.OpUnblock, job, c.Now())
	ready.Waits = []store.Waiting{{Group: "g", Met: true, State: store.Succeeded}}
	c.Equal(c.Get(job.ID), ready, "the job after both have succeeded")
	c.Equal(ids(c.Claim(10)), []int64{job.ID}, "claimed then")

	holder := c.Enqueue(keyed("key", 0))[0]
	c.Equal(c.asked(store.EnqueueRequest{Jobs: []store.NewJob{in("h", func(n *store.NewJob) { n.UniqueKey = "key" })}})[0].ID, holder, "a duplicate")
	c.Equal(c.Get(holder).Group(), "", "the group of the holder")
	c.in(store.Ready, "that waits for a group that no job is in", c.Enqueue(needingGroups("h"))[0])
}

func groupsOpen(c *C) {
	c.open("g")
	opened := c.Now()
	c.Advance(time.Second)
	c.open("g", "g")
	g, _ := c.group("g")
	c.Equal(g, store.Group{Name: "g", OpenedAt: opened, GroupStatus: store.GroupStatus{Open: true}}, "a group that was opened twice")
	list := c.Enqueue(needingGroups("g"), whatever(needingGroups("g")))
	c.in(store.Blocked, "that waits for an open group", list...)
	member := c.Enqueue(in("g"))[0]
	c.Ack(c.hold(member))
	c.settleAll()
	c.in(store.Blocked, "while the group is open", list...)
	c.seal("g")
	c.in(store.Ready, "after the group was sealed", list...)

	c.open("h")
	member = c.Enqueue(in("h"))[0]
	last := c.Enqueue(needingGroups("h"))[0]
	c.seal("h")
	c.in(store.Blocked, "after the group was sealed while its job lives", last)
	c.Ack(c.hold(member))
	c.in(store.Ready, "after that has succeeded", last)
}

func groupsSealed(c *C) {
	c.Enqueue(in("never"))
	c.open("once")
	c.seal("once")
	for _, name := range []string{"never", "once", "unknown"} {
		c.refused(c.groups().SealGroup(c.Ctx, name), -1, "group", "SealGroup of a group that is not open: "+name)
	}
	for _, name := range []string{"", strings.Repeat("g", store.MaxNameBytes+1)} {
		c.ErrorIs(c.groups().SealGroup(c.Ctx, name), store.ErrInvalid, "SealGroup of a name that breaks a limit")
	}
	c.open("once")
	g, _ := c.group("once")
	c.True(g.Open, "a group that was opened once more")
}

func groupsLive(c *C) {
	before := c.Enqueue(plain())[0]
	blocked := in("g", func(n *store.NewJob) { n.After = []store.Wait{{ID: before}} })
	list := c.Enqueue(in("g"), blocked)
	waits := c.Enqueue(whatever(needingGroups("g")))[0]
	c.Ack(c.hold(list[0]))
	c.in(store.Blocked, "while a job of the group is blocked", waits)
	c.Ack(c.ClaimOne().Lease())
	c.in(store.Blocked, "while it is ready", waits)
	c.NAck(c.hold(list[1]), store.Fail, 0, "boom")
	late := c.Enqueue(whatever(needingGroups("g")))[0]
	c.in(store.Blocked, "while it is retrying", waits, late)
	c.Advance(time.Hour)
	held := c.hold(list[1])
	c.in(store.Blocked, "while it is in flight", waits)
	c.NAck(held, store.Release, 0, "")
	c.in(store.Blocked, "while it is ready again", waits)
	c.Ack(c.hold(list[1]))
	c.in(store.Ready, "after it has succeeded", waits, late)
}

func groupsDead(c *C) {
	member := c.Enqueue(in("g"))[0]
	list := c.Enqueue(needingGroups("g"), whatever(needingGroups("g")))
	c.NAck(c.hold(member), store.Never, 0, "boom")
	c.in(store.Blocked, "that needs a group with a dead job", list[0])
	c.in(store.Ready, "that waits for its end", list[1])
	waits := c.Get(list[0]).Waits
	c.Equal(waits, []store.Waiting{{Group: "g", State: store.Dead}}, "its waits")
	c.True(waits[0].HoldsUp(), "the dead job holds it up")
	late := c.Enqueue(needingGroups("g"), whatever(needingGroups("g")))
	c.in(store.Blocked, "enqueued later that needs the group", late[0])
	c.in(store.Ready, "enqueued later that waits for its end", late[1])
	c.Requeue(member)
	c.Ack(c.hold(member))
	c.in(store.Ready, "after the dead job was requeued and has succeeded", list[0], late[0])
}

func groupsSpoiled(c *C) {
	for what, spoil := range map[string]func(id int64){
		"cancelled":         func(id int64) { c.Cancel(id) },
		"cancelled running": func(id int64) { c.hold(id); c.Cancel(id) },
		"dead and deleted":  func(id int64) { c.NAck(c.hold(id), store.Never, 0, "boom"); c.Delete(id) },
		"expired":           func(int64) { c.Advance(time.Hour); c.Settle(1) },
		"without its job": func(id int64) {
			needed := c.Enqueue(plain())[0]
			c.Enqueue(in(c.Get(id).Group(), func(n *store.NewJob) { n.After = []store.Wait{{ID: needed}} }))
			c.Cancel(needed)
		},
		"added as cancelled": func(id int64) {
			cancelled := c.Enqueue(plain())[0]
			c.Cancel(cancelled)
			c.Enqueue(in(c.Get(id).Group(), func(n *store.NewJob) { n.After = []store.Wait{{ID: cancelled}} }))
		},
	} {
		group := "group of one that is " + what
		expiring := c.expiring(time.Hour)
		expiring.Queue, expiring.Group, expiring.MaxRetries = first, group, 0
		list := c.Enqueue(expiring, in(group))
		job := c.Get(c.Enqueue(needingGroups(group))[0])
		waits, next := c.Enqueue(whatever(needingGroups(group)))[0], c.Enqueue(needing(job.ID))[0]
		spoil(list[0])
		c.settleAll()
		got, want := c.Get(job.ID), becomes(store.OpCancel, job, c.Now())
		c.True(strings.Contains(got.Error, group), "a job is %s: the error %q names its group", what, got.Error)
		want.Error, want.Waits = got.Error, []store.Waiting{{Group: group, State: store.Cancelled}}
		c.Equal(got, want, "what needs a group whose job is %s, while another lives", what)
		c.in(store.Cancelled, "that needs it in turn", next)
		c.in(store.Blocked, "that waits for the end of the group", waits)
		for _, id := range each(c.List(store.Filter{Group: group, States: store.Phases[:4]}, 10), func(j store.Job) int64 { return j.ID }) {
			c.Cancel(id)
		}
		c.settleAll()
		c.in(store.Ready, "after the others have ended too", waits)
		c.Cancel(waits)
	}
}

func groupsNameTheJob(c *C) {
	for what, spoil := range map[string]func(id int64){
		"cancelled":        func(id int64) { c.Cancel(id) },
		"dead and deleted": func(id int64) { c.NAck(c.hold(id), store.Never, 0, "boom"); c.Delete(id) },
	} {
		group := "group of one that is " + what
		list := c.Enqueue(in(group), in(group))
		n := needingGroups(group)
		n.After = append(n.After, store.Wait{ID: list[1]})
		job := c.Enqueue(n)[0]
		c.NAck(c.hold(list[0]), store.Never, 0, "boom") // the group changes, but not for those that wait for it
		c.in(store.Blocked, "that needs a group with a dead job", job)
		spoil(list[1])
		c.settleAll()
		got := c.Get(job)
		c.Equal(got.State, store.Cancelled, "the state of a job that needs a job that is %s and its group", what)
		c.True(strings.Contains(got.Error, fmt.Sprintf("job %d,", list[1])), "a job is %s: the error %q names it, and not its group", what, got.Error)
	}
}

func groupsNameTheFirst(c *C) {
	member := c.Enqueue(in("g"))[0]
	between := needingGroups("g")
	between.Group = "h"
	job := c.Enqueue(between, needingGroups("h", "g"))[1]
	c.Cancel(member)
	c.settleAll()
	got := c.Get(job)
	c.Equal(got.State, store.Cancelled, "the state of a job that needs a spoiled group and another that is spoiled because of it")
	c.True(strings.Contains(got.Error, `group "g"`), "the error %q names the group that was spoiled first", got.Error)
}

func groupsAddedCancelled(c *C) {
	c.Cancel(c.Enqueue(in("g"))[0])
	list := c.asked(store.EnqueueRequest{Jobs: []store.NewJob{needingGroups("g"), whatever(needingGroups("g"))}})
	c.Equal([]store.State{list[0].State, list[1].State}, []store.State{store.Cancelled, store.Ready}, "the states in the answer")
	d := c.Get(list[0].ID)
	c.Equal([]any{d.State, d.FinishedAt, d.Token, len(d.History)}, []any{store.Cancelled, c.Now(), int64(0), 0}, "a job that needs a spoiled group")
	c.True(strings.Contains(d.Error, `"g"`), "its error %q names the group", d.Error)

	n := in("h")
	n.After = []store.Wait{{ID: list[0].ID}}
	list = c.asked(store.EnqueueRequest{Jobs: []store.NewJob{n, needingGroups("h")}})
	c.Equal([]store.State{list[0].State, list[1].State}, []store.State{store.Cancelled, store.Cancelled}, "the states of a job in a group and of one behind it that needs the group")
}

func groupsStaySpoiled(c *C) {
	member := c.Enqueue(in("g"))[0]
	waits := c.Enqueue(whatever(needingGroups("g")))[0]
	c.Cancel(member)
	c.Requeue(member)
	c.Ack(c.hold(member))
	c.in(store.Cancelled, "that needs a group whose cancelled job was requeued and has succeeded", c.Enqueue(needingGroups("g"))[0])
	c.Delete(member)
	c.Cancel(waits)
	g, found := c.group("g")
	c.Equal(g, store.Group{Name: "g", GroupStatus: store.GroupStatus{Spoiled: true}}, "a group of which only waits are left")
	c.True(found, "it exists")
	for _, j := range c.All() {
		c.Delete(j.ID)
	}
	_, found = c.group("g")
	c.True(!found, "the group is gone with the last job that waited for it")
	c.in(store.Ready, "that needs the group after that", c.Enqueue(needingGroups("g"))[0])
}

func groupsTogether(c *C) {
	members := c.Enqueue(in("g"), in("h"))
	before := c.Enqueue(plain())[0]
	n := needingGroups("g", "h")
	n.After = append(n.After, store.Wait{ID: before})
	job := c.Enqueue(n)[0]
	c.Ack(c.hold(members[0]))
	c.Advance(time.Second)
	c.Requeue(members[0]) // which is due after the other now
	c.Ack(c.ClaimOne().Lease())
	c.in(store.Blocked, "whose wait for a job is met", job)
	c.Ack(c.hold(members[1]))
	c.in(store.Blocked, "while one group, which was done before the other, has a live job", job)
	c.Equal(c.Get(job).Waits, []store.Waiting{{Group: "g", State: store.InFlight}, {Group: "h", Met: true, State: store.Succeeded}, {ID: before, Met: true, State: store.Succeeded}}, "its waits")
	c.Ack(c.hold(members[0]))
	c.in(store.Ready, "after all are done", job)
	c.Requeue(members[0])
	c.Cancel(members[0])
	c.settleAll()
	c.in(store.Ready, "after a group was spoiled then", job)
	c.Equal(c.Get(job).Waits[0], store.Waiting{Group: "g", Met: true, State: store.Cancelled}, "its wait for that")

	last := c.Enqueue(plain())[0]
	members = c.Enqueue(in("i"))
	n = needingGroups("i")
	n.After = append(n.After, store.Wait{ID: last})
	job = c.Enqueue(n)[0]
	c.Ack(c.hold(members[0]))
	c.in(store.Blocked, "whose group is done", job)
	c.Advance(time.Second)
	for _, j := range c.Claim(10) {
		c.Ack(j.Lease())
	}
	c.in(store.Ready, "whose job was the last", job)
}

func groupsInOneCall(c *C) {
	list := c.asked(store.EnqueueRequest{Jobs: []store.NewJob{needingGroups("g"), in("g"), in("g")}})
	c.Equal(list[0].State, store.Blocked, "the state of a job that waits for a group of later items")
	c.Ack(c.hold(list[1].ID))
	c.in(store.Blocked, "after one has succeeded", list[0].ID)
	c.Ack(c.hold(list[2].ID))
	c.in(store.Ready, "after both have", list[0].ID)

	cancelled := c.JobIn(store.Cancelled).ID
	holder := c.Enqueue(keyed("key", 0))[0]
	list = c.asked(store.EnqueueRequest{Open: []string{"open"}, Jobs: []store.NewJob{
		needingGroups("spoiled"), in("spoiled", func(n *store.NewJob) { n.After = []store.Wait{{ID: cancelled}} }),
		needingGroups("empty"), in("empty", func(n *store.NewJob) { n.UniqueKey = "key" }),
		needingGroups("open"),
	}})
	c.Equal(list[3], store.Enqueued{ID: holder, State: store.Ready, Duplicate: true}, "a duplicate in a group")
	c.settleAll()
	c.in(store.Cancelled, "that needs a group of an item that is added as cancelled", list[0].ID)
	c.in(store.Ready, "that needs a group whose only item is a duplicate", list[2].ID)
	c.in(store.Blocked, "that needs a group that the call opens", list[4].ID)
}

func groupsRequeue(c *C) {
	members := c.Enqueue(in("g"), in("g"))
	job := c.Enqueue(needingGroups("g"))[0]
	c.Cancel(members[0])
	c.settleAll()
	c.in(store.Cancelled, "whose group is spoiled", job)
	c.Equal(c.Requeue(job).State, store.Blocked, "requeued after that")
	c.Cancel(members[1])
	c.settleAll()
	c.in(store.Blocked, "whose group was spoiled before the requeue", job)
	c.True(c.Get(job).Waits[0].HoldsUp(), "the group holds it up")

	member := c.Enqueue(in("h"))[0]
	job = c.Enqueue(needingGroups("h"))[0]
	c.Ack(c.hold(member))
	c.Ack(c.ClaimOne().Lease())
	c.Equal(c.Requeue(job).State, store.Ready, "a requeued job whose group is done")
	c.Ack(c.ClaimOne().Lease())
	outcomes, err := c.Store.Requeue(c.Ctx, only(job, member), 10)
	c.OK(err, "Requeue of a job and of the group that it waits for")
	c.Equal(outcomes[0].State, store.Blocked, "the state of the job")
	c.Ack(c.hold(member))
	c.in(store.Ready, "after the group is done again", job)
	c.Cancel(job)
	c.Requeue(member)
	c.Equal(c.Requeue(job).State, store.Blocked, "a requeued job whose group lives")
	c.Cancel(member)
	c.settleAll()
	c.in(store.Cancelled, "whose group was spoiled after the requeue", job)
}

func groupsRefused(c *C) {
	own := in("g", func(n *store.NewJob) { n.After = []store.Wait{{Group: "g"}} })
	onNext := func(group string, after ...store.Wait) store.NewJob {
		return in(group, func(n *store.NewJob) { n.After = after })
	}
	for what, jobs := range map[string][]store.NewJob{
		"its own group":                     {plain(), own},
		"a group that waits for its own":    {plain(), onNext("g", store.Wait{Group: "h"}), onNext("h", store.Wait{Group: "g"})},
		"a group with a job that needs it":  {plain(), onNext("", store.Wait{Group: "g"}), onNext("g", store.Wait{Item: 1})},
		"a long circle":                     {plain(), onNext("a", store.Wait{Group: "b"}), onNext("b", store.Wait{Item: 0}, store.Wait{Group: "c"}), onNext("c", store.Wait{Item: 1})},
		"a group and an id":                 {plain(), onNext("", store.Wait{Group: "g", ID: 1})},
		"a group and an item":               {plain(), onNext("", store.Wait{Group: "g", Item: 1})},
		"a group whose name is too long":    {plain(), onNext("", store.Wait{Group: strings.Repeat("g", store.MaxNameBytes+1)})},
		"a group, after one it leads to it": {needingGroups("g"), own},
	} {
		_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: jobs})
		c.refused(err, 1, "after", "an item that waits for "+what)
	}
	_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain(), in(strings.Repeat("g", store.MaxNameBytes+1))}})
	c.refused(err, 1, "group", "an item in a group whose name is too long")
	for what, open := range map[string][]string{"no name": {""}, "101 groups": slices.Repeat([]string{"g"}, store.MaxOpen+1)} {
		_, err := c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain()}, Open: open})
		c.refused(err, -1, "open", "a call that opens "+what)
	}
	_, err = c.Store.Enqueue(c.Ctx, store.EnqueueRequest{Open: []string{"g"}})
	c.refused(err, -1, "open", "a call that opens a group and has no job")
	c.Equal(c.howMany(), 0, "jobs of refused calls")
	c.asked(store.EnqueueRequest{Jobs: []store.NewJob{plain()}, Open: slices.Repeat([]string{"g"}, store.MaxOpen)})
	if keeper, ok := c.instance.Store.(store.ScheduleKeeper); ok {
		_, err := keeper.SetSchedule(c.Ctx, store.Schedule{Name: "s", Cron: "@daily", Job: in("g")})
		c.refused(err, -1, "job.group", "a schedule whose job is in a group")
	}
}

func groupsReplace(c *C) {
	n := in("g", func(n *store.NewJob) { n.UniqueKey, n.Delay = "key", time.Hour })
	job := c.Enqueue(n)[0]
	n.Replace, n.Payload, n.Group = true, []byte(`"other"`), "h"
	for _, group := range []string{"h", ""} {
		n.Group = group
		c.Equal(c.asked(store.EnqueueRequest{Jobs: []store.NewJob{n}})[0].Replaced, false, "a duplicate with Replace in another group")
	}
	n.Group = "g"
	c.Equal(c.asked(store.EnqueueRequest{Jobs: []store.NewJob{n}})[0].Replaced, true, "a duplicate with Replace in the group of the holder")
	c.Equal(c.Get(job).Group(), "g", "its group")
}

func groupsFiltered(c *C) {
	members := c.Enqueue(in("g"), in("g"), in("h"), in("g"))
	waits := c.Enqueue(whatever(needingGroups("g")))[0]
	ofG := []int64{members[3], members[1], members[0]}
	c.Equal(ids(c.List(store.Filter{Group: "g"}, 10)), ofG, "the jobs of a group")
	c.Equal(ids(c.List(store.Filter{Group: "g"}, 2)), ofG, "the same in pages of two")
	c.Equal(ids(c.List(store.Filter{Group: "g", After: members[0]}, 10)), ofG[:2], "those with a greater id")
	c.Equal(ids(c.List(store.Filter{Group: "g", IDs: members[1:3]}, 10)), members[1:2], "those among some")
	c.Equal(ids(c.List(store.Filter{Group: "i"}, 10)), []int64{}, "the jobs of a group that does not exist")
	c.Equal(c.countOf(store.Filter{Group: "g"}), map[string]int64{first + " ready": 3}, "how many jobs a group has")
	for range 2 {
		for _, j := range c.ClaimBy(store.ClaimRequest{Queue: first, Limit: 2, Worker: worker, TTL: ttl}) {
			c.Ack(j.Lease())
		}
	}
	c.in(store.Ready, "that waits for a group that is done", waits)
	c.Equal(ids(c.List(store.Filter{Group: "g", States: []store.State{store.Succeeded}}, 10)), ofG, "the jobs of a group that have succeeded")
	c.Equal(ids(c.List(store.Filter{Queue: first, Unneeded: true}, 10)), members[2:3], "the unneeded jobs")
	outcomes, err := c.Store.Delete(c.Ctx, store.Filter{IDs: members[:1], Unneeded: true}, 1)
	c.OK(err, "Delete of a named job whose group is needed")
	c.Equal(outcomes, []store.Outcome{{ID: members[0], Status: store.StatusNotFound}}, "the outcome")
	c.Ack(c.ClaimOne().Lease())
	outcomes, err = c.Store.Delete(c.Ctx, store.Filter{Group: "g", Unneeded: true}, 2)
	c.OK(err, "Delete of the jobs of a group")
	c.Equal(each(outcomes, func(o store.Outcome) int64 { return o.ID }), members[:2], "the first two that were deleted after what waited has ended")
	outcomes, err = c.Store.Requeue(c.Ctx, store.Filter{Group: "g"}, 10)
	c.OK(err, "Requeue of a group")
	c.Equal(each(outcomes, func(o store.Outcome) int64 { return o.ID }), members[3:], "the jobs of the group that were requeued")
	outcomes, err = c.Store.Cancel(c.Ctx, store.Filter{Group: "g"}, 10)
	c.OK(err, "Cancel of a group")
	c.Equal(each(outcomes, func(o store.Outcome) int64 { return o.ID }), members[3:], "the jobs of the group that were cancelled")
}

// allGroups reads all pages of groups.
func (c *C) allGroups(filter store.GroupFilter, size int) []store.Group {
	c.Helper()
	list := []store.Group{}
	for page := (store.Page{Limit: size}); len(list) < 100; {
		part, err := c.groups().Groups(c.Ctx, filter, page)
		c.OK(err, "a page of groups")
		c.True(len(part.Groups) == size || part.Next == "" && len(part.Groups) < size+1, "a page of %d groups has %d", size, len(part.Groups))
		list = append(list, part.Groups...)
		if part.Next == "" {
			return list
		}
		page.Cursor = part.Next
	}
	c.Fatalf("the pages of groups do not end")
	return nil
}

func groupsListed(c *C) {
	opened := c.Now()
	c.open("open", "z")
	c.Advance(time.Minute)
	c.open("Young")
	ended := c.Enqueue(in("dead"), in("spoiled"), in("succeeded"), in("dead"), in("live"))
	c.NAck(c.hold(ended[0]), store.Never, 0, "boom")
	c.Cancel(ended[1])
	c.Ack(c.hold(ended[2]))
	c.Enqueue(whatever(needingGroups("awaited")))
	want := []store.Group{
		{Name: "Young", OpenedAt: c.Now(), GroupStatus: store.GroupStatus{Open: true}},
		{Name: "awaited"},
		{Name: "dead", GroupStatus: store.GroupStatus{Live: true, Dead: true}},
		{Name: "live", GroupStatus: store.GroupStatus{Live: true}},
		{Name: "open", OpenedAt: opened, GroupStatus: store.GroupStatus{Open: true}},
		{Name: "spoiled", GroupStatus: store.GroupStatus{Spoiled: true}},
		{Name: "succeeded"},
		{Name: "z", OpenedAt: opened, GroupStatus: store.GroupStatus{Open: true}},
	}
	c.Equal(c.allGroups(store.GroupFilter{}, 10), want, "the groups")
	c.Equal(c.allGroups(store.GroupFilter{OpenFor: time.Minute}, 10), []store.Group{want[4], want[7]}, "those that have been open for a minute")
	c.Equal(c.allGroups(store.GroupFilter{OpenFor: time.Minute + store.Resolution}, 10), []store.Group{}, "those that have been open for longer")
	c.Equal(c.allGroups(store.GroupFilter{OpenFor: time.Minute, Name: "z"}, 10), want[7:], "one of them")
	c.Equal(c.allGroups(store.GroupFilter{OpenFor: time.Minute, Name: "Young"}, 10), []store.Group{}, "another one")
	c.Equal(c.allGroups(store.GroupFilter{Name: "succeeded"}, 10), want[6:7], "one group")
	c.Equal(c.allGroups(store.GroupFilter{Name: "s"}, 10), []store.Group{}, "the beginning of a name")
}

func groupsPaged(c *C) {
	c.Enqueue(in("a"), in("b"), in("c"), in("b"))
	c.open("d", "e")
	c.Enqueue(whatever(needingGroups("f")), whatever(needingGroups("a")))
	for size := 1; size <= 7; size++ {
		c.Equal(each(c.allGroups(store.GroupFilter{}, size), func(g store.Group) string { return g.Name }), []string{"a", "b", "c", "d", "e", "f"}, "the groups in pages of %d", size)
	}
	page, err := c.groups().Groups(c.Ctx, store.GroupFilter{}, store.Page{Limit: 2})
	c.OK(err, "a page of groups")
	for what, filter := range map[string]store.GroupFilter{"a name": {Name: "a"}, "OpenFor": {OpenFor: time.Second}} {
		_, err := c.groups().Groups(c.Ctx, filter, store.Page{Limit: 2, Cursor: page.Next})
		c.refused(err, -1, "cursor", "a cursor of another filter, with "+what)
	}
	_, err = c.groups().Groups(c.Ctx, store.GroupFilter{OpenFor: -1}, store.Page{Limit: 2})
	c.ErrorIs(err, store.ErrInvalid, "a filter that breaks a limit")
	_, err = c.groups().Groups(c.Ctx, store.GroupFilter{}, store.Page{})
	c.ErrorIs(err, store.ErrInvalid, "a page without a limit")
}

func groupsLastTwo(c *C) {
	for range 20 {
		members := c.Enqueue(in("g"), in("g"))
		job := c.Enqueue(needingGroups("g"))[0]
		leases := []store.Lease{c.hold(members[0]), c.hold(members[1])}
		c.Parallel(2, func(i int) {
			_, err := c.Store.Ack(c.Ctx, []store.Ack{{Lease: leases[i]}})
			c.OK(err, "Ack of one of the last two")
		})
		c.settleAll()
		c.Equal(ids(c.Claim(10)), []int64{job}, "claimed after both have succeeded")
	}
}

func txSealsArePartOfIt(c *C) {
	c.open("g")
	job := c.Enqueue(needingGroups("g"))[0]
	for _, commit := range []bool{false, true} {
		c.inTx(func(t *txCase) {
			keeper, ok := t.c.transactor().InTx(t.tx).(store.GroupKeeper)
			c.True(ok, "the Writer is a GroupKeeper")
			page, err := keeper.Groups(c.Ctx, store.GroupFilter{}, store.Page{Limit: 10})
			c.OK(err, "Groups in a transaction")
			c.Equal(each(page.Groups, func(g store.Group) bool { return g.Open }), []bool{true}, "the groups in a transaction")
			c.OK(keeper.SealGroup(c.Ctx, "g"), "SealGroup in a transaction")
			c.refused(keeper.SealGroup(c.Ctx, "g"), -1, "group", "a second SealGroup in a transaction")
			t.end(commit && ok)
		})
		c.settleAll()
		want := store.Blocked
		if commit {
			want = store.Ready
		}
		c.in(want, "after the transaction", job)
	}
}

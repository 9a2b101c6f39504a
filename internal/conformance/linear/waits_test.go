package linear

import (
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/store"
)

var follower = &store.NewJob{Kind: "follower", After: []store.Wait{{ID: 7}}}

// addedAs is the enqueue of job 1 that waits for job 7.
func addedAs(state store.State) event {
	e := added(0, follower, 1)
	e.items[0].State = state
	return e
}

func early(e event) event {
	e.items[0].early = true
	return e
}

// by is what others bring about in the spell.
func by(op store.Op, spell int64) event {
	return event{op: op, id: 1, spell: spell, lost: true, now: span{0, second(1000).time().UnixMicro()}}
}

// requeued begins the second spell.
func requeued(state store.State, next ...second) event {
	e := byID(store.OpRequeue, 2, 1, store.StatusOK).showing(state, 2, next...)
	e.spell = again
	return e
}

const again = 9

func TestHistoriesOfAJobThatWaits(t *testing.T) {
	const legal, illegal = porcupine.Ok, porcupine.Illegal
	blocked, claim := one(addedAs(store.Blocked)), one(claimed(1, 1))
	met, cascade := one(by(store.OpUnblock, 0)), one(by(opCascade, 0))
	read := func(state store.State, token int64, next ...second) []event {
		return one(got(1, 1, 0).showing(state, token, next...).runs(0))
	}
	cancelled := one(byID(store.OpCancel, 1, 1, store.StatusOK).showing(store.Cancelled, 1))

	for name, c := range map[string]struct {
		want    porcupine.CheckResult
		history []porcupine.Operation
	}{
		"ClaimedWhenMet":            {legal, historyOf(blocked, met, claim)},
		"ClaimedWhileMet":           {legal, historyOf(blocked, append(met, claim...))},
		"ClaimedBeforeMet":          {illegal, historyOf(blocked, claim, met)},
		"ClaimedUnmet":              {illegal, historyOf(blocked, claim)},
		"ReadyWhenMet":              {legal, historyOf(blocked, met, read(store.Blocked, 0), read(store.Ready, 0, 1))},
		"BlockedOnceMore":           {illegal, historyOf(blocked, met, read(store.Ready, 0, 1), read(store.Blocked, 0))},
		"ReadyBeforeMet":            {illegal, historyOf(blocked, read(store.Ready, 0, 1), met)},
		"AddedReady":                {legal, historyOf(one(addedAs(store.Ready)), claim)},
		"AddedReadyTooEarly":        {illegal, historyOf(one(early(addedAs(store.Ready))), claim)},
		"AddedCancelled":            {legal, historyOf(one(addedAs(store.Cancelled)), read(store.Cancelled, 0))},
		"AddedCancelledTooEarly":    {illegal, historyOf(one(early(addedAs(store.Cancelled))))},
		"AddedCancelledIsClaimed":   {illegal, historyOf(one(addedAs(store.Cancelled)), met, claim)},
		"AddedBlockedForNothing":    {illegal, historyOf(one(waitingFor(addedAs(store.Blocked), single)))},
		"CancelledForAnother":       {legal, historyOf(blocked, cascade, read(store.Cancelled, 1))},
		"CancelledForNobody":        {illegal, historyOf(blocked, read(store.Cancelled, 1))},
		"CancelledForAnotherLate":   {illegal, historyOf(blocked, met, claim, cascade, read(store.Cancelled, 2))},
		"CancelledAndClaimed":       {illegal, historyOf(blocked, cascade, read(store.Cancelled, 1), met, claim)},
		"RequeuedBlocked":           {legal, historyOf(blocked, cancelled, one(requeued(store.Blocked)), one(by(store.OpUnblock, again)), one(claimed(3, 3)))},
		"RequeuedBlockedAndClaimed": {illegal, historyOf(blocked, met, cancelled, one(requeued(store.Blocked)), one(claimed(3, 3)))},
		"RequeuedReady":             {legal, historyOf(blocked, cancelled, one(requeued(store.Ready, 2)), one(claimed(3, 3)))},
		"CancelledForAnEarlierEnd":  {illegal, historyOf(blocked, cascade, cancelled, one(requeued(store.Blocked)), read(store.Cancelled, 3))},
		"CancelledWhenReady":        {illegal, historyOf(blocked, met, read(store.Ready, 0, 1), cascade, read(store.Cancelled, 1))},
		"RequeuedIsCancelledAgain":  {illegal, historyOf(blocked, cascade, read(store.Cancelled, 1), one(requeued(store.Blocked)), read(store.Cancelled, 3))},
		"LostRequeueOfAMetOne":      {legal, historyOf(blocked, cancelled, one(lost(requeued(""))), one(by(store.OpUnblock, again)), one(claimed(3, 3)))},
		"RescheduledWhenMet":        {legal, historyOf(blocked, met, one(byID(store.OpReschedule, 1, 1, store.StatusOK).showing(store.Ready, 1, 1)))},
		"RescheduledWhileBlocked":   {illegal, historyOf(blocked, one(byID(store.OpReschedule, 1, 1, store.StatusOK).showing(store.Ready, 1, 1)))},
		"RescheduleIsRefused":       {legal, historyOf(blocked, met, one(byID(store.OpReschedule, 1, 1, store.StatusWrongState).showing(store.Blocked, 0)))},
	} {
		t.Run(name, func(t *testing.T) {
			got := porcupine.CheckOperationsTimeout(specification, c.history, timeout)
			assert.Equal(t, c.want, got, part{ops: c.history}.listing(nil))
		})
	}
}

// waitingFor is the enqueue with another request.
func waitingFor(e event, asked *store.NewJob) event {
	e.items[0].job = asked
	return e
}

// recordsOf are records of calls that follow each other: call i is made at 10·i and returns 5 later, or never if its events were lost.
func recordsOf(calls ...event) (records []record) {
	for i, e := range calls {
		at := int64(10 * (i + 1))
		records = append(records, record{op: e.op, call: at, ret: at + 5, lost: e.lost, events: []event{e}})
	}
	return records
}

// jobs is an enqueue of jobs with the ids from 1 on, each of which is blocked if it waits.
func jobs(asked ...store.NewJob) event {
	e := event{op: opEnqueue, now: exactly(epoch)}
	for i := range asked {
		asked[i].Kind = string(rune('a' + i))
		it := item{job: &asked[i], Enqueued: store.Enqueued{ID: int64(i + 1), State: store.Ready}}
		if len(asked[i].After) > 0 {
			it.State = store.Blocked
		}
		e.items = append(e.items, it)
	}
	return e
}

func endedBy(op store.Op, id int64, phase store.State) event {
	return byID(op, 0, id, store.StatusOK).showing(stateOf(phase), 1)
}

func (e event) opening() event { e.open = []string{"g"}; return e }

func sealed() event { return event{op: opSeal, group: "g", status: store.StatusOK} }

// The last job of the first call waits for others. Its waits are met, and it can be cancelled, by these calls at the earliest.
func TestBoundsOfAJobThatWaits(t *testing.T) {
	const none = int64(never)
	after := func(on ...store.Wait) store.NewJob { return store.NewJob{After: on} }
	in := func(group string) store.NewJob { return store.NewJob{Group: group} }
	two := jobs(store.NewJob{}, store.NewJob{}, after(store.Wait{Item: 0}, store.Wait{Item: 1}))
	whatever := jobs(store.NewJob{}, after(store.Wait{Item: 0, Any: true}))
	batch := jobs(in("g"), in("g"), after(store.Wait{Group: "g"})).opening()
	anyBatch := jobs(in("g"), after(store.Wait{Group: "g", Any: true}))
	chain := jobs(store.NewJob{}, after(store.Wait{Item: 0}), after(store.Wait{Item: 1}))
	anyChain := jobs(store.NewJob{}, after(store.Wait{Item: 0}), after(store.Wait{Item: 1, Any: true}))
	ack1, ack2 := endedBy(store.OpAck, 1, store.Succeeded), endedBy(store.OpAck, 2, store.Succeeded)
	dies1, retries1 := endedBy(store.OpNever, 1, store.Dead), byID(store.OpFail, 0, 1, store.StatusOK).showing(store.Failed, 1, 5)
	cancel1, delete1, requeue1 := endedBy(store.OpCancel, 1, store.Cancelled), endedBy(store.OpDelete, 1, store.Gone), endedBy(store.OpRequeue, 1, store.Ready)

	for name, c := range map[string]struct {
		calls       []event
		met, needed int64
	}{
		"NobodyHasEnded":             {[]event{two}, none, none},
		"OneOfTwo":                   {[]event{two, ack1}, none, none},
		"BothOfTwo":                  {[]event{two, ack1, ack2}, 30, none},
		"ALostAckCounts":             {[]event{two, lost(ack1), ack2}, 30, none},
		"AStaleAckDoesNot":           {[]event{two, ack1, byID(store.OpAck, 0, 2, store.StatusStale)}, none, none},
		"DeathIsNoSuccess":           {[]event{two, dies1, ack2}, none, none},
		"DeathIsAnEnd":               {[]event{whatever, dies1}, 20, none},
		"ARetryIsNoEnd":              {[]event{whatever, retries1}, none, none},
		"ALostFailureMayBeTheEnd":    {[]event{whatever, lost(retries1)}, 20, none},
		"ALostRecoveryMayBeTheEnd":   {[]event{whatever, lost(event{op: store.OpRecover})}, 20, none},
		"CancelIsAnEnd":              {[]event{whatever, cancel1}, 20, none},
		"CancelledAndNeeded":         {[]event{two, cancel1, ack2}, none, 20},
		"DeletedAndNeeded":           {[]event{two, dies1, delete1}, none, 30},
		"CancelledForItsOwnNeed":     {[]event{chain, cancel1}, none, 20},
		"CancelledForItsNeedIsAnEnd": {[]event{anyChain, cancel1}, 20, none},
		"BatchIsOpen":                {[]event{batch, ack1, ack2}, none, none},
		"BatchIsSealed":              {[]event{batch, sealed(), ack1, ack2}, 40, none},
		"BatchIsSealedLast":          {[]event{batch, ack1, ack2, sealed()}, 40, none},
		"BatchHasLostAJob":           {[]event{batch, sealed(), ack1, endedBy(store.OpDelete, 2, store.Gone)}, 40, 40},
		"BatchIsSpoiled":             {[]event{batch, sealed(), cancel1, ack2}, none, 30},
		"BatchHasEnded":              {[]event{anyBatch, dies1}, 20, none},
		"ALaterMemberDoesNotCount":   {[]event{anyBatch, added(0, &store.NewJob{Kind: "z", Group: "g"}, 9), dies1}, 30, none},
		"RequeuedLaterIsMet":         {[]event{two, ack1, requeue1, ack2}, 40, none},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{records: recordsOf(c.calls...)}
			h.parts()
			id := int64(len(c.calls[0].items))
			since := h.links.births[id].moment
			assert.Equal(t, c.met, h.links.met(id, since, false), "met")
			assert.Equal(t, c.needed, h.links.needed(id, since.call), "cancelled")
		})
	}
}

// A job that waits from a later call on, or again, needs a later end, where it is certain that the earlier one does not count.
func TestBoundsAfterARequeue(t *testing.T) {
	first := jobs(store.NewJob{}, store.NewJob{After: []store.Wait{{Item: 0}}})
	ack, requeue := endedBy(store.OpAck, 1, store.Succeeded), endedBy(store.OpRequeue, 1, store.Ready)
	h := &history{records: recordsOf(first, ack, requeue, endedBy(store.OpRequeue, 2, store.Ready), ack)}
	h.parts()
	at := h.records[3].moment()
	assert.Equal(t, int64(50), h.links.met(2, at, true), "the end before the requeue does not count")
	assert.Equal(t, int64(20), h.links.met(2, moment{25, 35}, true), "the requeue may come later")

	h = &history{records: recordsOf(first, ack, requeue, endedBy(store.OpDelete, 1, store.Gone), endedBy(store.OpRequeue, 2, store.Ready))}
	h.parts()
	assert.Equal(t, int64(20), h.links.met(2, h.records[4].moment(), true), "a wait for what is gone stays met")
}

// What a job must not be when all is quiet, and groups are sealed.
func TestFlawsAtRest(t *testing.T) {
	h := &history{records: recordsOf(jobs(store.NewJob{Group: "g"}, store.NewJob{After: []store.Wait{{Item: 0}}}), endedBy(store.OpCancel, 9, store.Cancelled))}
	h.parts()
	in := func(state store.State, waits ...store.Waiting) store.JobDetail {
		return store.JobDetail{Job: store.Job{ID: 2, State: state}, Waits: waits}
	}
	because := func(reason string, waits ...store.Waiting) store.JobDetail {
		d := in(store.Cancelled, waits...)
		d.Error = reason
		return d
	}
	member := store.Job{ID: 1, State: store.Succeeded}
	member.Extras = member.Extras.WithGroup("g")
	r := rest{sealed: true, jobs: map[int64]store.JobDetail{1: {Job: member}, 3: {Job: store.Job{ID: 3, State: store.Failed}}}}

	for name, c := range map[string]struct {
		job  store.JobDetail
		flaw string
	}{
		"Free":               {in(store.Ready), ""},
		"Blocked":            {in(store.Blocked, store.Waiting{ID: 3}), ""},
		"ShownMet":           {in(store.Blocked, store.Waiting{ID: 3, Met: true}), "is blocked although its waits are met"},
		"Succeeded":          {in(store.Blocked, store.Waiting{ID: 1}), "is blocked although its waits are met"},
		"OneOfTwo":           {in(store.Blocked, store.Waiting{ID: 1}, store.Waiting{ID: 3}), ""},
		"Ended":              {in(store.Blocked, store.Waiting{ID: 3, Any: true}), "is blocked although its waits are met"},
		"Gone":               {in(store.Blocked, store.Waiting{ID: 4, Any: true}), "is blocked although its waits are met"},
		"GoneAndNeeded":      {in(store.Blocked, store.Waiting{ID: 4}), ""},
		"GroupSucceeded":     {in(store.Blocked, store.Waiting{Group: "g"}), "is blocked although its waits are met"},
		"NeededIsCancelled":  {in(store.Blocked, store.Waiting{ID: 5, State: store.Cancelled}), "is blocked although what it needs is cancelled"},
		"RanUnmet":           {in(store.InFlight, store.Waiting{ID: 3}), "is in_flight although a wait of it is not met"},
		"RanMet":             {in(store.InFlight, store.Waiting{ID: 3, Met: true}), ""},
		"CancelledByPeople":  {in(store.Cancelled, store.Waiting{ID: 3}), ""},
		"CancelledForIt":     {because("job 9, which it needs, was cancelled", store.Waiting{ID: 9}), ""},
		"CancelledForOthers": {because("job 9, which it needs, was cancelled", store.Waiting{ID: 3}), "is cancelled because of what it does not need, or what nobody has cancelled"},
		"CancelledForLive":   {because("job 3, which it needs, was cancelled", store.Waiting{ID: 3}), "is cancelled because of what it does not need, or what nobody has cancelled"},
		"CancelledForAny":    {because("job 9, which it needs, was cancelled", store.Waiting{ID: 9, Any: true}), "is cancelled because of what it does not need, or what nobody has cancelled"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.flaw, r.flawOf(c.job, h.links)) })
	}
}

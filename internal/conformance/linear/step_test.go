package linear

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/store"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC)

// Seconds after the epoch, so that histories read like a diary.
type second int64

func (s second) time() time.Time { return epoch.Add(time.Duration(s) * time.Second) }

var (
	single   = &store.NewJob{Kind: "single", MaxRetries: 1, Backoff: store.Backoff{Base: time.Second, Cap: time.Second}}
	delayed  = &store.NewJob{Kind: "delayed", Delay: delay}
	live     = &store.NewJob{Kind: "live", UniqueKey: "key"}
	windowed = &store.NewJob{Kind: "windowed", UniqueKey: "key", UniqueFor: window}
)

func added(at second, asked *store.NewJob, id int64) event {
	it := item{job: asked, Enqueued: store.Enqueued{ID: id, State: store.Ready}}
	return event{op: opEnqueue, now: exactly(at.time()), items: []item{it}}
}

func duplicate(at second, asked *store.NewJob, of int64, state store.State) event {
	e := added(at, asked, of)
	e.items[0].State, e.items[0].Duplicate = state, true
	return e
}

// byID is a call on a job.
func byID(op store.Op, at second, id int64, status store.Status) event {
	return event{op: op, now: exactly(at.time()), id: id, length: map[store.Op]time.Duration{store.OpClaim: ttl, store.OpExtend: ttl}[op], status: status}
}

// showing says what the answer showed: no next for a state without.
func (e event) showing(state store.State, token int64, next ...second) event {
	e.seen = sight{state: state, token: token}
	for _, n := range next {
		e.seen.next = n.time()
	}
	return e
}

func claimed(at second, token int64) event {
	return byID(store.OpClaim, at, 1, store.StatusOK).showing(store.InFlight, token, at+10)
}

func recovered(at second, token int64) event {
	return byID(store.OpRecover, at, 1, store.StatusOK).showing(store.Failed, token, at+1)
}

// under is a call on job 1 under the token of its first claim.
func under(op store.Op, at second, status store.Status) event {
	e := byID(op, at, 1, status)
	e.token = 1
	return e
}

// got is a Get of a job that was claimed so often.
func got(at second, id int64, claims int) event {
	e := byID(opGet, at, id, store.StatusOK)
	e.seen.runs = claims
	return e
}

// waiting is a Get of a job that was never claimed, with its row.
func waiting(at second, asked *store.NewJob, id int64, enqueued second) event {
	e := got(at, id, 0)
	e.seen = sightOfRow(asked.Row(id, enqueued.time()))
	return e
}

// held is a Get of job 1 under its first lease, with its row.
func held(at second, asked *store.NewJob, claimed second) event {
	row := asked.Row(1, second(0).time())
	row.State, row.Token, row.Attempts, row.ClaimedAt, row.LeaseExpiresAt = store.InFlight, 1, 1, claimed.time(), second(10).time()
	e := got(at, 1, 1)
	e.seen = sightOfRow(row)
	return e.runs(1)
}

func (e event) runs(n int) event { e.seen.runs = n; return e }

// lost is the event as it enters a history when its answer got lost.
func lost(e event) event {
	e.lost, e.now.hi, e.status, e.seen = true, second(1000).time().UnixMicro(), "", sight{}
	return e
}

// while is the event with a clock that moved during its call.
func (e event) while(from, to second) event {
	e.now = span{from.time().UnixMicro(), to.time().UnixMicro()}
	return e
}

// history makes operations of groups of events: those of a group overlap, and groups follow each other.
func historyOf(groups ...[]event) []porcupine.Operation {
	var ops []porcupine.Operation
	for i, group := range groups {
		for _, e := range group {
			op := porcupine.Operation{Input: &e, Call: int64(2 * i), Return: int64(2*i + 1)}
			if e.lost {
				op.Return = never
			}
			ops = append(ops, op)
		}
	}
	return ended(ops)
}

func one(e event) []event { return []event{e} }

func TestHistories(t *testing.T) {
	const legal, illegal = porcupine.Ok, porcupine.Illegal
	enqueue, claim := one(added(0, single, 1)), one(claimed(0, 1))
	ack := under(store.OpAck, 1, store.StatusOK).showing(store.Succeeded, 1)
	inFlight := got(2, 1, 1).showing(store.InFlight, 1, 10).runs(1)
	succeeded := got(2, 1, 1).showing(store.Succeeded, 1).runs(1)

	for name, c := range map[string]struct {
		want    porcupine.CheckResult
		history []porcupine.Operation
	}{
		"WorkedOff":                 {legal, historyOf(enqueue, claim, one(ack), one(succeeded))},
		"ClaimedBeforeEnqueued":     {illegal, historyOf(claim, enqueue)},
		"ClaimedWhileEnqueued":      {legal, historyOf(append(claim, enqueue...))},
		"ClaimedBeforeDue":          {illegal, historyOf(one(added(0, delayed, 1)), one(claimed(1, 1)))},
		"ClaimedWhenDue":            {legal, historyOf(one(added(0, delayed, 1)), one(claimed(2, 1)))},
		"OneTokenTwice":             {illegal, historyOf(enqueue, append(claim, claim...))},
		"OneTokenTwiceLater":        {illegal, historyOf(enqueue, claim, one(recovered(10, 2)), one(claimed(20, 1)))},
		"ClaimedWithoutRecovery":    {illegal, historyOf(enqueue, claim, one(claimed(20, 2)))},
		"DeadClaimed":               {illegal, historyOf(enqueue, claim, one(under(store.OpNever, 1, store.StatusOK).showing(store.Failed, 1)), one(claimed(20, 2)))},
		"TokenGrows":                {legal, historyOf(enqueue, claim, one(recovered(10, 2)), one(claimed(20, 3)))},
		"RecoveredBeforeExpiry":     {illegal, historyOf(enqueue, claim, one(recovered(9, 2)))},
		"RecoveredTwice":            {illegal, historyOf(enqueue, claim, []event{recovered(10, 2), recovered(10, 2)})},
		"LateAckAccepted":           {legal, historyOf(enqueue, claim, one(under(store.OpAck, 30, store.StatusOK).showing(store.Succeeded, 1)))},
		"StaleAckRefused":           {legal, historyOf(enqueue, claim, one(recovered(10, 2)), one(under(store.OpAck, 10, store.StatusStale).showing(store.Failed, 2, 11)))},
		"StaleAckAccepted":          {illegal, historyOf(enqueue, claim, one(recovered(10, 2)), one(under(store.OpAck, 10, store.StatusOK).showing(store.Succeeded, 2)))},
		"StaleAckOverNewLease":      {illegal, historyOf(enqueue, claim, one(recovered(10, 2)), one(claimed(20, 3)), one(under(store.OpAck, 20, store.StatusOK).showing(store.Succeeded, 3)))},
		"AckAndRecoveryBothWon":     {illegal, historyOf(enqueue, claim, []event{recovered(10, 2), under(store.OpAck, 10, store.StatusOK).showing(store.Succeeded, 1)})},
		"AckRepeated":               {legal, historyOf(enqueue, claim, one(ack), one(ack))},
		"FinishedInTwoWays":         {illegal, historyOf(enqueue, claim, one(ack), one(under(store.OpRelease, 2, store.StatusOK).showing(store.Succeeded, 1)))},
		"ExtendSaysFinished":        {legal, historyOf(enqueue, claim, one(ack), one(under(store.OpExtend, 2, store.StatusFinished).showing(store.Succeeded, 1)))},
		"ExtendRevives":             {illegal, historyOf(enqueue, claim, one(ack), one(under(store.OpExtend, 2, store.StatusOK).showing(store.InFlight, 1, 12)))},
		"BusyChangesNothing":        {legal, historyOf(enqueue, claim, one(under(store.OpExtend, 2, store.StatusBusy)), one(inFlight))},
		"LiveJobNotFound":           {illegal, historyOf(enqueue, one(byID(store.OpCancel, 1, 1, store.StatusNotFound)))},
		"ReadIntoThePast":           {illegal, historyOf(enqueue, claim, one(ack), one(inFlight))},
		"ReadBesideTheChange":       {legal, historyOf(enqueue, claim, []event{ack, inFlight, succeeded})},
		"HistoryMissesAClaim":       {illegal, historyOf(enqueue, claim, one(inFlight.runs(0)))},
		"ClaimedAtFits":             {legal, historyOf(enqueue, claim, one(held(2, single, 0)))},
		"ClaimedAtIsAnother":        {illegal, historyOf(enqueue, claim, one(held(2, single, 1)))},
		"LostAckWasApplied":         {legal, historyOf(enqueue, claim, one(lost(ack)), one(succeeded))},
		"LostAckWasNotApplied":      {legal, historyOf(enqueue, claim, one(lost(ack)), one(inFlight))},
		"LostAckWasAppliedLater":    {legal, historyOf(enqueue, claim, one(lost(ack)), one(inFlight), one(succeeded))},
		"LostAckWasAppliedAndGone":  {illegal, historyOf(enqueue, claim, one(lost(ack)), one(succeeded), one(inFlight))},
		"NobodyAcked":               {illegal, historyOf(enqueue, claim, one(succeeded))},
		"LostClaimTookIt":           {legal, historyOf(enqueue, one(lost(claimed(0, 1))), one(recovered(10, 2)))},
		"LostClaimTookItNot":        {legal, historyOf(enqueue, one(lost(claimed(0, 1))), claim)},
		"LostClaimTookItTwice":      {illegal, historyOf(enqueue, one(lost(claimed(0, 1))), one(recovered(10, 2)), one(recovered(30, 4)))},
		"LostRecoveryTookIt":        {legal, historyOf(enqueue, claim, one(lost(recovered(10, 2))), one(claimed(20, 3)))},
		"NobodyRecovered":           {illegal, historyOf(enqueue, claim, one(claimed(20, 3)))},
		"TwoHolders":                {illegal, historyOf(one(added(0, live, 1)), one(added(1, live, 2)))},
		"TwoHoldersAtOnce":          {illegal, historyOf([]event{added(0, live, 1), added(0, live, 2)})},
		"DuplicateNamesHolder":      {legal, historyOf([]event{added(0, live, 1), duplicate(0, live, 1, store.Ready)})},
		"DuplicateNamesAnother":     {illegal, historyOf([]event{added(0, live, 1), duplicate(0, live, 2, store.Ready)})},
		"DuplicateOfNobody":         {illegal, historyOf(one(duplicate(0, live, 1, store.Ready)))},
		"DuplicateOfALostOne":       {legal, historyOf(one(lost(added(0, live, 1))), one(duplicate(0, live, 1, store.Ready)))},
		"KeyFreedByCancel":          {legal, historyOf(one(added(0, live, 1)), one(byID(store.OpCancel, 1, 1, store.StatusOK).showing(store.Cancelled, 1)), one(added(1, live, 2)))},
		"KeyNotFreedByCancel":       {illegal, historyOf(one(added(0, live, 1)), one(byID(store.OpCancel, 1, 1, store.StatusOK).showing(store.Cancelled, 1)), one(duplicate(1, live, 1, store.Cancelled)))},
		"WindowRuns":                {illegal, historyOf(one(added(0, windowed, 1)), one(added(14, live, 2)))},
		"WindowEnds":                {legal, historyOf(one(added(0, windowed, 1)), one(added(15, live, 2)))},
		"WindowEndsMeanwhile":       {legal, historyOf(one(added(0, windowed, 1)), []event{added(14, live, 2).while(14, 15), duplicate(14, live, 1, store.Ready).while(14, 15)})},
		"WindowEndsAndRunsOn":       {illegal, historyOf(one(added(0, windowed, 1)), one(added(14, live, 2).while(14, 15)), one(duplicate(14, live, 1, store.Ready).while(14, 15)))},
		"WindowStartIsNarrowed":     {illegal, historyOf(one(added(0, windowed, 1).while(0, 2)), one(duplicate(16, live, 1, store.Ready)), one(added(16, live, 2)))},
		"WindowEndIsNarrowed":       {illegal, historyOf(one(added(0, windowed, 1).while(0, 2)), one(added(15, live, 2)), one(waiting(16, windowed, 1, 1)))},
		"WindowEndFits":             {legal, historyOf(one(added(0, windowed, 1).while(0, 2)), one(added(15, live, 2)), one(waiting(16, windowed, 1, 0)))},
		"RequeueTakesTheKeyOfOther": {illegal, historyOf(one(added(0, live, 1)), one(byID(store.OpCancel, 1, 1, store.StatusOK).showing(store.Cancelled, 1)), one(added(1, live, 2)), one(byID(store.OpRequeue, 2, 1, store.StatusOK).showing(store.Ready, 2, 2)))},
		"RequeueIsDuplicate":        {legal, historyOf(one(added(0, live, 1)), one(byID(store.OpCancel, 1, 1, store.StatusOK).showing(store.Cancelled, 1)), one(added(1, live, 2)), one(byID(store.OpRequeue, 2, 1, store.StatusDuplicate).showing(store.Cancelled, 1)))},
		"RequeueTakesTheKey":        {illegal, historyOf(one(added(0, live, 1)), one(byID(store.OpCancel, 1, 1, store.StatusOK).showing(store.Cancelled, 1)), one(byID(store.OpRequeue, 2, 1, store.StatusOK).showing(store.Ready, 2, 2)), one(added(3, live, 2)))},
		"RescheduledIsClaimedEarly": {legal, historyOf(one(added(0, delayed, 1)), one(byID(store.OpReschedule, 1, 1, store.StatusOK).showing(store.Ready, 1, 1)), one(claimed(1, 2)))},
		"RescheduleKeepsTheToken":   {illegal, historyOf(one(added(0, delayed, 1)), one(byID(store.OpReschedule, 1, 1, store.StatusOK).showing(store.Ready, 0, 1)), one(claimed(1, 1)))},
		"RescheduleWhenDue":         {legal, historyOf(enqueue, one(byID(store.OpReschedule, 1, 1, store.StatusOK).showing(store.Ready, 0, 0)), one(claimed(1, 1)))},
		"RescheduleMovesADueJob":    {illegal, historyOf(enqueue, one(byID(store.OpReschedule, 1, 1, store.StatusOK).showing(store.Ready, 1, 1)))},
		"RescheduledInFlight":       {illegal, historyOf(enqueue, claim, one(byID(store.OpReschedule, 1, 1, store.StatusOK).showing(store.InFlight, 2, 1)))},
		"RescheduleEndsARepeat":     {illegal, historyOf(enqueue, claim, one(under(store.OpSnooze, 1, store.StatusOK).showing(store.Ready, 1, 1)), one(byID(store.OpReschedule, 0, 1, store.StatusOK).showing(store.Ready, 2, 0)), one(under(store.OpSnooze, 1, store.StatusOK).showing(store.Ready, 2, 0)))},
		"LostRescheduleWasApplied":  {legal, historyOf(one(added(0, delayed, 1)), one(lost(byID(store.OpReschedule, 1, 1, store.StatusOK))), one(claimed(1, 2)))},
	} {
		t.Run(name, func(t *testing.T) {
			got := porcupine.CheckOperationsTimeout(specification, c.history, timeout)
			assert.Equal(t, c.want, got, part{ops: c.history}.listing(nil))
		})
	}
}

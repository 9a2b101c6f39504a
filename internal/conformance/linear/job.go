package linear

import (
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A job is one job of the sequential store, the specification that histories are held against. Times are spans, for not
// every answer tells the time it used; a later answer that shows one narrows it.
type job struct {
	id       int64
	asked    *store.NewJob
	phase    store.State // store.Gone when deleted
	token    int64
	ended    store.Op // how the holder of the token ended its lease: ack, fail, snooze or release; or empty
	next     span     // when it is due, or its lease ends
	due      span     // when it was asked to be due, while it is blocked
	enqueued span
	lent     span // when it was claimed last

	spell int64 // the call that has requeued a job that waits for others; zero before

	attempts, retries, claims int
	worker                    string
	result, reason, saved     string
	savedSeq                  int64
}

func newJob(it item, now span) job {
	j := job{id: it.ID, asked: it.job, phase: store.Ready, next: now.plus(it.job.Delay), enqueued: now}
	switch it.State {
	case store.Blocked:
		return j.blocked()
	case store.Cancelled:
		j.phase, j.next, j.reason = store.Cancelled, span{}, neededReason
	}
	return j
}

func (j job) waits() bool { return len(j.asked.After) > 0 }

// blocked is a job that was about to be ready.
func (j job) blocked() job {
	j.phase, j.due, j.next = store.Blocked, j.next, span{}
	return j
}

// unblocked is the job after its last wait was met: due then, or when it was asked to be.
func (j job) unblocked(e *event) (job, store.Status) {
	if j.phase == store.Blocked && j.spell == e.spell {
		j.phase, j.next, j.due = store.Ready, span{j.due.lo, never}, span{}
	}
	return j, store.StatusOK
}

func (j job) terminal() bool {
	return j.phase == store.Succeeded || j.phase == store.Dead || j.phase == store.Cancelled
}

// takesKey says that the job holds its key while it is live, and takes it again when it is requeued.
func (j job) takesKey() bool { return j.asked.UniqueKey != "" && j.asked.UniqueFor == 0 }

// windowEnd is when a job that holds its key for a window loses it.
func (j job) windowEnd() span { return j.enqueued.plus(j.asked.UniqueFor) }

// after is the job after an event that concerns it alone, and the status that the contract gives. The status of a claim or
// recovery that is not possible is empty.
func (j job) after(e *event) (job, store.Status) {
	switch e.op {
	case opGet:
		if !e.lost && e.seen.runs != j.claims {
			return j, "" // each claim is an attempt in the history: no status fits
		}
		return j, store.StatusOK
	case store.OpClaim:
		return j.claimed(e)
	case store.OpRecover:
		return j.recovered(e)
	case store.OpCancel:
		return j.cancelled()
	case store.OpRequeue:
		return j.requeued(e)
	case store.OpUnblock:
		return j.unblocked(e)
	case opCascade:
		return j.cascaded(e)
	case store.OpReschedule:
		return j.rescheduled(e)
	case store.OpDelete:
		return j.deleted()
	default:
		return j.written(e)
	}
}

func (j job) claimed(e *event) (job, store.Status) {
	now, due := e.now.from(j.next.lo)
	if !due || j.phase != store.Ready && j.phase != store.Retrying {
		return j, ""
	}
	j.phase, j.next, j.lent, j.worker = store.InFlight, now.plus(e.length), now, e.worker
	j.token, j.ended, j.savedSeq = j.token+1, "", 0
	j.attempts++
	j.claims++
	return j, store.StatusOK
}

func (j job) recovered(e *event) (job, store.Status) {
	now, expired := e.now.from(j.next.plus(e.length).lo)
	if !expired || j.phase != store.InFlight {
		return j, ""
	}
	j.token++
	return j.failed(now, expiredReason, false, 0, false), store.StatusOK
}

func (j job) cancelled() (job, store.Status) {
	switch j.phase {
	case store.Cancelled:
		return j, store.StatusOK
	case store.Succeeded, store.Dead:
		return j, store.StatusWrongState
	}
	j.phase, j.next, j.token, j.ended = store.Cancelled, span{}, j.token+1, ""
	j.due = span{}
	return j, store.StatusOK
}

// cascaded is the job after one that it needs has ended without success.
func (j job) cascaded(e *event) (job, store.Status) {
	if j.phase != store.Blocked || j.spell != e.spell {
		return j, store.StatusOK
	}
	j, status := j.cancelled()
	j.reason = neededReason
	return j, status
}

// requeued is the job ready or, if it waits for others, blocked, unless it was seen ready. Without an answer it is blocked at first.
func (j job) requeued(e *event) (job, store.Status) {
	if !j.terminal() {
		return j, store.StatusWrongState
	}
	if j.phase == store.Succeeded {
		j.saved = ""
	}
	j.phase, j.next, j.token, j.ended = store.Ready, e.now, j.token+1, ""
	j.retries, j.result, j.reason = 0, "", ""
	if !j.waits() {
		return j, store.StatusOK
	}
	if j.spell = e.spell; e.lost || e.seen.state == store.Blocked {
		return j.blocked(), store.StatusOK
	}
	if e.early {
		return j, ""
	}
	return j, store.StatusOK
}

// rescheduled is the job that is due now. If it was due already, it does not change, and its token shows that.
func (j job) rescheduled(e *event) (job, store.Status) {
	if j.phase != store.Ready && j.phase != store.Retrying {
		return j, store.StatusWrongState
	}
	if !e.lost && e.seen.token == j.token {
		if _, due := e.now.from(j.next.lo); !due {
			return j, ""
		}
		return j, store.StatusOK
	}
	now, early := e.now.upTo(j.next.hi - 1)
	if !early {
		return j, ""
	}
	j.next, j.token, j.ended = now, j.token+1, ""
	return j, store.StatusOK
}

func (j job) deleted() (job, store.Status) {
	if !j.terminal() {
		return j, store.StatusWrongState
	}
	j.phase, j.next = store.Gone, span{}
	return j, store.StatusOK
}

// written is the job after its holder, or somebody who thinks so, has used the lease.
func (j job) written(e *event) (job, store.Status) {
	switch {
	case e.op == store.OpExtend && j.phase == store.Cancelled:
		return j, store.StatusCancelled
	case e.token != j.token:
		return j, store.StatusStale
	case j.phase == store.InFlight:
		return j.writtenByHolder(e), store.StatusOK
	case e.op == store.OpExtend && j.ended != "":
		return j, store.StatusFinished
	case j.ended != "" && j.ended == way(e.op):
		return j, store.StatusOK
	default:
		return j, store.StatusStale
	}
}

func (j job) writtenByHolder(e *event) job {
	switch e.op {
	case store.OpExtend:
		j.next = e.now.plus(e.length)
		return j
	case store.OpSave:
		if e.seq >= j.savedSeq {
			j.saved, j.savedSeq = e.doc, e.seq
		}
		return j
	}
	j.ended = way(e.op)
	switch e.op {
	case store.OpAck:
		j.phase, j.next, j.result, j.reason = store.Succeeded, span{}, e.doc, ""
	case store.OpSnooze, store.OpRelease:
		j.phase, j.next = store.Ready, e.now.plus(e.length)
		if e.op == store.OpRelease {
			j.attempts--
		}
	default:
		j = j.failed(e.now, e.doc, e.op == store.OpAfter, e.length, e.op == store.OpNever)
	}
	return j
}

// way is the way of ending a lease that the operation belongs to, and empty for one that ends none.
func way(op store.Op) store.Op {
	switch op {
	case store.OpFail, store.OpNever, store.OpAfter:
		return store.OpFail
	case store.OpAck, store.OpSnooze, store.OpRelease:
		return op
	default:
		return ""
	}
}

func (j job) failed(now span, reason string, after bool, delay time.Duration, never bool) job {
	j.retries++
	j.reason = reason
	if never || j.retries > j.asked.MaxRetries {
		j.phase, j.next = store.Dead, span{}
		return j
	}
	if !after {
		delay = j.asked.Backoff.Delay(j.id, j.retries)
	}
	j.phase, j.next = store.Retrying, now.plus(delay)
	return j
}

// agrees narrows the times of the job to what was seen of it, and says whether that is this job at all.
func (j job) agrees(seen sight) (job, bool) {
	if j.phase == store.Gone {
		return j, seen == sight{}
	}
	next, ok := j.next.meet(exactly(seen.next))
	j.next = next
	if !ok || seen.phase() != j.phase || seen.token != j.token {
		return j, false
	}
	if seen.row == nil {
		return j, true
	}
	return j.agreesWithRow(seen.row)
}

func (j job) agreesWithRow(row *store.Job) (job, bool) {
	enqueued, ok := j.enqueued.meet(exactly(row.EnqueuedAt))
	lent, fits := j.lent.meet(exactly(row.ClaimedAt))
	ok = ok && fits && row.Kind == j.asked.Kind && row.Queue == j.asked.Queue && row.UniqueKey == j.asked.UniqueKey &&
		row.Attempts == j.attempts && row.Retries == j.retries && row.Worker == j.worker &&
		string(row.Result) == j.result && reasonOf(row.Error) == j.reason && string(row.Checkpoint) == j.saved &&
		(j.phase != store.InFlight || row.CheckpointSeq == j.savedSeq)
	j.enqueued, j.lent = enqueued, lent
	return j, ok
}

const (
	expiredReason = "lease expired"
	neededReason  = ", which it needs, "
)

// reasonOf leaves of the reason of an expired lease, or of a job that was cancelled for another, what the contract says of it.
func reasonOf(text string) string {
	for _, reason := range []string{expiredReason, neededReason} {
		if strings.Contains(text, reason) {
			return reason
		}
	}
	return text
}

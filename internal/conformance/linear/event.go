package linear

import (
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Calls that are no transition of one job, named beside those that are.
const (
	opEnqueue store.Op = "enqueue"
	opGet     store.Op = "get"
	opSeal    store.Op = "seal"
	opSettle  store.Op = "settle"
	opEnd     store.Op = "end" // of the history: no call

	// A job is cancelled because one that it needs is. Like OpUnblock this is no call. Both come at some time after the call that makes
	// them possible, or never, as a call without an answer does.
	opCascade store.Op = "cascade"
)

// A record is one call, as its client saw it.
type record struct {
	client    int
	op        store.Op
	queue     string // with a claim
	call, ret int64  // the order of calls and returns in the history
	lost      bool   // without an answer: it took effect at some time after call, or never
	events    []event
}

// An event is what a call did to one job, or to one key.
type event struct {
	op   store.Op
	now  span // of the store's clock, during the call
	lost bool // as in its record: what follows the request is not known

	id     int64         // of the job; 0 in a claim or a recovery that was lost: any job
	queue  string        // with a claim
	worker string        // with a claim
	token  int64         // of the lease that was used
	length time.Duration // TTL, delay or grace
	doc    string        // result, error or checkpoint
	seq    int64         // with a save
	items  []item        // with an enqueue
	open   []string      // groups, with an enqueue
	group  string        // with a seal
	spell  int64         // see job.spell, with a requeue and with what others bring about
	early  bool          // with a requeue: the answer says that waits are met which no call can have met

	status store.Status
	seen   sight
}

// An item is one job of an Enqueue, and its answer.
type item struct {
	job *store.NewJob // its kind is a mark that no other item has
	store.Enqueued
	early bool // the answer says that its waits are met, or that it is cancelled for another, and no call can have brought that about
}

// A sight is what an answer shows of a job as it is after the call.
type sight struct {
	state store.State
	token int64
	next  time.Time
	kind  string     // where the answer has it
	row   *store.Job // where the answer has all of it
	runs  int        // how many attempts its history has, by Get
}

func sightOfRow(j store.Job) sight {
	return sight{state: j.State, token: j.Token, next: j.Next(), kind: j.Kind, row: &j}
}

// phase is the phase of the job seen, for an answer shows the state only: Next tells the faces of failed apart.
func (s sight) phase() store.State {
	return store.Job{State: s.state, RetryAt: s.next}.Phase()
}

// A span is a time of which only bounds are known, both included, in microseconds. The zero span is no time.
type span struct{ lo, hi int64 }

func exactly(t time.Time) span {
	if t.IsZero() {
		return span{}
	}
	return span{t.UnixMicro(), t.UnixMicro()}
}

func (s span) plus(d time.Duration) span {
	return span{s.lo + d.Microseconds(), s.hi + d.Microseconds()}
}

// from is the part of s at or after t.
func (s span) from(t int64) (span, bool) { return s.meet(span{t, s.hi}) }

// upTo is the part of s at or before t.
func (s span) upTo(t int64) (span, bool) { return s.meet(span{s.lo, t}) }

// meet is what two spans have in common, and whether that is anything.
func (s span) meet(t span) (span, bool) {
	both := span{max(s.lo, t.lo), min(s.hi, t.hi)}
	return both, both.lo <= both.hi
}

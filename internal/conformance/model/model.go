// Package model is the smallest honest reading of the contract: a slice of jobs behind one mutex, searched from end to end
// and sorted on the spot, so that a reader can check it by eye against package store.
//
// It is the reference of the random test, and it can be broken on purpose: a [Fault] breaks one rule, and the suite must
// notice. A fault that spoils a decision stands in the code as a question to broken; a fault that spoils what is written to
// a row stands in the table of effects.
package model

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
)

var (
	_ store.Store          = (*Store)(nil)
	_ store.PolicyKeeper   = (*Store)(nil)
	_ store.Registry       = (*Store)(nil)
	_ store.Fencer         = (*Store)(nil)
	_ store.ScheduleKeeper = (*Store)(nil)
	_ store.ActivityKeeper = (*Store)(nil)
)

// A Store keeps its jobs in a slice. It is for tests: it forgets them when the process ends.
type Store struct {
	clk    clock.Clock
	faults map[Fault]bool

	mu       sync.Mutex // guards what follows; a call holds it from beginning to end
	closed   bool
	latest   time.Time // the latest now
	jumped   bool      // the clock has gone back since a recovery has seen all leases
	jobs     []job     // by rising id
	nextID   int64
	epoch    int64
	given    []int64 // ids that the next Enqueue must give, see GiveIDs
	windows  []window
	requests []request
	paused   map[string]bool
	policies map[string]store.Policy
	workers  map[string]store.Worker
	left     map[string]bool // workers that have left once

	claims    map[string][]claimed // by queue, as long as they count for its rate
	limitedAt time.Time            // when a policy was set, for LimitForgetsOlder and KeyLimitForgetsOlder
	early     map[store.Lease]bool // jobs that were not due when a claim looked at them, with their tokens, for KeyForgetsEarlyJobs and FairForgetsEarlyJobs
	stale     map[store.Lease]bool // jobs that had expired when a claim looked at them, with their tokens, for KeyForgetsExpired
	firsts    map[place]int64      // the first job of each lane when a claim looked at it, for KeyGoneHidesLane; a place has its queue and the number of the lane
	reached   map[place]job        // the last job that was claimed from each line, for KeyHidesLateJobs and FairHidesLateJobs

	turns      map[place]turn  // where the keys of fair queues stand in line
	claimCount int             // how many jobs were claimed from fair queues
	followed   []int64         // see Follow
	wasFair    map[string]bool // queues that are fair, or were once

	wasOrdered map[string]bool // queues that are ordered, or were once

	schedules map[string]store.Schedule
	revision  int64 // of the latest change of a schedule

	activity []store.Activity // what was added, each with its minute

	ends  []ending // of jobs, which those that wait have not all heard of
	count int      // of all ends that there were

	settled int // the count at the latest Settle

	opened  map[string]time.Time // groups that are open, with when they were opened
	coming  map[string]bool      // groups in which there are jobs of the present Enqueue
	before  []job                // as they were when the present call began, for GroupsSeenBefore and WaitsSeenBefore
	written map[int64]bool       // jobs that it has changed since, likewise
	late    []job                // jobs of the present Enqueue that spoil their groups at its end, for SpoiledByCallUnseen
	spoiled map[string]bool      // groups of which a job was cancelled, or deleted when it was dead
}

// A job is a row with what the contract makes the store remember beside it.
type job struct {
	store.Job
	lent    time.Duration // how long its lease was when it was given or extended
	endedBy store.Op      // how the holder of the lease with the job's token ended it, see wayOf; empty if it did not
	history []store.Attempt
	waits   []wait

	requeued bool // it was, once
}

// New makes an empty store that takes its time from clk and has the faults.
func New(clk clock.Clock, faults ...Fault) *Store {
	s := &Store{
		clk: clk, faults: map[Fault]bool{}, nextID: 1,
		paused: map[string]bool{}, policies: map[string]store.Policy{}, claims: map[string][]claimed{}, workers: map[string]store.Worker{}, left: map[string]bool{},
		schedules: map[string]store.Schedule{}, firsts: map[place]int64{}, reached: map[place]job{}, turns: map[place]turn{}, wasFair: map[string]bool{}, wasOrdered: map[string]bool{}, early: map[store.Lease]bool{}, stale: map[store.Lease]bool{}, opened: map[string]time.Time{}, spoiled: map[string]bool{},
	}
	for _, f := range faults {
		s.faults[f] = true
	}
	return s
}

// GiveIDs makes the next Enqueue number its new jobs so, as far as the ids last: the model can follow a store whose ids
// have gaps. Ids must grow from call to call.
func (s *Store) GiveIDs(ids ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given = slices.Clone(ids)
}

// Close is part of the contract.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// broken says whether the store has the fault.
func (s *Store) broken(f Fault) bool { return s.faults[f] }

// call is what all calls have in common: one at a time, each refuses a closed store, a context that has ended and a request
// that breaks a limit, in this order, and has one now.
func call[T any](ctx context.Context, s *Store, refused error, do func(now time.Time) (T, error)) (answer T, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && !s.broken(CloseIgnored) {
		return answer, store.ErrClosed
	}
	if err := ctx.Err(); err != nil && !s.broken(ContextIgnored) {
		return answer, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	now := s.now()
	if refused != nil {
		return answer, refused
	}
	s.lookAtTurns(now, 0)
	if s.broken(GroupsSeenBefore) || s.broken(WaitsSeenBefore) {
		before := slices.Clone(s.jobs)
		s.letOthersIn()
		s.before, s.written = before, map[int64]bool{}
	}
	ends := s.count
	defer func() {
		if s.count > max(ends, s.settled) { // what a Settle leaves is for the next one
			s.hear(s.perCall(), now)
		}
	}()
	return do(now)
}

// change is a call that answers nothing.
func change(ctx context.Context, s *Store, refused error, do func(now time.Time) error) error {
	_, err := call(ctx, s, refused, func(now time.Time) (struct{}, error) { return struct{}{}, do(now) })
	return err
}

func (s *Store) now() time.Time {
	now := store.Truncate(s.clk.Now())
	if s.broken(TimeTooFine) {
		now = s.clk.Now().UTC()
	}
	back := s.latest.Sub(now)
	most := store.MaxSetBack
	if s.broken(TimeFollowsEarly) {
		most -= store.Resolution
	}
	switch {
	case back <= 0, s.broken(TimeStepsBack):
		s.latest = now
	case back > most && !s.broken(TimeStandsStill):
		s.latest, s.jumped = now, true
	}
	return s.latest
}

// unless is the error, but for a fault that overlooks it.
func (s *Store) unless(overlooked Fault, err error) error {
	if s.broken(overlooked) {
		return nil
	}
	return err
}

// letOthersIn is how a fault forgets to lock: other calls may run before the present one goes on with what it read.
func (s *Store) letOthersIn() {
	s.mu.Unlock()
	for range 3 {
		runtime.Gosched()
	}
	s.mu.Lock()
}

// index is the place of the job, or -1.
func (s *Store) index(id int64) int {
	return slices.IndexFunc(s.jobs, func(j job) bool { return j.ID == id })
}

// find returns a copy of the job.
func (s *Store) find(id int64) (job, bool) {
	i := s.index(id)
	if i < 0 {
		return job{}, false
	}
	return s.jobs[i], true
}

// those are the jobs of which it is true, by rising id.
func (s *Store) those(is func(job) bool) []job {
	return slices.DeleteFunc(slices.Clone(s.jobs), func(j job) bool { return !is(j) })
}

// write puts the job, as the operation has made it, in the place of what it was before, and returns it.
func (s *Store) write(op store.Op, before, after job) job {
	s.spoil(op, before, &after)
	ends := !before.Terminal() && after.Terminal()
	if ends && s.broken(GroupNamedFirst) {
		s.leaves(after, after.Phase())
	}
	if ends && !(op == store.OpRecover && s.broken(RecoveredTellsNobody)) {
		s.noteEnd(after, after.Phase())
	}
	if before.State == store.InFlight && after.Phase() == store.Retrying && s.broken(FailureMeets) {
		s.noteEnd(after, store.Succeeded)
	}
	if i := s.index(after.ID); i >= 0 {
		s.jobs[i] = after
	}
	s.wrote(after.ID)
	s.lookAtTurns(s.latest, after.ID)
	if ends && !s.broken(GroupNamedFirst) {
		s.leaves(after, after.Phase())
	}
	if s.broken(SpoiledForNow) && before.State == store.Cancelled && !after.Terminal() {
		delete(s.spoiled, after.Group())
	}
	return after
}

// wrote notes that the present call has changed the job.
func (s *Store) wrote(id int64) {
	if s.written != nil {
		s.written[id] = true
	}
}

// asBefore is the job of somebody else as it was when the call began, for a fault.
func (s *Store) asBefore(j job, f Fault) job {
	i := slices.IndexFunc(s.before, func(before job) bool { return before.ID == j.ID && !s.written[j.ID] })
	if i < 0 || !s.broken(f) {
		return j
	}
	return s.before[i]
}

// row is the job as a caller gets it, sharing no slice with the store.
func (s *Store) row(j job) store.Job {
	row := j.Job
	if s.broken(SlicesHandedOut) {
		return row
	}
	row.Payload, row.Tags = bytes.Clone(row.Payload), slices.Clone(row.Tags)
	row.Extras = row.Extras.Clone()
	if s.broken(LimitKeyUnsaid) {
		row.Extras = row.Extras.WithLimitKey("")
	}
	row.Checkpoint, row.Progress, row.Result = bytes.Clone(row.Checkpoint), bytes.Clone(row.Progress), bytes.Clone(row.Result)
	return row
}

// ended is the history with an end to the attempt that runs, if one does.
func (s *Store) ended(j job, ending store.Ending, reason string, now time.Time) []store.Attempt {
	history := slices.Clone(j.history)
	if n := len(history); n > 0 && history[n-1].Ending == store.NotEnded {
		history[n-1].Ending, history[n-1].Error, history[n-1].EndedAt = ending, reason, now
	}
	return history
}

// missing is the outcome for a job that does not exist.
func (s *Store) missing(id int64) store.Outcome {
	if s.broken(NotFoundIsStale) {
		return store.Outcome{ID: id, Status: store.StatusStale}
	}
	return store.Outcome{ID: id, Status: store.StatusNotFound}
}

// ok is the outcome for a job that stands as the caller wished.
func ok(j job) store.Outcome { return store.OutcomeOf(j.Job, store.StatusOK) }

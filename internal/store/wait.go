package store

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// A KeptWait is a wait as a store keeps it beside the job that waits. Its methods decide what an end of the other job means for it.
type KeptWait struct {
	On    int64  // id of the job that it waits for, or zero if it waits for a group
	Group string // name of the group
	Any   bool   // see Wait.Any
	Met   bool   // see Waiting.Met; of a group, only since the job that waits became ready
	From  int64  // least token with which an end of that job counts; of a group, not zero if it was spoiled when the job was requeued
}

// An End is how a job ended, with the token that it had then.
type End struct {
	ID    int64 // of the job
	Token int64 // that it had then
	As    State // Succeeded, Dead or Cancelled, or Gone if it was deleted when it was dead
}

// EndOf returns how the job ended, or false if it has not.
func EndOf(j *Job) (End, bool) { return End{j.ID, j.Token, PhaseOf(j)}, TerminalOf(j) }

// GoneOf returns the end of a job that is deleted, or false if it was not dead: what has succeeded or was cancelled is beyond that.
func GoneOf(j *Job) (End, bool) { return End{j.ID, j.Token, Gone}, PhaseOf(j) == Dead }

// needed says of an end that what needs the success of the job will never get it.
func (e End) needed() bool { return e.As == Cancelled || e.As == Gone }

// Reason is the error of a job that was cancelled because of the end.
func (e End) Reason() string {
	what := "was cancelled"
	if e.As == Gone {
		what = "was deleted"
	}
	return fmt.Sprintf("job %d, which it needs, %s", e.ID, what)
}

// look sets the wait as the other job is now, or nil if that no longer exists. It returns an end that the wait can not outlive.
func (w *KeptWait) look(on *Job) (e End, fatal bool) {
	if on == nil {
		w.Met, w.From = w.Met || w.Any, math.MaxInt64
		return End{ID: w.On, As: Gone}, !w.Met
	}
	e, ended := EndOf(on)
	w.Met = ended && (w.Any || e.As == Succeeded)
	w.From = on.Token
	fatal = !w.Met && ended && e.needed()
	if fatal {
		w.From++ // a requeue must not be undone by what was before it
	}
	return e, fatal
}

// hear takes an end of the other job into account. It returns whether what waits must be cancelled.
func (w *KeptWait) hear(e End) (cancels bool) {
	switch {
	case w.Met || e.Token < w.From:
		return false
	case w.Any || e.As == Succeeded:
		w.Met = true
		return false
	default:
		return e.needed()
	}
}

// unmet reports whether a job with these waits waits for another job. It may wait for groups as well.
func unmet(waits []KeptWait) bool {
	return slices.ContainsFunc(waits, func(w KeptWait) bool { return w.Group == "" && !w.Met })
}

// Awaits are what a store knows of the jobs and groups that others wait for, at one moment.
type Awaits struct {
	Job   func(id int64) *Job           // a job as it is now, or nil; what it returns need only last until its next call
	Group func(name string) GroupStatus // a group as it is now
}

// meet meets the waits for groups if all waits are over, and reports whether they are.
func (a Awaits) meet(waits []KeptWait) bool {
	if unmet(waits) {
		return false
	}
	for _, w := range waits {
		if w.Group != "" && !a.Group(w.Group).meets(w.Any) {
			return false
		}
	}
	for i := range waits {
		waits[i].Met = true
	}
	return true
}

// spoiled returns the name of a group whose success a job with these waits needs and will never get: of the group, or of any if that is
// empty.
func (a Awaits) spoiled(group string, waits []KeptWait) (name string, is bool) {
	for _, w := range waits {
		if w.Group != "" && (group == "" || group == w.Group) && !w.Any && w.From == 0 && a.Group(w.Group).Spoiled {
			return w.Group, true
		}
	}
	return "", false
}

// KeptWaits returns the waits of a new job. The argument item returns the id of an earlier item of the call: its own, or that of the
// job that holds its unique key.
func (n NewJob) KeptWaits(item func(i int) int64) []KeptWait {
	kept := make([]KeptWait, len(n.After))
	for i, w := range n.After {
		kept[i] = KeptWait{On: w.ID, Group: w.Group, Any: w.Any}
		if w.ID == 0 && w.Group == "" {
			kept[i].On = item(w.Item)
		}
	}
	return kept
}

// Begin decides whether a new job is ready, blocked, or cancelled because a job that it needs is, or a group that it needs is spoiled.
func (j *Job) Begin(waits []KeptWait, on Awaits, now time.Time) {
	reason := ""
	for i := range waits {
		if w := &waits[i]; w.Group == "" {
			if e, fatal := w.look(on.Job(w.On)); fatal && reason == "" {
				reason = e.Reason()
			}
		}
	}
	if name, is := on.spoiled("", waits); is && reason == "" {
		reason = spoiledReason(name)
	}
	switch {
	case reason != "":
		j.State, j.FinishedAt, j.Error = Cancelled, now, reason
	case !on.meet(waits):
		j.State = Blocked
	}
}

// LookAgain sets the waits of a job that was requeued as the other jobs and groups are now. It reports whether one of them is not met, so
// that the job must be blocked.
func LookAgain(waits []KeptWait, on Awaits) (blocked bool) {
	for i := range waits {
		w := &waits[i]
		if w.Group == "" {
			w.look(on.Job(w.On))
			continue
		}
		w.Met, w.From = false, 0
		if on.Group(w.Group).Spoiled {
			w.From = math.MaxInt64
		}
	}
	return !on.meet(waits)
}

// Hear takes an end of a job that it waits for into account. It returns whether the job or one of its waits has changed.
func (r *Record) Hear(waits []KeptWait, e End, on Awaits, now time.Time) (changed bool) {
	var cancels bool
	for i := range waits {
		w := &waits[i]
		if w.On != e.ID {
			continue
		}
		met := w.Met
		cancels = w.hear(e) || cancels
		changed = changed || w.Met != met
	}
	switch {
	case r.State != Blocked:
	case cancels:
		r.cancelFor(e.Reason(), now)
		return true
	case changed:
		r.unblock(waits, on, now)
	}
	return changed
}

// HearGroup takes into account that a group may have become done or spoiled, or any group if the name is empty. It returns whether the job
// has changed.
func (r *Record) HearGroup(group string, waits []KeptWait, on Awaits, now time.Time) (changed bool) {
	if r.State != Blocked {
		return false
	}
	if name, is := on.spoiled(group, waits); is {
		r.cancelFor(spoiledReason(name), now)
		return true
	}
	return r.unblock(waits, on, now)
}

func (r *Record) cancelFor(reason string, now time.Time) {
	r.Cancel(now)
	r.Error = reason
}

// unblock makes a blocked job ready if its waits are over.
func (r *Record) unblock(waits []KeptWait, on Awaits, now time.Time) bool {
	if !on.meet(waits) {
		return false
	}
	r.State, r.RunAt = Ready, later(now, r.RunAt)
	return true
}

// WaitsOf returns what Get shows of the waits.
func WaitsOf(waits []KeptWait, on Awaits) []Waiting {
	shown := make([]Waiting, len(waits))
	for i, w := range waits {
		shown[i] = Waiting{ID: w.On, Group: w.Group, Any: w.Any, Met: w.Met}
		if w.Group != "" {
			g := on.Group(w.Group)
			shown[i].Met, shown[i].State = w.Met || g.meets(w.Any), g.Phase()
		} else if other := on.Job(w.On); other != nil {
			shown[i].State = PhaseOf(other)
		}
	}
	return shown
}

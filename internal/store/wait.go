package store

import (
	"fmt"
	"math"
	"time"
)

// A KeptWait is a wait as a store keeps it beside the job that waits. Its methods decide what an end of the other job means for it.
type KeptWait struct {
	On   int64 // id of the job that it waits for
	Any  bool  // see Wait.Any
	Met  bool  // see Waiting.Met
	From int64 // least token with which an end of that job counts
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

// AllMet reports whether a job with these waits need not wait.
func AllMet(waits []KeptWait) bool {
	for _, w := range waits {
		if !w.Met {
			return false
		}
	}
	return true
}

// KeptWaits returns the waits of a new job. The argument item returns the id of an earlier item of the call: its own, or that of the
// job that holds its unique key.
func (n NewJob) KeptWaits(item func(i int) int64) []KeptWait {
	kept := make([]KeptWait, len(n.After))
	for i, w := range n.After {
		kept[i] = KeptWait{On: w.ID, Any: w.Any}
		if w.ID == 0 {
			kept[i].On = item(w.Item)
		}
	}
	return kept
}

// Begin decides whether a new job is ready, blocked, or cancelled because a job that it needs is. The argument job returns a job as it
// is now, or nil; what it returns need only last until its next call.
func (j *Job) Begin(waits []KeptWait, job func(id int64) *Job, now time.Time) {
	for i := range waits {
		e, fatal := waits[i].look(job(waits[i].On))
		switch {
		case fatal && j.State != Cancelled:
			j.State, j.FinishedAt, j.Error = Cancelled, now, e.Reason()
		case !waits[i].Met && j.State == Ready:
			j.State = Blocked
		}
	}
}

// LookAgain sets the waits of a job that was requeued as the other jobs are now. It reports whether one of them is not met, so that the
// job must be blocked.
func LookAgain(waits []KeptWait, job func(id int64) *Job) (blocked bool) {
	for i := range waits {
		waits[i].look(job(waits[i].On))
	}
	return !AllMet(waits)
}

// Hear takes an end of a job that it waits for into account. It returns whether the job or one of its waits has changed.
func (r *Record) Hear(waits []KeptWait, e End, now time.Time) (changed bool) {
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
		r.Cancel(now)
		r.Error = e.Reason()
		return true
	case changed && AllMet(waits):
		r.State, r.RunAt = Ready, later(now, r.RunAt)
	}
	return changed
}

// WaitsOf returns what Get shows of the waits. The argument job is as that of Begin.
func WaitsOf(waits []KeptWait, job func(id int64) *Job) []Waiting {
	shown := make([]Waiting, len(waits))
	for i, w := range waits {
		shown[i] = Waiting{ID: w.On, Any: w.Any, Met: w.Met}
		if on := job(w.On); on != nil {
			shown[i].State = PhaseOf(on)
		}
	}
	return shown
}

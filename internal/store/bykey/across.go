package bykey

import (
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/trial"
)

// Claims across keys.
//
// Where a limit for each key does not bind, a claim takes the first due jobs of the queue, whatever their keys. So while a queue has more jobs than a claim
// takes, the claim finds them as in a queue without limits. If a store cannot count the jobs in flight of a key, the rows of the keys show what claims before it
// have taken: it counts that as in flight and, if each key has room even so, adds what it takes. If one has no room, it takes nothing, and begins again, by key.
//
// All else it leaves to the claims by key, of which there is one now and then: hints stay, and keys stand where they stood, which is too far in front.

// How many keys may stand too far in front, or have hints alone, since the next claim by key goes through them all, and how many jobs claims may have taken of a
// key according to its row, since each claim writes them all.
const (
	mostPassed = 2000
	mostTaken  = 50
)

// Across says whether the next claim of a store on a queue tries to take jobs across keys.
type Across struct {
	Limit int // MaxPerKey of the queue
	often Often
	trial trial.Trial

	mu     sync.Mutex          // guards the fields below
	byKey  time.Time           // when a claim found jobs by key
	jobs   int                 // that were taken since
	passed map[string]struct{} // keys that stand too far in front
}

// Often says how often a claim by key must come besides. Zero fields mean that none must.
type Often struct {
	Jobs int           // after so many, to read their hints
	Time time.Duration // after so long, in real time, to find what the marks of all jobs have passed because a clock was set back
}

// Under returns what to remember of claims across keys under the policy, where a was remembered before: nothing unless MaxPerKey is its only limit.
func (a *Across) Under(p store.Policy, often Often) *Across {
	if p.MaxPerKey == 0 || p.MaxInFlight > 0 || p.Rate.N > 0 || p.Fair || p.Ordered {
		return nil
	}
	if a == nil || a.Limit != p.MaxPerKey {
		a = &Across{Limit: p.MaxPerKey, often: often, byKey: time.Now(), passed: map[string]struct{}{}}
	}
	return a
}

// Most returns how many jobs of a key claims may have taken according to its row.
func (a *Across) Most() int { return min(a.Limit, mostTaken) }

// Tries reports whether the next claim tries it. Call Took when it has.
func (a *Across) Tries() bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	must := len(a.passed) >= mostPassed || a.often.Jobs > 0 && a.jobs >= a.often.Jobs || a.often.Time > 0 && time.Since(a.byKey) >= a.often.Time
	if a.trial.Tries() && !must {
		return true
	}
	a.byKey, a.jobs = time.Now(), 0
	clear(a.passed)
	return false
}

// Took notes of which keys the jobs are that the claim has taken. If it has taken none, the next ones do not try, more of them each time. Took reports whether
// this is so because of this claim: others may have tried at the same time.
func (a *Across) Took(jobs []store.Job) (vain bool) {
	if len(jobs) == 0 {
		return a.trial.Vain()
	}
	a.trial.Well()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.jobs += len(jobs)
	for _, j := range jobs {
		if j.LimitKey() != "" {
			a.passed[j.LimitKey()] = struct{}{}
		}
	}
	return false
}

package server_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// The kinds of jobs, by how their handlers behave before they succeed, if ever.
const (
	quick     = "quick"     // succeeds at once
	flaky     = "flaky"     // returns an error a few times
	hopeless  = "hopeless"  // returns an error every time
	never     = "never"     // asks not to be tried again
	later     = "later"     // asks to be tried again after a while
	snoozing  = "snoozing"  // puts itself off a few times
	panicking = "panicking" // panics a few times
	exiting   = "exiting"   // ends its goroutine a few times
	slow      = "slow"      // works for longer than a lease
	stubborn  = "stubborn"  // ignores a few times that it is told to stop
	overtime  = "overtime"  // takes longer than its timeout a few times
	steps     = "steps"     // saves a checkpoint after each step, and goes on from it
	garbled   = "garbled"   // returns a result that is refused
	rare      = "rare"      // has a handler on some servers only
)

var kinds = []string{
	quick, flaky, hopeless, never, later, snoozing, panicking, exiting, slow, stubborn, overtime, steps, garbled, rare,
}

// A plan is one job of a scenario, and how its handler will behave.
type plan struct {
	store.NewJob
	n     int           // in its payload
	at    time.Duration // when it is enqueued
	work  time.Duration // how long a run takes
	times int           // how many attempts misbehave
	steps int           // that it saves
	early bool          // has its effect outside before its work is over, not after
	last  bool          // is enqueued when all the others have ended

	ofFlow bool  // is enqueued with others
	adds   *plan // that its handler enqueues
	added  bool  // is enqueued by a handler, if that comes to it
}

// lastPlan returns the plan of a job for a server that is left alone at the end.
func lastPlan(queue string, n int) *plan {
	return &plan{NewJob: store.NewJob{Queue: queue, Kind: quick, LimitKey: limitKeys[0], Payload: fmt.Appendf(nil, `{"n":%d}`, n)}, n: n, last: true}
}

func newPlan(d *rand.Rand, n int) *plan {
	p := &plan{
		NewJob: store.NewJob{
			Queue: queues[d.IntN(len(queues))], Kind: kinds[d.IntN(len(kinds))], Payload: fmt.Appendf(nil, `{"n":%d}`, n),
			Priority: d.IntN(5) - 2, MaxRetries: 3 + d.IntN(4),
			Backoff: store.Backoff{
				Base: between(d, 10*time.Millisecond, 200*time.Millisecond), Cap: between(d, 200*time.Millisecond, 600*time.Millisecond), Jitter: d.IntN(101),
			},
		},
		n: n, at: between(d, 0, 2500*time.Millisecond), work: between(d, 0, 40*time.Millisecond), times: 1 + d.IntN(3), early: d.IntN(3) == 0,
	}
	if d.IntN(4) == 0 {
		p.Delay = between(d, time.Millisecond, 2*time.Second)
	}
	if d.IntN(8) == 0 {
		p.UniqueKey = fmt.Sprintf("key %d", d.IntN(2))
	}
	p.misbehave(d)
	if i := d.IntN(2 * len(limitKeys)); i < len(limitKeys) {
		p.LimitKey = limitKeys[i]
	}
	return p
}

// limitKeys are those of every queue. Half of the jobs have none.
var limitKeys = []string{"customer 1", "customer 2"}

func (p *plan) misbehave(d *rand.Rand) {
	switch p.Kind {
	case hopeless:
		p.MaxRetries = d.IntN(3)
	case slow:
		p.work = between(d, 300*time.Millisecond, 3*time.Second)
	case stubborn:
		p.work = between(d, 500*time.Millisecond, 3*time.Second)
		if p.times = 1; d.IntN(2) == 0 {
			p.Timeout = between(d, 50*time.Millisecond, time.Second)
		}
	case overtime:
		p.Timeout = between(d, 50*time.Millisecond, 800*time.Millisecond)
	case steps:
		p.steps = 2 + d.IntN(6)
		p.work = between(d, 10*time.Millisecond, 300*time.Millisecond) // each
	}
}

func (p *plan) String() string {
	return fmt.Sprintf("job %d at %v: %s on %s, work %v, misbehaves %d times, max retries %d, delay %v, timeout %v, unique %q, limit key %q",
		p.n, p.at, p.Kind, p.Queue, p.work, p.times, p.MaxRetries, p.Delay, p.Timeout, p.UniqueKey, p.LimitKey)
}

// wellBehaved returns whether the job may succeed in the end.
func (p *plan) wellBehaved() bool { return p.Kind != hopeless && p.Kind != never && p.Kind != garbled }

// numberOf returns the n of the job's payload, which identifies the job before it has an id.
func numberOf(payload []byte) int {
	var doc struct{ N int }
	if err := json.Unmarshal(payload, &doc); err != nil {
		return -1
	}
	return doc.N
}

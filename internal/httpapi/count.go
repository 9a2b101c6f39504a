package httpapi

import (
	"sync"
	"time"
	"unique"

	"github.com/seed-ed332417/jq/internal/store"
	activities "github.com/seed-ed332417/jq/internal/tally"
)

// A Counter counts what calls of the API do to jobs, after it was committed. Its methods are called from many goroutines, and
// must not block. A repeated call may be counted twice.
type Counter interface {
	// Added counts one new job. Duplicates are not counted.
	Added(queue, kind string)
	// Claimed counts the claimed jobs of a queue.
	Claimed(queue string, jobs int)
	// Finished counts a lease that its holder has ended: succeeded, retrying, dead, snoozed or released. Queue and kind are
	// empty if the job was claimed elsewhere, or long ago.
	Finished(queue, kind, outcome string)
	// Recovered counts expired leases that were ended.
	Recovered(leases []store.Recovered)
	// Settled counts jobs that a Settle of a client has changed.
	Settled(jobs []store.Settled)
	// StaleWrite counts a write that was refused because its lease was lost. Op is ack, nack, extend or save.
	StaleWrite(op string)
	// Refused counts a request that was refused for lack of rights. The reason is unauthorized, if the token is missing or
	// unknown, or forbidden.
	Refused(reason string)
}

// uncounted is the Counter that counts nothing.
type uncounted struct{}

func (uncounted) Added(string, string)            {}
func (uncounted) Claimed(string, int)             {}
func (uncounted) Finished(string, string, string) {}
func (uncounted) Recovered([]store.Recovered)     {}
func (uncounted) Settled([]store.Settled)         {}
func (uncounted) StaleWrite(string)               {}
func (uncounted) Refused(string)                  {}

// maxHeld is how many leases holdings remember. Beyond that they forget the oldest.
const maxHeld = 1 << 16

// holdings remember the queue and the kind of claimed jobs. A call that finishes a job only has its lease, and asking the
// store would cost another call. A lease stays in them after its end, so that a repeated call is not counted twice.
type holdings struct {
	mu     sync.Mutex // guards the fields below
	most   int
	of     map[store.Lease]holding
	leases []store.Lease // a ring of the keys of the map, in the order of the claims
	next   int           // the index of the oldest, once the ring is full
}

type holding struct {
	job   unique.Handle[sort] // there are few different ones
	since time.Time           // the claim, by the clock of the API
	ended bool
}

// A sort is a queue and a kind: counts do not distinguish jobs any further.
type sort struct{ queue, kind string }

func newHoldings(most int) *holdings { return &holdings{most: most, of: map[store.Lease]holding{}} }

func (h *holdings) add(jobs []store.Job, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range jobs {
		lease := jobs[i].Lease()
		if len(h.leases) < h.most {
			h.leases = append(h.leases, lease)
		} else {
			delete(h.of, h.leases[h.next])
			h.leases[h.next] = lease
			h.next = (h.next + 1) % h.most
		}
		h.of[lease] = holding{job: unique.Make(sort{jobs[i].Queue, jobs[i].Kind}), since: now}
	}
}

// queue returns the queue of the lease's job, if it is known.
func (h *holdings) queue(l store.Lease) (string, bool) {
	of, ok := h.sort(l)
	return of.queue, ok
}

// sort returns the sort of the lease's job, if it is known.
func (h *holdings) sort(l store.Lease) (sort, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held, ok := h.of[l]
	if !ok {
		return sort{}, false
	}
	return held.job.Value(), true
}

// end marks the lease as ended. It returns the sort of its job and when it was claimed, if that is known, and whether the lease was
// already ended here.
func (h *holdings) end(l store.Lease) (of sort, since time.Time, again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held, ok := h.of[l]
	if !ok {
		return sort{}, time.Time{}, false
	}
	h.of[l] = holding{job: held.job, since: held.since, ended: true}
	return held.job.Value(), held.since, held.ended
}

// countClaimed remembers and counts the claimed jobs of a queue.
func (a *API) countClaimed(queue string, jobs []store.Job) {
	if len(jobs) == 0 {
		return
	}
	a.held.add(jobs, a.clock.Now())
	a.counter.Claimed(queue, len(jobs))
	for i := range jobs {
		a.tally.Waited(queue, jobs[i].Kind, activities.WaitOf(&jobs[i]))
	}
}

// countFinished counts a lease that its holder has ended. The run took as long as the lease, as far as the API can see.
func (a *API) countFinished(of sort, outcome string, since time.Time) {
	a.counter.Finished(of.queue, of.kind, outcome)
	ran := time.Duration(0)
	if !since.IsZero() {
		ran = a.clock.Since(since)
	}
	switch outcome {
	case WasSucceeded:
		a.tally.Ended(of.queue, of.kind, store.EndSucceeded, store.Succeeded, ran)
	case WasRetrying:
		a.tally.Ended(of.queue, of.kind, store.EndFailed, store.Retrying, ran)
	case WasDead:
		a.tally.Ended(of.queue, of.kind, store.EndFailed, store.Dead, ran)
	case WasSnoozed:
		a.tally.Ended(of.queue, of.kind, store.EndSnoozed, store.Ready, ran)
	}
}

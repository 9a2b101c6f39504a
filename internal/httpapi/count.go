package httpapi

import (
	"sync"
	"unique"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Counter is told what was done to jobs through the API, after it was committed. It is called from many goroutines, and must not
// block. What a caller repeats may be told twice.
type Counter interface {
	// Added is told of each job that was enqueued, duplicates apart.
	Added(queue, kind string)
	// Claimed is told how many jobs of a queue were claimed.
	Claimed(queue string, jobs int)
	// Finished is told of each lease that its holder has ended: succeeded, retrying, dead, snoozed or released. Queue and kind are
	// empty where the job was claimed elsewhere, or long ago.
	Finished(queue, kind, outcome string)
	// Recovered is told of the expired leases that were ended.
	Recovered(leases []store.Recovered)
	// StaleWrite is told of each write that was refused because its lease was lost, by its operation: ack, nack, extend or save.
	StaleWrite(op string)
	// Refused is told of each request that was refused because of who has made it: unauthorized, without a token that is known, or
	// forbidden.
	Refused(reason string)
}

// uncounted is the counter of who wants none.
type uncounted struct{}

func (uncounted) Added(string, string)            {}
func (uncounted) Claimed(string, int)             {}
func (uncounted) Finished(string, string, string) {}
func (uncounted) Recovered([]store.Recovered)     {}
func (uncounted) StaleWrite(string)               {}
func (uncounted) Refused(string)                  {}

// maxHeld is of how many leases it is remembered what their jobs are. Beyond that the oldest are forgotten.
const maxHeld = 1 << 16

// Holdings remember of which queue and kind the claimed jobs are, for who finishes a job names its lease alone, and to ask the
// store would be one more call. A lease stays after its end, so that a repeated call is told apart.
type holdings struct {
	mu     sync.Mutex // guards what follows
	most   int
	of     map[store.Lease]holding
	leases []store.Lease // a ring of those in the map, in the order of their claims
	next   int           // where the oldest stands, once the ring is full
}

type holding struct {
	job   unique.Handle[sort] // of which there are few
	ended bool
}

// A sort of jobs is what counts do not tell apart.
type sort struct{ queue, kind string }

func newHoldings(most int) *holdings { return &holdings{most: most, of: map[store.Lease]holding{}} }

func (h *holdings) add(jobs []store.Job) {
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
		h.of[lease] = holding{job: unique.Make(sort{jobs[i].Queue, jobs[i].Kind})}
	}
}

// queue is that of the job of the lease, if it is known.
func (h *holdings) queue(l store.Lease) (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held, ok := h.of[l]
	if !ok {
		return "", false
	}
	return held.job.Value().queue, true
}

// end is of which sort the job of the lease is, if that is known, and whether the lease was ended here before.
func (h *holdings) end(l store.Lease) (of sort, again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held, ok := h.of[l]
	if !ok {
		return sort{}, false
	}
	h.of[l] = holding{job: held.job, ended: true}
	return held.job.Value(), held.ended
}

func (a *API) countStale(op string, outcomes []store.Outcome) {
	for _, o := range outcomes {
		if o.Status == store.StatusStale {
			a.counter.StaleWrite(op)
		}
	}
}

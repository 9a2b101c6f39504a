package httpapi

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// An Event is something that this server did to a job, told after it was committed. What another process does to the same store
// is not among them. Where calls overlap their events may come in another order: a job can be claimed before it is told that it was
// enqueued.
type Event struct {
	Job   wire.ID `json:"job"`
	Queue string  `json:"queue,omitempty"` // where the server knows it
	Event string  `json:"event"`

	act *act // what the audit tells; nothing else is told then
}

// What is done to jobs. A call that is repeated may be told twice.
const (
	WasEnqueued  = "enqueued"
	WasClaimed   = "claimed"
	WasSucceeded = "succeeded"
	WasRetrying  = "retrying" // it has failed, and will be tried again
	WasDead      = "dead"     // it has failed for good
	WasSnoozed   = "snoozed"
	WasReleased  = "released"
	WasRecovered = "recovered"
	WasCancelled = "cancelled"
	WasRequeued  = "requeued"
	WasDeleted   = "deleted"
)

// RecoveredEvents are what to publish of a recovery: that the lease was ended, and that the job is dead where it is.
func RecoveredEvents(recovered []store.Recovered) []Event {
	var events []Event
	for _, r := range recovered {
		events = append(events, Event{Job: wire.ID(r.ID), Queue: r.Queue, Event: WasRecovered})
		if r.Next.IsZero() {
			events = append(events, Event{Job: wire.ID(r.ID), Queue: r.Queue, Event: WasDead})
		}
	}
	return events
}

// Publish tells those who listen what was done to jobs, outside of the API as well: by the recovery of its process. It waits for
// nobody.
func (a *API) Publish(events ...Event) { a.ring.add(events) }

// events streams what is published. Who comes back with the id of the last event goes on behind it; who has been away for too
// long, or reads too slowly, is told to reset: to read the jobs anew.
func (a *API) events(w *exchange, r *http.Request) error {
	s, err := a.stream(w, r)
	if err != nil {
		return err
	}
	defer s.close()
	if r.Method == http.MethodHead {
		return nil
	}
	at, resumed := a.ring.resume(r.Header.Get("Last-Event-ID"))
	if resumed {
		s.line("id: " + a.ring.id(at) + "\n\n") // for who is cut off before the first event
	} else {
		s.event(a.ring.id(at), "reset", struct{}{})
	}
	for {
		events, next, more, lost := a.ring.since(at)
		if lost {
			s.event(a.ring.id(next), "reset", struct{}{})
		}
		told := s.tell(events)
		if !s.send() {
			return nil
		}
		if at == next && !s.wait(more) || !s.linger(told) {
			return nil
		}
		at = next
	}
}

// tell adds those of the events that the bearer may see, and says how many.
func (s *stream) tell(events []*told) (n int) {
	size := 0
	for _, e := range events {
		size += len(e.text)
	}
	s.text.Grow(size)
	for _, e := range events {
		if s.w.bearer.tells(e.Event) {
			s.text.Write(e.text)
			n++
		}
	}
	return n
}

// A told event is one with what streams say of it, which is written once, however many listen.
type told struct {
	Event
	text []byte // nil until somebody listens
}

// tell writes the text of the event.
func (e *told) tell(id string) {
	if e.act != nil {
		e.text = frame(id, "audit", e.act)
	} else {
		e.text = frame(id, "job", e.Event)
	}
}

// A ring keeps the latest events. Each has a number, and the ring a name, so that those of another process are told apart.
type ring struct {
	name string

	mu     sync.Mutex
	kept   []*told // event n stands at n % len(kept)
	last   uint64  // number of the latest, 0 before the first
	listen chan struct{}
}

func newRing(size int) *ring {
	return &ring{name: rand.Text()[:10], kept: make([]*told, size), listen: make(chan struct{})}
}

func (r *ring) add(events []Event) {
	if len(events) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		r.last++
		r.kept[r.last%uint64(len(r.kept))] = &told{Event: e}
	}
	close(r.listen)
	r.listen = make(chan struct{})
}

func (r *ring) id(n uint64) string { return r.name + "-" + strconv.FormatUint(n, 10) }

// resume is the number behind which to go on: where there is no id, the latest. It fails where the ring has lost what followed.
func (r *ring) resume(id string) (at uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id == "" {
		return r.last, true
	}
	number, ours := strings.CutPrefix(id, r.name+"-")
	at, err := strconv.ParseUint(number, 10, 64)
	if !ours || err != nil || at > r.last || r.last-at > uint64(len(r.kept)) {
		return r.last, false
	}
	return at, true
}

// maxBurst is how many events are sent before the connection is looked at again.
const maxBurst = 100

// since are events behind a number, with the number of the last of them. Where some were lost it is that of the latest. More is
// closed when there are others.
func (r *ring) since(at uint64) (events []*told, next uint64, more <-chan struct{}, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last-at > uint64(len(r.kept)) {
		return nil, r.last, r.listen, true
	}
	next = min(r.last, at+maxBurst)
	events = make([]*told, 0, next-at)
	for n := at + 1; n <= next; n++ {
		e := r.kept[n%uint64(len(r.kept))]
		if e.text == nil {
			e.tell(r.id(n))
		}
		events = append(events, e)
	}
	return events, next, r.listen, false
}

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

// An Event is a change of a job that this server has committed. Changes by other processes are not events here. Events of
// concurrent calls may come in another order than the changes: a job can be reported as claimed before it is reported as
// enqueued.
type Event struct {
	Job   wire.ID `json:"job"`
	Queue string  `json:"queue,omitempty"` // empty if the server does not know it
	Event string  `json:"event"`

	act *act // set if this is an event of the audit, and not of a job
}

// The values of Event.Event. A repeated call may cause a second event.
const (
	WasEnqueued    = "enqueued"
	WasClaimed     = "claimed"
	WasSucceeded   = "succeeded"
	WasRetrying    = "retrying" // it has failed, and will be retried
	WasDead        = "dead"     // it has failed for good
	WasSnoozed     = "snoozed"
	WasReleased    = "released"
	WasRecovered   = "recovered"
	WasCancelled   = "cancelled"
	WasRequeued    = "requeued"
	WasRescheduled = "rescheduled"
	WasReplaced    = "replaced"  // an enqueue has given it another payload
	WasUnblocked   = "unblocked" // the jobs that it waited for have ended
	WasDeleted     = "deleted"
	WasRefused     = "refused" // nothing was changed: somebody has written with a lease that was lost
)

// RecoveredEvents returns the events of a recovery: each lease that was ended, and each job that is dead now.
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

// SettledEvents returns the events of a Settle: each job that is cancelled, and each that no longer waits for others.
func SettledEvents(settled []store.Settled) []Event {
	var events []Event
	for _, s := range settled {
		what := WasUnblocked
		if s.State == store.Cancelled {
			what = WasCancelled
		}
		events = append(events, Event{Job: wire.ID(s.ID), Queue: s.Queue, Event: what})
	}
	return events
}

// Publish sends events to all streams. Use it also for changes outside of the API, such as recovery by its process. It never
// waits.
func (a *API) Publish(events ...Event) { a.ring.add(events) }

// events streams the published events. A client that reconnects with the id of its last event continues after it. A client
// that was away for too long, or reads too slowly, gets a reset event: it must read the jobs again.
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
		s.line("id: " + a.ring.id(at) + "\n\n") // so that a client can resume even before its first event
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

// tell adds the events that the bearer may see, and returns how many.
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

// A told event has its encoded text, so that it is encoded once for all streams.
type told struct {
	Event
	text []byte // nil until a stream needs it
}

// tell encodes the event.
func (e *told) tell(id string) {
	if e.act != nil {
		e.text = frame(id, "audit", e.act)
	} else {
		e.text = frame(id, "job", e.Event)
	}
}

// A ring keeps the latest events. Each event has a number, and the ring has a name, so that ids of another process are
// recognized.
type ring struct {
	name string

	mu     sync.Mutex
	kept   []*told // event n is at n % len(kept)
	last   uint64  // the number of the latest event, 0 before the first
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

// resume returns the number of the event to continue after. Without an id, that is the latest. It fails if the ring no longer
// has the events after the id.
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

// maxBurst is how many events a stream sends before it checks its connection again.
const maxBurst = 100

// since returns events after a number, and the number of the last of them. If some of them are lost, it returns the number of
// the latest event instead. More is closed when there are new events.
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

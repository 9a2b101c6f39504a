package remote

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"mime"
	"net/http"
	"slices"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// A server sends a keepalive every 15 seconds. The pause between attempts to reach it again doubles each time.
const (
	silence    = 45 * time.Second
	shortPause = 100 * time.Millisecond
	longPause  = 5 * time.Second
	unread     = 64 // wake-ups that a slow reader may leave unread before it loses some
)

// Subscribe is part of the contract. It returns once the server listens. If the stream breaks later, the subscription opens
// another one, and then sends the wake-ups that it may have missed.
func (s *Store) Subscribe(ctx context.Context, queues []string) (<-chan store.Wakeup, error) {
	c := post(wire.PathWakeups, checkQueues(queues), wire.Wakeups{Queues: queues}, mostWords)
	if err := s.admit(ctx, c.refused); err != nil {
		return nil, err
	}
	c.reads = true
	sub := &subscription{s: s, call: c, queues: slices.Clone(queues), out: make(chan store.Wakeup, unread)}
	sub.ctx, sub.cancel = s.during(ctx)
	first, err := sub.open()
	if err != nil {
		sub.cancel()
		return nil, s.because(ctx, err)
	}
	if !s.aside(func() { sub.run(first) }) {
		first.close()
		sub.cancel()
		return nil, store.ErrClosed
	}
	return sub.out, nil
}

func checkQueues(queues []string) error {
	for _, q := range queues {
		if err := store.CheckQueue(q); err != nil {
			return err
		}
	}
	return nil
}

// A subscription lasts until its context ends or its store is closed.
type subscription struct {
	s      *Store
	call   call
	queues []string // empty means every queue
	out    chan store.Wakeup
	ctx    context.Context
	cancel func()
}

// A stream is one connection of a subscription.
type stream struct {
	resp   *http.Response
	events *events
	latest event
	ctx    context.Context
	cancel context.CancelCauseFunc
	silent *clock.Timer
	since  time.Time
}

func (st *stream) close() {
	st.silent.Stop()
	st.cancel(nil)
	_ = st.resp.Body.Close()
}

// run passes on wake-ups from one stream after another.
func (sub *subscription) run(st *stream) {
	defer close(sub.out)
	defer sub.cancel()
	for pause := shortPause; ; {
		err := sub.follow(st)
		if sub.s.clock.Since(st.since) > longPause {
			pause = shortPause
		}
		st.close()
		if sub.ctx.Err() != nil {
			return
		}
		sub.s.log.Warn("jq: no wake-ups come from the server, queues are looked at only every so often", "error", advice(err)+err.Error())
		if st, pause = sub.reopen(pause); st == nil {
			return
		}
		sub.s.log.Info("jq: wake-ups come from the server again")
		for _, q := range sub.queues {
			sub.tell(store.Wakeup{Queue: q, Cancelled: true})
		}
		sub.lookAround()
	}
}

// open opens a stream and waits for the server's first event or keepalive.
func (sub *subscription) open() (*stream, error) {
	s := sub.s
	st := &stream{since: s.clock.Now()}
	st.ctx, st.cancel = context.WithCancelCause(sub.ctx)
	st.silent = s.clock.AfterFunc(s.options.Timeout, func() { st.cancel(errSilent) })
	req, err := s.request(st.ctx, sub.call, s.parcel(sub.call))
	if err != nil {
		st.cancel(nil)
		return nil, err
	}
	req.Header.Set("Accept", wire.Events)
	if st.resp, err = s.options.Transport.RoundTrip(req); err == nil {
		if err = begins(st.resp); err == nil {
			st.events = newEvents(st.resp.Body)
			err = sub.next(st)
		}
		if err != nil {
			_ = st.resp.Body.Close()
		}
	}
	if err == nil {
		return st, nil
	}
	ended := why(st.ctx)
	st.silent.Stop()
	st.cancel(nil)
	if said(err) {
		return nil, err
	}
	if ended != nil {
		err = ended
	}
	return nil, lost(err, true, true)
}

// begins returns what is wrong with an answer that should be a stream, or nil.
func begins(resp *http.Response) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode != http.StatusOK:
		return failure(resp)
	case kind != wire.Events:
		return strange(resp, "no stream of events")
	default:
		return nil
	}
}

// next reads one more event. The server must send it before the timer silent ends the stream.
func (sub *subscription) next(st *stream) (err error) {
	if st.latest, err = st.events.next(); err == nil {
		st.silent.Reset(silence)
	}
	return err
}

// follow passes on the events of the stream until it ends.
func (sub *subscription) follow(st *stream) error {
	for {
		if err := sub.pass(st.latest); err != nil {
			return err
		}
		err := sub.next(st)
		if ended := why(st.ctx); ended != nil {
			return ended
		}
		if err != nil {
			return err
		}
	}
}

// pass passes on an event if it is a wake-up.
func (sub *subscription) pass(e event) error {
	if e.name != "wakeup" {
		return nil
	}
	var w wire.Wakeup
	switch err := json.Unmarshal([]byte(e.data), &w); {
	case err != nil:
		return errors.New("an event is no wake-up")
	case w.Queue == "":
		sub.lookAround()
	default:
		sub.tell(store.Wakeup{Queue: w.Queue, Cancelled: w.Cancelled})
	}
	return nil
}

// reopen tries to open another stream until it succeeds. It returns nil if the subscription ends before that.
func (sub *subscription) reopen(pause time.Duration) (*stream, time.Duration) {
	for sub.s.pause(sub.ctx, pause/2+rand.N(pause/2)) {
		pause = min(2*pause, longPause)
		if st, err := sub.open(); err == nil {
			return st, pause
		}
	}
	return nil, pause
}

// lookAround wakes every queue of which a wake-up may have been lost: the queues of the subscription or, if it names none, all
// queues that have due jobs.
func (sub *subscription) lookAround() {
	for _, q := range sub.queues {
		sub.tell(store.Wakeup{Queue: q})
	}
	if len(sub.queues) > 0 {
		return
	}
	counts, err := sub.s.Count(sub.ctx, store.Filter{States: []store.State{store.Ready, store.Retrying}})
	if err != nil {
		return // wake-ups may be lost
	}
	for _, q := range counts.Queues {
		if q.Due > 0 {
			sub.tell(store.Wakeup{Queue: q.Queue})
		}
	}
}

// tell wakes the reader, unless the reader has left too many wake-ups unread.
func (sub *subscription) tell(w store.Wakeup) {
	select {
	case sub.out <- w:
	default:
	}
}

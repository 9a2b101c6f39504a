package server_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// produce enqueues the jobs of one producer, one or several at a time, and repeats each request until it is answered.
func (s *simulation) produce(ctx context.Context, number int) {
	l := s.connect(fmt.Sprintf("producer %d", number))
	d := dice(s.seed, l.name, 0)
	var mine []*plan
	for _, p := range s.plans {
		if p.n%s.producers == number && !p.last && !p.ofFlow {
			mine = append(mine, p)
		}
	}
	for call := 0; len(mine) > 0; call++ {
		batch := mine[:min(len(mine), 1+d.IntN(5))]
		mine = mine[len(batch):]
		pause(ctx, batch[0].at/time.Duration(1+len(mine)))
		req := store.EnqueueRequest{RequestKey: fmt.Sprintf("%s/%d", l.name, call)}
		for _, p := range batch {
			req.Jobs = append(req.Jobs, p.NewJob)
		}
		added := s.enqueue(ctx, l, req)
		for i, a := range added {
			s.answers.Store(batch[i].n, a)
		}
	}
}

// enqueue repeats a request until it is answered: its key makes that safe.
func (s *simulation) enqueue(ctx context.Context, l *link, req store.EnqueueRequest) []store.Enqueued {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		call, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		added, err := l.Enqueue(call, req)
		cancel()
		if err == nil {
			return added
		}
		if !unreachable(err) {
			s.problem(0, "an enqueue was refused: %v", err)
			return nil
		}
		if errors.Is(err, store.ErrInDoubt) {
			s.countNamed("enqueues repeated in doubt")
		}
		pause(ctx, wait)
	}
}

func unreachable(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrInDoubt)
}

// direct makes the events of the scenario happen, each at its time. Long events continue beside the next one.
func (s *simulation) direct(ctx context.Context) {
	for i, e := range s.events {
		pause(ctx, time.Until(s.began.Add(e.at)))
		s.trace(0, "director", string(e.what), fmt.Sprintf("number %d for", e.who), e.lasts)
		l := s.connect(fmt.Sprintf("person %d", i))
		switch e.what {
		case storeDied:
			s.dieFor(e.lasts)
		case partitioned:
			s.withServer(e, func(m *member) { m.link.sever(e.lasts, e.hang) })
		case serverDied:
			s.withServer(e, func(m *member) { s.leave(m, func() { s.die(m, e) }) })
		case serverStopped:
			s.withServer(e, func(m *member) { s.leave(m, func() { s.stop(m, e) }) })
		case queuePaused:
			s.count(e.what)
			s.spawn(func() { s.pauseQueue(ctx, ableLink{l}, e) })
		case jobCancelled:
			s.spawn(func() {
				if s.cancel(ctx, l, e.who); e.hang {
					pause(ctx, e.lasts)
					s.requeue(ctx, l, e.who)
				}
			})
		case jobRequeued:
			s.spawn(func() { s.requeue(ctx, l, e.who) })
		}
	}
}

// dieFor makes the store unreachable for everybody, for so long. It keeps what was committed, as a durable store does.
func (s *simulation) dieFor(d time.Duration) {
	if d == 0 {
		return
	}
	s.count(storeDied)
	s.mu.Lock()
	now := time.Now()
	if s.outage.to.Before(now) {
		s.outage.from = now
	}
	s.outage.to = latest(s.outage.to, now.Add(d))
	outage, links := s.outage, s.links
	s.mu.Unlock()
	for _, l := range links {
		l.cut(outage, false)
	}
}

// latestOutage returns the latest death of the store, and whether it is over.
func (s *simulation) latestOutage() (span, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outage, !s.outage.from.IsZero() && s.outage.to.Before(time.Now())
}

// withServer does something to the server of the event, unless that server already stops.
func (s *simulation) withServer(e event, do func(m *member)) {
	s.mu.Lock()
	m := s.fleet[e.who]
	leaving := m.leaving
	s.mu.Unlock()
	if !leaving {
		s.count(e.what)
		do(m)
	}
}

// leave replaces a server, beside everything else.
func (s *simulation) leave(m *member, how func()) {
	s.mu.Lock()
	m.leaving = true
	s.mu.Unlock()
	s.spawn(how)
}

// pauseQueue pauses a queue for a while. Both calls are repeated until they are answered.
func (s *simulation) pauseQueue(ctx context.Context, l ableLink, e event) {
	insist(ctx, func(ctx context.Context) error { return l.SetPaused(ctx, queues[e.who], true) })
	pause(ctx, e.lasts)
	insist(ctx, func(ctx context.Context) error { return l.SetPaused(ctx, queues[e.who], false) })
}

// cancel cancels a job, if it exists already. A repeat is safe.
func (s *simulation) cancel(ctx context.Context, l *link, number int) {
	if id := s.idOf(number); id != 0 {
		insist(ctx, func(ctx context.Context) error {
			_, err := l.Cancel(ctx, store.Filter{IDs: []int64{id}}, 1)
			return err
		})
	}
}

// requeue makes a job ready again, if it has ended. It makes one call, since a repeat might run the job once more.
func (s *simulation) requeue(ctx context.Context, l *link, number int) {
	if id := s.idOf(number); id != 0 {
		ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		_, err := l.Requeue(ctx, store.Filter{IDs: []int64{id}}, 1)
		if err != nil && !unreachable(err) {
			s.problem(id, "a requeue was refused: %v", err)
		}
	}
}

// idOf returns the id of the job with the number, or zero if its producer does not know it yet.
func (s *simulation) idOf(number int) int64 {
	a, ok := s.answers.Load(number)
	if !ok {
		return 0
	}
	return a.(store.Enqueued).ID
}

// insist repeats a call until it is answered.
func insist(ctx context.Context, call func(context.Context) error) {
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		err := call(once)
		cancel()
		if err == nil {
			return
		}
		pause(ctx, 50*time.Millisecond)
	}
}

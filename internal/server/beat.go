package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// earlyBeatEvery is the least time between two early heartbeats.
const earlyBeatEvery = time.Second

// beatLoop extends every held lease until the last verdict is written. After a failure it tries again sooner, because the lease is still in
// force for a while. In between it extends the leases of the queues in which jobs in flight were cancelled: the answers say which jobs. When
// the store answers again, it extends all at once, because others may recover leases sooner than this server beats.
func (s *Server) beatLoop() {
	next := s.clock.Now().Add(s.o.Lease.Heartbeat)
	for early := s.clock.Now(); s.sleepUntil(s.life, s.cancels.due(next, early), s.cancels.told); {
		began := s.clock.Now()
		var err error
		all := false
		switch {
		case !began.Before(next):
			_, all = s.cancels.take() // this heartbeat covers them
			early = began.Add(earlyBeatEvery)
			err = s.beat(s.book.extendable(func(*Run) bool { return true }))
			next = began.Add(s.o.Lease.Heartbeat) // a slow answer does not delay the next heartbeat
		case !began.Before(early):
			var queues map[string]bool
			queues, all = s.cancels.take()
			if runs := s.book.extendable(func(r *Run) bool { return all || queues[r.Queue] }); len(runs) > 0 {
				early = began.Add(earlyBeatEvery)
				err = s.beat(runs)
			}
		}
		if err != nil && all {
			s.cancels.tellAll() // until one succeeds
		}
		if again := s.clock.Now().Add(s.o.Lease.Heartbeat / 4); err != nil && again.Before(next) {
			next = again
		}
	}
}

// beat extends the leases of the runs once. It gives up a call early enough to make another one within the heartbeat interval, because
// recovery waits for one interval after an outage.
func (s *Server) beat(runs []*Run) error {
	for runs := range slices.Chunk(runs, store.MaxItems) {
		sent := s.clock.Now()
		ctx, cancel := s.call(s.o.Lease.Heartbeat * 2 / 3)
		outcomes, err := s.extend(ctx, runs)
		cancel()
		if s.recordAnswer(sent, err); err != nil {
			s.o.Observer.BeatFailed()
			s.log.Warn("jq: heartbeat failed", "leases", len(runs), "error", err)
			return err
		}
		started, cancelled := s.book.extended(runs, outcomes, sent.Add(s.o.Lease.Duration), s.clock.Now())
		s.cancelHandlers(cancelled, "extend")
		s.launch(started)
	}
	return nil
}

// extend sends one heartbeat for the runs. The committer also calls it, to learn which verdicts are written and which rows are locked.
func (s *Server) extend(ctx context.Context, runs []*Run) ([]store.Outcome, error) {
	leases := make([]store.Lease, len(runs))
	for i, r := range runs {
		leases[i] = r.Lease()
	}
	return s.store.Extend(ctx, leases, s.o.Lease.Duration)
}

// cancels records in which queues jobs in flight were cancelled, until the next heartbeat shows which jobs. It also records that the store
// answers again.
type cancels struct {
	told signal

	mu       sync.Mutex // guards what follows
	queues   map[string]bool
	all      bool   // extend the leases of all queues
	claiming string // the queue of the claim under way, whose jobs no heartbeat extends yet
	again    bool   // it was told of during that claim
}

func newCancels() *cancels { return &cancels{told: newSignal(), queues: map[string]bool{}} }

// tell records that a job of the queue was cancelled in flight.
func (c *cancels) tell(queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queues[queue] = true
	c.again = c.again || queue == c.claiming
	c.told.send()
}

// tellAll records that leases of any queue may be about to be recovered.
func (c *cancels) tellAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = true
	c.told.send()
}

// claim records from which queue the server claims, or that it does not claim if the name is empty. A cancellation that was told of during
// the claim before may be that of a job that it has claimed, so it is told of again.
func (c *cancels) claim(queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.again {
		c.queues[c.claiming] = true
		c.told.send()
	}
	c.claiming, c.again = queue, false
}

// due returns when the next heartbeat is due: at next, or at early if anything was told.
func (c *cancels) due(next, early time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if (c.all || len(c.queues) > 0) && early.Before(next) {
		return early
	}
	return next
}

// take returns the queues whose leases to extend early, or that it is those of all, and forgets what was told.
func (c *cancels) take() (queues map[string]bool, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	queues, all = c.queues, c.all
	c.queues, c.all = map[string]bool{}, false
	return queues, all
}

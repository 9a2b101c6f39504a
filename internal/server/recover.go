package server

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/seed-ed332417/jq/internal/await"
	"github.com/seed-ed332417/jq/internal/store"
)

// recoverLoop recovers expired leases: all of them before the first claim, and then at every interval.
func (s *Server) recoverLoop() {
	off := s.o.Recovery.Interval < 0
	first := s.recoverAll
	if off {
		s.log.Warn("jq: recovery is off: jobs of workers that died stay in flight until another server recovers them")
		first = s.probe
	}
	for wait := firstRetryDelay; !first(); wait = min(2*wait, s.o.Lease.Heartbeat) {
		if !s.sleep(s.work, spread(wait)) {
			return
		}
	}
	close(s.recoveryDone)
	for !off && s.sleep(s.work, spread(s.o.Recovery.Interval)) {
		if s.recoverAll() {
			s.settle.send()
		}
	}
}

// settlePause is the longest time until a server begins to settle what a call has left. Each server chooses one at random, so that mostly a
// single one finds something.
const settlePause = 500 * time.Millisecond

// settleLoop settles after each recovery, and when the store says that a call has left something. It runs beside recovery, which must not
// wait for it.
func (s *Server) settleLoop() {
	for {
		select {
		case <-s.work.Done():
			return
		case <-s.settle:
		case <-s.left:
			if !s.sleep(s.work, rand.N(settlePause)) {
				return
			}
		}
		s.settleAll()
	}
}

// settleLimit is how many jobs one call of Settle changes at most. A store can divide it into smaller transactions.
const settleLimit = store.SettledByCall

// settleAll cancels expired jobs and lets jobs go on that waited for others, batch by batch, until there are none.
func (s *Server) settleAll() {
	for {
		sent := s.clock.Now()
		ctx, cancel := s.callWhileWorking(s.o.Lease.Heartbeat)
		list, err := s.store.Settle(ctx, settleLimit)
		cancel()
		if errors.Is(err, errors.ErrUnsupported) { // a remote store whose server is older
			return
		}
		if s.recordAnswer(sent, err); err != nil {
			s.logFailure("settle", err)
			return
		}
		s.health.permitted("settle")
		if len(list) > 0 {
			await.TellSettled(s.store, list)
			s.o.Observer.Settled(list)
			s.tally.Settled(list)
			s.logSettled(list)
		}
		if len(list) == 0 { // fewer than the limit may be what was done before an outage
			return
		}
	}
}

func (s *Server) logSettled(list []store.Settled) {
	expired, unblocked := 0, 0
	for _, one := range list {
		switch {
		case one.Expired:
			expired++
		case one.State == store.Ready:
			unblocked++
		}
	}
	if expired > 0 {
		s.log.Info("jq: jobs cancelled that had expired", "count", expired)
	}
	if rest := len(list) - expired; rest > 0 {
		s.log.Info("jq: jobs that waited for others go on", "ready", unblocked, "cancelled", rest-unblocked)
	}
}

// spread returns the duration, shortened by up to a fifth, so that servers do not act at the same moment.
func spread(d time.Duration) time.Duration {
	return d - rand.N(d/5+1)
}

// recoverAll recovers expired leases, batch by batch, until there are none. It returns false if the store prevents that. After an outage of
// the store or a clock jump, it first gives live workers time to extend their leases.
func (s *Server) recoverAll() bool {
	for waited := false; ; {
		s.checkClocks()
		doubtful := s.health.unavailable() || s.health.slackLeft(s.clock.Now()) < s.o.Lease.Heartbeat/2
		if doubtful && !s.probe() {
			return false
		}
		if left := s.health.recoveryDelay(waited, s.clock.Now()); left > 0 {
			if waited = true; !s.sleep(s.work, left) {
				return false
			}
			continue
		}
		request := store.RecoverRequest{Limit: s.o.Recovery.Limit, Grace: s.o.Recovery.Grace}
		list, err := s.recoverBatch(request, s.health.slackLeft(s.clock.Now()))
		switch {
		case err != nil:
			return false
		case len(list) < s.o.Recovery.Limit:
			return true
		}
	}
}

func (s *Server) checkClocks() {
	now := s.clock.Now()
	if s.health.jumped(now.Round(0), now.Sub(s.health.began), now) { // the wall clock, and the monotonic one
		s.log.Warn("jq: the clock jumped; recovery waits", "for", s.o.Lease.Heartbeat)
	}
}

// probe checks whether the store answers, by a recovery that finds nothing.
func (s *Server) probe() bool {
	_, err := s.recoverBatch(store.RecoverRequest{Limit: 1, Grace: store.MaxDuration}, s.health.slack)
	return err == nil
}

// recoveredNamed is how many recovered jobs a line of the log names at most.
const recoveredNamed = 5

// recoverBatch makes one recovery call. It gives up the call before leases of live workers can have expired: otherwise a call that hangs
// through an outage would end those leases when it finally arrives.
func (s *Server) recoverBatch(req store.RecoverRequest, atMost time.Duration) ([]store.Recovered, error) {
	sent := s.clock.Now()
	ctx, cancel := s.callWhileWorking(atMost)
	list, err := s.store.RecoverExpiredLeases(ctx, req)
	cancel()
	if s.recordAnswer(sent, err); err != nil {
		s.logFailure("recover", err)
		s.stopIfDenied(err)
		return nil, err
	}
	s.health.permitted("recover")
	if len(list) > 0 {
		await.TellRecovered(s.store, list)
		s.o.Observer.Recovered(list)
		s.tally.Recovered(list)
		s.failures.recovered(list)
		dead := 0
		var first []int64
		for _, r := range list {
			if r.Next.IsZero() {
				dead++
			}
			if len(first) < recoveredNamed {
				first = append(first, r.ID)
			}
		}
		s.log.Warn("jq: expired leases recovered", "count", len(list), "retried", len(list)-dead, "dead", dead, "jobs", first)
	}
	return list, nil
}

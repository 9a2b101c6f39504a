package server

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-ed332417/jq/internal/policy"
	"github.com/seed-ed332417/jq/internal/store"
)

// declare declares the policies of the queues, before the first claim: nothing must run beyond a limit that the program has declared. It tries
// again while the store does not answer. If the store refuses a policy, the server stops. It returns false if the server stops.
func (s *Server) declare() bool {
	for _, queue := range slices.Sorted(maps.Keys(s.o.Queues)) {
		p := s.o.Queues[queue].Policy
		if p == nil {
			continue
		}
		for wait := firstRetryDelay; !s.declareOne(queue, *p); wait = min(2*wait, s.o.Lease.Heartbeat) {
			if !s.sleep(s.work, spread(wait)) {
				return false
			}
		}
	}
	return s.work.Err() == nil
}

// final are the errors after which a declaration is not tried again.
var final = []error{store.ErrConflict, store.ErrDenied, store.ErrInvalid, errors.ErrUnsupported}

var errNoPolicies = errors.New("the store keeps no policies")

// declareOne returns false if it has to be tried again.
func (s *Server) declareOne(queue string, p store.Policy) bool {
	refused := fmt.Sprintf("the policy of the queue %q can not be declared", queue)
	keeper, ok := s.store.(store.PolicyKeeper)
	if !ok {
		s.giveUp(refused, errNoPolicies)
		return false
	}
	sent := s.clock.Now()
	ctx, cancel := s.callWhileWorking(s.o.Lease.Duration)
	defer cancel()
	_, err := policy.Declare(ctx, keeper, queue, p)
	s.recordAnswer(sent, err)
	switch {
	case err == nil:
		return true
	case slices.ContainsFunc(final, func(one error) bool { return errors.Is(err, one) }):
		s.giveUp(refused, err)
	default:
		s.logFailure("declare", err)
	}
	return false
}

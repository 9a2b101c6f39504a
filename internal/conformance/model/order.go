package model

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Faults of queues that are ordered.
var (
	OrderIgnored             = fault("order-ignored", "Limits/Keys/Ordered", "In an ordered queue, the jobs of a key come as in any other.")
	OrderOfDueTimes          = fault("order-of-due-times", "Limits/Keys/Ordered", "The job of a key with the earliest due time goes next.")
	OrderOfPriorities        = fault("order-of-priorities", "Limits/Keys/Ordered", "The job of a key with the highest priority goes next.")
	OrderTwoAtOnce           = fault("order-two-at-once", "Limits/Keys/Ordered", "A claim takes the next job of a key while one is in flight.")
	OrderPassesRetrying      = fault("order-passes-retrying", "Limits/Keys/Ordered", "A retrying job holds back none of its key.")
	OrderPassesDelayed       = fault("order-passes-delayed", "Limits/Keys/Ordered", "A job that is not due holds back none of its key.")
	OrderPassesBlocked       = fault("order-passes-blocked", "Limits/Keys/Ordered", "A blocked job holds back none of its key.")
	OrderPassesExpired       = fault("order-passes-expired", "Limits/Keys/Ordered", "An expired job holds back none of its key, although it is not cancelled yet.")
	OrderPassesRequeued      = fault("order-passes-requeued", "Limits/Keys/Ordered", "A job that was requeued holds back none of its key, and goes when it is found.")
	OrderPassesOlder         = fault("order-passes-older", "Limits/Keys/Ordered", "A job that was there before the queue became ordered holds back none of its key.")
	OrderHeldByDead          = fault("order-held-by-dead", "Limits/Keys/Ordered", "A dead job holds back the later ones of its key.")
	OrderHeldByCancelled     = fault("order-held-by-cancelled", "Limits/Keys/Ordered", "A cancelled job holds back the later ones of its key.")
	OrderHeldByQuota         = fault("order-held-by-quota", "Limits/Keys/Ordered", "A retrying job of a key is in the lane of retries.")
	OrderOfAllQueues         = fault("order-of-all-queues", "Limits/Keys/Ordered", "A job holds back those of its key in other queues.")
	OrderOfAllKeys           = fault("order-of-all-keys", "Limits/Keys/Ordered", "A job holds back those of other keys.")
	OrderOfKeyless           = fault("order-of-keyless", "Limits/Keys/Ordered", "The jobs without a key are in order, as if they had one.")
	OrderLiftsLimits         = fault("order-lifts-limits", "Limits/Keys/Ordered", "An ordered queue has no MaxInFlight.")
	OrderLiftedByFair        = fault("order-lifted-by-fair", "Limits/Keys/Ordered", "A fair queue is not ordered.")
	OrderUnlocked            = fault("order-unlocked", "Limits/Keys/Ordered", "A claim from an ordered queue chooses jobs and takes them under two locks.")
	OrderStays               = fault("order-stays", "Limits/Keys/Ordered", "A queue that was ordered once stays so.")
	OrderUnlisted            = fault("order-unlisted", "Limits/Keys/Ordered", "Queues leaves out a queue whose policy sets Ordered only.")
	PriorityInOrderAccepted  = fault("priority-in-order-accepted", "Limits/Keys/Ordered", "Enqueue adds a job with a key and a priority to an ordered queue.")
	PriorityRefusedKeyless   = fault("priority-refused-keyless", "Limits/Keys/Ordered", "Enqueue refuses the priority of a job without a key in an ordered queue.")
	PriorityRefusedElsewhere = fault("priority-refused-elsewhere", "Limits/Keys/Ordered", "Enqueue refuses the priority of a job with a key in a queue that is not ordered, once there is one that is.")
	PriorityOfScheduleLost   = fault("priority-of-schedule-lost", "Schedule", "A job of a schedule has no priority in an ordered queue.")
	PolicyOrderLost          = fault("policy-order-lost", "Limits/Keys/Ordered", "A policy forgets that it is ordered.")
)

// ordered says whether the jobs of each key of the queue are in order.
func (s *Store) ordered(queue string) bool {
	p := s.policies[s.policyOf(queue)]
	return (p.Ordered || s.wasOrdered[queue] && s.broken(OrderStays)) && !(p.Fair && s.broken(OrderLiftedByFair)) && !s.broken(OrderIgnored)
}

// setOrdered notes that the queue has another policy.
func (s *Store) setOrdered(queue string, now store.Policy) {
	if now.Ordered {
		s.wasOrdered[queue] = true
	}
}

// inOrder says whether the job stands among those of its key in an order.
func (s *Store) inOrder(j job) bool {
	return s.ordered(j.Queue) && (j.LimitKey() != "" || s.broken(OrderOfKeyless))
}

// keyLimit is how many jobs of a key may be in flight in the queue, or 0 for any number.
func (s *Store) keyLimit(queue string) int {
	if s.ordered(queue) && !s.broken(OrderTwoAtOnce) {
		return 1
	}
	return s.policies[s.policyOf(queue)].MaxPerKey
}

// waitsItsTurn says whether another job of its key holds the job back.
func (s *Store) waitsItsTurn(j job, now time.Time) bool {
	return s.inOrder(j) && slices.ContainsFunc(s.jobs, func(other job) bool {
		sameQueue := other.Queue == j.Queue || s.broken(OrderOfAllQueues)
		sameKey := other.LimitKey() == j.LimitKey() || s.broken(OrderOfAllKeys) && other.LimitKey() != ""
		return other.ID != j.ID && sameQueue && sameKey && s.holdsBack(other, j, now)
	})
}

// holdsBack says whether one job of a key holds back another one.
func (s *Store) holdsBack(one, other job, now time.Time) bool {
	before := s.comesBefore(one, other)
	switch phase := one.Phase(); phase {
	case store.InFlight:
		return !s.broken(OrderTwoAtOnce)
	case store.Retrying, store.Ready, store.Blocked:
		return before && !s.passes(one, phase, now)
	case store.Dead:
		return before && s.broken(OrderHeldByDead)
	case store.Cancelled:
		return before && s.broken(OrderHeldByCancelled)
	default:
		return false
	}
}

// passes says of a job that waits whether a fault makes it hold back none.
func (s *Store) passes(j job, phase store.State, now time.Time) bool {
	return phase == store.Retrying && s.broken(OrderPassesRetrying) ||
		phase == store.Blocked && s.broken(OrderPassesBlocked) ||
		phase != store.Blocked && j.Next().After(now) && s.broken(OrderPassesDelayed) ||
		store.ExpiredOf(&j.Job, now) && s.broken(OrderPassesExpired) ||
		!s.limitedAt.Before(j.EnqueuedAt) && s.broken(OrderPassesOlder) ||
		j.requeued && s.broken(OrderPassesRequeued)
}

// comesBefore says whether a job comes before another one of its key.
func (s *Store) comesBefore(one, other job) bool {
	byID := cmp.Compare(one.ID, other.ID)
	switch {
	case s.broken(OrderOfDueTimes):
		return cmp.Or(one.Next().Compare(other.Next()), byID) < 0
	case s.broken(OrderOfPriorities):
		return cmp.Or(cmp.Compare(other.Priority, one.Priority), byID) < 0
	default:
		return byID < 0
	}
}

// isFresh says whether the job is in the lane of fresh jobs.
func (s *Store) isFresh(j job) bool {
	return j.Phase() == store.Ready || s.inOrder(j) && !s.broken(OrderHeldByQuota)
}

// refusesPriority says whether Enqueue refuses the priority of the job.
func (s *Store) refusesPriority(n store.NewJob) bool {
	ordered := s.policies[s.policyOf(n.Queue)].Ordered || len(s.wasOrdered) > 0 && s.broken(PriorityRefusedElsewhere)
	return n.Priority != 0 && ordered && (n.LimitKey != "" || s.broken(PriorityRefusedKeyless)) && !s.broken(PriorityInOrderAccepted)
}

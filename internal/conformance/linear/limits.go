package linear

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// How many jobs of the first queue may be in flight in a history with a limit, and how many with the same limit key in one with a limit for each.
const (
	limit    = 2
	keyLimit = 1
)

// How many jobs of the first queue may be claimed in how long, in a history with a rate.
var limitRate = store.Rate{N: 2, Per: 2 * delay}

// limits sets the policy of the first queue for the history. The way to the store may lose answers.
func (h *history) limits(ctx context.Context, policy store.Policy) error {
	if h.most == 0 && h.perKey == 0 && h.rate.N == 0 && !h.fair {
		return nil
	}
	keeper := h.store.(store.PolicyKeeper)
	var err error
	for try := 0; try == 0 || try < 20 && (errors.Is(err, store.ErrInDoubt) || errors.Is(err, store.ErrUnavailable)); try++ {
		var p store.Policy
		if p, err = keeper.Policy(ctx, h.queues[0]); err == nil {
			policy.Version = p.Version
			_, err = keeper.SetPolicy(ctx, h.queues[0], policy)
		}
	}
	return err
}

// An inForce lease is so at least from when its claim has returned until a call is made that may have ended it.
type inForce struct {
	id, token  int64
	key        string // the limit key of the job
	from, till int64  // in the order of the history
}

// held are the leases on jobs of the first queue that were in force while there was a limit.
func (h *history) held() (all []inForce) {
	for _, r := range h.records {
		for _, e := range r.events {
			if e.op == store.OpClaim && e.queue == h.queues[0] && r.claimed() && r.ret < h.lifted {
				all = append(all, inForce{e.id, e.seen.token, e.seen.row.LimitKey(), r.ret, h.endOf(e.id, e.seen.token, r)})
			}
		}
	}
	return all
}

// heldOfKeys are these leases by the limit key of their jobs.
func (h *history) heldOfKeys() map[string][]inForce {
	keys := map[string][]inForce{}
	for _, one := range h.held() {
		if one.key != "" {
			keys[one.key] = append(keys[one.key], one)
		}
	}
	return keys
}

// atOnceOf are the most of the leases that were in force at once for certain.
func atOnceOf(all []inForce) (most []inForce) {
	for _, one := range all {
		beside := slices.DeleteFunc(slices.Clone(all), func(other inForce) bool { return other.from > one.from || other.till <= one.from })
		if len(beside) > len(most) {
			most = beside
		}
	}
	return most
}

// endOf is the first call after the claim that may have ended the lease, or the end of the limit.
func (h *history) endOf(id, token int64, claim record) int64 {
	till := h.lifted
	for _, r := range h.records {
		if r.ret > claim.call && r.call < till && slices.ContainsFunc(r.events, func(e event) bool { return e.mayEnd(id, token) }) {
			till = r.call
		}
	}
	return till
}

// mayEnd says whether the event may have ended the lease.
func (e event) mayEnd(id, token int64) bool {
	switch e.op {
	case store.OpAck, store.OpFail, store.OpNever, store.OpAfter, store.OpSnooze, store.OpRelease:
		return e.id == id && e.token == token
	case store.OpCancel:
		return e.id == id
	case store.OpRecover:
		return e.id == id || e.id == 0
	default:
		return false
	}
}

// hasFullQueue says that as many jobs were in flight as may be.
func (h *history) hasFullQueue() bool { return h.most > 0 && len(atOnceOf(h.held())) >= h.most }

// hasFullKey says that as many jobs of a limit key were in flight as may be, and that another lease of the key began later.
func (h *history) hasFullKey() bool {
	if h.perKey == 0 {
		return false
	}
	for _, leases := range h.heldOfKeys() {
		if len(leases) > len(atOnceOf(leases)) && len(atOnceOf(leases)) >= h.perKey {
			return true
		}
	}
	return false
}

// claims are when jobs of the first queue were claimed while there was a rate, the earliest first.
func (h *history) claims() (all []time.Time) {
	for _, r := range h.records {
		for _, e := range r.events {
			if e.op == store.OpClaim && e.queue == h.queues[0] && r.claimed() && r.ret < h.lifted {
				all = append(all, e.seen.row.ClaimedAt)
			}
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// mostWithin are the most of the claims that were made within the span of the rate.
func (h *history) mostWithin(claims []time.Time) (most []time.Time) {
	for i, last := range claims {
		first := slices.IndexFunc(claims, func(t time.Time) bool { return t.After(last.Add(-h.rate.Per)) })
		if within := claims[first : i+1]; len(within) > len(most) {
			most = within
		}
	}
	return most
}

// hasFullRate says that as many jobs were claimed in the span of the rate as may be, and others at another time.
func (h *history) hasFullRate() bool {
	claims := h.claims()
	return h.rate.N > 0 && len(h.mostWithin(claims)) >= h.rate.N && len(claims) > h.rate.N
}

// judgeLimits says which leases were too many, and is nil if none were.
func (h *history) judgeLimits() error {
	if h.most > 0 {
		if err := h.judgeLimit("queue "+h.queues[0], atOnceOf(h.held()), h.most); err != nil {
			return err
		}
	}
	if h.perKey > 0 {
		for key, leases := range h.heldOfKeys() {
			if err := h.judgeLimit("limit key "+key, atOnceOf(leases), h.perKey); err != nil {
				return err
			}
		}
	}
	if h.sorted {
		return h.judgeOrder()
	}
	if h.rate.N > 0 {
		return h.judgeRate(h.mostWithin(h.claims()))
	}
	return nil
}

func (h *history) judgeRate(claims []time.Time) error {
	if len(claims) <= h.rate.N {
		return nil
	}
	var listing strings.Builder
	for _, at := range claims {
		fmt.Fprintf(&listing, "   claimed at %v\n", at)
	}
	flaw := fmt.Sprintf("has %d jobs claimed within %v, and %d may be", len(claims), h.rate.Per, h.rate.N)
	return &Violation{Seed: h.seed, Part: "queue " + h.queues[0], Flaw: flaw, Listing: listing.String()}
}

func (h *history) judgeLimit(part string, at []inForce, most int) error {
	if len(at) <= most {
		return nil
	}
	var listing strings.Builder
	for _, one := range at {
		fmt.Fprintf(&listing, "   job %d under token %d, from %d to %d\n", one.id, one.token, one.from, one.till)
	}
	return &Violation{Seed: h.seed, Part: part, Flaw: fmt.Sprintf("has %d jobs in flight at once, and %d may be", len(at), most), Listing: listing.String()}
}

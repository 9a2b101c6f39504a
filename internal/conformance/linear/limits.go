package linear

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ed332417/jq/internal/store"
)

// limit is how many jobs of the first queue may be in flight in a history with a limit.
const limit = 2

// admit sets how many jobs of the first queue may be in flight. The way to the store may lose answers.
func (h *history) admit(ctx context.Context, most int) error {
	if h.most == 0 {
		return nil
	}
	keeper := h.store.(store.PolicyKeeper)
	var err error
	for try := 0; try == 0 || try < 20 && (errors.Is(err, store.ErrInDoubt) || errors.Is(err, store.ErrUnavailable)); try++ {
		var p store.Policy
		if p, err = keeper.Policy(ctx, h.queues[0]); err == nil {
			_, err = keeper.SetPolicy(ctx, h.queues[0], store.Policy{MaxInFlight: most, Version: p.Version})
		}
	}
	return err
}

// An inForce lease is so at least from when its claim has returned until a call is made that may have ended it.
type inForce struct {
	id, token  int64
	from, till int64 // in the order of the history
}

// heldAtOnce are the most leases on jobs of the first queue that were in force at once for certain, while there was a limit.
func (h *history) heldAtOnce() []inForce {
	var all, most []inForce
	for _, r := range h.records {
		for _, e := range r.events {
			if e.op == store.OpClaim && e.queue == h.queues[0] && r.claimed() && r.ret < h.lifted {
				all = append(all, inForce{e.id, e.seen.token, r.ret, h.endOf(e.id, e.seen.token, r)})
			}
		}
	}
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
func (h *history) hasFullQueue() bool { return h.most > 0 && len(h.heldAtOnce()) >= h.most }

// judgeLimit says which leases were too many, and is nil if none were.
func (h *history) judgeLimit() error {
	if h.most == 0 {
		return nil
	}
	at := h.heldAtOnce()
	if len(at) <= h.most {
		return nil
	}
	var listing strings.Builder
	for _, one := range at {
		fmt.Fprintf(&listing, "   job %d under token %d, from %d to %d\n", one.id, one.token, one.from, one.till)
	}
	return &Violation{Seed: h.seed, Part: "queue " + h.queues[0], Flaw: fmt.Sprintf("has %d jobs in flight at once, and %d may be", len(at), h.most), Listing: listing.String()}
}

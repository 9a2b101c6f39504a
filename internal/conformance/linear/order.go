package linear

import (
	"fmt"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

// judgeOrder says which job of the first queue was claimed although an earlier one of its limit key was live for certain, and is nil if none was.
func (h *history) judgeOrder() error {
	for _, r := range h.records {
		for _, e := range r.events {
			if e.op != store.OpClaim || e.queue != h.queues[0] || !r.claimed() || r.ret >= h.lifted {
				continue
			}
			if first := h.overtaken(e, r); first != 0 {
				flaw := fmt.Sprintf("has job %d claimed before job %d", e.id, first)
				listing := fmt.Sprintf("   job %d under token %d, from %d to %d\n", e.id, e.seen.token, r.call, r.ret)
				return &Violation{Seed: h.seed, Part: "limit key " + e.seen.row.LimitKey(), Flaw: flaw, Listing: listing}
			}
		}
	}
	return nil
}

// overtaken returns a job of the same key with a smaller id that was added before the claim was made, and that nothing can have ended before it returned; or zero.
func (h *history) overtaken(claim event, by record) int64 {
	key := claim.seen.row.LimitKey()
	for _, r := range h.records {
		if key == "" || r.lost || r.ret >= by.call {
			continue
		}
		for _, e := range r.events {
			for _, one := range e.items {
				ofKey := one.job.LimitKey == key && one.job.Queue == claim.queue && one.ID < claim.id
				if ofKey && !one.Duplicate && len(one.job.After) == 0 && !h.mayHaveEnded(one.ID, by) {
					return one.ID
				}
			}
		}
	}
	return 0
}

// mayHaveEnded says whether the job may have ended when the claim returned.
func (h *history) mayHaveEnded(id int64, claim record) bool {
	ends := []store.Op{store.OpAck, store.OpFail, store.OpNever, store.OpAfter, store.OpCancel, store.OpRecover}
	return slices.ContainsFunc(h.records, func(r record) bool {
		return r.call < claim.ret && slices.ContainsFunc(r.events, func(e event) bool { return (e.id == id || e.id == 0) && slices.Contains(ends, e.op) })
	})
}

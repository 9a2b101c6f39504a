package random

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/store"
)

var ttls = []time.Duration{30 * time.Second, time.Second, 10 * time.Minute, 1500 * time.Nanosecond}

// claim takes up to five jobs of a queue.
func claim(t *rapid.T) op {
	req := store.ClaimRequest{
		Queue: among(t, "a", "a", "b"), Limit: rapid.IntRange(1, 5).Draw(t, ""), Worker: among(t, "w", "v"), TTL: one(t, ttls),
	}
	req.RetryQuota = rapid.IntRange(0, req.Limit).Draw(t, "")
	if rarely(t, 50) {
		req.Limit = 0
	}
	text := fmt.Sprintf("claim %d of %s, quota %d, by %s for %v", req.Limit, req.Queue, req.RetryQuota, req.Worker, req.TTL)
	return op{text, func(r *run) error {
		jobs, err := r.claim(req)
		for _, j := range jobs {
			r.leases = append(r.leases, j.Lease())
		}
		r.took(store.OpClaim, idsOf(jobs, func(j store.Job) int64 { return j.ID }), func(j store.Job) bool { return j.Queue == req.Queue })
		return err
	}}
}

// claim makes the call on the store first, for the model must choose as the store did where keys take turns and the contract leaves a choice.
func (r *run) claim(req store.ClaimRequest) ([]store.Job, error) {
	return both(r, "FetchAndClaim", func(s store.Store) ([]store.Job, error) {
		claimed, err := s.FetchAndClaim(r.ctx, req)
		for i, j := range claimed {
			claimed[i] = tidy(j)
		}
		if s == r.store {
			r.model.Follow(idsOf(claimed, func(j store.Job) int64 { return j.ID })...)
		}
		return claimed, err
	})
}

// recovery ends up to three expired leases.
func recovery(t *rapid.T) op {
	req := store.RecoverRequest{
		Limit: rapid.IntRange(1, 3).Draw(t, ""), Grace: among(t, 0, 0, time.Microsecond, 1700*time.Nanosecond, time.Second),
	}
	return op{fmt.Sprintf("recover %d, grace %v", req.Limit, req.Grace), func(r *run) error {
		recovered, err := both(r, "RecoverExpiredLeases", func(s store.Store) ([]store.Recovered, error) {
			return s.RecoverExpiredLeases(r.ctx, req)
		})
		r.took(store.OpRecover, idsOf(recovered, func(e store.Recovered) int64 { return e.ID }), func(store.Job) bool { return true })
		return err
	}}
}

// settle changes up to three jobs at a time until nothing is left, since any call that ends jobs may take up what a Settle has left.
func settle(t *rapid.T) op {
	limit := rapid.IntRange(0, 3).Draw(t, "")
	return op{fmt.Sprintf("settle %d", limit), func(r *run) error {
		for left := true; left; {
			settled, err := both(r, "Settle", func(s store.Store) ([]store.Settled, error) { return s.Settle(r.ctx, limit) })
			if err != nil {
				return err
			}
			ids := idsOf(settled, func(s store.Settled) int64 { return s.ID })
			r.touched = append(r.touched, ids...)
			r.note("jobs %v", ids)
			left = len(ids) > 0 && len(ids) == limit
		}
		return nil
	}}
}

func idsOf[T any](list []T, id func(T) int64) []int64 {
	var ids []int64
	for _, item := range list {
		ids = append(ids, id(item))
	}
	return ids
}

// took counts the jobs that a claim or a recovery took, and those in its reach that it left.
func (r *run) took(op store.Op, ids []int64, inReach func(store.Job) bool) {
	for id, j := range r.rows {
		switch {
		case slices.Contains(ids, id):
			r.tried.cells[cell{op, j.Phase(), taken}]++
		case inReach(j):
			r.tried.cells[cell{op, j.Phase(), left}]++
		}
	}
	r.touched = append(r.touched, ids...)
	r.note("jobs %v", ids)
}

// A lease is picked, and sometimes forged by another token.
type lease struct {
	pick
	shift int64
}

func (l lease) of(r *run) store.Lease {
	found := r.lease(l.pick)
	found.Token += l.shift
	return found
}

// A use is what is done under a picked lease.
type use struct {
	conformance.Item
	lease lease
}

func (u use) String() string {
	return fmt.Sprintf("%s %v", u.Op, u.lease.pick) + when(u.lease.shift != 0, " token%+d", u.lease.shift) +
		when(u.Delay != 0, " for %v", u.Delay) + when(u.Op == store.OpSave, " #%d", u.Seq) +
		when(u.Doc != nil, " document %q", u.Doc) + when(u.Progress != nil, " progress %q", u.Progress)
}

// under makes one call of up to four items under leases, some of them forged.
func under(t *rapid.T, drawItem func(*rapid.T) conformance.Item) op {
	draw := func(t *rapid.T) use {
		u := use{lease: lease{pick: drawLease(t)}}
		if rarely(t, 12) {
			u.lease.shift = among[int64](t, 1, -1)
		}
		u.Item = drawItem(t)
		return u
	}
	uses := several(t, draw, func(u *use, before use) { u.lease = before.lease })
	return op{texts(uses), func(r *run) error {
		var items []conformance.Item
		var leases []store.Lease
		for _, u := range uses {
			u.Lease = u.lease.of(r)
			items, leases = append(items, u.Item), append(leases, u.Lease)
		}
		what := fmt.Sprintf("%s under %v", items[0].Op, leases)
		return r.outcomes(what, func(i int) store.Op { return items[i].Op }, func(s store.Store) ([]store.Outcome, error) {
			return conformance.Under(r.ctx, s, items[0].Op, items[0].Delay, items)
		})
	}}
}

// extend draws items whose delay is the TTL.
func extend(t *rapid.T) op {
	item := conformance.Item{Op: store.OpExtend, Delay: one(t, ttls)}
	if rarely(t, 50) {
		item.Delay = 999 * time.Nanosecond
	}
	return under(t, func(*rapid.T) conformance.Item { return item })
}

func save(t *rapid.T) op {
	return under(t, func(t *rapid.T) conformance.Item {
		item := conformance.Item{Op: store.OpSave, Seq: rapid.Int64Range(0, 3).Draw(t, ""), Doc: drawDoc(t), Progress: drawDoc(t)}
		if rarely(t, 30) {
			item.Seq = -1
		}
		return item
	})
}

func ack(t *rapid.T) op {
	return under(t, func(t *rapid.T) conformance.Item { return conformance.Item{Op: store.OpAck, Doc: drawDoc(t)} })
}

func nack(t *rapid.T) op {
	return under(t, func(t *rapid.T) conformance.Item {
		item := conformance.Item{Op: among(t, store.OpFail, store.OpNever, store.OpAfter, store.OpSnooze, store.OpRelease)}
		if item.Op == store.OpAfter || item.Op == store.OpSnooze {
			item.Delay = among(t, 0, time.Second, 1999*time.Nanosecond, time.Hour)
		}
		if rarely(t, 2) {
			item.Error = among(t, "boom", "bad \xff and \x00")
		}
		if rarely(t, 100) {
			item.Error = strings.Repeat("é", store.MaxErrorBytes)
		}
		if rarely(t, 40) {
			item.Delay = -time.Second
		}
		return item
	})
}

// drawDoc draws a document, seldom a broken one, or none.
func drawDoc(t *rapid.T) []byte {
	if rarely(t, 15) {
		return []byte(`{`)
	}
	return among(t, nil, []byte(`1`), []byte(`{"n": 2}`), nil)
}

// outcomes makes a call with outcomes on both stores, and counts what came of each item.
func (r *run) outcomes(what string, op func(i int) store.Op, call func(s store.Store) ([]store.Outcome, error)) error {
	outcomes, err := both(r, what, call)
	if err != nil {
		return err
	}
	phases := map[int64]store.State{} // of the jobs before each item
	for id, j := range r.rows {
		phases[id] = j.Phase()
	}
	var came []string
	for i, o := range outcomes {
		r.tried.outcome(op(i), phases, o)
		came = append(came, fmt.Sprintf("job %d %s", o.ID, o.Status))
		r.touched = append(r.touched, o.ID)
		if op(i) == store.OpReschedule && o.Status == store.StatusOK { // a token that no claim has given is tried as well
			r.leases = append(r.leases, store.Lease{ID: o.ID, Token: o.Token})
		}
	}
	r.note("%s: %s", what, strings.Join(came, ", "))
	return nil
}

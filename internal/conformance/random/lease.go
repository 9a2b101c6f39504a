package random

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"

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
		jobs, err := both(r, "FetchAndClaim", func(s store.Store) ([]store.Job, error) {
			claimed, err := s.FetchAndClaim(r.ctx, req)
			return tidied(claimed), err
		})
		if err != nil {
			return err
		}
		taken := map[int64]bool{}
		var given []string
		for _, j := range jobs {
			taken[j.ID] = true
			r.touched = append(r.touched, j.ID)
			r.leases = append(r.leases, j.Lease())
			given = append(given, leaseText(j.Lease()))
		}
		r.tried.offered(store.OpClaim, r.rows, taken, func(j store.Job) bool { return j.Queue == req.Queue })
		r.note("%s", strings.Join(given, ", "))
		return nil
	}}
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
		if err != nil {
			return err
		}
		taken := map[int64]bool{}
		var ended []string
		for _, e := range recovered {
			taken[e.ID] = true
			r.touched = append(r.touched, e.ID)
			ended = append(ended, fmt.Sprintf("job %d", e.ID))
		}
		r.tried.offered(store.OpRecover, r.rows, taken, func(store.Job) bool { return true })
		r.note("%s", strings.Join(ended, ", "))
		return nil
	}}
}

// A lease is picked, and sometimes forged by another token.
type lease struct {
	pick
	shift int64
}

func (l lease) String() string {
	if l.shift == 0 {
		return l.pick.String()
	}
	return fmt.Sprintf("%v token%+d", l.pick, l.shift)
}

func (l lease) of(r *run) store.Lease {
	found := r.lease(l.pick)
	found.Token += l.shift
	return found
}

func drawForgeable(t *rapid.T) lease {
	l := lease{pick: drawLease(t)}
	if rarely(t, 12) {
		l.shift = among[int64](t, 1, -1)
	}
	return l
}

// sameLease makes an item about the lease of the item before.
func sameLease(l *lease, before lease) { *l = before }

func extend(t *rapid.T) op {
	leases := several(t, drawForgeable, sameLease)
	ttl := one(t, ttls)
	if rarely(t, 50) {
		ttl = 999 * time.Nanosecond
	}
	return op{fmt.Sprintf("extend %s by %v", texts(leases), ttl), func(r *run) error {
		var items []store.Lease
		for _, l := range leases {
			items = append(items, l.of(r))
		}
		return r.onLeases([]store.Op{store.OpExtend}, items, func(s store.Store) ([]store.Outcome, error) {
			return s.Extend(r.ctx, items, ttl)
		})
	}}
}

// A saving is a Save on a picked lease.
type saving struct {
	lease
	save store.Save
}

func (v saving) String() string {
	return fmt.Sprintf("%v #%d checkpoint %q progress %q", v.lease, v.save.Seq, v.save.Checkpoint, v.save.Progress)
}

func drawSaving(t *rapid.T) saving {
	v := saving{drawForgeable(t), store.Save{
		Seq: rapid.Int64Range(0, 3).Draw(t, ""), Checkpoint: drawDoc(t), Progress: drawDoc(t),
	}}
	if rarely(t, 30) {
		v.save.Seq = -1
	}
	return v
}

// drawDoc draws a document, seldom a broken one, or none.
func drawDoc(t *rapid.T) []byte {
	if rarely(t, 15) {
		return []byte(`{`)
	}
	return among(t, nil, []byte(`1`), []byte(`{"n": 2}`), nil)
}

func save(t *rapid.T) op {
	savings := several(t, drawSaving, func(v *saving, before saving) { v.lease = before.lease })
	return op{"save " + texts(savings), func(r *run) error {
		var saves []store.Save
		var leases []store.Lease
		for _, v := range savings {
			v.save.Lease = v.of(r)
			saves, leases = append(saves, v.save), append(leases, v.save.Lease)
		}
		return r.onLeases([]store.Op{store.OpSave}, leases, func(s store.Store) ([]store.Outcome, error) {
			return s.Save(r.ctx, saves)
		})
	}}
}

// onLeases makes a call on leases on both stores and counts what came of each item. There is one op for each item, or one
// for all.
func (r *run) onLeases(ops []store.Op, leases []store.Lease, call func(s store.Store) ([]store.Outcome, error)) error {
	outcomes, err := both(r, fmt.Sprintf("%s on %v", ops[0], leases), call)
	if err != nil {
		return err
	}
	phases := r.phases()
	var came []string
	for i, o := range outcomes {
		r.tried.outcome(ops[i%len(ops)], phases, o)
		came = append(came, fmt.Sprintf("%s %s", leaseText(leases[i]), o.Status))
		r.touched = append(r.touched, o.ID)
	}
	r.note("%s", strings.Join(came, ", "))
	return nil
}

// phases are the phases of the jobs before the operation.
func (r *run) phases() map[int64]store.State {
	phases := map[int64]store.State{}
	for id, j := range r.rows {
		phases[id] = j.Phase()
	}
	return phases
}

func leaseText(l store.Lease) string { return fmt.Sprintf("%d/%d", l.ID, l.Token) }

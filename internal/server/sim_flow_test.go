package server_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/server"
	"github.com/seed-ed332417/jq/internal/store"
)

// A flow is jobs of a scenario that wait for each other. They are enqueued by one call.
type flow struct {
	plans []*plan
	group string // that the call opens, to be sealed after it; or empty
	at    time.Duration
	open  time.Duration // how long the group stays open
}

// addFlow adds a flow to the scenario: a chain, a job that needs two others, or a batch, in which the handler of one job adds another.
func (sc *scenario) addFlow(d *rand.Rand) {
	f := &flow{at: between(d, 0, 1500*time.Millisecond), open: between(d, 0, 500*time.Millisecond)}
	add := func(group string, after ...store.Wait) *plan {
		n := len(sc.plans)
		p := newPlan(dice(sc.seed, "flow", n), n)
		p.ofFlow, p.UniqueKey, p.Group, p.After = true, "", group, after
		sc.plans = append(sc.plans, p)
		return p
	}
	shape, whatever := d.IntN(3), d.IntN(3) == 0
	if shape == 2 {
		f.group = "batch"
	}
	f.plans = append(f.plans, add(f.group))
	switch shape {
	case 0:
		f.plans = append(f.plans, add("", store.Wait{Item: 0}), add("", store.Wait{Item: 1, Any: whatever}))
	case 1:
		f.plans = append(f.plans, add(""), add("", store.Wait{Item: 0}, store.Wait{Item: 1, Any: whatever}))
	default:
		f.plans = append(f.plans, add(f.group), add("", store.Wait{Group: f.group, Any: whatever}))
		adder := f.plans[0]
		adder.Kind, adder.MaxRetries, adder.Timeout, adder.work = quick, 4, 0, 5*time.Millisecond
		adder.adds = add(f.group)
		adder.adds.added = true
	}
	sc.flows = append(sc.flows, f)
}

// produceFlow enqueues a flow and seals its group. Both calls are repeated until they are answered.
func (s *simulation) produceFlow(ctx context.Context, i int, f *flow) {
	pause(ctx, f.at)
	l := s.connect(fmt.Sprintf("flow %d", i))
	req := store.EnqueueRequest{RequestKey: l.name}
	for _, p := range f.plans {
		req.Jobs = append(req.Jobs, p.NewJob)
	}
	if f.group != "" {
		req.Open = []string{f.group}
	}
	for i, a := range s.enqueue(ctx, l, req) {
		s.answers.Store(f.plans[i].n, a)
	}
	if f.group == "" {
		return
	}
	pause(ctx, f.open)
	insist(ctx, func(ctx context.Context) error {
		err := l.SealGroup(ctx, f.group)
		if errors.Is(err, store.ErrInvalid) {
			return nil // a call without an answer has sealed it
		}
		return err
	})
}

// add enqueues one more job of the batch, once however often the handler runs.
func (m *member) add(ctx context.Context, r *server.Run, p *plan) error {
	job := p.NewJob
	job.Group = r.Job.Group()
	added, err := m.link.Enqueue(ctx, store.EnqueueRequest{RequestKey: fmt.Sprintf("added %d", p.n), Jobs: []store.NewJob{job}})
	if err != nil {
		return err
	}
	m.sim.answers.Store(p.n, added[0])
	return nil
}

// An awaited is what a job waits for, as the witness believes it to be.
type awaited struct {
	store.Wait
	on   *record // nil for a group
	met  bool    // once and for all, for a job
	from int64   // least token with which a cancellation of the job counts
	past bool    // the group was spoiled when the job was requeued
}

// begins blocks a new job that waits for others.
func (w *witness) begins(r *record, added []store.Enqueued) {
	for _, on := range r.plan.After {
		a := awaited{Wait: on}
		if on.Group == "" {
			a.on = w.records[added[on.Item].ID]
		}
		r.waits = append(r.waits, a)
	}
	if len(r.waits) > 0 {
		r.state = store.Blocked
	}
}

// beginsAgain blocks a requeued job until its waits are met as the others are now. What was cancelled before does not cancel it again.
func (w *witness) beginsAgain(r *record) {
	if len(r.waits) > 0 {
		r.state = store.Blocked
	}
	for i := range r.waits {
		a := &r.waits[i]
		a.met, a.past = false, w.spoiled[a.Group]
		if a.on != nil && a.on.state == store.Cancelled {
			a.from = a.on.token + 1
		}
	}
}

// follow does to blocked jobs what follows from the states of all others. The caller holds the lock.
func (w *witness) follow() {
	for changed := true; changed; {
		changed = false
		for _, id := range slices.Sorted(maps.Keys(w.records)) {
			if r := w.records[id]; r.state == store.Cancelled && r.plan.Group != "" {
				w.spoiled[r.plan.Group] = true
			} else if r.state == store.Blocked {
				changed = w.followTo(r) || changed
			}
		}
	}
}

// followTo says whether the blocked job has changed.
func (w *witness) followTo(r *record) bool {
	for i := range r.waits {
		a := &r.waits[i]
		on := a.on
		switch {
		case on == nil && !a.Any && !a.past && w.spoiled[a.Group]:
			return w.cancelFor(r, fmt.Sprintf("group %q,", a.Group))
		case on == nil:
		case on.state == store.Succeeded, a.Any && slices.Contains(terminal, on.state):
			a.met = true
		case on.state == store.Cancelled && on.token >= a.from && !a.met:
			return w.cancelFor(r, fmt.Sprintf("job %d,", on.id))
		}
	}
	if slices.ContainsFunc(r.waits, func(a awaited) bool { return !a.met && !(a.on == nil && w.done(a)) }) {
		return false
	}
	w.sim.countNamed(unblocked)
	w.sim.trace(r.id, "store", "unblock", "", 0)
	r.state, r.due = store.Ready, latest(r.due, now())
	return true
}

func (w *witness) cancelFor(r *record, why string) bool {
	w.sim.countNamed(cancelledFor)
	w.sim.trace(r.id, "store", "cancel for", why, 0)
	r.state, r.why = store.Cancelled, why
	r.token++
	w.makesRoom(r)
	return true
}

// done says whether the wait for a group is met.
func (w *witness) done(a awaited) bool {
	for _, r := range w.records {
		if r.plan.Group == a.Group && r.state != store.Succeeded && !(a.Any && slices.Contains(terminal, r.state)) {
			return false
		}
	}
	return !w.open[a.Group] && (a.Any || !w.spoiled[a.Group])
}

// What must occur in flows.
const (
	unblocked    = "jobs unblocked"
	cancelledFor = "jobs cancelled for what they need"
	heldUp       = "jobs held up by what is dead"
	heldBack     = "jobs held back by one of their limit key that is held up"
	addedJobs    = "jobs added by handlers"
)

// heldUp says that the job waits for good, unless somebody requeues what it waits for. The caller holds the lock.
func (w *witness) heldUp(r *record) bool { return w.waitsForGood(r, map[*record]bool{}) }

// waitsForGood does not ask a job again that is being asked: jobs that wait for each other do so for good.
func (w *witness) waitsForGood(r *record, asked map[*record]bool) bool {
	if asked[r] {
		return true
	}
	asked[r] = true
	defer delete(asked, r)
	if first := w.before(r); first != nil && r.state != store.InFlight && w.waitsForGood(first, asked) {
		return true
	}
	over := func(r *record) bool { return slices.Contains(terminal, r.state) || w.waitsForGood(r, asked) }
	return r.state == store.Blocked && slices.ContainsFunc(r.waits, func(a awaited) bool {
		if a.on != nil {
			return !a.met && over(a.on)
		}
		for _, other := range w.records {
			if other.plan.Group == a.Group && !over(other) {
				return false
			}
		}
		return !w.open[a.Group] && !w.done(a)
	})
}

// checkWaits checks a job that has not ended at the end: something holds it up that only people can put right.
func (s *simulation) checkWaits(r *record, phase store.State) {
	switch {
	case s.witness.heldUp(r) && phase == store.Blocked:
		s.countNamed(heldUp)
	case s.witness.heldUp(r):
		s.countNamed(heldBack)
	case phase == store.Blocked:
		s.lost(r.id, "a flow hangs: a job is blocked, and nothing holds it up")
	default:
		s.lost(r.id, "a job has not ended: it is "+string(phase))
	}
}

// cancelledFor says whether the job was cancelled for what it needs, and its error says so.
func (r *record) cancelledFor(row store.Job) bool {
	return r.why != "" && strings.HasPrefix(row.Error, r.why)
}

// SealGroup records that a group has all its jobs.
func (w *witness) SealGroup(ctx context.Context, name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.follow()
	err := w.backend.SealGroup(ctx, name)
	if err == nil {
		w.open[name] = false
	}
	return err
}

// Settle has nothing to do: the store in memory settles within its calls.
func (w *witness) Settle(ctx context.Context, limit int) ([]store.Settled, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.backend.Settle(ctx, limit)
}

func (l *link) SealGroup(ctx context.Context, name string) error {
	_, err := through(ctx, l, "SealGroup", func(ctx context.Context) (struct{}, error) { return struct{}{}, l.to.SealGroup(ctx, name) })
	return err
}

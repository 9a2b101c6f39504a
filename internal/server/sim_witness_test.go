package server_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A backend is a store with the abilities that servers use.
type backend interface {
	store.Store
	store.Notifier
	store.PolicyKeeper
	store.Registry
	store.GroupKeeper
}

// A witness stands right before the store, below all faults. It sees what the store accepts, keeps its own records by the table of
// transitions, and reports what the store should not have accepted. One call is made at a time, so that the records have the order of
// the store.
type witness struct {
	backend
	sim *simulation

	mu      sync.Mutex // guards what follows, and the calls
	records map[int64]*record
	open    map[string]bool // groups
	spoiled map[string]bool // groups
	claims  map[store.Lease]*claim
	stale   map[store.Op]int
	ends    map[store.Ending]int
	repeats int                 // ends that were told once more, and changed nothing
	longest time.Duration       // that an expired lease waited for a server which could have recovered it
	roomAt  map[limit]time.Time // the latest end of a lease that counted for it, or of a job that held back others of its key
	paced   []time.Time         // when jobs of the first queue were claimed
}

// A record is a job as the witness believes it to be.
type record struct {
	id       int64
	plan     *plan
	state    store.State // a phase
	due      time.Time   // while ready or retrying
	token    int64
	attempts int
	retries  int
	runs     int // ended claims that count, since the job was enqueued or requeued
	saved    int // the latest step of an accepted checkpoint
	claims   []*claim
	waits    []awaited
	why      string // it was cancelled: how the error begins, if not by people
}

// A claim is one lease, from its claim on.
type claim struct {
	store.Lease
	record  *record
	worker  string
	from    time.Time
	granted time.Time // the latest claim or extension
	until   time.Time // when the lease ends
	link    *link     // by which the claim's answer came; nil if it was lost
	heard   time.Time // when it came

	ended  time.Time
	ending store.Ending
	verb   store.Op // by which its holder ended it
	result string   // of an Ack

	started     bool // a handler has
	interrupted bool // it returned its context's error, because its server stopped or did not reach the store
	told        bool // the observer was, of its end
}

func newWitness(s *simulation, b backend) *witness {
	return &witness{
		backend: b, sim: s, records: map[int64]*record{}, claims: map[store.Lease]*claim{},
		open: map[string]bool{}, spoiled: map[string]bool{}, roomAt: map[limit]time.Time{},
		stale: map[store.Op]int{}, ends: map[store.Ending]int{},
	}
}

// now returns the time of the store's call: no time passes during a call.
func now() time.Time { return store.Truncate(time.Now()) }

// Enqueue records the new jobs, even if the answer will not arrive.
func (w *witness) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.follow()
	added, err := w.backend.Enqueue(ctx, req)
	for i, a := range added {
		if a.Duplicate {
			w.sim.countNamed("duplicates")
			continue
		}
		p := w.sim.plans[numberOf(req.Jobs[i].Payload)]
		if r := w.records[a.ID]; r != nil {
			if r.plan != p {
				w.sim.problem(a.ID, "an id was used twice: for job %d and job %d", r.plan.n, p.n)
			}
			continue // the answer to a repeat
		}
		w.sim.trace(a.ID, "store", "enqueue", p.Kind, 0)
		r := &record{id: a.ID, plan: p, state: store.Ready, due: now().Add(p.Delay)}
		w.records[a.ID] = r
		for _, name := range req.Open {
			w.open[name] = true
		}
		w.begins(r, added)
		if p.added {
			w.sim.countNamed(addedJobs)
		}
	}
	return added, err
}

// FetchAndClaim records the leases that it gives.
func (w *witness) FetchAndClaim(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	jobs, err := w.backend.FetchAndClaim(ctx, req)
	for _, j := range jobs {
		w.claimed(j, req)
	}
	w.checkLimits(ctx, jobs)
	w.checkPace(jobs)
	w.countPassedOver(req.Queue)
	return jobs, err
}

// checkPace checks that no more jobs were claimed than the rate of the first queue allows. The lock is held.
func (w *witness) checkPace(claimed []store.Job) {
	for _, j := range claimed {
		if j.Queue == queues[0] {
			w.paced = append(w.paced, j.ClaimedAt)
		}
	}
	pace := w.sim.pace
	if n := w.lately(); len(claimed) > 0 && pace.N > 0 && claimed[0].Queue == queues[0] && n >= pace.N {
		w.sim.countNamed(claimsUsedUp)
		if n > pace.N {
			w.sim.problem(claimed[0].ID, "%d jobs of a queue were claimed within %v, and %d may be", n, pace.Per, pace.N)
		}
	}
}

// claimsUsedUp is the name of the count of claims after which the rate left no room.
const claimsUsedUp = "claims that used up a rate"

// lately returns how many claims count for the rate of the first queue. The lock is held.
func (w *witness) lately() (n int) {
	for _, at := range w.paced {
		if at.After(now().Add(-w.sim.pace.Per)) {
			n++
		}
	}
	return n
}

// checkLimits checks that no limit is exceeded for which one of the claimed jobs counts: neither by the records, nor by what the store says.
// The lock is held.
func (w *witness) checkLimits(ctx context.Context, claimed []store.Job) {
	seen := map[limit]bool{}
	for _, j := range claimed {
		r := w.records[j.ID]
		if r == nil {
			continue // said when it was claimed
		}
		for _, l := range w.sim.limits(r.plan) {
			if seen[l] {
				continue
			}
			seen[l] = true
			n := w.inFlight(l)
			if n >= l.most {
				w.sim.countNamed(claimsFilled + l.of())
			}
			if n > l.most {
				w.sim.problem(j.ID, "%d jobs of a %s are in flight at once, and %d may be", n, l.of(), l.most)
			}
			if kept, err := w.backend.Count(ctx, store.Filter{Queue: l.queue, LimitKey: l.key, States: []store.State{store.InFlight}}); err != nil {
				w.sim.problem(j.ID, "the jobs in flight can not be counted: %v", err)
			} else if kept := kept.Total(); kept != int64(n) {
				w.sim.problem(j.ID, "the store says that %d jobs of a %s are in flight, and has handed out %d leases", kept, l.of(), n)
			}
		}
	}
}

// claimsFilled begins the names of the counts of claims after which a queue or a limit key was full.
const claimsFilled = "claims that filled a "

// inFlight returns how many jobs are in flight that count for the limit. The lock is held.
func (w *witness) inFlight(l limit) (n int) {
	for _, r := range w.records {
		if r.state == store.InFlight && slices.Contains(w.sim.limits(r.plan), l) {
			n++
		}
	}
	return n
}

// full returns whether a limit leaves no room for the job. The lock is held.
func (w *witness) full(p *plan) bool {
	return slices.ContainsFunc(w.sim.limits(p), func(l limit) bool { return w.inFlight(l) >= l.most }) ||
		w.sim.isPaced(p) && w.lately() >= w.sim.pace.N
}

func (w *witness) claimed(j store.Job, req store.ClaimRequest) {
	r := w.records[j.ID]
	w.sim.trace(j.ID, req.Worker, "claim", "token", time.Duration(j.Token))
	switch {
	case r == nil:
		w.sim.problem(j.ID, "a job was claimed that nobody enqueued")
		return
	case r.state != store.Ready && r.state != store.Retrying:
		w.sim.problem(j.ID, "a job was claimed that is %s", r.state)
	case r.due.After(now()):
		w.sim.problem(j.ID, "a job was claimed %v before it was due", r.due.Sub(now()))
	case j.Token <= r.token:
		w.sim.problem(j.ID, "a lease was handed out twice: token %d after %d", j.Token, r.token)
	}
	w.checkOrder(r)
	c := &claim{Lease: j.Lease(), record: r, worker: req.Worker, from: now(), granted: now(), until: now().Add(req.TTL.Truncate(store.Resolution))}
	r.state, r.token = store.InFlight, j.Token
	r.attempts++
	r.claims = append(r.claims, c)
	w.claims[c.Lease] = c
}

// delivered records that the answer of a claim has arrived.
func (w *witness) delivered(l *link, jobs []store.Job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range jobs {
		if c := w.claims[j.Lease()]; c != nil {
			c.link, c.heard = l, time.Now()
		}
	}
}

// Extend records until when leases last.
func (w *witness) Extend(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	outcomes, err := w.backend.Extend(ctx, leases, ttl)
	for i, o := range outcomes {
		if !w.accepted(leases[i], o, store.OpExtend) {
			continue
		}
		c := w.claims[leases[i]]
		c.granted, c.until = now(), now().Add(ttl.Truncate(store.Resolution))
		w.sim.trace(o.ID, c.worker, "extend", "token", time.Duration(c.Token))
	}
	return outcomes, err
}

// Save records the steps that jobs have reached.
func (w *witness) Save(ctx context.Context, saves []store.Save) ([]store.Outcome, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	outcomes, err := w.backend.Save(ctx, saves)
	for i, o := range outcomes {
		if w.accepted(saves[i].Lease, o, store.OpSave) {
			r := w.records[o.ID]
			r.saved = max(r.saved, stepOf(saves[i].Checkpoint))
		}
	}
	return outcomes, err
}

// accepted returns whether the store has accepted a write under the lease, and checks that it was right. The caller holds the lock.
func (w *witness) accepted(l store.Lease, o store.Outcome, op store.Op) bool {
	c := w.claims[l]
	switch {
	case c == nil:
		w.sim.problem(l.ID, "%s under token %d, which was never handed out: %s", op, l.Token, o.Status)
		return false
	case o.Status == store.StatusStale:
		w.stale[op]++
		w.sim.trace(l.ID, c.worker, string(op), "stale", time.Duration(l.Token))
		if w.holds(c) {
			w.sim.problem(l.ID, "%s was refused under the lease in force, token %d", op, l.Token)
		}
		return false
	case o.Status != store.StatusOK:
		return false
	case c.record.token != l.Token:
		w.sim.problem(l.ID, "a stale write was accepted: %s under token %d, while the job has %d", op, l.Token, c.record.token)
		return false
	case c.ending == store.NotEnded:
		w.explain(c) // it may have run out meanwhile
		return true
	case c.verb == op:
		w.repeats++
		return false
	default:
		w.sim.problem(l.ID, "%s was accepted of a lease that had %s", op, c.ending)
		return false
	}
}

// holds says that the lease is in force. The lock is held.
func (w *witness) holds(c *claim) bool {
	return c.ending == store.NotEnded && c.record.token == c.Token
}

// end records how a lease ended. The caller holds the lock.
func (w *witness) end(c *claim, ending store.Ending, verb store.Op) {
	c.ending, c.ended, c.verb = ending, now(), verb
	w.ends[ending]++
	w.makesRoom(c.record)
	w.sim.trace(c.ID, c.worker, string(ending), "token", time.Duration(c.Token))
	if ending != store.EndReleased && ending != store.EndSnoozed {
		c.record.runs++
	}
}

// makesRoom records that the job does not count for its limits any more, or does not hold back others. The caller holds the lock.
func (w *witness) makesRoom(r *record) {
	for _, l := range w.sim.limits(r.plan) {
		w.roomAt[l] = time.Now()
	}
}

// current returns the claim whose lease is in force, or nil. The caller holds the lock.
func (r *record) current() *claim {
	if n := len(r.claims); n > 0 && r.claims[n-1].ending == store.NotEnded {
		return r.claims[n-1]
	}
	return nil
}

// live counts the jobs that have not ended, and that nothing holds up for good.
func (w *witness) live() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, r := range w.records {
		if !slices.Contains(terminal, r.state) && !w.heldUp(r) {
			n++
		}
	}
	return n
}

// roomOfRate returns when the rate of the first queue lets, or has let, another job be claimed. The lock is held.
func (w *witness) roomOfRate() time.Time {
	if last := len(w.paced) - w.sim.pace.N; w.sim.pace.N > 0 && last >= 0 {
		return w.paced[last].Add(w.sim.pace.Per)
	}
	return time.Time{}
}

// dueSince returns since when a job has been due whose kind every server knows, or zero.
func (w *witness) dueSince() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	var first time.Time
	for _, r := range w.records {
		waits := r.state == store.Ready || r.state == store.Retrying
		if !waits || r.plan.Kind == rare || r.due.After(now()) || w.full(r.plan) || w.before(r) != nil {
			continue
		}
		due := r.due
		for _, l := range w.sim.limits(r.plan) {
			due = latest(due, w.roomAt[l])
		}
		if w.sim.isPaced(r.plan) {
			due = latest(due, w.roomOfRate())
		}
		if first.IsZero() || due.Before(first) {
			first = due
		}
	}
	return first
}

var terminal = []store.State{store.Succeeded, store.Dead, store.Cancelled}

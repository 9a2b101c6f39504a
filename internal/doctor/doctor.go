// Package doctor finds what is wrong with a store: what operators have to do something about.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// From when on something is worth a finding.
const (
	overdue  = time.Minute     // a lease that has expired for so long is recovered by nobody
	starving = 5 * time.Minute // a job that is due for so long is wanted by nobody, or by too few
	apart    = time.Second     // clocks that disagree by so much
)

// Examine looks at the jobs, the queues and the workers of a store, and at what keeps them where the store can do that. Now is
// the clock of this process.
func Examine(ctx context.Context, s store.Store, now func() time.Time) ([]store.Finding, error) {
	before := now()
	counts, err := s.Count(ctx, store.Filter{})
	if err != nil {
		return nil, err
	}
	e := &examination{ctx: ctx, store: s, counts: counts, before: before, after: now()}
	for _, look := range []func() error{e.clocks, e.leases, e.queues, e.ground} {
		if err := look(); err != nil {
			return nil, err
		}
	}
	return e.found, nil
}

// An examination collects findings.
type examination struct {
	ctx           context.Context
	store         store.Store
	counts        store.Counts
	before, after time.Time // around the moment at which the store counted
	found         []store.Finding
}

func (e *examination) add(name, advice, detail string, args ...any) {
	e.found = append(e.found, store.Finding{Name: name, Detail: fmt.Sprintf(detail, args...), Advice: advice})
}

// clocks compares the store's with that of this process. The store's alone counts, but people read both.
func (e *examination) clocks() error {
	early, late := e.before.Sub(e.counts.Now), e.counts.Now.Sub(e.after)
	if off := max(early, late); off > apart {
		e.add("clock_skew", "set the clocks of all machines by NTP",
			"the store's clock and that of this machine differ by %v", off.Round(time.Millisecond))
	}
	return nil
}

// leases looks for jobs whose workers died and that nobody gives to others.
func (e *examination) leases() error {
	var expired int64
	var oldest store.Job
	filter := store.Filter{States: []store.State{store.InFlight}}
	for page := (store.Page{Limit: store.MaxItems}); ; {
		part, err := e.store.List(e.ctx, filter, page)
		if err != nil {
			return err
		}
		for _, j := range part.Jobs {
			if e.counts.Now.Sub(j.LeaseExpiresAt) < overdue {
				continue
			}
			if expired++; expired == 1 || j.LeaseExpiresAt.Before(oldest.LeaseExpiresAt) {
				oldest = j
			}
		}
		if page.Cursor = part.Next; page.Cursor == "" {
			break
		}
	}
	if expired > 0 {
		e.add("unrecovered_leases", "run a server: every serve and every worker recovers, unless it was told not to",
			"the leases of %s in flight have expired, the oldest %v ago (job %d of worker %s): nobody recovers them",
			jobs(expired), e.counts.Now.Sub(oldest.LeaseExpiresAt).Round(time.Second), oldest.ID, oldest.Worker)
	}
	return nil
}

// queues looks for jobs that nobody runs, and why.
func (e *examination) queues() error {
	served, err := e.served()
	if err != nil {
		return err
	}
	paused, err := e.paused()
	if err != nil {
		return err
	}
	for _, q := range e.counts.Queues {
		waited := e.counts.Now.Sub(q.OldestDue).Round(time.Second)
		switch {
		case q.Due == 0:
		case slices.Contains(paused, q.Queue):
			e.add("paused_queue", "let it go on by queues resume, if the pause was not meant to last",
				"the queue %s is paused, with %s waiting, the oldest for %v", q.Queue, jobs(q.Due), waited)
		case served != nil && !served[q.Queue]:
			e.add("no_worker", "start a worker for it",
				"no living worker works on the queue %s, with %s waiting, the oldest for %v", q.Queue, jobs(q.Due), waited)
		case waited >= starving:
			e.add("slow_queue", "start more workers, or give the queue a greater weight",
				"the queue %s has %s waiting, the oldest for %v", q.Queue, jobs(q.Due), waited)
		}
	}
	return nil
}

// served are the queues of living workers, of those with jobs that wait; it is nil where the store lists none. Workers who fell silent are findings.
func (e *examination) served() (map[string]bool, error) {
	registry, ok := e.store.(store.Registry)
	if !ok {
		return nil, nil
	}
	served, silent, waiting := map[string]bool{}, []string{}, map[string]bool{}
	for _, q := range e.counts.Queues {
		waiting[q.Queue] = q.Due > 0
	}
	err := store.EachWorker(e.ctx, registry, func(w store.Worker) {
		if w.Stale {
			silent = append(silent, w.Name)
			return
		}
		for _, q := range w.Queues {
			if waiting[q] { // the others can be many, and nobody asks for them
				served[q] = true
			}
		}
	})
	if err != nil {
		return nil, unlessUnsupported(err)
	}
	if len(silent) > 0 {
		e.add("silent_workers", "look whether they crashed; they are forgotten a day after their last beat",
			"silent for longer than they said, without a goodbye: %s", strings.Join(silent, ", "))
	}
	return served, nil
}

func (e *examination) paused() ([]string, error) {
	keeper, ok := e.store.(store.QueueKeeper)
	if !ok {
		return nil, nil
	}
	queues, err := keeper.Queues(e.ctx)
	if err != nil {
		return nil, unlessUnsupported(err)
	}
	var paused []string
	for _, q := range queues {
		if q.Paused {
			paused = append(paused, q.Name)
		}
	}
	return paused, nil
}

// ground looks at the database or the file.
func (e *examination) ground() error {
	examiner, ok := e.store.(store.Examiner)
	if !ok {
		return nil
	}
	found, err := examiner.Examine(e.ctx)
	e.found = append(e.found, found...)
	return err
}

// unlessUnsupported is the error, unless it says that a store elsewhere lacks the ability.
func unlessUnsupported(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

func jobs(n int64) string {
	if n == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", n)
}

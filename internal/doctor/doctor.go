// Package doctor finds problems in a store that operators must fix.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/schedule"
	"github.com/seed-ed332417/jq/internal/store"
)

// The thresholds for a finding.
const (
	overdue  = time.Minute     // a server should have recovered the lease by then
	starving = 5 * time.Minute // a worker should have claimed the due job by then
	apart    = time.Second     // the difference between two clocks
	late     = time.Minute     // a server should have fired the schedule by then
)

// Examine checks the jobs, queues and workers of a store. If the store is an Examiner, it also checks the database or the
// file. Now is the clock of this process.
func Examine(ctx context.Context, s store.Store, now func() time.Time) ([]store.Finding, error) {
	before := now()
	counts, err := s.Count(ctx, store.Filter{})
	if err != nil {
		return nil, err
	}
	e := &examination{ctx: ctx, store: s, counts: counts, before: before, after: now()}
	for _, look := range []func() error{e.clocks, e.leases, e.queues, e.schedules, e.ground} {
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
	before, after time.Time // the local time before and after the store counted
	found         []store.Finding
}

func (e *examination) add(name, advice, detail string, args ...any) {
	e.found = append(e.found, store.Finding{Name: name, Detail: fmt.Sprintf(detail, args...), Advice: advice})
}

// clocks compares the store's clock with the clock of this process. Only the store's time matters to jobs, but people read
// both.
func (e *examination) clocks() error {
	early, late := e.before.Sub(e.counts.Now), e.counts.Now.Sub(e.after)
	if off := max(early, late); off > apart {
		e.add("clock_skew", "set the clocks of all machines by NTP",
			"the store's clock and that of this machine differ by %v", off.Round(time.Millisecond))
	}
	return nil
}

// leases finds expired leases that no server recovers.
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
		e.add("unrecovered_leases", "run a server: every serve and every worker recovers leases unless told not to",
			"the leases of %s in flight have expired, the oldest %v ago (job %d of worker %s): no server recovers them",
			jobs(expired), e.counts.Now.Sub(oldest.LeaseExpiresAt).Round(time.Second), oldest.ID, oldest.Worker)
	}
	return nil
}

// schedules finds schedules that cannot fire, that no server fires, or that fired while a clock was ahead.
func (e *examination) schedules() error {
	keeper, ok := e.store.(store.ScheduleKeeper)
	if !ok {
		return nil
	}
	all, err := schedule.All(e.ctx, keeper)
	if errors.Is(err, errors.ErrUnsupported) { // a remote store behind which the ability is missing
		return nil
	}
	now := e.counts.Now
	for _, s := range all {
		times, unreadable := schedule.Parse(s.Cron, s.Timezone, now)
		switch {
		case unreadable != nil:
			e.add("unreadable_schedule", "set it again with schedules set, or remove it",
				"the schedule %s never fires: %v", s.Name, unreadable)
		case s.NextAt.IsZero():
		case now.Sub(s.NextAt) >= late:
			e.add("late_schedule", "run a server: every serve and every worker fires schedules unless told not to",
				"the schedule %s was due %v ago, and no server has fired it", s.Name, now.Sub(s.NextAt).Round(time.Second))
		case s.NextAt.After(times.Next(now)):
			e.add("schedule_ahead", "compute its next time anew with schedules reset, once the clock is right",
				"the schedule %s waits until %s, although its expression has earlier times: it fired while a clock was ahead",
				s.Name, s.NextAt.Format(time.RFC3339))
		}
	}
	return err
}

// queues finds queues whose due jobs are not run, and the reason.
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
			e.add("paused_queue", "resume it with queues resume, if the pause was not meant to last",
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

// served returns which queues with due jobs have a living worker, or nil if the store has no list of workers. It also reports
// workers that fell silent.
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
			if waiting[q] { // skip the others: there can be many, and nothing reads them
				served[q] = true
			}
		}
	})
	if err != nil {
		return nil, unlessUnsupported(err)
	}
	if len(silent) > 0 {
		e.add("silent_workers", "check whether they crashed; the store forgets them a day after their last heartbeat",
			"no heartbeat for longer than they announced, and no sign-off: %s", strings.Join(silent, ", "))
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

// ground adds what the store itself finds in its database or file.
func (e *examination) ground() error {
	examiner, ok := e.store.(store.Examiner)
	if !ok {
		return nil
	}
	found, err := examiner.Examine(e.ctx)
	e.found = append(e.found, found...)
	return err
}

// unlessUnsupported returns err, or nil if it is errors.ErrUnsupported: a remote server's store may lack the ability.
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

// Package doctor finds problems in a store that operators must fix.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	for _, look := range []func() error{e.clocks, e.list, e.leases, e.queues, e.schedules, e.groups, e.ground} {
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
	listed        map[string]store.Queue
	busy          map[string]bool // workers with jobs in flight
	keys          keys
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

// leases finds expired leases that no server recovers. It also notes the limit keys and the workers of the jobs in flight.
func (e *examination) leases() error {
	e.busy = map[string]bool{}
	var expired int64
	var oldest store.Job
	filter := store.Filter{States: []store.State{store.InFlight}}
	err := e.each(filter, math.MaxInt, func(j store.Job) {
		e.keys.note(j, e.listed[j.Queue].Policy)
		e.busy[j.Worker] = true
		if e.counts.Now.Sub(j.LeaseExpiresAt) < overdue {
			return
		}
		if expired++; expired == 1 || j.LeaseExpiresAt.Before(oldest.LeaseExpiresAt) {
			oldest = j
		}
	})
	if err != nil {
		return err
	}
	if expired > 0 {
		e.add("unrecovered_leases", "run a server: every serve and every worker recovers leases unless told not to",
			"the leases of %s in flight have expired, the oldest %v ago (job %d of worker %s): no server recovers them",
			jobs(expired), e.counts.Now.Sub(oldest.LeaseExpiresAt).Round(time.Second), oldest.ID, oldest.Worker)
	}
	return nil
}

// each calls do for each job that matches, the newest first, in so many pages at most.
func (e *examination) each(filter store.Filter, most int, do func(store.Job)) error {
	page := store.Page{Limit: store.MaxItems}
	for range most {
		part, err := e.store.List(e.ctx, filter, page)
		if err != nil {
			return err
		}
		for _, j := range part.Jobs {
			do(j)
		}
		if page.Cursor = part.Next; page.Cursor == "" {
			break
		}
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
		case s.NextAt.After(times.Next(now.Add(late))): // it may have fired since the store said its time
			e.add("schedule_ahead", "compute its next time anew with schedules reset, once the clock is right",
				"the schedule %s waits until %s, although its expression has earlier times: it fired while a clock was ahead",
				s.Name, s.NextAt.Format(time.RFC3339))
		}
	}
	return err
}

// groups finds groups that have been open for long: their producers may be gone.
func (e *examination) groups() error {
	keeper, ok := e.store.(store.GroupKeeper)
	if !ok {
		return nil
	}
	var names []string
	oldest, n := time.Time{}, 0
	for page := (store.Page{Limit: store.MaxItems}); ; {
		part, err := keeper.Groups(e.ctx, store.GroupFilter{OpenFor: openTooLong}, page)
		if err != nil {
			return unlessUnsupported(err)
		}
		for _, g := range part.Groups {
			if n++; n <= shown {
				names = append(names, g.Name)
			}
			if oldest.IsZero() || g.OpenedAt.Before(oldest) {
				oldest = g.OpenedAt
			}
		}
		if page.Cursor = part.Next; page.Cursor == "" {
			break
		}
	}
	if n == 0 {
		return nil
	}
	what := "the group " + names[0] + " has"
	if n > 1 {
		what = fmt.Sprintf("%d groups have", n)
	}
	e.found = append(e.found, store.Finding{
		Name: "open_groups", Count: n, Examples: names,
		Detail: fmt.Sprintf("%s been open for long, since %s at the earliest: what waits for it stays blocked", what, oldest.Format(time.RFC3339)),
		Advice: "if the program that adds its jobs is gone, seal it with flows seal",
	})
	return nil
}

// openTooLong is how long adding the jobs of a group takes at most.
const openTooLong = time.Hour

// queues finds queues whose due jobs are not run, and the reason.
func (e *examination) queues() error {
	served, err := e.served()
	if err != nil {
		return err
	}
	ill := map[string][]store.QueueCount{}
	for _, q := range e.counts.Queues {
		waited := e.counts.Now.Sub(q.OldestDue).Round(time.Second)
		full := e.listed[q.Queue].Policy.Room(1, int(q.Jobs[store.InFlight])) == 0
		switch {
		case q.Due == 0:
		case e.listed[q.Queue].Paused:
			ill["paused_queue"] = append(ill["paused_queue"], q)
		case served != nil && !served[q.Queue]:
			ill["no_worker"] = append(ill["no_worker"], q)
		case waited >= starving && full:
			ill["full_queue"] = append(ill["full_queue"], q)
		case waited >= starving:
			oldest, err := e.keysOf(q)
			if err != nil {
				return err
			}
			if oldest {
				continue
			}
			throttled, err := e.throttled(q)
			if err != nil {
				return err
			}
			name := "slow_queue"
			if throttled {
				name = "throttled_queue"
			}
			ill[name] = append(ill[name], q)
		}
	}
	e.heldFinding()
	e.keysFinding()
	for _, kind := range ailments {
		if all := ill[kind.name]; len(all) > 0 {
			e.found = append(e.found, e.queuesFinding(kind, all))
		}
	}
	return nil
}

// An ailment is a problem that queues can have.
type ailment struct {
	name, advice string
	one, many    string // what is wrong with a named queue, and with a number of queues
}

var ailments = []ailment{
	{"paused_queue", "resume it with queues resume, if the pause was not meant to last", "the queue %s is paused, with", "%d queues are paused, with"},
	{"no_worker", "start a worker for it", "no living worker works on the queue %s, with", "no living worker works on %d queues, with"},
	{"full_queue", "look for jobs that hold their lease for long, or raise the limit with queues set --max-in-flight",
		"the queue %s has as many jobs in flight as its policy allows, and", "%d queues have as many jobs in flight as their policies allow, and"},
	{"throttled_queue", "let the jobs wait, or raise the rate with queues set --rate",
		"the queue %s runs about as many jobs as its rate allows, and has", "%d queues run about as many jobs as their rates allow, and have"},
	{"slow_queue", "start more workers, or give the queue a greater weight", "the queue %s has", "%d queues have"},
}

// queuesFinding returns one finding for all queues with the same problem. The queue that has waited longest comes first.
func (e *examination) queuesFinding(kind ailment, queues []store.QueueCount) store.Finding {
	slices.SortStableFunc(queues, func(a, b store.QueueCount) int { return a.OldestDue.Compare(b.OldestDue) })
	var due int64
	var names []string
	for _, q := range queues {
		due += q.Due
		names = append(names, q.Queue)
	}
	what, who := fmt.Sprintf(kind.one, names[0]), ""
	if len(names) > 1 {
		what, who = fmt.Sprintf(kind.many, len(names)), ": "+few(names, ", ")
	}
	return store.Finding{
		Name: kind.name, Advice: kind.advice, Count: len(names), Examples: names[:min(len(names), shown)],
		Detail: fmt.Sprintf("%s %s waiting, the oldest for %v%s", what, jobs(due), e.counts.Now.Sub(queues[0].OldestDue).Round(time.Second), who),
	}
}

// shown is how many names a finding shows.
const shown = 5

// few lists the first texts, and how many there are besides.
func few(texts []string, separator string) string {
	if more := len(texts) - shown; more > 0 {
		texts = append(slices.Clone(texts[:shown]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, separator)
}

// served returns which queues with due jobs have a living worker, or nil if the store has no list of workers. It also reports
// workers that fell silent and are missed.
func (e *examination) served() (map[string]bool, error) {
	registry, ok := e.store.(store.Registry)
	if !ok {
		return nil, nil
	}
	served, silent, waiting := map[string]bool{}, []store.Worker{}, map[string]bool{}
	for _, q := range e.counts.Queues {
		waiting[q.Queue] = q.Due > 0
	}
	err := store.EachWorker(e.ctx, registry, func(w store.Worker) {
		if w.Stale {
			silent = append(silent, w)
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
	missed, err := e.missed(registry, silent)
	if err != nil {
		return nil, err
	}
	if len(missed) > 0 {
		e.found = append(e.found, store.Finding{
			Name: "silent_workers", Count: len(missed), Examples: missed[:min(len(missed), shown)],
			Detail: "no heartbeat for longer than they announced, and no sign-off: " + few(missed, ", "),
			Advice: "start a worker for each of their queues; the store forgets them a day after their last heartbeat",
		})
	}
	return served, nil
}

// list reads the queues.
func (e *examination) list() error {
	keeper, ok := e.store.(store.QueueKeeper)
	if !ok {
		return nil
	}
	queues, err := keeper.Queues(e.ctx)
	if err != nil {
		return unlessUnsupported(err)
	}
	e.listed = map[string]store.Queue{}
	for _, q := range queues {
		e.listed[q.Name] = q
	}
	return nil
}

// ground adds what the store itself finds in its database or file.
func (e *examination) ground() error {
	examiner, ok := e.store.(store.Examiner)
	if !ok {
		return nil
	}
	found, err := examiner.Examine(e.ctx)
	e.found = append(e.found, gathered(found)...)
	return err
}

// gathered makes one finding of those with the same name and the same advice.
func gathered(found []store.Finding) []store.Finding {
	var all []store.Finding
	var details [][]string
	for _, f := range found {
		i := slices.IndexFunc(all, func(g store.Finding) bool { return g.Name == f.Name && g.Advice == f.Advice })
		if i < 0 {
			i = len(all)
			all, details = append(all, f), append(details, nil)
		}
		details[i] = append(details[i], f.Detail)
	}
	for i, d := range details {
		if len(d) > 1 {
			all[i].Count, all[i].Detail = len(d), few(d, "; ")
		}
	}
	return all
}

// unlessUnsupported returns err, or nil if it is errors.ErrUnsupported: a remote server's store may lack the ability.
func unlessUnsupported(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// unlessGone returns err, or nil if it is ErrNotFound: the job may have been deleted since it was listed.
func unlessGone(err error) error {
	if errors.Is(err, store.ErrNotFound) {
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

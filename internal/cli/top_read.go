package cli

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/sample"
)

// A snapshot is the state of a store at one moment, with counts that may be older.
type snapshot struct {
	now     time.Time
	counts  sample.Answer[jq.Counts]
	queues  []topQueue
	workers []jq.Worker
}

// A topQueue is what the screen shows of a queue.
type topQueue struct {
	name      string
	state     string
	oldestDue time.Time
	jobs      map[jq.State]int64
	activity  *jq.Activity // nil if the store keeps none
}

// read reads all but the counts.
func (s *screen) read() (l sight, err error) {
	if l.due, err = s.oldestDue(); err != nil {
		return l, err
	}
	if l.listed, err = ifSupported(s.client.Queues(s.ctx)); err != nil {
		return l, err
	}
	if l.workers, err = ifSupported(s.client.Workers(s.ctx)); err != nil {
		return l, err
	}
	page, err := s.client.Activity(s.ctx, jq.ActivityFilter{Last: time.Hour, By: jq.ByQueue})
	if err == nil {
		l.activity = map[string]jq.Activity{}
		for _, a := range page.Spans {
			l.activity[a.Queue] = a
		}
	}
	_, err = ifSupported(page, err)
	return l, err
}

// oldestDue returns at least the time of the store.
func (s *screen) oldestDue() (contract.Due, error) {
	if monitor, ok := s.store.(contract.Monitor); ok {
		if due, err := monitor.OldestDue(s.ctx); !errors.Is(err, errors.ErrUnsupported) { // else a server cannot tell it
			return due, err
		}
	}
	now, err := contract.Now(s.ctx, s.store)
	return contract.Due{Now: now}, err
}

// ifSupported takes an ability that the store lacks for an empty answer.
func ifSupported[A any](answer A, err error) (A, error) {
	if errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return answer, err
}

// A sight is what the calls of one refresh have answered.
type sight struct {
	due      contract.Due
	counts   sample.Answer[jq.Counts]
	listed   []jq.Queue
	workers  []jq.Worker
	activity map[string]jq.Activity
}

// behindAfter is how long a job may be due before its queue counts as behind.
const behindAfter = 30 * time.Second

// finished puts together what is known of each queue, the longest wait first.
func (l sight) finished() snapshot {
	out := snapshot{now: l.due.Now, counts: l.counts, workers: l.workers}
	by := map[string]*topQueue{}
	of := func(name string) *topQueue {
		if by[name] == nil {
			by[name] = &topQueue{name: name}
			if l.activity != nil {
				a := l.activity[name] // zero of a queue in which nothing happened
				by[name].activity = &a
			}
		}
		return by[name]
	}
	for _, q := range l.counts.Value.Queues {
		of(q.Queue).jobs = q.Jobs
	}
	for _, q := range l.due.Queues {
		of(q.Queue).oldestDue = q.OldestDue
	}
	for _, q := range l.listed {
		if of(q.Name); q.Paused {
			of(q.Name).state = "paused"
		}
	}
	for _, q := range by {
		q.state = cmp.Or(q.state, l.stateOf(q))
		out.queues = append(out.queues, *q)
	}
	slices.SortFunc(out.queues, func(a, b topQueue) int {
		if order := cmp.Compare(b.waited(out.now), a.waited(out.now)); order != 0 {
			return order
		}
		return strings.Compare(a.name, b.name)
	})
	return out
}

func (q topQueue) waited(now time.Time) time.Duration {
	if q.oldestDue.IsZero() {
		return -1
	}
	return max(0, now.Sub(q.oldestDue))
}

// stateOf says why jobs of the queue wait, if they wait for long.
func (l sight) stateOf(q *topQueue) string {
	if q.waited(l.due.Now) <= behindAfter {
		return ""
	}
	serves := func(w jq.Worker) bool { return !w.Stale && slices.Contains(w.Queues, q.name) }
	if !slices.ContainsFunc(l.workers, serves) {
		return "NO WORKER"
	}
	i := slices.IndexFunc(l.listed, func(listed jq.Queue) bool { return listed.Name == q.name })
	if i >= 0 && l.listed[i].Policy.Room(1, int(q.jobs[jq.InFlight])) == 0 {
		return "FULL"
	}
	return "BEHIND"
}

// Package tally adds up in memory what a process does with jobs, and writes the sums to the store from time to time, so that no job
// costs a write.
package tally

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/timeout"
)

// Every is how long a tally waits, from the first thing that has happened, until it writes.
const Every = 10 * time.Second

// other is the queue and the kind of what comes after the limit of pairs is reached. Anyone who may enqueue can invent names, and
// each pair costs memory here and rows in the store.
const other = "(other)"

// most is how many pairs of a queue and a kind a tally has, apart from other: with it they are one call.
const most = store.MaxItems - 1

// A Tally adds up. A nil Tally does nothing.
type Tally struct {
	keeper store.ActivityKeeper
	log    *slog.Logger
	begun  chan struct{} // says that something has happened for the first time since the sums were taken

	mu      sync.Mutex // guards what follows
	rows    map[pair]*store.Activity
	latest  *store.Activity // of rows: the one that was added to last
	changed bool            // since the sums were taken
	logged  bool
}

type pair struct{ queue, kind string }

// New returns a tally for the store, or nil if the store keeps no activity.
func New(s store.Store, log *slog.Logger) *Tally {
	keeper, ok := s.(store.ActivityKeeper)
	if !ok {
		return nil
	}
	return &Tally{keeper: keeper, log: log, begun: make(chan struct{}, 1), rows: map[pair]*store.Activity{}}
}

// row returns the sums of the pair. The caller holds the lock and adds to them. Most jobs are like the one before, and then this
// costs two comparisons.
func (t *Tally) row(queue, kind string) *store.Activity {
	if !t.changed {
		t.changed = true
		select {
		case t.begun <- struct{}{}:
		default: // Run has not taken the last one yet
		}
	}
	if row := t.latest; row != nil && row.Queue == queue && row.Kind == kind {
		return row
	}
	row := t.rows[pair{queue, kind}]
	if row == nil && len(t.rows) >= most {
		queue, kind = other, other
		row = t.rows[pair{queue, kind}]
	}
	if row == nil {
		row = &store.Activity{Queue: strings.Clone(queue), Kind: strings.Clone(kind)} // the job's strings may be parts of a longer one
		t.rows[pair{row.Queue, row.Kind}] = row
	}
	t.latest = row
	return row
}

// Waited counts how long a job was due before it was claimed. It ignores a negative duration, which means that it is not known.
func (t *Tally) Waited(queue, kind string, waited time.Duration) {
	if t == nil || waited < 0 {
		return
	}
	t.mu.Lock()
	t.row(queue, kind).Waited.Add(waited)
	t.mu.Unlock()
}

// WaitOf returns how long the job was due before it was claimed, by the store's clock. It is negative if that is not known: of a
// retry, whose due time is not kept, and of a job from a jq server of an earlier version, which leaves ClaimedAt out.
func WaitOf(j *store.Job) time.Duration {
	if j.Retries > 0 || j.ClaimedAt.IsZero() {
		return -1
	}
	return j.ClaimedAt.Sub(j.RunAt)
}

// Ended counts the end of a run. Phase is that of the job after it. A ran of zero means that the run never began, or that its length
// is not known. A released run does not count.
func (t *Tally) Ended(queue, kind string, ending store.Ending, phase store.State, ran time.Duration) {
	if t == nil || ending == store.EndReleased {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	row := t.row(queue, kind)
	switch {
	case ending == store.EndSucceeded:
		row.Succeeded++
	case ending == store.EndSnoozed:
		row.Snoozed++
	case phase == store.Dead:
		row.Dead++
	default:
		row.Retried++
	}
	if ran > 0 {
		row.Ran.Add(ran)
	}
}

// Recovered counts leases that were recovered, and the jobs that died with them.
func (t *Tally) Recovered(leases []store.Recovered) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range leases {
		row := t.row(leases[i].Queue, leases[i].Kind)
		row.Recovered++
		if leases[i].Next.IsZero() {
			row.Dead++
		}
	}
}

// Settled counts jobs that were cancelled because they had expired.
func (t *Tally) Settled(jobs []store.Settled) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range jobs {
		if jobs[i].Expired {
			t.row(jobs[i].Queue, jobs[i].Kind).Expired++
		}
	}
}

// Stale counts a write that was refused because its lease was lost.
func (t *Tally) Stale(queue, kind string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.row(queue, kind).Stale++
	t.mu.Unlock()
}

// Run writes the sums ten seconds after something has happened, each time with a time-out, until the context ends. What is left then
// is for [Tally.Flush]. While nothing happens, it does not even wake up.
func (t *Tally) Run(ctx context.Context, clk clock.Clock, atMost time.Duration) {
	if t == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.begun:
		}
		due := clk.Timer(Every)
		select {
		case <-ctx.Done():
			due.Stop()
			return
		case <-due.C:
			call, cancel := timeout.Of(ctx, clk, atMost)
			t.Flush(call)
			cancel()
		}
	}
}

// Flush writes the sums, if there are any. If surely nothing was written, the next Flush writes them. After any other error they are
// forgotten: nothing must count twice.
func (t *Tally) Flush(ctx context.Context) {
	if t == nil {
		return
	}
	items := t.take()
	if len(items) == 0 {
		return
	}
	err := t.write(ctx, items)
	switch {
	case err == nil, errors.Is(err, store.ErrInDoubt), errors.Is(err, store.ErrClosed), errors.Is(err, errors.ErrUnsupported):
	case errors.Is(err, store.ErrUnavailable):
		t.putBack(items)
	default:
		t.complain(err)
	}
}

// write calls the store. A panic is an error like others: these numbers are not worth the process.
func (t *Tally) write(ctx context.Context, items []store.Activity) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the store panicked: %v", p)
		}
	}()
	return t.keeper.AddActivity(ctx, items)
}

// complain logs the first error.
func (t *Tally) complain(err error) {
	t.mu.Lock()
	first := !t.logged
	t.logged = true
	t.mu.Unlock()
	if first {
		t.log.Warn("jq: the store does not take activity; what this process does is missing there", "error", err)
	}
}

// take returns the sums, and begins again at zero. It keeps the rows, which are needed again.
func (t *Tally) take() []store.Activity {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.changed {
		return nil
	}
	t.changed = false
	var items []store.Activity
	for _, row := range t.rows {
		if row.Empty() {
			continue
		}
		one := *row
		for _, n := range one.Numbers() {
			*n = min(*n, store.MaxActivityNum) // after a long outage
		}
		items = append(items, one)
		*row = store.Activity{Queue: row.Queue, Kind: row.Kind}
	}
	return items
}

func (t *Tally) putBack(items []store.Activity) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range items {
		row := t.row(items[i].Queue, items[i].Kind)
		*row = row.Plus(items[i])
	}
}

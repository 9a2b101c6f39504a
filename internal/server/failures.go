package server

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
)

// mostLines is how many lines of one level about failed jobs are logged a second. When all jobs fail at once, more would tell
// nothing new.
const mostLines = 10

const (
	jobFailed = "jq: job failed, and is tried again"
	jobDead   = "jq: job is dead"
)

// failures logs how jobs fail: without payloads, and at a bounded rate.
type failures struct {
	log          *slog.Logger
	failed, dead *ration
}

func newFailures(log *slog.Logger, clk clock.Clock) *failures {
	leftOut := func(what string, level slog.Level) *ration {
		return &ration{clock: clk, say: func(left int) {
			log.Log(context.Background(), level, "jq: lines about failed jobs were left out", "count", left, "of", what)
		}}
	}
	return &failures{log: log, failed: leftOut("failed", slog.LevelWarn), dead: leftOut("dead", slog.LevelError)}
}

// ended tells of a run whose failure the store has accepted.
func (f *failures) ended(r *Run, phase store.State, o store.Outcome) {
	args := []any{"job", r.ID, "queue", r.Queue, "kind", r.Kind, "attempt", r.Attempts, "error", r.verdict.reason}
	if text, stack, found := strings.Cut(r.verdict.reason, "\n"); found && r.verdict.panicked {
		args = append(args[:len(args)-1], text, "stack", stack)
	}
	switch {
	case phase == store.Dead && f.dead.take():
		f.log.Error(jobDead, args...)
	case phase == store.Retrying && f.failed.take():
		f.log.Warn(jobFailed, append(args, "again_at", o.Next)...)
	}
}

// recovered tells of the jobs that died with their workers.
func (f *failures) recovered(list []store.Recovered) {
	for _, r := range list {
		if r.Next.IsZero() && f.dead.take() {
			f.log.Error(jobDead, "job", r.ID, "queue", r.Queue, "kind", r.Kind, "lost_worker", r.Worker, "error", store.LeaseExpired.Reason)
		}
	}
}

// close tells what was left out last.
func (f *failures) close() {
	f.failed.tell()
	f.dead.tell()
}

// A ration lets so many lines through a second, and then says how many it did not.
type ration struct {
	clock clock.Clock
	say   func(left int)

	mu    sync.Mutex // guards what follows
	since time.Time  // when the second began
	lines int        // in it
	left  int        // out of it
	timer *clock.Timer
}

// take says whether there may be one more line.
func (q *ration) take() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	if q.left == 0 && now.Sub(q.since) >= time.Second {
		q.since, q.lines = now, 0
	}
	if q.lines < mostLines {
		q.lines++
		return true
	}
	if q.left++; q.left == 1 {
		q.timer = q.clock.AfterFunc(q.since.Add(time.Second).Sub(now), q.tell)
	}
	return false
}

// tell ends the second, with a line about what was left out.
func (q *ration) tell() {
	q.mu.Lock()
	left := q.left
	if left > 0 {
		q.timer.Stop()
		q.since, q.lines, q.left = q.clock.Now(), 0, 0
	}
	q.mu.Unlock()
	if left > 0 {
		q.say(left)
	}
}

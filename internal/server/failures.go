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

// maxLines is how many lines of one level about failed jobs are logged a second. When all jobs fail at once, more lines would add nothing.
const maxLines = 10

const (
	jobFailed = "jq: job failed; it will be retried"
	jobDead   = "jq: job is dead"
)

// failureLog logs how jobs fail: without payloads, and at a limited rate.
type failureLog struct {
	log          *slog.Logger
	failed, dead *lineLimit
}

func newFailureLog(log *slog.Logger, clk clock.Clock) *failureLog {
	suppressed := func(what string, level slog.Level) *lineLimit {
		return &lineLimit{clock: clk, report: func(count int) {
			log.Log(context.Background(), level, "jq: suppressed lines about failed jobs", "count", count, "of", what)
		}}
	}
	return &failureLog{log: log, failed: suppressed("failed", slog.LevelWarn), dead: suppressed("dead", slog.LevelError)}
}

// ended logs a run whose failure the store has accepted.
func (f *failureLog) ended(r *Run, phase store.State, o store.Outcome) {
	args := []any{"job", r.ID, "queue", r.Queue, "kind", r.Kind, "attempt", int(r.attempt), "error", r.verdict.reason}
	if text, stack, found := strings.Cut(r.verdict.reason, "\n"); found && r.verdict.panicked {
		args = append(args[:len(args)-1], text, "stack", stack)
	}
	switch {
	case phase == store.Dead && f.dead.allow():
		f.log.Error(jobDead, args...)
	case phase == store.Retrying && f.failed.allow():
		f.log.Warn(jobFailed, append(args, "again_at", o.Next)...)
	}
}

// recovered logs the jobs that became dead when their leases expired.
func (f *failureLog) recovered(list []store.Recovered) {
	for _, r := range list {
		if r.Next.IsZero() && f.dead.allow() {
			f.log.Error(jobDead, "job", r.ID, "queue", r.Queue, "kind", r.Kind, "lost_worker", r.Worker, "error", store.LeaseExpired.Reason)
		}
	}
}

// close logs how many lines were suppressed last.
func (f *failureLog) close() {
	f.failed.flush()
	f.dead.flush()
}

// A lineLimit allows a number of lines a second, and then reports how many it suppressed.
type lineLimit struct {
	clock  clock.Clock
	report func(count int)

	mu      sync.Mutex // guards what follows
	since   time.Time  // when the current second began
	lines   int        // logged in it
	dropped int        // suppressed in it
	timer   *clock.Timer
}

// allow returns whether one more line may be logged.
func (l *lineLimit) allow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	if l.dropped == 0 && now.Sub(l.since) >= time.Second {
		l.since, l.lines = now, 0
	}
	if l.lines < maxLines {
		l.lines++
		return true
	}
	if l.dropped++; l.dropped == 1 {
		l.timer = l.clock.AfterFunc(l.since.Add(time.Second).Sub(now), l.flush)
	}
	return false
}

// flush ends the second, and reports how many lines were suppressed.
func (l *lineLimit) flush() {
	l.mu.Lock()
	dropped := l.dropped
	if dropped > 0 {
		l.timer.Stop()
		l.since, l.lines, l.dropped = l.clock.Now(), 0, 0
	}
	l.mu.Unlock()
	if dropped > 0 {
		l.report(dropped)
	}
}

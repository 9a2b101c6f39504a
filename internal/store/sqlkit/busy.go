package sqlkit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// A Busy is a worker or server that may still use a schema: it sends heartbeats, or a job is leased to it.
type Busy struct {
	Name string
	Host string // empty and
	PID  int64  // 0 if it sends no heartbeats
	Jobs int64  // how many are leased to it
}

func (b Busy) String() string {
	var about []string
	if b.PID != 0 {
		about = append(about, fmt.Sprintf("host %s, pid %d", oneWord(b.Host), b.PID))
	}
	if b.Jobs > 0 {
		about = append(about, fmt.Sprintf("jobs in flight: %d", b.Jobs))
	}
	return fmt.Sprintf("%s (%s)", oneWord(b.Name), strings.Join(about, ", "))
}

// oneWord escapes what would break the line.
func oneWord(name string) string { return strings.Trim(strconv.Quote(name), `"`) }

// A BusyError says who keeps a migration from going on.
type BusyError struct {
	Version, Newest int // of the schema
	Busy            []Busy
}

// mostNamed is how many workers an error or a log line names.
const mostNamed = 10

func (e *BusyError) names() string {
	var all []string
	for _, b := range e.Busy[:min(len(e.Busy), mostNamed)] {
		all = append(all, b.String())
	}
	if more := len(e.Busy) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, ", ")
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("jq: the migration from schema %d to %d breaks programs of earlier versions, and these still run: %s: "+
		"stop them and run jobq migrate up, which waits for them, or with --force does not", e.Version, e.Newest, e.names())
}

// lookEvery is how often Await tries again. A try is a few short queries.
const lookEvery = time.Second

// Await calls migrate until its error is no BusyError, for at most that long, and logs whom it waits for. Between two calls it holds
// nothing: those who are waited for must be able to finish their jobs.
func Await(ctx context.Context, most time.Duration, logger *slog.Logger, migrate func() error) error {
	begin, said := time.Now(), 0
	for {
		err := migrate()
		busy, ok := errors.AsType[*BusyError](err)
		left := most - time.Since(begin)
		if !ok || left <= 0 {
			return err
		}
		if now := len(busy.Busy); now != said {
			said = now
			logger.InfoContext(ctx, "jq: the migration waits until programs of earlier versions have stopped",
				"schema", busy.Version, "newest", busy.Newest, "running", busy.names(), "left", left.Round(time.Second))
		}
		if !Rest(ctx, min(lookEvery, left)) {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// Rest waits, and reports whether the context is still alive.
func Rest(ctx context.Context, d time.Duration) bool {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-ctx.Done():
		return false
	}
}

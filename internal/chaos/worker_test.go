//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/postgres"
	"github.com/seed-ed332417/jq/sqlite"
)

// The times of the workers: short, so that a lost lease is soon found.
const (
	leaseTime    = 1500 * time.Millisecond
	recoverEvery = 200 * time.Millisecond
	storeTimeout = 450 * time.Millisecond // below a third of the lease
	slots        = 4
)

// A database is a store that callers can use too.
type database interface {
	jq.Store
	DB() *sqlx.DB
}

// openStore opens the file or the database, as soon as that is possible. The time-out is that of the database, zero for its default.
func openStore(ctx context.Context, r role, timeout time.Duration) (database, error) {
	for {
		s, err := openOnce(ctx, r, timeout)
		if err == nil || !errors.Is(err, jq.ErrUnavailable) {
			return s, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func openOnce(ctx context.Context, r role, timeout time.Duration) (database, error) {
	if r.sqlitePath != "" {
		return sqlite.Open(ctx, r.sqlitePath, nil)
	}
	return postgres.Open(ctx, r.dsn, &postgres.Options{Timeout: timeout, LockTimeout: timeout, Pooled: r.pooled})
}

// effects is the table of the jobs whose effects are in the database.
const effects = `
	CREATE TABLE chaos_effects (
		job bigint NOT NULL,
		token bigint NOT NULL
	)`

// A worker runs jobs, and tells the ledger of each.
type worker struct {
	jq.NopObserver
	role
	link  *link
	store jq.Store
	waits sync.Map // how long a job was due before its run, by its lease
}

// work is a worker process. It runs until it is told to end.
func work(ctx context.Context, r role, l *link) error {
	s, err := openStore(ctx, r, storeTimeout)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	return workIn(ctx, r, l, s)
}

func workIn(ctx context.Context, r role, l *link, s jq.Store) error {
	w := &worker{role: r, link: l, store: s}
	server, err := jq.NewServer(s, w.handlers(), &jq.ServerOptions{
		Name: r.name, Slots: slots, Queues: map[string]jq.QueueOptions{jq.DefaultQueue: {}, orderedQueue: {}},
		Claim:    jq.ClaimOptions{Buffer: 1, PollInterval: 100 * time.Millisecond, RetryShare: 0.5},
		Lease:    jq.LeaseOptions{Duration: leaseTime},
		Recovery: jq.RecoveryOptions{Interval: recoverEvery},
		Shutdown: jq.ShutdownOptions{DrainTimeout: time.Second},
		Observer: w, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	if err := server.Run(ctx); err != nil {
		return fmt.Errorf("%w: %w", errUnwritten, err)
	}
	return nil
}

// errUnwritten is a stop that could not write everything: where the store is away that is to be expected.
var errUnwritten = errors.New("stopped with ends unwritten")

// Started keeps how long the job has waited, for the message that its run has begun.
func (w *worker) Started(job jq.Job, waited time.Duration) {
	w.waits.Store(jq.Lease{ID: job.ID, Token: job.Token}, waited)
}

// StaleWrite counts writes that the store has refused.
func (w *worker) StaleWrite(string) { w.link.ask(message{Op: opStale}) }

func (w *worker) handlers() *jq.Handlers {
	var h jq.Handlers
	for kind, handle := range map[string]func(ctx context.Context, run *jq.Run, p plan) error{
		plain: w.plain, polite: w.polite, regretted: w.polite, stubborn: w.stubborn, boastful: w.boastful,
		failing: w.failing, snoozing: w.snoozing, within: w.within, panicking: panics, deadly: w.dies,
	} {
		h.Func(kind, func(ctx context.Context, run *jq.Run) error { return w.told(ctx, run, handle) })
	}
	return &h
}

var errOld = errors.New("the ledger has seen a younger run")

// told tells the ledger of the run, and runs it unless it is an old one.
func (w *worker) told(ctx context.Context, run *jq.Run, handle func(context.Context, *jq.Run, plan) error) error {
	var doc document
	if err := run.Decode(&doc); err != nil {
		return err
	}
	about := message{Op: opStart, Job: run.ID, Token: run.Token, N: doc.N, Goroutines: runtime.NumGoroutine()}
	if waited, ok := w.waits.LoadAndDelete(jq.Lease{ID: run.ID, Token: run.Token}); ok {
		about.Waited = waited.(time.Duration)
	}
	if !w.link.ask(about).OK {
		return errOld
	}
	defer func() {
		about.Op = opEnd
		w.link.ask(about)
	}()
	if err := run.SetResult(run.Token); err != nil {
		return err
	}
	return handle(ctx, run, planOf(w.seed, doc.N))
}

// plain is the effect, which an older run is refused.
func (w *worker) plain(_ context.Context, run *jq.Run, p plan) error {
	if !w.link.ask(message{Op: opEffect, Job: run.ID, Token: run.Token, N: p.n}).OK {
		return errOld
	}
	return nil
}

func (w *worker) polite(ctx context.Context, run *jq.Run, p plan) error {
	select {
	case <-time.After(p.pause):
		return w.plain(ctx, run, p)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *worker) stubborn(ctx context.Context, run *jq.Run, p plan) error {
	<-time.After(p.pause)
	return w.plain(ctx, run, p)
}

func (w *worker) boastful(ctx context.Context, run *jq.Run, p plan) error {
	if err := w.plain(ctx, run, p); err != nil {
		return err
	}
	<-time.After(p.pause)
	return nil
}

func (w *worker) failing(ctx context.Context, run *jq.Run, p plan) error {
	if run.Retries < p.times {
		return errors.New("not yet")
	}
	return w.plain(ctx, run, p)
}

func (w *worker) snoozing(ctx context.Context, run *jq.Run, p plan) error {
	times := 0
	if _, err := run.LoadCheckpoint(&times); err != nil {
		return err
	}
	if times == p.times {
		return w.plain(ctx, run, p)
	}
	if err := run.SaveCheckpoint(ctx, times+1); err != nil {
		return err
	}
	return jq.Snooze(p.pause / 10)
}

// within does what it does in a transaction of its own, so that the ledger need not be asked.
func (w *worker) within(ctx context.Context, run *jq.Run, p plan) error {
	s, ok := w.store.(database)
	if !ok {
		return w.plain(ctx, run, p)
	}
	tx, err := s.DB().BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, fmt.Sprintf(`INSERT INTO chaos_effects VALUES (%d, %d)`, run.ID, run.Token)); err != nil {
		return err
	}
	if err := run.FinishTx(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

func panics(context.Context, *jq.Run, plan) error { panic("as planned") }

// suicide is what a worker says before it dies as planned.
const suicide = "this job kills its process"

// dies ends the process as the system does that is out of memory.
func (w *worker) dies(context.Context, *jq.Run, plan) error {
	if w.soak {
		return errors.New("this process is needed")
	}
	fmt.Fprintln(os.Stderr, suicide)
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	if err := self.Kill(); err != nil {
		return err
	}
	select {}
}

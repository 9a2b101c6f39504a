package outside

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq"
)

// ProgramOptions configures Program. Zero fields mean the default.
type ProgramOptions struct {
	// Snooze is how long a job is put off if its program asks for it. Default: 1 minute.
	Snooze time.Duration
	// Grace is how long to wait for a program after it was told to stop, before it is killed. The server must wait longer: see
	// [jq.AbandonOptions]. Default: 10 seconds.
	Grace time.Duration
	// Env is the environment that programs inherit, without jq's own settings and without variables that give access to its
	// store. Default: the environment of this process.
	Env []string

	// Reaper is told of every program, so that it does not wait for programs itself. Default: none.
	Reaper *Reaper

	// Clock measures the grace. Default: the clock of the process.
	Clock clock.Clock
	// Logger logs each line that programs write to their standard error, at level debug. Default: slog.Default().
	Logger *slog.Logger
}

// The exit codes with a meaning, as in sysexits.h.
const (
	exitNever  = 65 // EX_DATAERR: the payload is wrong, so a retry does not help
	exitSnooze = 75 // EX_TEMPFAIL: not now
)

// keptOfErrors is how many bytes of the end of the standard error are kept with a failure. Programs say there why they end.
const keptOfErrors = 8 << 10

// Program returns a handler that runs a program for each job. The program reads the payload from its standard input. Its
// environment has JQ_JOB_ID, JQ_LEASE_TOKEN, JQ_KIND, JQ_QUEUE and JQ_ATTEMPT, JQ_SCHEDULE and JQ_SCHEDULED_FOR if a schedule
// enqueued the job, and TRACEPARENT if the job has a trace. It does not have jq's own settings, DATABASE_URL, or the PG* variables that name a database or give access to it. JQ_SERVER stays,
// without user and password. How the program ends decides what becomes of the job:
//
//	exit 0     succeeded, with its standard output as the result
//	exit 65    dead
//	exit 75    put off for [ProgramOptions.Snooze]
//	otherwise  failed with the end of its standard error, and tried again if retries are left
//
// The program runs in its own process group. When the context ends, the group gets SIGTERM, and SIGKILL after the grace. After
// that, exit 0, 65 and 75 keep their meaning, and any other exit counts as the end of the run and not as a failure of the job:
// a server that stops gives the job back. When the program has ended, the processes that it has started end too: if one still
// holds its output, the group gets SIGTERM first and SIGKILL after the grace; otherwise it gets SIGKILL at once. Only a process
// that leaves the group, as a daemon does, lives on.
//
// If this process is killed, Linux kills the program too, unless the program has changed its user. Linux does not kill the
// processes that the program has started, and other systems kill nothing. On a system without process groups, such as Windows,
// a program that must stop is killed at once, without the processes that it has started.
//
// The line is split into words as a shell splits them, but no shell runs it. Program returns an error if the named program does
// not exist.
func Program(line string, options *ProgramOptions) (jq.HandlerFunc, error) {
	p := &program{o: *cmp.Or(options, &ProgramOptions{})}
	err := errors.Join(checkDuration("Snooze", p.o.Snooze), checkDuration("Grace", p.o.Grace))
	if err != nil {
		return nil, err
	}
	p.o.Snooze = cmp.Or(p.o.Snooze, time.Minute)
	p.o.Grace = cmp.Or(p.o.Grace, 10*time.Second)
	if p.o.Env == nil {
		p.o.Env = os.Environ()
	}
	p.o.Clock = cmp.Or(p.o.Clock, clock.New())
	p.o.Logger = cmp.Or(p.o.Logger, slog.Default())
	if p.words, err = split(line); err != nil {
		return nil, err
	}
	if p.path, err = exec.LookPath(p.words[0]); err != nil {
		return nil, fmt.Errorf("jq: there is no program %q to run: %w", p.words[0], errors.Unwrap(err))
	}
	return p.handle, nil
}

type program struct {
	o     ProgramOptions
	path  string
	words []string
}

func (p *program) handle(ctx context.Context, run *jq.Run) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Linux treats the thread that starts a program as its parent, and kills the program when that thread ends. A thread ends
	// when a goroutine that is locked to it ends. So this goroutine keeps its thread until the program has ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	output, errs := &head{limit: resultRoom}, &tail{limit: keptOfErrors}
	said := newLines(func(line string) {
		p.o.Logger.DebugContext(ctx, "jq: program says", "job", run.ID, "kind", run.Kind, "line", line)
	})
	cmd := &exec.Cmd{Path: p.path, Args: p.words, Env: environment(p.o.Env, run)}
	proc, err := start(cmd, p.o.Reaper, run.Payload, output, io.MultiWriter(errs, said))
	if err != nil {
		return fmt.Errorf("the program could not be started: %w", err)
	}
	e := proc.attend(ctx, p.o.Clock, p.o.Grace)
	said.flush()
	if e.escaped {
		p.o.Logger.WarnContext(ctx, "jq: a process that the program started has left its group and is not stopped",
			"job", run.ID, "kind", run.Kind)
	}
	if e.err != nil {
		return fmt.Errorf("it is not known how the program ended: %w", e.err)
	}
	return p.judge(ctx, run, e, output, errs)
}

// judge returns the handler's error for the way in which the program ended.
func (p *program) judge(ctx context.Context, run *jq.Run, e end, output *head, errs *tail) error {
	switch e.state.ExitCode() {
	case 0:
		return keepResult(run, output)
	case exitSnooze:
		return jq.Snooze(p.o.Snooze)
	case exitNever:
		return jq.Never(p.failure(e, errs))
	}
	if cause := context.Cause(ctx); e.stopped && !errors.Is(cause, jq.ErrTimeout) {
		return cause
	}
	return p.failure(e, errs)
}

func (p *program) failure(e end, errs *tail) error {
	name := filepath.Base(p.path)
	if text := errs.text(); text != "" {
		return fmt.Errorf("%s: %v: %s", name, e.state, text)
	}
	return fmt.Errorf("%s: %v, and nothing on its standard error", name, e.state)
}

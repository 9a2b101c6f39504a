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

// ProgramOptions are what can be chosen. The zero value of each field means its default, which is said first.
type ProgramOptions struct {
	// Snooze is for how long a job is put off whose program asks for it. Default: 1 minute.
	Snooze time.Duration
	// Grace is for how long a program is waited for that was told to stop, before it is killed. The server has to wait for
	// longer: [jq.ServerOptions.AbandonAfter]. Default: 10 seconds.
	Grace time.Duration
	// Env is what programs inherit, less jq's own settings and what gives access to its store. Default: the environment of this process.
	Env []string

	// Reaper is told of programs, so that it does not take their ends. Default: there is none.
	Reaper *Reaper

	// Clock moves the grace. Default: the clock of the process.
	Clock clock.Clock
	// Logger is told what programs write to their standard error, line by line, at level debug. Default: slog.Default().
	Logger *slog.Logger
}

// What a program says by its exit code, as in sysexits.h.
const (
	exitNever  = 65 // EX_DATAERR: the payload is wrong, and will be
	exitSnooze = 75 // EX_TEMPFAIL: not now
)

// keptOfErrors is how much of the standard error is kept with a failure, from its end, where programs say why they end.
const keptOfErrors = 8 << 10

// Program is a handler that runs a program for each job. The payload is its standard input; JQ_JOB_ID, JQ_LEASE_TOKEN, JQ_KIND,
// JQ_QUEUE and JQ_ATTEMPT are in its environment, TRACEPARENT too if the job has a trace. Jq's own settings are not, nor are
// DATABASE_URL and the PG* variables that lead to a database or give access to it. Of JQ_SERVER the address is left, without user
// and password. How the program ends decides what becomes of the job:
//
//	exit 0     succeeded, with its standard output as the result
//	exit 65    dead
//	exit 75    put off for [ProgramOptions.Snooze]
//	otherwise  failed with the end of its standard error, and tried again if retries are left
//
// The program is in a process group of its own. When the context ends the group gets SIGTERM, and SIGKILL after the grace. From
// then on exit 0, 65 and 75 mean what they always do; any other end counts as that of the run, not of the job: a server that
// stops gives the job back. When the program has ended, what it has started ends as well: who still holds its output gets
// SIGTERM and then SIGKILL likewise, anybody else SIGKILL at once. Only who leaves the group, as a daemon does, lives on.
//
// If this process is killed, the program is killed with it on Linux, unless it has changed its user; what it has started itself
// is not, nor is anything elsewhere. Where there are no process groups, which is on Windows, a program that has to stop is
// killed at once, and alone.
//
// The line is split into words as by a shell, but no shell runs it. It is an error now if there is no such program.
func Program(line string, options *ProgramOptions) (jq.HandlerFunc, error) {
	p := &program{}
	if options != nil {
		p.o = *options
	}
	err := errors.Join(checkDuration("Snooze", p.o.Snooze), checkDuration("Grace", p.o.Grace))
	if err != nil {
		return nil, err
	}
	p.o.Snooze = cmp.Or(p.o.Snooze, time.Minute)
	p.o.Grace = cmp.Or(p.o.Grace, 10*time.Second)
	if p.o.Env == nil {
		p.o.Env = os.Environ()
	}
	if p.o.Clock == nil {
		p.o.Clock = clock.New()
	}
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
	// Linux takes the thread that starts a program for its parent, and kills the program when the thread ends, which is when a
	// goroutine ends that was locked to it. So this one keeps its thread to itself until the program has ended.
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

// judge makes of the end of the program what is returned for the job.
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

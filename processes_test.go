//go:build unix

package jq_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/postgres"
	"github.com/seed-ed332417/jq/sqlite"
)

// The test binary is also the worker that these tests kill.
const (
	workerStore  = "JQ_TEST_WORKER_STORE"
	workerSchema = "JQ_TEST_WORKER_SCHEMA"
	workerName   = "JQ_TEST_WORKER_NAME"
)

func TestMain(m *testing.M) {
	if place := os.Getenv(workerStore); place != "" {
		if err := worker(place); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if dsn := os.Getenv(crewDSN); dsn != "" {
		if err := crew(dsn); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(pgtest.Main(m))
}

// place opens a store: a file, or, with a schema, a database.
func openPlace(ctx context.Context, place, schema string) (jq.Store, error) {
	if schema == "" {
		return sqlite.Open(ctx, place, nil)
	}
	return postgres.Open(ctx, place, &postgres.Options{Schema: schema})
}

// patient is work that is done when the test says so, whatever its context says.
type patient struct{}

func (patient) Kind() string { return "patient" }

// worker runs jobs until it is interrupted. A handler prints its token, and returns its worker's name at the next line of the
// input.
func worker(place string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s, err := openPlace(ctx, place, os.Getenv(workerSchema))
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	input := bufio.NewReader(os.Stdin)
	var handlers jq.Handlers
	jq.Handle(&handlers, func(_ context.Context, run *jq.Run, _ patient) error {
		fmt.Fprintln(os.Stdout, "started", run.Token)
		if _, err := input.ReadString('\n'); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "returns", run.Token)
		return run.SetResult(os.Getenv(workerName))
	})
	server, err := jq.NewServer(s, &handlers, &jq.ServerOptions{
		Name: os.Getenv(workerName), Slots: 1,
		Claim:    jq.ClaimOptions{PollInterval: 100 * time.Millisecond},
		Lease:    jq.LeaseOptions{Duration: 2 * time.Second},
		Recovery: jq.RecoveryOptions{Interval: 200 * time.Millisecond},
		Logger:   slog.New(slog.NewTextHandler(os.Stdout, nil)),
	})
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

// A child is a worker process.
type child struct {
	*exec.Cmd
	t   *testing.T
	in  io.Writer
	out *bufio.Scanner
}

func startWorker(t *testing.T, name, place, schema string) *child {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c := &child{Cmd: exec.CommandContext(t.Context(), self), t: t}
	c.Env = append(os.Environ(), workerStore+"="+place, workerSchema+"="+schema, workerName+"="+name)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	c.in, c.out = in, bufio.NewScanner(out)
	require.NoError(t, c.Start())
	return c
}

// says reads until a line has all the words.
func (c *child) says(words ...string) {
	c.t.Helper()
	var said []string
	for c.out.Scan() {
		line := c.out.Text()
		said = append(said, line)
		found := true
		for _, w := range words {
			found = found && strings.Contains(line, w)
		}
		if found {
			return
		}
	}
	require.Fail(c.t, "the worker ended", "without saying %q; it said:\n%s", words, strings.Join(said, "\n"))
}

func (c *child) goOn() {
	c.t.Helper()
	_, err := fmt.Fprintln(c.in)
	require.NoError(c.t, err)
}

func (c *child) interrupt() {
	c.t.Helper()
	require.NoError(c.t, c.Process.Signal(os.Interrupt))
	for c.out.Scan() {
	}
	require.NoError(c.t, c.Wait())
}

// onDisk runs the test on a file and on a database.
func onDisk(t *testing.T, test func(t *testing.T, place, schema string)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, filepath.Join(t.TempDir(), "jobs.db"), "")
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t)
		test(t, dsn, pgtest.Schema(t, dsn))
	})
}

// enqueuePatient opens the place and enqueues one job there.
func enqueuePatient(t *testing.T, place, schema string) (jq.Store, int64) {
	t.Helper()
	s, err := openPlace(t.Context(), place, schema)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	added, err := jq.NewClient(s, nil).Enqueue(t.Context(), patient{}, &jq.EnqueueOptions{Backoff: jq.Backoff{Base: time.Millisecond, Cap: time.Millisecond}})
	require.NoError(t, err)
	return s, added.ID
}

// succeeded waits for the job's end.
func succeeded(t *testing.T, s jq.Store, id int64) jq.JobDetail {
	t.Helper()
	var j jq.JobDetail
	require.Eventually(t, func() bool {
		var err error
		j, err = s.Get(t.Context(), id)
		require.NoError(t, err)
		return j.State == jq.Succeeded
	}, time.Minute, 10*time.Millisecond)
	return j
}

// R17, R42: a worker that is killed in the middle of a job loses it to another one.
func TestJobOfAKilledWorkerIsFinishedByAnother(t *testing.T) {
	onDisk(t, func(t *testing.T, place, schema string) {
		s, id := enqueuePatient(t, place, schema)
		a := startWorker(t, "A", place, schema)
		a.says("started 1")
		require.NoError(t, a.Process.Kill())
		require.Error(t, a.Wait())

		b := startWorker(t, "B", place, schema)
		b.says("expired leases recovered", "count=1", fmt.Sprintf("jobs=[%d]", id))
		b.says("started 3")
		b.goOn()
		j := succeeded(t, s, id)
		b.interrupt()
		assert.Equal(t, `"B"`, string(j.Result))
		assert.Equal(t, []string{"A expired", "B succeeded"}, endings(j))
	})
}

// R20, R48: a worker that was stopped for longer than its lease comes back from the dead, and what it writes is refused. On a
// database only: a process that is stopped in the middle of a write to an SQLite file holds its lock for as long.
func TestLateWriteOfAStoppedWorkerIsRefused(t *testing.T) {
	t.Parallel()
	place := pgtest.DSN(t)
	schema := pgtest.Schema(t, place)
	s, id := enqueuePatient(t, place, schema)
	a := startWorker(t, "A", place, schema)
	a.says("started 1")
	require.NoError(t, a.Process.Signal(syscall.SIGSTOP))

	b := startWorker(t, "B", place, schema)
	b.says("started 3")
	b.goOn()
	before := succeeded(t, s, id)

	a.goOn()
	require.NoError(t, a.Process.Signal(syscall.SIGCONT))
	a.says("stale write refused", "token=1", "current_token=3")
	a.interrupt()
	b.interrupt()
	after := succeeded(t, s, id)
	assert.Equal(t, before, after, "the late write has changed nothing")
	assert.Equal(t, `"B"`, string(after.Result))
	assert.Equal(t, []string{"A expired", "B succeeded"}, endings(after))
}

func endings(j jq.JobDetail) []string {
	var list []string
	for _, a := range j.History {
		list = append(list, a.Worker+" "+string(a.Ending))
	}
	return list
}

// A Cancel in one store reaches the handler in another one on the same database or file, long before its next heartbeat.
func TestCancelReachesTheHandlerOfAnotherStore(t *testing.T) {
	onDisk(t, func(t *testing.T, place, schema string) {
		here, id := enqueuePatient(t, place, schema)
		there, err := openPlace(t.Context(), place, schema)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, there.Close()) })
		started, ended := make(chan struct{}), make(chan error, 1)
		var handlers jq.Handlers
		jq.Handle(&handlers, func(ctx context.Context, _ *jq.Run, _ patient) error {
			close(started)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil
		})
		server, err := jq.NewServer(there, &handlers, &jq.ServerOptions{Lease: jq.LeaseOptions{Duration: time.Hour}})
		require.NoError(t, err)
		require.NoError(t, server.Start(t.Context()))
		defer func() { require.NoError(t, server.Stop(t.Context())) }()
		await(t, started, "the job started")
		began := time.Now()
		require.NoError(t, jq.NewClient(here, nil).Cancel(t.Context(), id))
		require.ErrorIs(t, await(t, ended, "its handler is cancelled"), jq.ErrCancelled)
		figures.Print(t, "the handler of a job that another store cancelled is cancelled after %v", time.Since(began).Round(time.Millisecond))
	})
}

// await receives from the channel in time.
func await[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Minute):
		require.Fail(t, "too late", "want: %s", what)
	}
	return v
}

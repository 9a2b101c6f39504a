//go:build unix

package outside

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// A world is a server on a store, whose programs and whose patience with them are in the hands of the test.
type world struct {
	*stage
	clock  *clock.Mock // of the grace alone
	store  *jq.MemoryStore
	client *jq.Client
	server *jq.Server
	logged *record
	ended  chan jq.Ending
	jq.NopObserver
}

// Ended tells the test of the end of a run.
func (w *world) Ended(_ jq.Job, ending jq.Ending, _ jq.State, _ time.Duration) { w.ended <- ending }

const grace = 10 * time.Second // which passes when the test says so

// newWorld works on one job by a program, and returns when it runs.
func newWorld(t *testing.T, role string) *world {
	t.Helper()
	w := &world{stage: newStage(t), clock: clock.NewMock(), logged: newRecord(), ended: make(chan jq.Ending, 10)}
	handle, err := Program(w.line(role), &ProgramOptions{Clock: w.clock, Logger: slog.New(w.logged)})
	require.NoError(t, err)
	w.store = jq.NewMemory(nil)
	t.Cleanup(func() { assert.NoError(t, w.store.Close()) })
	w.client = jq.NewClient(w.store, nil)
	_, err = w.client.Enqueue(t.Context(), mail(`{}`), nil)
	require.NoError(t, err)
	var h jq.Handlers
	h.Otherwise(handle)
	w.server, err = jq.NewServer(w.store, &h, &jq.ServerOptions{
		Lease:   jq.LeaseOptions{Heartbeat: 10 * time.Millisecond},
		Abandon: jq.AbandonOptions{Timeout: time.Hour}, Observer: w, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	require.NoError(t, w.server.Start(t.Context()))
	t.Cleanup(w.stop)
	return w
}

// stop ends the server without waiting for what runs to end by itself.
func (w *world) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	assert.NoError(w.t, w.server.Stop(ctx))
}

// after is the job when its run has ended.
func (w *world) after(ending jq.Ending) jq.Job {
	w.t.Helper()
	select {
	case got := <-w.ended:
		require.Equal(w.t, ending, got)
	case <-time.After(patience):
		require.Fail(w.t, "the run does not end")
	}
	return w.job()
}

func (w *world) job() jq.Job {
	w.t.Helper()
	detail, err := w.client.Get(w.t.Context(), 1)
	require.NoError(w.t, err)
	return detail.Job
}

// R36: a program that is out of time is told, and killed when the grace is over, with all that it has started. What it has said
// is kept with the failure.
func TestTimeoutEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	s, clk := newStage(t), clock.NewMock()
	handle, err := Program(s.line("parent"), &ProgramOptions{Clock: clk})
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	returned := make(chan error, 1)
	go func() { returned <- handle(ctx, &jq.Run{Job: jq.Job{ID: 1, Payload: []byte(`{}`)}}) }()
	players := s.enter(2)
	parent, child := players["parent"], players["child"]
	parent.does("err half of it")
	cancel(jq.ErrTimeout)
	parent.says("told to stop")
	child.says("told to stop")
	clk.Add(grace - 1)
	parent.does("err tidying up")
	child.does("out whatever")
	clk.Add(1)
	parent.isGone()
	child.isGone()
	assert.EqualError(t, <-returned, filepath.Base(os.Args[0])+": signal: killed: half of it\ntidying up")
	assert.Equal(t, jq.ErrTimeout, handle(ctx, nil), "nothing is started any more")
}

// C14: who has lost the lease is stopped, and writes nothing.
func TestLostLeaseEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "parent")
	players := w.enter(2)
	_, err := w.store.Fence(t.Context(), contract.FenceRequest{EndLeases: true})
	require.NoError(t, err)
	before := w.job()
	players["parent"].says("told to stop")
	players["child"].says("told to stop")
	players["parent"].exits(0)
	w.clock.Add(grace)
	players["child"].isGone()
	w.stop()
	assert.Equal(t, before, w.job())
}

// R60: the program of a job that was cancelled is stopped.
func TestCancelEndsTheProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "child")
	child := w.enter(1)["child"]
	require.NoError(t, w.client.Cancel(t.Context(), 1))
	child.says("told to stop")
	child.exits(0)
	w.stop()
	assert.Equal(t, jq.Cancelled, w.job().Phase())
}

// C13: a server that stops passes it on. A program that then ends well has done its job, any other gives it back.
func TestStopIsPassedOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code   int // less than 0: it does not end
		ending jq.Ending
		want   fate
	}{
		"ends well":    {0, "succeeded", fate{Phase: jq.Succeeded, Result: `"finished"`}},
		"ends badly":   {143, "released", fate{Phase: jq.Ready}},
		"does not end": {-1, "released", fate{Phase: jq.Ready}},
		"never":        {65, "failed", fate{Phase: jq.Dead, Error: filepath.Base(os.Args[0]) + ": exit status 65, and nothing on its standard error"}},
		"snooze":       {75, "snoozed", fate{Phase: jq.Ready}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "child")
			child := w.enter(1)["child"]
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				w.stop()
			}()
			child.says("told to stop")
			child.does("out finished")
			if c.code < 0 {
				w.clock.Add(grace)
				child.isGone()
			} else {
				child.exits(c.code)
			}
			j := w.after(c.ending)
			<-stopped
			assert.Equal(t, c.want, fate{Phase: j.Phase(), Result: string(j.Result), Error: j.Error})
			if c.ending == "released" {
				assert.Zero(t, j.Attempts)
			}
		})
	}
}

// What the program has started ends with it: who holds its output is told first, and the result is that of all of them.
func TestChildrenEndWithTheProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "parent")
	players := w.enter(2)
	players["parent"].does("out one")
	players["parent"].exits(0)
	players["child"].says("told to stop")
	players["child"].does("out two")
	w.clock.Add(grace)
	players["child"].isGone()
	assert.Equal(t, `"one\ntwo"`, string(w.after("succeeded").Result))
	assert.Empty(t, w.logged.lines)
}

// A child that holds nothing is not waited for.
func TestQuietChildrenAreKilledAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "parent of a quiet child")
	players := w.enter(2)
	players["parent"].exits(0)
	for players["child"].lines.Scan() {
		require.Equal(t, "told to stop", players["child"].lines.Text()) // it may be, before it is seen that it holds nothing
	}
	assert.Equal(t, jq.Succeeded, w.after("succeeded").Phase())
}

// A child that leaves the group can not be stopped, but the job ends all the same, and it is said.
func TestChildThatLeavesIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "parent of a child that leaves")
	players := w.enter(2)
	players["parent"].does("out one")
	players["parent"].exits(0)
	var line string
	require.Eventually(t, func() bool { // two pauses pass, and nothing tells when the second begins
		w.clock.Add(grace / 100) // so that the second leaves the reader of "one" its time
		select {
		case line = <-w.logged.lines:
			return true
		default:
			return false
		}
	}, patience, time.Millisecond)
	assert.Equal(t, "WARN jq: a process that the program started has left its group and is not stopped job=1 kind=mail", line)
	assert.Equal(t, `"one"`, string(w.after("succeeded").Result))
	players["child"].exits(0)
}

// Threads end when goroutines end that were locked to them. None of those is the one that the system takes for the parent.
func TestProgramsOutliveThreads(t *testing.T) {
	const programs, threads = 16, 30
	s := newStage(t)
	handle, err := Program(s.line("child"), nil)
	require.NoError(t, err)
	returned := make(chan error, programs)
	var children []*player
	for range programs {
		go func() { returned <- handle(t.Context(), &jq.Run{Job: jq.Job{ID: 1, Payload: []byte(`{}`)}}) }()
		children = append(children, s.enter(1)["child"])
		var ready, ended sync.WaitGroup
		ready.Add(threads)
		for range threads {
			ended.Go(func() {
				runtime.LockOSThread() // and never unlocks it
				ready.Done()
				ready.Wait() // so that each has a thread of its own
			})
		}
		ended.Wait()
	}
	for _, child := range children {
		child.does("err alive")
		child.exits(75)
		assert.True(t, jq.IsSnooze(<-returned))
	}
}

// R17, R42: a worker that is killed takes its program along, as far as the system has a way to.
func TestProgramDiesWithTheWorker(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a program with the process that has started it")
	}
	s := newStage(t)
	self, err := os.Executable()
	require.NoError(t, err)
	worker := exec.CommandContext(t.Context(), self, "play", "worker", s.listener.Addr().String())
	worker.Stderr = os.Stderr
	require.NoError(t, worker.Start())
	child := s.enter(1)["child"]
	child.does("out alive")
	require.NoError(t, worker.Process.Kill())
	assert.Error(t, worker.Wait())
	child.isGone()
}

package remote_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/remote"
	"github.com/seed-ed332417/jq/sqlite"
)

// workerServer makes of the test binary a worker for the jq server at that URL, which a test kills.
const workerServer = "JQ_TEST_WORKER_SERVER"

func TestMain(m *testing.M) {
	if url := os.Getenv(workerServer); url != "" {
		if err := hang(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

type greeting struct{ Name string }

func (greeting) Kind() string { return "greeting" }

// hang runs jobs that never end, and says which.
func hang(url string) error {
	s, err := remote.Open(context.Background(), url, nil)
	if err != nil {
		return err
	}
	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, _ greeting) error {
		fmt.Fprintln(os.Stdout, run.ID, run.Token)
		<-ctx.Done()
		return ctx.Err()
	})
	server, err := jq.NewServer(s, &handlers, options(3*time.Second))
	if err != nil {
		return err
	}
	return server.Run(context.Background())
}

// options are those of a server which never polls: it hears of new jobs, or not at all.
func options(lease time.Duration) *jq.ServerOptions {
	return &jq.ServerOptions{
		Claim:    jq.ClaimOptions{PollInterval: time.Hour},
		Lease:    jq.LeaseOptions{Duration: lease},
		Recovery: jq.RecoveryOptions{Interval: 100 * time.Millisecond},
		Shutdown: jq.ShutdownOptions{DrainTimeout: time.Second},
		Logger:   slog.New(slog.DiscardHandler),
	}
}

// serve starts a jq server on a file, and returns its URL.
func serve(t *testing.T) string {
	t.Helper()
	url, _ := serveWith(t, httpapi.Options{})
	return url
}

// serveWith also returns the store behind the server.
func serveWith(t *testing.T, o httpapi.Options) (string, jq.Store) {
	t.Helper()
	back, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"), &sqlite.Options{Synchronous: sqlite.Normal})
	require.NoError(t, err)
	quiet := slog.New(slog.DiscardHandler)
	o.Logger = quiet
	api, err := httpapi.New(back, &o)
	require.NoError(t, err)
	server, err := httpapi.NewServer(api, &httpapi.Limits{Logger: quiet}, nil)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		assert.NoError(t, api.Close())
		assert.NoError(t, server.Shutdown(context.Background()))
		assert.ErrorIs(t, <-served, http.ErrServerClosed)
		assert.NoError(t, back.Close())
	})
	return "http://" + l.Addr().String(), back
}

func open(t *testing.T, url string) *remote.Store {
	t.Helper()
	s, err := remote.Open(t.Context(), url, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// work runs a server on the store until the end of the test, and returns the runs.
func work(t *testing.T, s jq.Store) <-chan jq.Job {
	t.Helper()
	ran := make(chan jq.Job, 100)
	var handlers jq.Handlers
	jq.Handle(&handlers, func(_ context.Context, run *jq.Run, g greeting) error {
		ran <- run.Job
		return run.SetResult("Hello, " + g.Name)
	})
	server, err := jq.NewServer(s, &handlers, options(30*time.Second))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	return ran
}

// receive returns the next job that runs.
func receive(t *testing.T, ran <-chan jq.Job) jq.Job {
	t.Helper()
	select {
	case job := <-ran:
		return job
	case <-time.After(20 * time.Second):
		require.Fail(t, "no job runs")
		return jq.Job{}
	}
}

func TestServerWorksOnARemoteStore(t *testing.T) {
	url := serve(t)
	worker := open(t, url)
	ran := work(t, worker)
	client := jq.NewClient(open(t, url), nil)
	require.Eventually(t, func() bool { // until the server listens: it polls never
		if _, err := client.Enqueue(t.Context(), greeting{"Ada"}, nil); err != nil {
			return false
		}
		select {
		case <-ran:
			return true
		case <-time.After(100 * time.Millisecond):
			return false
		}
	}, 20*time.Second, time.Millisecond)
	for i := range 20 {
		added, err := client.Enqueue(t.Context(), greeting{fmt.Sprint(i)}, nil)
		require.NoError(t, err)
		for receive(t, ran).ID != added.ID { // the jobs of before, if a wake-up was late
		}
	}
	require.Eventually(t, func() bool {
		counts, err := client.Count(t.Context(), jq.Filter{States: []jq.State{jq.Ready, jq.InFlight, jq.Failed}})
		return err == nil && len(counts.Queues) == 0
	}, 20*time.Second, 10*time.Millisecond, "everything is acked in the end")
	workers, err := client.Workers(t.Context())
	require.NoError(t, err)
	assert.Len(t, workers, 1)
}

func TestJobsOfAKilledWorkerAreRecovered(t *testing.T) {
	url := serve(t)
	client := jq.NewClient(open(t, url), nil)
	added, err := client.Enqueue(t.Context(), greeting{"Grace"}, &jq.EnqueueOptions{Backoff: jq.Backoff{Base: time.Millisecond, Cap: time.Millisecond}})
	require.NoError(t, err)

	exe, err := os.Executable()
	require.NoError(t, err)
	victim := exec.CommandContext(t.Context(), exe)
	victim.Env = append(os.Environ(), workerServer+"="+url)
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, victim.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("%d 1\n", added.ID), line)
	require.NoError(t, victim.Process.Kill())
	_ = victim.Wait()

	worker := open(t, url)
	job := receive(t, work(t, worker))
	assert.Equal(t, added.ID, job.ID)
	assert.EqualValues(t, 3, job.Token, "claimed, recovered and claimed again")
	assert.Equal(t, 1, job.Retries)
	outcomes, err := worker.Ack(t.Context(), []contract.Ack{{Lease: jq.Lease{ID: added.ID, Token: 1}}})
	require.NoError(t, err)
	assert.ErrorIs(t, outcomes[0].Err(), jq.ErrStaleLease, "what the dead worker would write")
	require.Eventually(t, func() bool {
		after, err := client.Get(t.Context(), added.ID)
		return err == nil && after.State == jq.Succeeded && string(after.Result) == `"Hello, Grace"`
	}, 20*time.Second, 10*time.Millisecond)
}

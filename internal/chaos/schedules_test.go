//go:build unix

package chaos

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/race"
)

const (
	envSchedule    = "JQ_SCHEDULE_LENGTH" // how long the servers are killed and started, if not for
	scheduleLength = 30 * time.Second

	schedulesName = "schedules" // of a process that fires schedules and does nothing else
	firing        = 3           // such processes
)

// R96: a schedule fires each second on three servers, which are killed and started again at any moment. Each time enqueues once. A
// time may be left out only for a later one that was due at the same look.
func TestSchedulesOnSQLite(t *testing.T) {
	t.Parallel()
	scheduled(t, role{sqlitePath: filepath.Join(t.TempDir(), "jobs.db")})
}

// R96, as above.
func TestSchedulesOnPostgres(t *testing.T) {
	t.Parallel()
	c, err := pgtest.Start(t.Context(), pgtest.Options{Settings: []string{"synchronous_commit=on"}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Stop()) })
	scheduled(t, role{dsn: c.DSN})
}

func scheduled(t *testing.T, r role) {
	if race.Enabled {
		t.Skip("left to the pass without the race detector: what is looked for is between processes")
	}
	length := scheduleLength
	if text := os.Getenv(envSchedule); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err, "the variable "+envSchedule)
	}
	seed := seedOf(t)
	t.Logf("%s=%d kills at the same moments again", envSeed, seed)
	s, err := openStore(t.Context(), r, 0)
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	client := jq.NewClient(s, nil)
	put, err := client.PutSchedule(t.Context(), jq.Schedule{
		Name: "each second", Cron: "* * * * * *", Job: jq.NewJob{Queue: "scheduled", Kind: "tick", Payload: []byte("null")},
	})
	require.NoError(t, err)

	r.name = schedulesName
	ctx, end := context.WithTimeout(t.Context(), length)
	defer end()
	var all sync.WaitGroup
	var kills atomic.Int64
	for i := range firing {
		random := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // a seed repeats it
		all.Go(func() {
			for ctx.Err() == nil {
				if !killLater(ctx, t, r, random) {
					return
				}
				kills.Add(1)
			}
		})
	}
	all.Wait()
	end()

	last, err := client.Schedule(t.Context(), "each second")
	require.NoError(t, err)
	times := map[time.Time]int{}
	for j, err := range client.Jobs(t.Context(), jq.Filter{Queue: "scheduled"}) {
		require.NoError(t, err)
		require.NotNil(t, j.Scheduled())
		times[j.Scheduled().For]++
		assert.False(t, j.EnqueuedAt.Before(j.Scheduled().For), "the job for %v was enqueued too early, at %v", j.Scheduled().For, j.EnqueuedAt)
	}
	passed := int(last.LastAt.Sub(put.NextAt)/time.Second) + 1
	for at, n := range times {
		assert.Equal(t, 1, n, "jobs for %v", at)
		assert.False(t, at.Before(put.NextAt) || at.After(last.LastAt), "the job for %v is for no time of the schedule", at)
	}
	assert.GreaterOrEqual(t, len(times), passed/2, "most times enqueue, of %d", passed)
	assert.GreaterOrEqual(t, int(kills.Load()), int(length/(4*time.Second)), "servers were killed")
	figures.Print(t, "%s, seed %d: %d servers were killed %d times in %v; of %d seconds, %d enqueued once, none twice, and %d were left out for a later one",
		t.Name(), seed, firing, kills.Load(), length, passed, len(times), passed-len(times))
	figures.Count(t, "kills", int(kills.Load()))
}

// killLater starts a process, kills it after a while, and waits for a moment. It returns false if it could not.
func killLater(ctx context.Context, t *testing.T, r role, random *rand.Rand) bool {
	self, err := os.Executable()
	if !assert.NoError(t, err) {
		return false
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), r.environment()...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if !assert.NoError(t, err) || !assert.NoError(t, c.Start()) {
		return false
	}
	defer func() { _ = in.Close() }()
	pause(ctx, time.Duration(500+random.IntN(4000))*time.Millisecond)
	if !assert.NoError(t, c.Process.Kill()) {
		return false
	}
	err = c.Wait()
	status, _ := c.ProcessState.Sys().(syscall.WaitStatus)
	if !assert.True(t, status.Signaled() && status.Signal() == syscall.SIGKILL, "a server has ended by itself: %v", err) {
		return false
	}
	pause(ctx, time.Duration(random.IntN(1500))*time.Millisecond)
	return true
}

// pause waits, but not beyond the context.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// fireSchedules is the life of a process that fires schedules. It ends with the test, whatever becomes of that.
func fireSchedules() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(exitOrphan)
	}()
	s, err := openStore(ctx, role{sqlitePath: os.Getenv(envSQLite), dsn: os.Getenv(envDSN)}, 0)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	server, err := jq.NewServer(s, nil, &jq.ServerOptions{
		Queues: map[string]jq.QueueOptions{}, Retention: jq.RetentionOptions{Interval: -1}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

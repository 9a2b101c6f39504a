//go:build unix

package jq_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/postgres"
)

// The test binary is also one of many workers, whose handlers all run until the input ends.
const (
	crewDSN    = "JQ_TEST_CREW_DSN"
	crewPooled = "JQ_TEST_CREW_POOLED"
	crewSlots  = 5
	crewLease  = 15 * time.Second
)

func crew(dsn string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pooled, err := strconv.ParseBool(os.Getenv(crewPooled))
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stdout, nil))
	s, err := postgres.Open(ctx, dsn, &postgres.Options{Pooled: pooled, Logger: logger})
	if err != nil {
		return err
	}
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, _ *jq.Run, _ patient) error {
		select {
		case <-over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	server, err := jq.NewServer(s, &handlers, &jq.ServerOptions{Slots: crewSlots, Lease: jq.LeaseOptions{Duration: crewLease}, Logger: logger})
	if err != nil {
		return err
	}
	if err := server.Run(ctx); err != nil {
		return err
	}
	return s.Close()
}

// A member is one process of a crew, and what it has said.
type member struct {
	*exec.Cmd
	in   io.Closer
	said bytes.Buffer
}

func startMember(t *testing.T, dsn string, pooled bool) *member {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	m := &member{Cmd: exec.CommandContext(t.Context(), self)}
	m.Env = append(os.Environ(), crewDSN+"="+dsn, crewPooled+"="+strconv.FormatBool(pooled), "GOMAXPROCS=1")
	m.Stdout, m.Stderr = &m.said, &m.said
	m.in, err = m.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, m.Start())
	return m
}

// within calls look until it returns true.
func within(t *testing.T, limit time.Duration, what string, look func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !look(); {
		require.True(t, time.Now().Before(end), what)
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // polls other processes
	}
}

// D27: a hundred workers could not start on a server with a hundred connections, and forty idle ones held nearly all of them. They
// start at once, and all of their jobs run at the same time, for several leases.
func TestManyWorkersShareTheServersConnections(t *testing.T) {
	if race.Enabled {
		t.Skip("not under the race detector: many processes, which are slow then")
	}
	for name, k := range map[string]struct {
		workers int
		pooled  bool
	}{
		"direct": {workers: 40},
		"pooled": {workers: 100, pooled: true},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := pgtest.Start(t.Context(), pgtest.Options{Settings: []string{"max_connections=100"}})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, c.Stop()) })
			s, err := postgres.Open(t.Context(), c.DSN, nil)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, s.Close()) })
			client := jq.NewClient(s, nil)
			jobs := k.workers * crewSlots
			items := make([]jq.Item, jobs)
			for i := range items {
				items[i] = jq.Item{Payload: patient{}}
			}
			_, err = client.EnqueueMany(t.Context(), items, nil)
			require.NoError(t, err)

			dsn := c.DSN
			if k.pooled {
				dsn = pgtest.NewPooler(t, c.DSN).DSN
			}
			began := time.Now()
			crew := make([]*member, k.workers)
			for i := range crew {
				crew[i] = startMember(t, dsn, k.pooled)
			}
			sessions := func() (n int) {
				require.NoError(t, s.DB().GetContext(t.Context(), &n, `
					SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`))
				return n
			}
			most := 0
			in := func(state jq.State) []jq.Job {
				page, err := client.List(t.Context(), jq.Filter{States: []jq.State{state}}, jq.Page{Limit: jobs})
				require.NoError(t, err)
				most = max(most, sessions())
				return page.Jobs
			}
			within(t, 2*time.Minute, "not all jobs run", func() bool { return len(in(jq.InFlight)) == jobs })
			running := time.Since(began)
			least, end := crewLease, time.Now().Add(3*crewLease)
			within(t, time.Minute, "the leases do not last", func() bool {
				found := in(jq.InFlight)
				require.Len(t, found, jobs, "a lease has ended")
				for _, j := range found {
					least = min(least, time.Until(j.LeaseExpiresAt))
				}
				return time.Now().After(end)
			})
			assert.Greater(t, least, crewLease/3, "the time that was left of a lease: heartbeats come each third of it")
			for _, m := range crew {
				require.NoError(t, m.in.Close())
			}
			within(t, time.Minute, "the jobs do not end", func() bool { return len(in(jq.Succeeded)) == jobs })
			for _, j := range in(jq.Succeeded) {
				assert.EqualValues(t, 1, j.Token, "it ran once")
			}

			// An idle worker has one connection that listens, and one for everything else.
			bound := 2*k.workers + 2
			if k.pooled {
				bound = 20
			}
			idle := 0
			within(t, time.Minute, "idle workers have too many connections", func() bool { idle = sessions(); return idle <= bound })
			for _, m := range crew {
				require.NoError(t, m.Process.Signal(os.Interrupt))
			}
			var all sync.WaitGroup
			for _, m := range crew {
				all.Go(func() { assert.NoError(t, m.Wait()) })
			}
			all.Wait()
			refusals := 0
			for _, m := range crew {
				for lines := bufio.NewScanner(&m.said); lines.Scan(); {
					switch line := lines.Bytes(); {
					case bytes.Contains(line, []byte("no free connection; calls wait")):
						refusals++
					case !bytes.Contains(line, []byte("level=INFO")):
						assert.Fail(t, "a worker has failed at something", "%s", line)
					}
				}
			}
			figures.Print(t, "%s: %d workers on a server with 100 connections: all %d jobs ran after %v, with at most %d connections, %d when idle; "+
				"%d workers had to wait for one; of leases of %v at least %v were left", name, k.workers, jobs, running.Round(100*time.Millisecond),
				most, idle, refusals, crewLease, least.Round(10*time.Millisecond))
		})
	}
}

package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/sample"
)

// screenOn returns a screen over a store in memory with its own clock. It does not rest after a count: each refresh of a test must count.
func screenOn(t *testing.T) (*screen, jq.Store, *clock.Mock) {
	t.Helper()
	clk := clock.NewMock()
	clk.Set(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	s := jq.NewMemory(&jq.MemoryOptions{Clock: clk})
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	screen := newScreen(t.Context(), s, "memory:", 2*time.Second, 0)
	t.Cleanup(screen.counts.Close)
	screen.countWait = 10 * time.Second // a busy machine counts late
	return screen, s, clk
}

func (s *screen) refresh(t *testing.T) string {
	t.Helper()
	_, next := s.Update(s.snapshot())
	require.NotNil(t, next, "the next refresh is scheduled")
	return s.text()
}

func TestTopShowsQueuesAndWorkers(t *testing.T) {
	s, store, clk := screenOn(t)
	assert.Equal(t, "memory:   2026-01-02T03:04:05Z   every 2s, press q to quit\n\nno queue has jobs\n\nno workers are running, and none died in the last day", s.refresh(t))

	client := jq.NewClient(store, nil)
	for range 4 {
		_, err := client.Enqueue(t.Context(), jq.Raw{Name: "k", Document: []byte("1")}, &jq.EnqueueOptions{Queue: "mail"})
		require.NoError(t, err)
	}
	require.NoError(t, store.(contract.Registry).Beat(t.Context(), jq.Worker{Name: "anna", Queues: []string{"mail"}, Slots: 8, Running: 1, StaleAfter: 3 * time.Second}))
	jobs, err := store.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "mail", Limit: 2, Worker: "anna", TTL: time.Minute})
	require.NoError(t, err)
	clk.Add(2 * time.Second)
	_, err = store.Ack(t.Context(), []contract.Ack{{Lease: jobs[0].Lease()}})
	require.NoError(t, err)
	done := jq.Activity{Queue: "mail", Kind: "k", Succeeded: 1, Retried: 2, Dead: 3}
	done.Waited.Add(time.Second)
	require.NoError(t, store.(contract.ActivityKeeper).AddActivity(t.Context(), []jq.Activity{done}))
	_, err = client.Enqueue(t.Context(), jq.Raw{Name: "k", Document: []byte("1")}, &jq.EnqueueOptions{Queue: "later", Delay: time.Hour})
	require.NoError(t, err)
	_, err = client.Enqueue(t.Context(), jq.Raw{Name: "k", Document: []byte("1")}, &jq.EnqueueOptions{Queue: "later", After: []jq.Wait{{ID: jobs[1].ID}}})
	require.NoError(t, err)
	require.NoError(t, store.(contract.QueueKeeper).SetPaused(t.Context(), "held", true))
	assert.Equal(t, strings.TrimSpace(`
memory:   2026-01-02T03:04:07Z   every 2s, press q to quit

queue  state   oldest due  blocked  ready  in flight  retrying  dead  done 1h  failed 1h  wait p95  run p95
mail   -       2s          0        2      1          0         0     1        5          965ms     -
held   paused  -           0        0      0          0         0     0        0          -         -
later  -       -           1        1      0          0         0     0        0          -         -

worker  running  queues  last beat  alive
anna    1 of 8   mail    2s ago     yes`), s.refresh(t))
	clk.Add(behindAfter)
	assert.Regexp(t, `(?m)^mail +NO WORKER +32s `, s.refresh(t))
	require.NoError(t, store.(contract.Registry).Beat(t.Context(), jq.Worker{Name: "anna", Queues: []string{"mail"}, Slots: 8, Running: 1, StaleAfter: 3 * time.Second}))
	assert.Regexp(t, `(?m)^mail +BEHIND +32s `, s.refresh(t))
	_, err = store.(contract.PolicyKeeper).SetPolicy(t.Context(), "mail", jq.Policy{MaxInFlight: 1})
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^mail +FULL +32s `, s.refresh(t))
	clk.Add(4 * time.Second)
	assert.Contains(t, s.refresh(t), "STALE")
	s.Update(tea.WindowSizeMsg{Width: 10, Height: 3})
	assert.Equal(t, "memory:   \n\nqueue  sta", s.text())
}

// counting is a store whose counts end when the test lets them.
type counting struct {
	*jq.MemoryStore
	let chan struct{}
}

func (c counting) Count(ctx context.Context, f jq.Filter) (jq.Counts, error) {
	select {
	case <-c.let:
		return c.MemoryStore.Count(ctx, f)
	case <-ctx.Done():
		return jq.Counts{}, ctx.Err()
	}
}

// TestTopWaitsForNoCount: the rest is shown at once, and the age of a count that is old.
func TestTopWaitsForNoCount(t *testing.T) {
	_, store, clk := screenOn(t)
	_, err := jq.NewClient(store, nil).Enqueue(t.Context(), jq.Raw{Name: "k", Document: []byte("1")}, &jq.EnqueueOptions{Queue: "mail"})
	require.NoError(t, err)
	slow := counting{store.(*jq.MemoryStore), make(chan struct{}, 1)}
	s := newScreen(t.Context(), slow, "memory:", 2*time.Second, 0)
	t.Cleanup(s.counts.Close)
	assert.Contains(t, s.refresh(t), "the jobs are being counted")
	asked := s.counts.Ask() // while the first count is under way: this is the same one
	slow.let <- struct{}{}
	require.True(t, sample.Wait(t.Context(), asked))
	assert.Regexp(t, `(?m)^mail +- +0s +0 +1 `, s.refresh(t))
	clk.Add(11 * time.Second)
	assert.Contains(t, s.refresh(t), "jobs counted 11s ago")
}

func TestTopContinuesAfterAFailedRefresh(t *testing.T) {
	s, store, _ := screenOn(t)
	s.refresh(t)
	require.NoError(t, store.Close())
	assert.Contains(t, s.refresh(t), "the latest refresh failed: store closed\n\nno queue has jobs")
}

func TestTopQuitsOnKeys(t *testing.T) {
	for _, key := range []string{"q", "\x1b", "\x03"} {
		s, _, _ := screenOn(t)
		var out bytes.Buffer
		in, press := io.Pipe()
		go func() {
			_, _ = press.Write([]byte(key)) // the program may have exited already
		}()
		_, err := tea.NewProgram(s, tea.WithInput(in), tea.WithOutput(&out), tea.WithWindowSize(80, 24)).Run()
		require.NoError(t, err)
		assert.NoError(t, press.Close())
	}
}

// unmonitored is a remote store whose server cannot tell due times.
type unmonitored struct{ jq.Store }

func (unmonitored) Ping(context.Context) error { return nil }

func (unmonitored) OldestDue(context.Context) (contract.Due, error) {
	return contract.Due{}, errors.ErrUnsupported
}

func TestTopWithoutDueTimes(t *testing.T) {
	s, store, _ := screenOn(t)
	s.store = unmonitored{store}
	assert.Contains(t, s.refresh(t), "2026-01-02T03:04:05Z")
	assert.NotContains(t, s.refresh(t), "failed:")
}

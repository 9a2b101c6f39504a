package cli

import (
	"bytes"
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
)

// newScreen returns a screen over a store in memory with its own clock.
func newScreen(t *testing.T) (*screen, jq.Store, *clock.Mock) {
	t.Helper()
	clk := clock.NewMock()
	clk.Set(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	s := jq.NewMemory(&jq.MemoryOptions{Clock: clk})
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return &screen{ctx: t.Context(), client: jq.NewClient(s, nil), shown: "memory:", every: 2 * time.Second}, s, clk
}

func (s *screen) refresh(t *testing.T) string {
	t.Helper()
	_, next := s.Update(s.snapshot())
	require.NotNil(t, next, "the next refresh is scheduled")
	return s.text()
}

func TestTopShowsQueuesAndWorkers(t *testing.T) {
	s, store, clk := newScreen(t)
	assert.Equal(t, "memory:   2026-01-02T03:04:05Z   every 2s, press q to quit\n\nno queue has jobs\n\nno workers are running, and none died in the last day", s.refresh(t))

	client := jq.NewClient(store, nil)
	for range 4 {
		_, err := client.Enqueue(t.Context(), jq.Raw{Name: "k", Document: []byte("1")}, &jq.EnqueueOptions{Queue: "mail"})
		require.NoError(t, err)
	}
	require.NoError(t, store.(contract.Registry).Beat(t.Context(), jq.Worker{Name: "anna", Queues: []string{"mail"}, Slots: 8, Running: 1, StaleAfter: 3 * time.Second}))
	jobs, err := store.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "mail", Limit: 2, Worker: "anna", TTL: time.Minute})
	require.NoError(t, err)
	s.refresh(t)
	clk.Add(2 * time.Second)
	_, err = store.Ack(t.Context(), []contract.Ack{{Lease: jobs[0].Lease()}})
	require.NoError(t, err)
	require.NoError(t, store.(contract.QueueKeeper).SetPaused(t.Context(), "mail", true))
	s.refresh(t)
	clk.Add(2 * time.Second)
	assert.Equal(t, strings.TrimSpace(`
memory:   2026-01-02T03:04:07Z   every 2s, press q to quit

queue  ready  due  oldest due  in flight  retrying  dead  done/s  paused
mail   2      2    2s          1          0         0     0.5     yes

worker  running  queues  last beat  alive
anna    1 of 8   mail    2s ago     yes`), s.text())
	assert.Contains(t, s.refresh(t), "STALE")
	s.Update(tea.WindowSizeMsg{Width: 10, Height: 3})
	assert.Equal(t, "memory:   \n\nqueue  rea", s.text())
}

func TestTopContinuesAfterAFailedRefresh(t *testing.T) {
	s, store, _ := newScreen(t)
	s.refresh(t)
	require.NoError(t, store.Close())
	assert.Contains(t, s.refresh(t), "the latest refresh failed: store closed\n\nno queue has jobs")
}

func TestTopQuitsOnKeys(t *testing.T) {
	for _, key := range []string{"q", "\x1b", "\x03"} {
		s, _, _ := newScreen(t)
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

package tally

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// A keeper is a store that notes what it is given, and fails as it is told.
type keeper struct {
	*memory.Store
	mu    sync.Mutex // guards calls
	calls [][]store.Activity
	fail  error
	panic string
}

func (k *keeper) AddActivity(_ context.Context, items []store.Activity) error {
	slices.SortFunc(items, func(a, b store.Activity) int { return strings.Compare(a.Queue+a.Kind, b.Queue+b.Kind) })
	k.mu.Lock()
	k.calls = append(k.calls, items)
	k.mu.Unlock()
	if k.panic != "" {
		panic(k.panic)
	}
	return k.fail
}

func newTally(t *testing.T) (*Tally, *keeper, *bytes.Buffer) {
	t.Helper()
	k, said := &keeper{Store: memory.New(memory.Options{})}, &bytes.Buffer{}
	t.Cleanup(func() { require.NoError(t, k.Close()) })
	return New(k, slog.New(slog.NewTextHandler(said, nil))), k, said
}

// everything counts one of each.
func everything(t *Tally) {
	t.Waited("q", "k", 2*time.Millisecond)
	t.Waited("q", "k", -1)
	t.Ended("q", "k", store.EndSucceeded, store.Succeeded, 20*time.Millisecond)
	t.Ended("q", "k", store.EndFailed, store.Retrying, 2*time.Hour)
	t.Ended("q", "l", store.EndFailed, store.Dead, time.Second)
	t.Ended("q", "l", store.EndSnoozed, store.Ready, 0)
	t.Ended("q", "m", store.EndReleased, store.Ready, time.Second)
	t.Recovered([]store.Recovered{{Queue: "r", Kind: "k", Next: time.Unix(1, 0)}, {Queue: "r", Kind: "k"}})
	t.Settled([]store.Settled{{Queue: "r", Kind: "k", Expired: true}, {Queue: "r", Kind: "k"}})
	t.Stale("q", "k")
}

var ofEverything = []store.Activity{
	{Queue: "q", Kind: "k", Succeeded: 1, Retried: 1, Stale: 1, Waited: store.Histogram{1: 1}, Ran: store.Histogram{3: 1, 15: 1}},
	{Queue: "q", Kind: "l", Dead: 1, Snoozed: 1, Ran: store.Histogram{6: 1}},
	{Queue: "r", Kind: "k", Dead: 1, Recovered: 2, Expired: 1},
}

func TestTallyAddsUpByQueueAndKind(t *testing.T) {
	tally, k, _ := newTally(t)
	everything(tally)
	tally.Flush(t.Context())
	require.Len(t, k.calls, 1)
	assert.Equal(t, ofEverything, k.calls[0])
	tally.Flush(t.Context())
	assert.Len(t, k.calls, 1, "nothing has happened since")
	tally.Stale("q", "k")
	tally.Flush(t.Context())
	assert.Equal(t, []store.Activity{{Queue: "q", Kind: "k", Stale: 1}}, k.calls[1], "what has happened since")
}

func TestTallyOfAStoreThatKeepsNoneDoesNothing(t *testing.T) {
	tally := New(struct{ store.Store }{}, slog.Default())
	require.Nil(t, tally)
	everything(tally)
	tally.Flush(t.Context())
	tally.Run(t.Context(), clock.New(), time.Second)
}

// The wait ends with the claim, and is unknown of a retry and of a job whose claim has no time.
func TestWaitEndsWithTheClaim(t *testing.T) {
	due := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	j := store.Job{RunAt: due, ClaimedAt: due.Add(time.Minute), LeaseExpiresAt: due.Add(time.Hour)}
	assert.Equal(t, time.Minute, WaitOf(&j))
	untimed, retry := j, j
	untimed.ClaimedAt, retry.Retries = time.Time{}, 1
	assert.Negative(t, WaitOf(&untimed))
	assert.Negative(t, WaitOf(&retry))
}

// What was surely not written is written later, together with what has happened since. What may have been written is not.
func TestTallyCountsNothingTwice(t *testing.T) {
	for err, again := range map[error]bool{
		fmt.Errorf("%w: down", store.ErrUnavailable): true, store.ErrInDoubt: false, store.ErrClosed: false, errors.ErrUnsupported: false,
		store.ErrDenied: false, store.ErrInvalid: false, errors.New("odd"): false,
	} {
		tally, k, said := newTally(t)
		k.fail = err
		everything(tally)
		tally.Flush(t.Context())
		tally.Flush(t.Context())
		k.fail = nil
		tally.Stale("q", "k")
		tally.Flush(t.Context())
		want := store.Activity{Queue: "q", Kind: "k", Stale: 1}
		if again {
			want = want.Plus(ofEverything[0])
		}
		assert.Equal(t, want, k.calls[len(k.calls)-1][0], err)
		loud := errors.Is(err, store.ErrDenied) || errors.Is(err, store.ErrInvalid) || err.Error() == "odd"
		assert.Equal(t, loud, said.Len() > 0, "%v: %s", err, said)
	}
}

func TestTallyComplainsOnce(t *testing.T) {
	tally, k, said := newTally(t)
	k.panic = "boom"
	for range 3 {
		tally.Stale("q", "k")
		tally.Flush(t.Context())
	}
	assert.Len(t, k.calls, 3)
	assert.Equal(t, 1, strings.Count(said.String(), "\n"), said)
	assert.Contains(t, said.String(), "boom")
}

func TestTallyHasAThousandPairsAtMost(t *testing.T) {
	tally, k, _ := newTally(t)
	for i := range store.MaxItems + 10 {
		tally.Stale("q", fmt.Sprint(i))
	}
	tally.Stale("q", "0")
	tally.Flush(t.Context())
	require.Len(t, k.calls[0], store.MaxItems)
	assert.Equal(t, store.Activity{Queue: "(other)", Kind: "(other)", Stale: 11}, k.calls[0][0])
	assert.EqualValues(t, 2, k.calls[0][1].Stale, "a pair that was known before")
	require.NoError(t, store.CheckActivity(k.calls[0]))
}

// Sums that grow through an outage without an end stay within the limit of a call.
func TestTallyStaysWithinTheLimits(t *testing.T) {
	tally, k, _ := newTally(t)
	tally.Stale("q", "k")
	tally.rows[pair{"q", "k"}].Stale = store.MaxActivityNum + 5
	tally.Flush(t.Context())
	require.NoError(t, store.CheckActivity(k.calls[0]))
}

// Nothing runs until something happens, and ten seconds later it is written.
func TestTallyWritesTenSecondsLater(t *testing.T) {
	tally, k, _ := newTally(t)
	clk := clock.NewMock()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	timers := make(chan struct{}, 1)
	go func() {
		defer close(ended)
		tally.Run(ctx, watched{clk, timers}, time.Second)
	}()
	calls := func() int {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.calls)
	}
	for n := range 3 {
		assert.Empty(t, timers, "nothing has happened, so nothing is waited for")
		tally.Stale("q", "k")
		select {
		case <-timers:
		case <-time.After(10 * time.Second):
			t.Fatal("nothing waits for the ten seconds to pass")
		}
		clk.Add(Every - 1)
		assert.Equal(t, n, calls())
		clk.Add(1)
		require.Eventually(t, func() bool { return calls() == n+1 }, 10*time.Second, time.Millisecond, "the sums were not written")
		clk.Add(time.Hour)
	}
	cancel()
	<-ended
	assert.Len(t, k.calls, 3)
}

// A watched clock tells when the timer of a tally was made.
type watched struct {
	*clock.Mock
	timers chan struct{}
}

func (w watched) Timer(d time.Duration) *clock.Timer {
	timer := w.Mock.Timer(d)
	w.timers <- struct{}{}
	return timer
}

func BenchmarkTally(b *testing.B) {
	for _, kinds := range []int{1, 10} {
		b.Run(fmt.Sprintf("kinds=%d", kinds), func(b *testing.B) {
			s := memory.New(memory.Options{})
			defer func() { require.NoError(b, s.Close()) }()
			tally := New(s, slog.Default())
			var names []string
			for i := range kinds {
				names = append(names, fmt.Sprintf("kind-%d", i))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				tally.Waited("default", names[i%kinds], time.Millisecond)
				tally.Ended("default", names[i%kinds], store.EndSucceeded, store.Succeeded, 5*time.Millisecond)
			}
		})
	}
}

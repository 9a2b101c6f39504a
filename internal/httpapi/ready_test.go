package httpapi

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// D19: /readyz was answered after seven seconds. It has a second, also where the store needs longer, which is asked by one at a time.
func TestReadyAnswersWithinASecond(t *testing.T) {
	var asked atomic.Int64
	var slow atomic.Bool
	slow.Store(true)
	w := newWorld(t, Options{}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, ping: func(ctx context.Context) error {
			asked.Add(1)
			if !slow.Load() {
				return nil
			}
			<-ctx.Done()
			return store.ErrUnavailable
		}}
	})
	const probes = 20
	answers := make(chan int, probes)
	for range probes {
		go func() { answers <- w.ask("GET", "/readyz", "").status }()
	}
	w.eventually("the store is asked", func() bool { return asked.Load() == 1 })
	for answered := 0; answered < probes; {
		w.clock.Add(readyWithin)
		select {
		case status := <-answers:
			assert.Equal(t, 503, status)
			answered++
		case <-time.After(time.Millisecond): // of those that had not come to waiting when the time passed
		}
	}
	w.eventually("the check has ended", func() bool {
		w.clock.Add(readyWithin)
		w.api.checks.mu.Lock()
		defer w.api.checks.mu.Unlock()
		return w.api.checks.running == nil
	})
	slow.Store(false)
	assert.Equal(t, 200, w.ask("GET", "/readyz", "").status, "what was answered before is not kept")
}

// Probes that come together cost the store one question.
func TestProbesShareACheck(t *testing.T) {
	inside, goOn := make(chan struct{}, 100), make(chan struct{})
	w := newWorld(t, Options{}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, ping: func(context.Context) error {
			inside <- struct{}{}
			<-goOn
			return nil
		}}
	})
	first, err := w.api.check()
	require.NoError(t, err)
	receive(t, inside, "the store is asked")
	second, err := w.api.check()
	require.NoError(t, err)
	assert.Same(t, first, second)
	goOn <- struct{}{}
	receive(t, first.done, "the check is answered")
	require.NoError(t, first.err)
	assert.Empty(t, inside, "it was asked once")
}

// While listings and counts have all places, what is read quickly is answered, and so are probes.
func TestReadingsThatLastHoldUpNoShortOnes(t *testing.T) {
	inside, goOn := make(chan struct{}, 100), make(chan struct{})
	w := newWorld(t, Options{MaxReads: 2}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, counting: func() error {
			inside <- struct{}{}
			<-goOn
			return nil
		}}
	})
	w.enqueue("default")
	answers := make(chan int, 3)
	for range 3 {
		go func() { answers <- w.ask("GET", "/v1/stats", "").status }()
	}
	for range 2 {
		receive(t, inside, "a count asks the store")
	}
	for _, path := range []string{"/readyz", "/v1/queues", "/v1/workers", "/v1/due", "/v1/jobs/1"} {
		assert.Equal(t, 200, w.ask("GET", path, "").status, path)
	}
	for range 3 {
		goOn <- struct{}{}
		assert.Equal(t, 200, receive(t, answers, "a count is answered"))
	}
}

// A reading that lasts for too long is refused with what to do.
func TestOverlongReadingsSayWhatToDo(t *testing.T) {
	w := newWorld(t, Options{}, failing(&store.OverlongError{Limit: 10 * time.Second}))
	f := w.ask("GET", "/v1/jobs?tag=a", "").fail(t)
	assert.Equal(t, 503, f.Status)
	assert.Equal(t, "the reading took longer than 10s: narrow its filter, first by queue and state", f.Detail)
}

func TestDueTellsSinceWhen(t *testing.T) {
	w := newWorld(t, Options{})
	w.enqueue("b")
	w.clock.Add(time.Minute)
	due := call[store.Due](w, 200, "GET", "/v1/due", "")
	assert.Equal(t, store.Due{Now: w.clock.Now(), Queues: []store.QueueDue{{Queue: "b", OldestDue: start}}}, due)
}

package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

// waiting waits for the end of job 1 in the background, and returns once the API waits.
func (w *world) waiting(path string, headers ...string) <-chan answered {
	w.Helper()
	before, got := len(w.api.all.polls), make(chan answered, 1)
	go func() {
		answer, err := w.try(w.Context(), "GET", path, "", headers...)
		assert.NoError(w, err)
		got <- answer
	}()
	w.asleep(before + 1)
	return got
}

// answer waits for the answer, and not for ever.
func (w *world) answer(got <-chan answered) answered {
	w.Helper()
	w.eventually("the wait is answered", func() bool { return len(got) == 1 })
	return <-got
}

const waitForOne = "/v1/jobs/1?wait=1m"

// phase is that of the job in the answer.
func (w *world) phase(got answered) store.State {
	w.Helper()
	require.Equal(w, 200, got.status, got.text)
	var detail wire.JobDetail
	require.NoError(w, json.Unmarshal([]byte(got.text), &detail))
	return detail.Store().Phase()
}

// TestWaitIsToldOfEndsInThisServer: the clock stands still, so nobody looks again by themselves.
func TestWaitIsToldOfEndsInThisServer(t *testing.T) {
	lease := `{"jobs":[{"id":"1","token":"1"`
	for _, c := range []struct {
		name               string
		method, path, body string
		want               store.State
	}{
		{"Ack", "POST", wire.PathAck, lease + `,"result":7}]}`, store.Succeeded},
		{"NAck", "POST", wire.PathNAck, lease + `,"form":"never","error":"no"}]}`, store.Dead},
		{"Cancel", "POST", "/v1/jobs/1/cancel", "", store.Cancelled},
		{"Bulk", "POST", wire.PathBulk, `{"action":"cancel","filter":{"queue":"default"}}`, store.Cancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Options{})
			w.enqueue("default")
			w.claim(`{"worker":"w"}`)
			got := w.waiting(waitForOne)
			require.Less(t, w.ask(c.method, c.path, c.body).status, 300)
			assert.Equal(t, c.want, w.phase(w.answer(got)))
			w.asleep(0)
			w.nothingIsTakenUp()
		})
	}
}

// TestWaitAnswersWithTheEndThatItHasSeen, and does not look again: the job may have been requeued.
func TestWaitAnswersWithTheEndThatItHasSeen(t *testing.T) {
	var looked atomic.Int64
	w := newWorld(t, Options{}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, any: func(ctx context.Context) error {
			job, err := s.Get(ctx, 1)
			if err == nil && job.Terminal() && looked.Add(1) > 1 {
				_, err = s.Requeue(ctx, store.Filter{IDs: []int64{1}}, 1)
				return err
			}
			return nil
		}}
	})
	w.enqueue("default")
	got := w.waiting(waitForOne)
	call[store.Outcome](w, 200, "POST", "/v1/jobs/1/cancel", "")
	assert.Equal(t, store.Cancelled, w.phase(w.answer(got)))
}

func TestWaitIsToldOfRecoveries(t *testing.T) {
	w := newWorld(t, Options{})
	call[wire.Enqueued](w, 201, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","max_retries":0}]}`)
	w.claim(`{"worker":"w","lease":"1ms"}`)
	w.clock.Add(time.Millisecond)
	got := w.waiting(waitForOne)
	call[wire.Recovered](w, 200, "POST", wire.PathRecover, `{}`)
	assert.Equal(t, store.Dead, w.phase(w.answer(got)))
}

// TestWaitIsToldOfDeletions, of a job whose end it was not told of.
func TestWaitIsToldOfDeletions(t *testing.T) {
	var looked atomic.Int64
	w := newWorld(t, Options{}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, got: func() { looked.Add(1) }}
	})
	w.enqueue("default")
	got := w.waiting(waitForOne)
	w.eventually("the call and its watch have looked", func() bool { return looked.Load() == 2 })
	_, err := w.store.Cancel(t.Context(), store.Filter{IDs: []int64{1}}, 1)
	require.NoError(t, err)
	require.Equal(t, 200, w.ask("DELETE", "/v1/jobs/1", "").status)
	assert.Equal(t, urn+"not_found", w.answer(got).fail(t).Type)
}

// TestWaitSeesEndsElsewhere, by a look each second.
func TestWaitSeesEndsElsewhere(t *testing.T) {
	w := newWorld(t, Options{})
	w.enqueue("default")
	got := w.waiting(waitForOne)
	_, err := w.store.Cancel(t.Context(), store.Filter{IDs: []int64{1}}, 1)
	require.NoError(t, err)
	assert.Empty(t, got)
	w.eventually("a look finds the end", func() bool { w.clock.Add(20 * time.Millisecond); return len(got) == 1 })
	assert.Equal(t, store.Cancelled, w.phase(w.answer(got)))
	assert.Less(t, w.clock.Since(start), 10*time.Second)
}

func TestWaitAnswersWithTheJobAsItIsWhenItsTimeIsOver(t *testing.T) {
	w := newWorld(t, Options{})
	w.enqueue("default")
	got := w.waiting("/v1/jobs/1?wait=1m")
	w.clock.Add(time.Minute - time.Microsecond)
	w.claim(`{"worker":"w"}`)
	assert.Empty(t, got)
	w.clock.Add(time.Microsecond)
	assert.Equal(t, store.InFlight, w.phase(w.answer(got)))
	assert.Equal(t, store.InFlight, w.phase(w.ask("GET", "/v1/jobs/1?wait=0s", "")), "no time at all")
}

func TestWaitIsOverAtOnceForAJobThatHasEndedOrIsNotThere(t *testing.T) {
	w := newWorld(t, Options{MaxWaiting: 1})
	require.True(t, w.api.all.polls.enter(), "others wait")
	defer w.api.all.polls.leave()
	w.enqueue("default")
	call[store.Outcome](w, 200, "POST", "/v1/jobs/1/cancel", "")
	assert.Equal(t, store.Cancelled, w.phase(w.ask("GET", waitForOne, "")))
	assert.Equal(t, urn+"not_found", w.ask("GET", "/v1/jobs/2?wait=1m", "").fail(t).Type)
	w.nothingIsTakenUp()
}

func TestNoMoreWaitForEndsThanMay(t *testing.T) {
	w := newWorld(t, Options{MaxWaiting: 1})
	w.enqueue("default")
	got := w.waiting(waitForOne)
	refused := w.ask("GET", waitForOne, "")
	assert.Equal(t, urn+"too_many_waiting", refused.fail(t).Type)
	assert.Equal(t, "1", refused.header.Get("Retry-After"))
	assert.Equal(t, store.Ready, w.phase(w.ask("GET", "/v1/jobs/1", "")), "one that does not wait is served")
	call[store.Outcome](w, 200, "POST", "/v1/jobs/1/cancel", "")
	assert.Equal(t, store.Cancelled, w.phase(w.answer(got)))
	w.asleep(0)
}

func TestWaitOfAClientThatLeavesEnds(t *testing.T) {
	w := newWorld(t, Options{})
	w.enqueue("default")
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := w.try(ctx, "GET", waitForOne, "")
		gone <- err
	}()
	w.asleep(1)
	stays := w.waiting(waitForOne)
	leave()
	assert.ErrorIs(t, <-gone, context.Canceled)
	w.asleep(1)
	call[store.Outcome](w, 200, "POST", "/v1/jobs/1/cancel", "")
	assert.Equal(t, store.Cancelled, w.phase(w.answer(stays)))
}

func TestCloseEndsWaitsWithTheJobAsItIs(t *testing.T) {
	w := newWorld(t, Options{})
	w.enqueue("default")
	got := w.waiting(waitForOne)
	require.NoError(t, w.api.Close())
	assert.Equal(t, store.Ready, w.phase(w.answer(got)))
	assert.Equal(t, urn+"closed", w.ask("GET", waitForOne, "").fail(t).Type)
}

// TestAnOutageIsWaitedOut, and told if it lasts.
func TestAnOutageIsWaitedOut(t *testing.T) {
	var down atomic.Bool
	w := newWorld(t, Options{}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, any: func(context.Context) error {
			if down.Load() {
				return store.ErrUnavailable
			}
			return nil
		}}
	})
	w.enqueue("default")
	got := w.waiting(waitForOne)
	down.Store(true)
	w.clock.Add(30 * time.Second)
	assert.Empty(t, got)
	w.clock.Add(30 * time.Second)
	assert.Equal(t, urn+"unavailable", w.answer(got).fail(t).Type)

	down.Store(false)
	got = w.waiting(waitForOne)
	down.Store(true)
	w.clock.Add(30 * time.Second)
	down.Store(false)
	call[store.Outcome](w, 200, "POST", "/v1/jobs/1/cancel", "")
	assert.Equal(t, store.Cancelled, w.phase(w.answer(got)))
}

// TestWaitShowsWhatTheTokenMaySee, and ends when the token does.
func TestWaitShowsWhatTheTokenMaySee(t *testing.T) {
	h := newHouse(t, Options{})
	h.job(ownQueue, "")
	h.job(foreignQueue, "")
	auth := func(role Role) []string { return []string{"Authorization", "Bearer " + h.secrets[role]} }
	assert.Equal(t, 404, h.ask("GET", "/v1/jobs/2?wait=1m", "", auth(Operator)...).status, "at once, for it may not know of it")
	assert.Equal(t, 403, h.ask("GET", waitForOne, "", auth(Worker)...).status)

	asProducer, asViewer := h.waiting(waitForOne, auth(Producer)...), h.waiting(waitForOne, auth(Viewer)...)
	require.Equal(t, 200, h.as(Worker, "POST", wire.PathAck, `{"jobs":[{"id":"1","token":"1","result":"secret result"}]}`).status)
	toProducer, toViewer := h.answer(asProducer), h.answer(asViewer)
	assert.Equal(t, store.Succeeded, h.phase(toProducer))
	assert.Equal(t, store.Succeeded, h.phase(toViewer))
	assert.Contains(t, toProducer.text, "secret result")
	assert.NotContains(t, toProducer.text, `"payload"`)
	assert.NotContains(t, toViewer.text, "secret")

	h.job(ownQueue, "")
	got := h.waiting("/v1/jobs/3?wait=1m", auth(Viewer)...)
	h.api.SetTokens(&Tokens{})
	assert.Equal(t, http.StatusUnauthorized, h.answer(got).status)
	h.asleep(0)
}

// TestEndsThatWaitForTheirAnswerHaveRoom: many wait for a large job, and get its end at the same moment, long before their turns to answer.
func TestEndsThatWaitForTheirAnswerHaveRoom(t *testing.T) {
	w := newWorld(t, Options{})
	const large, waits = 100 << 10, 3
	call[wire.Enqueued](w, 201, "POST", wire.PathJobs, `{"jobs":[{"kind":"k","payload":"`+strings.Repeat("x", large)+`"}]}`)
	require.Len(t, w.claim(`{"worker":"w"}`), 1)
	var all []<-chan answered
	for range waits {
		all = append(all, w.waiting(waitForOne))
	}
	w.nothingIsTakenUp()
	for range cap(w.api.all.briefs) {
		require.True(t, w.api.all.briefs.enter())
	}
	call[wire.Results](w, 200, "POST", wire.PathAck, `{"jobs":[{"id":"1","token":"1"}]}`)
	w.eventually("all have room", func() bool { return w.api.all.bytes.used.Load() >= waits*large*asAnswer })
	for range cap(w.api.all.briefs) {
		w.api.all.briefs.leave()
	}
	for _, one := range all {
		assert.Equal(t, store.Succeeded, w.phase(w.answer(one)))
	}
	w.nothingIsTakenUp()
}

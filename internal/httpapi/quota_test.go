package httpapi

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

// jobsFor is a body with so many jobs for a queue.
func jobsFor(queue string, n int) string {
	body := ""
	for range n {
		body += fmt.Sprintf(`,{"kind":"k","queue":%q}`, queue)
	}
	return `{"jobs":[` + body[1:] + `]}`
}

func (h *house) behind(queue string, n int) {
	h.Helper()
	jobs := make([]store.NewJob, n)
	for i := range jobs {
		jobs[i] = store.NewJob{Queue: queue, Kind: "k", Payload: []byte(`{}`)}
	}
	_, err := h.store.Enqueue(h.Context(), store.EnqueueRequest{Jobs: jobs})
	require.NoError(h, err)
}

// TestQueueHasRoomForSoMany: whoever enqueues more is told to come back, and is let in as soon as there is room.
func TestQueueHasRoomForSoMany(t *testing.T) {
	counted := 0
	w := newWorld(t, Options{MaxWaitingJobs: 3}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, counting: func() error {
			counted++
			return nil
		}}
	})
	require.Equal(t, 201, w.ask("POST", wire.PathJobs, jobsFor("a", 2)).status)
	refused := w.ask("POST", wire.PathJobs, jobsFor("a", 2))
	f := refused.fail(t)
	assert.Equal(t, urn+"quota", f.Type)
	assert.Equal(t, 429, f.Status)
	assert.Equal(t, "2 jobs wait, and at most 3 may", f.Detail)
	assert.Equal(t, "1", refused.header.Get("Retry-After"))
	require.Equal(t, 201, w.ask("POST", wire.PathJobs, jobsFor("a", 1)).status)
	require.Equal(t, 201, w.ask("POST", wire.PathJobs, jobsFor("b", 3)).status, "another queue")
	require.Equal(t, 429, w.ask("POST", wire.PathJobs, jobsFor("a", 1)).status)
	assert.Equal(t, 2, counted, "once for each queue")

	require.Len(t, w.claim(`{"worker":"w","queues":["a"]}`), 1)
	require.Equal(t, 429, w.ask("POST", wire.PathJobs, jobsFor("a", 1)).status, "a count is not made anew within a second")
	w.clock.Add(newCount)
	require.Equal(t, 201, w.ask("POST", wire.PathJobs, jobsFor("a", 1)).status)
	assert.Equal(t, 3, counted)
	require.Equal(t, 429, w.ask("POST", wire.PathJobs, jobsFor("a", 4)).status, "more than there is room for at all")
	assert.Equal(t, map[store.State]int64{store.Ready: 6, store.InFlight: 1}, w.counts())
}

// TestQuotaHoldsAgainstOtherServers: what they have added is seen by the next count.
func TestQuotaHoldsAgainstOtherServers(t *testing.T) {
	w := newWorld(t, Options{MaxWaitingJobs: 3})
	h := &house{world: w}
	require.Equal(t, 201, w.ask("POST", wire.PathJobs, jobsFor("a", 1)).status)
	h.behind("a", 5)
	require.Equal(t, 201, w.ask("POST", wire.PathJobs, jobsFor("a", 1)).status, "a count is not made for each call")
	w.clock.Add(oldCount)
	assert.Equal(t, "7 jobs wait, and at most 3 may", w.ask("POST", wire.PathJobs, jobsFor("a", 1)).fail(t).Detail)
}

// TestTokenHasRoomForSoMany in the queues that it sees, whoever has filled them.
func TestTokenHasRoomForSoMany(t *testing.T) {
	secret, token, err := NewToken(Token{Name: "n", Role: Producer, Queues: []string{"mail*"}, MaxWaiting: 3})
	require.NoError(t, err)
	known, err := ReadTokens(bytes.NewReader(token.Line()))
	require.NoError(t, err)
	w := newWorld(t, Options{Tokens: known})
	h := &house{world: w}
	h.behind(foreignQueue, 10)
	h.behind("mail", 2)
	bearer := []string{"Authorization", "Bearer " + secret}
	require.Equal(t, 429, w.ask("POST", wire.PathJobs, jobsFor("mail-1", 2), bearer...).status)
	require.Equal(t, 201, w.ask("POST", wire.PathJobs, jobsFor("mail-1", 1), bearer...).status)
	require.Equal(t, 429, w.ask("POST", wire.PathJobs, jobsFor("mail-2", 1), bearer...).status)
	_, _, err = NewToken(Token{Name: "n", Role: Producer, MaxWaiting: -1})
	require.ErrorContains(t, err, "the waiting jobs of a token must be 0 or more")
}

// TestQuotaThatCanNotBeLookedAtRefusesNobody: it is there to protect the store, and not to take it away.
func TestQuotaThatCanNotBeLookedAtRefusesNobody(t *testing.T) {
	away := true
	w := newWorld(t, Options{MaxWaitingJobs: 1}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, counting: func() error {
			if away {
				return store.ErrUnavailable
			}
			return nil
		}}
	})
	require.Equal(t, 201, w.ask("POST", wire.PathJobs, jobsFor("a", 2)).status)
	assert.Contains(t, w.logged.String(), "a quota is not looked at")
	away = false
	w.clock.Add(time.Second)
	require.Equal(t, 429, w.ask("POST", wire.PathJobs, jobsFor("a", 1)).status)
}

// TestQuotaIsNoWayIntoForeignQueues: jobs that are refused take up no room, and who names a foreign queue is not told how full it is.
func TestQuotaIsNoWayIntoForeignQueues(t *testing.T) {
	h := newHouse(t, Options{MaxWaitingJobs: 3})
	h.behind(foreignQueue, 2)
	for range 3 {
		f := h.as(Producer, "POST", wire.PathJobs, jobsFor(foreignQueue, 2)).fail(t)
		assert.Equal(t, urn+"forbidden", f.Type)
		assert.Equal(t, "the token is for the queues mail, mail-*", f.Detail)
	}
	for _, body := range []string{`{"jobs":[{"kind":"k","queue":"mail","unique_key":"b/1"}]}`, `{"jobs":[{"kind":"k","queue":"mail","priority":77}]}`} {
		for range 4 {
			assert.Contains(t, []int{400, 403}, h.as(Producer, "POST", wire.PathJobs, body).status)
		}
	}
	assert.Empty(t, h.api.byQueue.all, "no room was asked for")
	assert.Equal(t, 201, h.as(Producer, "POST", wire.PathJobs, jobsFor("mail", 3)).status)
}

// TestRepeatNeedsNoRoom: its jobs are there, and whoever hears that nothing was applied would add them again.
func TestRepeatNeedsNoRoom(t *testing.T) {
	w := newWorld(t, Options{MaxWaitingJobs: 3, PollPause: 48 * time.Hour})
	key := []string{wire.RequestKeyHeader, "k"}
	first := w.ask("POST", wire.PathJobs, jobsFor("a", 2), key...)
	require.Equal(t, 201, first.status, first.text)
	assert.Equal(t, first.text, w.ask("POST", wire.PathJobs, jobsFor("a", 2), key...).text)
	require.Equal(t, 429, w.ask("POST", wire.PathJobs, jobsFor("a", 3), key...).status, "other jobs")
	require.Equal(t, 429, w.ask("POST", wire.PathJobs, jobsFor("a", 2), wire.RequestKeyHeader, "l").status, "another call")
	require.Equal(t, 201, w.ask("POST", wire.PathJobs, jobsFor("a", 1)).status, "the repeat has taken no room")
	w.clock.Add(store.RequestKeyLife)
	require.Equal(t, 429, w.ask("POST", wire.PathJobs, jobsFor("a", 2), key...).status, "the store has forgotten the key")
}

// TestRepeatOfWhatWasNotAppliedNeedsRoom: else it would come in after others have taken it.
func TestRepeatOfWhatWasNotAppliedNeedsRoom(t *testing.T) {
	fails := store.ErrUnavailable
	w := newWorld(t, Options{MaxWaitingJobs: 3, PollPause: 48 * time.Hour}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, enqueuing: func() error { return fails }}
	})
	key := []string{wire.RequestKeyHeader, "k"}
	require.Equal(t, 503, w.ask("POST", wire.PathJobs, jobsFor("a", 2), key...).status)
	(&house{world: w}).behind("a", 2)
	w.clock.Add(oldCount)
	fails = nil
	require.Equal(t, 429, w.ask("POST", wire.PathJobs, jobsFor("a", 2), key...).status)
	require.Len(t, w.claim(`{"worker":"w","queues":["a"],"limit":2}`), 2)
	w.clock.Add(newCount)
	fails = store.ErrInDoubt
	require.Equal(t, 500, w.ask("POST", wire.PathJobs, jobsFor("a", 2), key...).status)
	(&house{world: w}).behind("a", 3)
	w.clock.Add(oldCount)
	fails = nil
	require.Equal(t, 201, w.ask("POST", wire.PathJobs, jobsFor("a", 2), key...).status, "it may have been applied")
}

// TestQuotaFollowsTheQueuesOfItsToken: when they change, it counts the new ones.
func TestQuotaFollowsTheQueuesOfItsToken(t *testing.T) {
	secret, token, err := NewToken(Token{Name: "n", Role: Producer, Queues: []string{"a"}, MaxWaiting: 3})
	require.NoError(t, err)
	w := newWorld(t, Options{Tokens: listed(t, token)})
	h := &house{world: w}
	h.behind("a", 3)
	bearer := []string{"Authorization", "Bearer " + secret}
	require.Equal(t, 429, w.ask("POST", wire.PathJobs, jobsFor("a", 1), bearer...).status)
	token.Queues = []string{"b"}
	w.api.SetTokens(listed(t, token))
	require.Equal(t, 201, w.ask("POST", wire.PathJobs, jobsFor("b", 3), bearer...).status)
	require.Equal(t, 429, w.ask("POST", wire.PathJobs, jobsFor("b", 1), bearer...).status)
}

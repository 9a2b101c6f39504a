package remote

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// A herald is a server that has streams only, and says when it was asked for one.
type herald struct {
	streams chan *io.PipeWriter

	mu     sync.Mutex // guards what follows
	asked  []time.Time
	refuse *http.Response // what it answers instead
}

// refuses sets what the herald answers in place of streams, and returns when it was asked for any.
func (h *herald) refuses(with *http.Response) []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refuse = with
	return slices.Clone(h.asked)
}

func (h *herald) refusal() *http.Response {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, time.Now())
	return h.refuse
}

func (h *herald) serve(r *http.Request) (*http.Response, error) {
	if r.URL.Path == wire.PathCount {
		return reply(http.StatusOK, store.Counts{Now: time.Now(), Queues: []store.QueueCount{
			{Queue: "due", Due: 3}, {Queue: "later", Jobs: map[store.State]int64{store.Ready: 1}},
		}}), nil
	}
	if refusal := h.refusal(); refusal != nil {
		return refusal, nil
	}
	out, in := io.Pipe()
	h.streams <- in
	go func() {
		<-r.Context().Done()
		_ = in.CloseWithError(r.Context().Err())
	}()
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}, Body: out, Request: r,
	}, nil
}

// says lets the next stream begin, and speak.
func (h *herald) says(texts ...string) *io.PipeWriter {
	in := <-h.streams
	for _, text := range texts {
		_, _ = io.WriteString(in, text)
	}
	return in
}

func subscribed(t *testing.T, h *herald, queues ...string) (<-chan store.Wakeup, *io.PipeWriter, *Store) {
	t.Helper()
	h.streams = make(chan *io.PipeWriter, 1)
	s := openedOn(t, Options{}, h.serve)
	said := make(chan *io.PipeWriter)
	go func() { said <- h.says(": jq\n\n") }()
	wakeups, err := s.Subscribe(t.Context(), queues)
	require.NoError(t, err)
	return wakeups, <-said, s
}

func wakeupOf(queue string) string { return "event: wakeup\ndata: {\"queue\":\"" + queue + "\"}\n\n" }

func TestWakeupsArePassedOn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var h herald
		wakeups, in, _ := subscribed(t, &h, "a", "b")
		_, _ = io.WriteString(in, "event: news\ndata: {}\n\n: sign\n\n"+wakeupOf("a"))
		assert.Equal(t, store.Wakeup{Queue: "a"}, <-wakeups)
		_, _ = io.WriteString(in, "event: wakeup\r\ndata: {}\r\n\r\n")
		assert.Equal(t, store.Wakeup{Queue: "a"}, <-wakeups, "any queue, which may be one of those that were named")
		assert.Equal(t, store.Wakeup{Queue: "b"}, <-wakeups)
		_, _ = io.WriteString(in, "event: wakeup\ndata: {\"queue\":\"b\",\"cancelled\":true}\n\n")
		assert.Equal(t, store.Wakeup{Queue: "b", Cancelled: true}, <-wakeups)
		for range 10 * unread {
			_, _ = io.WriteString(in, wakeupOf("b"))
		}
		synctest.Wait()
		assert.Len(t, wakeups, unread, "a slow reader loses the others")
	})
}

func TestStreamIsOpenedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var h herald
		wakeups, in, _ := subscribed(t, &h)
		require.NoError(t, in.Close())
		h.says(wakeupOf("first")) // it may come before any comment
		assert.Equal(t, store.Wakeup{Queue: "due"}, <-wakeups, "a wake-up for it may have been lost")
		assert.Equal(t, store.Wakeup{Queue: "first"}, <-wakeups)
		synctest.Wait()
		assert.Empty(t, wakeups, "nothing waits in the other queue")
	})
}

// TestSilentStreamIsGivenUp where not even a sign of life comes. What is no wake-up is no stream of a jq server either.
func TestSilentStreamIsGivenUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var h herald
		wakeups, in, _ := subscribed(t, &h, "q")
		began := time.Now()
		<-time.After(silence - time.Second)
		_, _ = io.WriteString(in, ": \n\n")
		in = h.says(": jq\n\n")
		assert.InDelta(t, 2*silence-time.Second, time.Since(began), float64(shortPause))
		assertAllTold(t, wakeups, "q")
		_, _ = io.WriteString(in, "event: wakeup\ndata: nonsense\n\n")
		h.says(": jq\n\n")
		assertAllTold(t, wakeups, "q")
	})
}

// assertAllTold checks that the reader is told all that it may have missed of the queue.
func assertAllTold(t *testing.T, wakeups <-chan store.Wakeup, queue string) {
	t.Helper()
	assert.Equal(t, store.Wakeup{Queue: queue, Cancelled: true}, <-wakeups)
	assert.Equal(t, store.Wakeup{Queue: queue}, <-wakeups)
}

// TestPausesGrow between attempts to reach a server that is away, up to a limit, and begin anew when it was there for a while.
func TestPausesGrow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var h herald
		wakeups, in, s := subscribed(t, &h, "q")
		busy := wire.FailOf(store.ErrUnavailable)
		h.refuses(reply(busy.Status, busy))
		left := time.Now()
		require.NoError(t, in.Close())
		<-time.After(time.Minute)
		synctest.Wait()
		last := left
		asked := h.refuses(nil)
		for i, at := range asked[1:] {
			most := min(shortPause<<i, longPause)
			assert.GreaterOrEqual(t, at.Sub(last), most/2, "pause %d", i)
			assert.LessOrEqual(t, at.Sub(last), most, "pause %d", i)
			last = at
		}
		assert.Greater(t, len(asked), 12)
		in = h.says(": jq\n\n")
		assertAllTold(t, wakeups, "q")
		<-time.After(2 * longPause)
		left = time.Now()
		require.NoError(t, in.Close())
		h.says(": jq\n\n")
		assert.LessOrEqual(t, time.Since(left), shortPause)
		require.NoError(t, s.Close())
		for range wakeups {
		}
	})
}

// TestSubscribeSaysWhatIsMissing: a server's store without wake-ups, and what is no stream.
func TestSubscribeSaysWhatIsMissing(t *testing.T) {
	unsupported := wire.FailOf(errors.ErrUnsupported)
	for name, k := range map[string]struct {
		refuse *http.Response
		want   error
		says   string
	}{
		"Unsupported": {reply(unsupported.Status, unsupported), errors.ErrUnsupported, ""},
		"Page":        {reply(http.StatusOK, "<html>"), store.ErrUnavailable, "no stream of events"},
		"Gateway":     {reply(http.StatusBadGateway, "<html>"), store.ErrUnavailable, "HTTP 502"},
		"Refused":     {reply(http.StatusForbidden, "<html>"), store.ErrUnavailable, "something in between does not permit this"},
		"Ends":        {&http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {wire.Events}}, Body: http.NoBody}, store.ErrUnavailable, "the connection was lost"},
	} {
		t.Run(name, func(t *testing.T) {
			h := herald{refuse: k.refuse}
			s := openedOn(t, Options{}, h.serve)
			wakeups, err := s.Subscribe(t.Context(), nil)
			assert.Nil(t, wakeups)
			if name == "Unsupported" {
				assert.ErrorIs(t, err, k.want)
				return
			}
			assertOnly(t, err, k.want, k.says, name)
		})
	}
}

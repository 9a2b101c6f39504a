package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// A follower reads a stream of events.
type follower struct {
	w     *world
	lines *bufio.Scanner
	end   context.CancelFunc
	last  string // the id
}

// follow begins a stream, and returns when its first line is there.
func (w *world) follow(method, path, body string, headers ...string) *follower {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	require.NoError(w, err)
	req.Header.Set("Content-Type", wire.JSON)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := w.client.Do(req)
	require.NoError(w, err)
	w.Cleanup(func() { cancel(); _ = resp.Body.Close() })
	require.Equal(w, 200, resp.StatusCode)
	f := &follower{w: w, lines: bufio.NewScanner(resp.Body), end: cancel}
	require.True(w, f.lines.Scan())
	require.Equal(w, ": jq", f.lines.Text(), "a comment says at once that the stream is there")
	require.True(w, f.lines.Scan())
	return f
}

// next is the next event, as its name and its data. At the end of the stream it is empty.
func (f *follower) next() string {
	f.w.Helper()
	var name, data string
	for f.lines.Scan() {
		field, value, _ := strings.Cut(f.lines.Text(), ": ")
		switch field {
		case "id":
			f.last = value
		case "event":
			name = value
		case "data":
			data = value
		case "":
			if name != "" {
				return name + " " + data
			}
		}
	}
	return ""
}

// TestEventsTellWhatWasDone: whatever a call does to a job is told, once it is committed.
func TestEventsTellWhatWasDone(t *testing.T) {
	w := newWorld(t, Options{})
	f := w.follow("GET", "/v1/events", "")
	tell := func(want ...string) {
		t.Helper()
		for _, e := range want {
			got := f.next()
			for strings.HasPrefix(got, "audit ") { // see TestActsAreEvents
				got = f.next()
			}
			require.Equal(t, "job "+e, got)
		}
	}
	claim := func() {
		t.Helper()
		w.claim(`{"worker":"w"}`)
		tell(`{"job":"1","queue":"default","event":"claimed"}`)
	}
	finish := func(path, item string) {
		t.Helper()
		detail := call[wire.JobDetail](w, 200, "GET", "/v1/jobs/1", "")
		body := fmt.Sprintf(`{"jobs":[{"id":"1","token":"%d"%s}]}`, detail.Token, item)
		call[wire.Results](w, 200, "POST", path, body)
	}

	job := `{"jobs":[{"kind":"k","max_retries":3,"backoff":{},"unique_key":"u"}]}`
	call[wire.Enqueued](w, 201, "POST", "/v1/jobs", job)
	call[wire.Enqueued](w, 201, "POST", "/v1/jobs", job) // a duplicate adds nothing
	tell(`{"job":"1","queue":"default","event":"enqueued"}`)
	claim()
	finish("/v1/nack", ``)
	tell(`{"job":"1","queue":"default","event":"retrying"}`)
	call[wire.Outcome](w, 200, "POST", "/v1/jobs/1/reschedule", "")
	tell(`{"job":"1","event":"rescheduled"}`)
	again := call[wire.Enqueued](w, 201, "POST", "/v1/jobs", `{"jobs":[{"kind":"k","unique_key":"u","replace":true}]}`)
	require.Equal(t, []store.Enqueued{{ID: 1, State: store.Failed, Duplicate: true, Replaced: true}}, again.Jobs)
	tell(`{"job":"1","queue":"default","event":"replaced"}`)
	claim()
	finish("/v1/nack", `,"form":"snooze"`)
	tell(`{"job":"1","queue":"default","event":"snoozed"}`)
	claim()
	finish("/v1/release", ``)
	tell(`{"job":"1","queue":"default","event":"released"}`)
	claim()
	finish("/v1/nack", `,"form":"release"`)
	tell(`{"job":"1","queue":"default","event":"released"}`)
	claim()
	finish("/v1/nack", `,"form":"never"`)
	tell(`{"job":"1","queue":"default","event":"dead"}`)
	call[wire.Outcome](w, 200, "POST", "/v1/jobs/1/requeue", "")
	tell(`{"job":"1","event":"requeued"}`)
	claim()
	w.clock.Add(defaultLease)
	call[wire.Recovered](w, 200, "POST", "/v1/recover", "{}")
	tell(`{"job":"1","queue":"default","event":"recovered"}`)
	claim()
	finish("/v1/ack", `,"result_fault":"not_json"`)
	tell(`{"job":"1","queue":"default","event":"dead"}`)
	call[wire.Outcome](w, 200, "POST", "/v1/jobs/1/requeue", "")
	claim2 := func() { tell(`{"job":"1","event":"requeued"}`); claim() }
	claim2()
	finish("/v1/ack", ``)
	tell(`{"job":"1","queue":"default","event":"succeeded"}`)
	call[wire.Results](w, 200, "POST", "/v1/jobs/bulk", `{"action":"requeue","filter":{"ids":["1","7"]}}`)
	tell(`{"job":"1","event":"requeued"}`)
	call[wire.Outcome](w, 200, "POST", "/v1/jobs/1/cancel", "")
	tell(`{"job":"1","event":"cancelled"}`)
	call[wire.Outcome](w, 200, "DELETE", "/v1/jobs/1", "")
	tell(`{"job":"1","event":"deleted"}`)
	assert.NotEmpty(t, f.last)
}

// TestOwnRecoveryIsTold: what the process of the server recovers by itself is published by a hook.
func TestOwnRecoveryIsTold(t *testing.T) {
	w := newWorld(t, Options{})
	f := w.follow("GET", "/v1/events", "")
	w.api.Publish(RecoveredEvents([]store.Recovered{{ID: 1, Queue: "a", State: store.Failed, Next: start}, {ID: 2, Queue: "b", State: store.Failed}})...)
	for _, want := range []string{
		`{"job":"1","queue":"a","event":"recovered"}`, `{"job":"2","queue":"b","event":"recovered"}`, `{"job":"2","queue":"b","event":"dead"}`,
	} {
		assert.Equal(t, "job "+want, f.next())
	}
}

// TestEventsGoOnWhereTheyWereLeft: who comes back with an id misses nothing and gets nothing twice, unless it was away too long.
func TestEventsGoOnWhereTheyWereLeft(t *testing.T) {
	w := newWorld(t, Options{KeepEvents: 5})
	event := func(n int) string { return fmt.Sprintf(`job {"job":"%d","event":"claimed"}`, n) }
	publish := func(from, to int) {
		for n := from; n <= to; n++ {
			w.api.Publish(Event{Job: wire.ID(n), Event: WasClaimed})
		}
	}
	f := w.follow("GET", "/v1/events", "")
	publish(1, 2)
	assert.Equal(t, []string{event(1), event(2)}, []string{f.next(), f.next()})
	f.end()
	publish(3, 7) // as many as are kept
	again := w.follow("GET", "/v1/events", "", "Last-Event-ID", f.last)
	for n := 3; n <= 7; n++ {
		assert.Equal(t, event(n), again.next())
	}
	publish(8, 8)
	for what, id := range map[string]string{"too old": f.last, "of another process": "elsewhere-7", "of the future": w.api.ring.id(99), "no id": "nonsense"} {
		lost := w.follow("GET", "/v1/events", "", "Last-Event-ID", id)
		assert.Equal(t, "reset {}", lost.next(), what)
		assert.Equal(t, w.api.ring.id(8), lost.last, what)
	}
	fresh := w.follow("GET", "/v1/events", "")
	publish(9, 9)
	assert.Equal(t, event(9), fresh.next(), "who has no id begins now")
}

// TestSlowReaderIsReset: who reads too slowly is told so, and held up nobody.
func TestSlowReaderIsReset(t *testing.T) {
	r := newRing(3)
	at, ok := r.resume("")
	require.True(t, ok)
	for n := range 4 {
		r.add([]Event{{Job: wire.ID(n)}})
	}
	_, next, _, lost := r.since(at)
	assert.True(t, lost)
	events, next, more, lost := r.since(next)
	assert.Empty(t, events)
	assert.False(t, lost)
	r.add([]Event{{Job: 9}})
	<-more
	events, _, _, _ = r.since(next)
	require.Len(t, events, 1)
	assert.Equal(t, Event{Job: 9}, events[0].Event)
	again, _, _, _ := r.since(next)
	assert.Same(t, &events[0].text[0], &again[0].text[0], "it is encoded once")

	w := newWorld(t, Options{KeepEvents: 3})
	f := w.follow("GET", "/v1/events", "")
	many := make([]Event, 4)
	for i := range many {
		many[i] = Event{Job: wire.ID(i), Event: WasClaimed}
	}
	w.api.Publish(many...)
	assert.Equal(t, "reset {}", f.next())
}

// flushed does something when a part of an answer has gone out.
type flushed struct {
	*httptest.ResponseRecorder
	then func()
}

func (f flushed) Flush() { f.then() }

// TestSilenceBeginsBeforeAReaderCanCountIt: a sign of life is due signOfLife after what a reader has read, however late its sender
// gets on with it.
func TestSilenceBeginsBeforeAReaderCanCountIt(t *testing.T) {
	w := newWorld(t, Options{})
	s, err := w.api.stream(&exchange{ResponseWriter: flushed{httptest.NewRecorder(), func() { w.clock.Add(signOfLife) }}, all: w.api.all, own: w.api.all}, httptest.NewRequest("GET", "/v1/events", nil))
	require.NoError(t, err)
	defer s.close()
	assert.True(t, s.send())
	assert.Len(t, s.silent.C, 1)
}

// TestStreamsShowThatTheyAreAlive: a stream that has nothing to say says so, and ends with the API.
func TestStreamsShowThatTheyAreAlive(t *testing.T) {
	w := newWorld(t, Options{})
	for _, f := range []*follower{w.follow("GET", "/v1/events", ""), w.follow("POST", "/v1/wakeups", "{}")} {
		alive := make(chan bool)
		go func() {
			for f.lines.Scan() {
				if strings.HasPrefix(f.lines.Text(), ":") {
					alive <- true
					return
				}
			}
			alive <- false
		}()
		w.clock.Add(signOfLife)
		assert.True(t, <-alive)
		defer func() { assert.Empty(t, f.next(), "the stream ends") }()
	}
	require.NoError(t, w.api.Close())
	w.eventually("streams end", func() bool { return len(w.api.all.streams) == 0 })
}

// TestWakeups: a stream of wake-ups has those of the store, for the queues that were asked for.
func TestWakeups(t *testing.T) {
	w := newWorld(t, Options{})
	some, all := w.follow("POST", "/v1/wakeups", `{"queues":["a"]}`), w.follow("POST", "/v1/wakeups", `{}`)
	w.enqueue("b", "a")
	assert.Equal(t, `wakeup {"queue":"a"}`, some.next())
	assert.Equal(t, `wakeup {"queue":"b"}`, all.next())
	assert.Equal(t, `wakeup {"queue":"a"}`, all.next())
	w.claim(`{"worker":"w","queues":["a"]}`)
	call[wire.Results](w, 200, "POST", "/v1/jobs/bulk", `{"action":"cancel","filter":{"ids":["1","2"]}}`)
	assert.Equal(t, `wakeup {"queue":"a","cancelled":true}`, some.next())
	assert.Equal(t, `wakeup {"queue":"a","cancelled":true}`, all.next())
	require.NoError(t, w.store.Close())
	assert.Empty(t, some.next(), "the stream ends with the store")
}

// TestHeadOfAStreamEnds: who asks for the head of a stream gets that, and does not wait.
func TestHeadOfAStreamEnds(t *testing.T) {
	w := newWorld(t, Options{})
	assert.Equal(t, 200, w.ask("HEAD", "/v1/events", "").status)
}

// Many streams let events gather: a viewer with 500 of them made the server encrypt and write 500 times for each call of others. They
// are told no more than a bounded number: all that 500 of them could be told took most of a processor.
func TestManyStreamsLetEventsGather(t *testing.T) {
	w := newWorld(t, Options{})
	f := w.follow("GET", "/v1/events", "")
	for range 499 {
		require.True(t, w.api.all.streams.enter())
	}
	began := w.clock.Now()
	next := func() (line string, after time.Duration) {
		got := make(chan string, 1)
		go func() { got <- f.next() }()
		end := time.Now().Add(time.Minute)
		for len(got) == 0 {
			require.True(t, time.Now().Before(end), "the event comes")
			w.clock.Add(time.Millisecond)
		}
		return receive(t, got, "the event comes"), w.clock.Now().Sub(began)
	}
	w.api.Publish(slices.Repeat([]Event{{Job: 1, Event: WasClaimed}}, maxBurst)...)
	line, after := next()
	assert.Equal(t, `job {"job":"1","event":"claimed"}`, line)
	assert.GreaterOrEqual(t, after, 500*lingerEach)
	for range maxBurst - 1 {
		require.Equal(t, line, f.next(), "what is told with the first")
	}
	w.api.Publish(Event{Job: 2, Event: WasClaimed})
	line, after = next()
	assert.Equal(t, `job {"job":"2","event":"claimed"}`, line)
	assert.GreaterOrEqual(t, after, 500*(lingerEach+maxBurst*lingerEvent))
}

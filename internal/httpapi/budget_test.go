package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

// onlyToken lets the API know a single token, that of an operator, with a share of its own.
func (w *world) onlyToken(role Role, s *share) (secret string) {
	w.Helper()
	secret, token, err := NewToken(Token{Name: "t", Role: role})
	require.NoError(w, err)
	w.api.bearers.shares["t"] = s
	w.api.SetTokens(listed(w.T, token))
	return secret
}

// shareOfToken is that of the only token.
func (w *world) shareOfToken() *share { return w.api.bearers.shares["t"] }

// used is what is taken up now, which must be nothing when all requests were answered.
func (w *world) nothingIsTakenUp() {
	w.Helper()
	require.Eventually(w, func() bool { return w.api.all.bytes.used.Load() == 0 }, time.Minute, time.Millisecond, "bytes are given back")
	for _, s := range w.api.bearers.shares {
		require.Zero(w, s.bytes.used.Load())
	}
}

// begin sends the beginning of a body of jobs, and returns what sends the rest.
func (w *world) begin(body string, headers ...string) (rest *io.PipeWriter, answer <-chan *http.Response) {
	w.Helper()
	from, to := io.Pipe()
	req, err := http.NewRequestWithContext(w.Context(), "POST", w.url+wire.PathJobs, from)
	require.NoError(w, err)
	req.Header.Set("Content-Type", wire.JSON)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	got := make(chan *http.Response, 1)
	go func() {
		resp, err := w.client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		got <- resp
	}()
	_, err = io.WriteString(to, body)
	require.NoError(w, err)
	return to, got
}

// Bodies that are being read take up memory: 40 of them, of 17 MiB each, made 2.3 GiB. Whoever comes when the budget is used up is
// told to come back, and nothing of what it asked for was applied.
func TestBodiesHaveABudget(t *testing.T) {
	w := newWorld(t, Options{MaxBytes: 1 << 20})
	blanks := strings.Repeat(" ", 100<<10)
	rest, answer := w.begin(blanks)
	require.Eventually(t, func() bool { return w.api.all.bytes.used.Load() > 500<<10 }, time.Minute, time.Millisecond, "the body takes up memory")
	got := w.ask("POST", "/v1/jobs", `{"jobs":[{"kind":"`+strings.Repeat("k", 150<<10)+`"}]}`)
	f := got.fail(t)
	assert.Equal(t, []any{503, urn + "busy", "1"}, []any{f.Status, f.Type, got.header.Get("Retry-After")})
	assert.ErrorIs(t, f.Err(), store.ErrUnavailable)
	assert.Equal(t, 201, w.ask("POST", "/v1/jobs", `{"jobs":[{"kind":"small"}]}`).status, "there is still room for it")
	_, err := io.WriteString(rest, `{"jobs":[{"kind":"k"}]}`)
	require.NoError(t, err)
	require.NoError(t, rest.Close())
	assert.Equal(t, 201, (<-answer).StatusCode)
	w.nothingIsTakenUp()
	assert.Equal(t, 201, w.ask("POST", "/v1/jobs", `{"jobs":[{"kind":"k","payload":"`+strings.Repeat("k", 150<<10)+`"}]}`).status)
	w.nothingIsTakenUp()
}

// A token takes up no more than its share: others are served.
func TestATokenHasAShareOfTheBudget(t *testing.T) {
	w := newWorld(t, Options{MaxBytes: 1 << 20})
	greedy := w.onlyToken(Operator, newShare(Options{MaxBytes: 1 << 20}, 2))
	large := `{"jobs":[{"kind":"k","payload":"` + strings.Repeat("k", 200<<10) + `"}]}`
	w.shareOfToken().bytes.used.Store(300 << 10) // by other calls of it
	f := w.ask("POST", "/v1/jobs", large, "Authorization", "Bearer "+greedy).fail(t)
	w.shareOfToken().bytes.used.Store(0)
	assert.Equal(t, []any{429, urn + "too_much_at_once"}, []any{f.Status, f.Type})
	w.nothingIsTakenUp()
	modest := w.onlyToken(Operator, newShare(Options{MaxBytes: 1 << 20}, 1))
	assert.Equal(t, 201, w.ask("POST", "/v1/jobs", large, "Authorization", "Bearer "+modest).status)
	w.nothingIsTakenUp()
}

// A body that is cut off is no whole one, and gives back what it took up.
func TestABrokenBodyGivesBackItsBytes(t *testing.T) {
	w := newWorld(t, Options{})
	rest, answer := w.begin(`{"jobs":[{"kind":"k"}]}`)
	require.Eventually(t, func() bool { return w.api.all.bytes.used.Load() > 0 }, time.Minute, time.Millisecond, "the body takes up memory")
	require.NoError(t, rest.CloseWithError(context.Canceled))
	<-answer
	w.nothingIsTakenUp()
	assert.Empty(t, w.counts())
}

// A bulky body takes milliseconds of a processor. It waits while others take all that such bodies may have, and small calls do not.
func TestBulkyBodiesWaitForEachOther(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newShare(Options{}, 1)
		for range cap(s.parses) {
			require.True(t, s.parses.enter(), "by other calls")
		}
		begin := func(ctx context.Context, size int) (answer <-chan error) {
			got := make(chan error, 1)
			go func() {
				var into map[string]string
				r := httptest.NewRequestWithContext(ctx, "POST", wire.PathJobs, nil)
				got <- parse(&exchange{all: s, own: s}, r, []byte(`{"k":"`+strings.Repeat("k", size)+`"}`), &into)
			}()
			synctest.Wait()
			return got
		}
		assert.NoError(t, <-begin(t.Context(), bulky/2))
		leaving, leave := context.WithCancel(t.Context())
		left := begin(leaving, bulky)
		stays := begin(t.Context(), bulky)
		assert.Empty(t, left)
		leave()
		assert.ErrorIs(t, <-left, store.ErrUnavailable)
		assert.Empty(t, stays)
		s.parses.leave()
		assert.NoError(t, <-stays)
		assert.Len(t, s.parses, cap(s.parses)-1, "it has left")
	})
}

// All refused bodies together are read at one speed, and end.
func TestRefusedBodiesShareASpeed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		begun := time.Now()
		refused := &newShare(Options{}, 1).refused
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				n, err := io.CopyN(refused, endless{}, sinkSpeed)
				assert.NoError(t, err)
				assert.EqualValues(t, sinkSpeed, n)
			})
		}
		all.Wait()
		assert.Equal(t, 4*time.Second, time.Since(begun).Round(time.Millisecond))
	})
}

// Answers take up memory until they are read. One that does not fit is not sent, and jobs that were claimed for it are given back.
func TestAnswersHaveABudget(t *testing.T) {
	w := newWorld(t, Options{MaxBytes: 1 << 20})
	payload := `{"jobs":[{"kind":"k","payload":"` + strings.Repeat("k", 200<<10) + `"}]}`
	for range 3 {
		require.Equal(t, 201, w.ask("POST", "/v1/jobs", payload).status)
	}
	others := &w.api.all.bytes
	require.True(t, others.take(700<<10, false))
	for _, one := range []request{
		{method: "GET", path: "/v1/jobs"}, {method: "POST", path: "/v1/jobs/list", body: `{}`},
		{method: "POST", path: "/v1/claim", body: `{"worker":"w","limit":3}`},
	} {
		f := w.ask(one.method, one.path, one.body).fail(t)
		assert.Equal(t, urn+"busy", f.Type, one.path)
		assert.Equal(t, map[store.State]int64{store.Ready: 3}, w.counts(), one.path)
	}
	others.give(650 << 10)
	assert.Equal(t, 200, w.ask("GET", "/v1/jobs?limit=1", "").status)
	assert.Equal(t, 200, w.ask("POST", "/v1/claim", `{"worker":"w","limit":2}`).status)
	others.give(50 << 10)
	w.nothingIsTakenUp()
}

// A claim or a listing whose answer would find no room is refused before the store is asked: whoever read none of his answers had it lease
// and release large jobs again and again, and others waited.
func TestStoreIsNotAskedForWhatFindsNoRoom(t *testing.T) {
	for name, c := range map[string]struct{ large, small []string }{
		"claim":    {[]string{"POST", "/v1/claim", `{"worker":"w","limit":2}`}, []string{"POST", "/v1/claim", `{"worker":"w","queues":["empty"]}`}},
		"jobs":     {[]string{"GET", "/v1/jobs?limit=2", ""}, []string{"GET", "/v1/jobs?queue=empty", ""}},
		"the list": {[]string{"POST", "/v1/jobs/list", `{"limit":2}`}, []string{"POST", "/v1/jobs/list", `{"filter":{"queue":"empty"}}`}},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			w := newWorld(t, Options{MaxBytes: 8 << 20}, func(s *memory.Store) store.Store { return bare{&counted{Store: s, asked: &asked}} })
			share := newShare(w.api.options, 2)
			auth := []string{"Authorization", "Bearer " + w.onlyToken(Operator, share)}
			ask := func(c []string) answered { return w.ask(c[0], c[1], c[2], auth...) }
			job := store.NewJob{Queue: "default", Kind: "k", Payload: []byte(`"` + strings.Repeat("x", 500<<10) + `"`), MaxRetries: 3}
			_, err := w.store.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{job, job, job, job}})
			require.NoError(t, err)
			assert.Len(t, call[wire.Jobs](w, 200, c.large[0], c.large[1], c.large[2], auth...).Jobs, 2)
			require.Equal(t, 1, asked)

			unread := share.bytes.most - 1<<20
			share.bytes.give(-unread)
			assert.Equal(t, urn+"too_much_at_once", ask(c.large).fail(t).Type)
			assert.Equal(t, 1, asked, "the store was not asked")
			for range 20 { // by and by less is expected
				ask(c.small)
			}
			assert.Greater(t, asked, 10)
			assert.Equal(t, 200, ask(c.small).status)

			share.bytes.give(unread)
			assert.Len(t, call[wire.Jobs](w, 200, c.large[0], c.large[1], c.large[2], auth...).Jobs, 2)
			w.nothingIsTakenUp()
		})
	}
}

// A page that found no room is remembered as one that did: whoever asked for large pages again and again, and read none, had each of them read
// from the store, encoded and thrown away. Small pages are served meanwhile.
func TestAPageThatFoundNoRoomIsRemembered(t *testing.T) {
	for name, path := range map[string]string{"jobs": "/v1/jobs", "workers": "/v1/workers"} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			w := newWorld(t, Options{MaxBytes: 8 << 20}, func(s *memory.Store) store.Store {
				return &meddled{Store: s, paging: func(store.Page) { asked++ }, listing: func(store.WorkerFilter) { asked++ }}
			})
			share := newShare(w.api.options, 2)
			auth := []string{"Authorization", "Bearer " + w.onlyToken(Operator, share)}
			for i := range 10 {
				_, err := w.store.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{
					{Queue: "default", Kind: "k", Payload: []byte(`"` + strings.Repeat("x", 100<<10) + `"`)},
				}})
				require.NoError(t, err)
				queues := make([]string, 500)
				for j := range queues {
					queues[j] = fmt.Sprintf("%0200d", j)
				}
				w.beats(store.Worker{Name: fmt.Sprint(i), Queues: queues})
			}

			unread := share.bytes.limit(true) - 1<<20
			share.bytes.give(-unread)
			for range 2 {
				assert.Equal(t, urn+"too_much_at_once", w.ask("GET", path, "", auth...).fail(t).Type)
			}
			assert.Equal(t, 1, asked, "the store is not asked again")
			assert.Equal(t, 200, w.ask("GET", path+"?limit=1", "", auth...).status)
			assert.Equal(t, 2, asked)

			share.bytes.give(unread)
			assert.Equal(t, 200, w.ask("GET", path, "", auth...).status)
			w.nothingIsTakenUp()
		})
	}
}

// counted counts how often it is asked for jobs.
type counted struct {
	*memory.Store
	asked *int
}

func (c *counted) FetchAndClaim(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
	*c.asked++
	return c.Store.FetchAndClaim(ctx, req)
}

func (c *counted) List(ctx context.Context, f store.Filter, p store.Page) (store.JobPage, error) {
	*c.asked++
	return c.Store.List(ctx, f, p)
}

// A few readings run at once, and fewer of one token: the others wait for their turn, while writes go on.
func TestReadingsTakeTurns(t *testing.T) {
	inside, goOn := make(chan struct{}, 100), make(chan struct{})
	w := newWorld(t, Options{MaxReads: 3}, func(s *memory.Store) store.Store {
		return bare{&counting{Store: s, inside: inside, goOn: goOn}}
	})
	auth := []string{"Authorization", "Bearer " + w.onlyToken(Operator, newShare(w.api.options, 2))}
	const asked, ofToken = 10, 2
	answers := make(chan int, asked)
	for range asked {
		go func() { answers <- w.ask("GET", "/v1/stats", "", auth...).status }()
	}
	for range ofToken {
		receive(t, inside, "a reading asks the store")
	}
	require.Eventually(t, func() bool { return len(w.shareOfToken().reads) == ofToken }, time.Minute, time.Millisecond, "others wait")
	assert.Equal(t, 201, w.ask("POST", "/v1/jobs", `{"jobs":[{"kind":"k"}]}`, auth...).status)
	for range asked {
		assert.LessOrEqual(t, len(w.api.all.reads), ofToken)
		goOn <- struct{}{}
		assert.Equal(t, 200, receive(t, answers, "a reading is answered"))
	}
	assert.Len(t, inside, asked-ofToken)
	w.nothingIsTakenUp()
}

// counting says when it is asked for counts, and answers when it is told to.
type counting struct {
	store.Store
	inside chan<- struct{}
	goOn   <-chan struct{}
}

func (c *counting) Count(ctx context.Context, f store.Filter) (store.Counts, error) {
	c.inside <- struct{}{}
	<-c.goOn
	return c.Store.Count(ctx, f)
}

func receive[V any](t *testing.T, from <-chan V, what string) (v V) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Minute):
		require.Fail(t, "this does not happen: "+what)
	}
	return v
}

// A client that sends too much is answered, also while it still sends.
func TestWhatIsTooLargeIsAnswered(t *testing.T) {
	w := newWorld(t, Options{})
	for _, length := range []int64{-1, wire.MaxBody * 3 / 2} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", w.url+"/v1/jobs", io.LimitReader(blanks{}, wire.MaxBody*3/2))
		require.NoError(t, err)
		req.ContentLength = length
		req.Header.Set("Content-Type", wire.JSON)
		resp, err := w.client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 413, resp.StatusCode)
	}
	w.nothingIsTakenUp()
}

type blanks struct{}

var manyBlanks = bytes.Repeat([]byte(" "), 64<<10)

func (blanks) Read(into []byte) (int, error) { return copy(into, manyBlanks), nil }

// A token takes half of the places for claims that wait and for streams: others find some left.
func TestATokenLeavesPlacesToOthers(t *testing.T) {
	w := newWorld(t, Options{MaxWaiting: 2, MaxStreams: 2})
	greedy := []string{"Authorization", "Bearer " + w.onlyToken(Operator, newShare(w.api.options, 2))}
	waits, stream := []string{"POST", "/v1/claim", `{"worker":"w","wait":"1m"}`}, []string{"GET", "/v1/events", ""}
	go func() { _, _ = w.try(w.Context(), waits[0], waits[1], waits[2], greedy...) }()
	w.asleep(1)
	w.follow(stream[0], stream[1], stream[2], greedy...)
	for _, one := range [][]string{waits, stream} {
		f := w.ask(one[0], one[1], one[2], greedy...).fail(t)
		assert.Equal(t, urn+"too_many_waiting", f.Type, one[1])
	}
	secret, other, err := NewToken(Token{Name: "another", Role: Operator})
	require.NoError(t, err)
	w.api.SetTokens(listed(t, w.api.bearers.all()[0].Token, other))
	greedy[1] = "Bearer " + secret
	go func() { _, _ = w.try(w.Context(), waits[0], waits[1], waits[2], greedy...) }()
	w.asleep(2)
	w.follow(stream[0], stream[1], stream[2], greedy...)
	w.eventually("both streams are there", func() bool { return len(w.api.all.streams) == 2 })
}

// hold takes up some of the budget until the test ends, as other calls would.
func (w *world) hold(n int64) {
	w.Helper()
	require.True(w, w.api.all.bytes.take(n, false))
	w.Cleanup(func() { w.api.all.bytes.give(n) })
}

// A claim that was applied, and whose jobs could not be given back when there was no room for its answer, must not be answered as one
// that was not applied: its jobs are held until their leases end.
func TestAClaimThatIsNotTakenBackIsInDoubt(t *testing.T) {
	w := newWorld(t, Options{MaxBytes: 1 << 20}, func(s *memory.Store) store.Store {
		m := &meddled{Store: s}
		m.after = func(context.Context, store.ClaimRequest, []store.Job) {
			m.any = func(context.Context) error { return store.ErrUnavailable }
		}
		return m
	})
	require.Equal(t, 201, w.ask("POST", "/v1/jobs", `{"jobs":[{"kind":"k","payload":"`+strings.Repeat("k", 200<<10)+`"}]}`).status)
	w.hold(900 << 10)
	f := w.ask("POST", "/v1/claim", `{"worker":"w"}`).fail(t)
	assert.Equal(t, []any{500, urn + "in_doubt"}, []any{f.Status, f.Type})
	assert.Equal(t, map[store.State]int64{store.InFlight: 1}, w.counts())
}

// A claim for whose jobs there is not enough room has those that fit: to refuse it would put the same jobs off again and again.
func TestAClaimHasTheJobsThatFit(t *testing.T) {
	w := newWorld(t, Options{MaxBytes: 1 << 20})
	for range 5 {
		require.Equal(t, 201, w.ask("POST", "/v1/jobs", `{"jobs":[{"kind":"k","payload":"`+strings.Repeat("k", 100<<10)+`"}]}`).status)
	}
	w.hold(450 << 10)
	jobs := w.claim(`{"worker":"w","limit":5}`)
	require.Len(t, jobs, 2)
	assert.Equal(t, []wire.ID{1, 2}, []wire.ID{jobs[0].ID, jobs[1].ID})
	assert.Equal(t, map[store.State]int64{store.Ready: 3, store.InFlight: 2}, w.counts())
}

// What is larger than the budget, or than the share of a token, is served when it comes alone: to come back would never help.
func TestWhatComesAloneIsServed(t *testing.T) {
	w := newWorld(t, Options{MaxBytes: 1 << 20})
	auth := []string{"Authorization", "Bearer " + w.onlyToken(Operator, newShare(w.api.options, 2))}
	largest := strings.Repeat(" ", 1<<20) + `{"jobs":[{"kind":"k"}]}`
	assert.Equal(t, 201, w.ask("POST", "/v1/jobs", largest, auth...).status, "of a length that was told")
	rest, answer := w.begin(largest, auth...)
	require.NoError(t, rest.Close())
	assert.Equal(t, 201, receive(t, answer, "the body is answered").StatusCode, "of a length that was not told")
	w.nothingIsTakenUp()

	w.api.all.bytes.most, w.shareOfToken().bytes.most = 100<<10, 100<<10
	large := `{"jobs":[{"kind":"k","payload":"` + strings.Repeat("k", 200<<10) + `"}]}`
	assert.Equal(t, 201, w.ask("POST", "/v1/jobs", large, auth...).status)
	assert.Equal(t, 200, w.ask("GET", "/v1/jobs", "", auth...).status)
	assert.Len(t, call[wire.Jobs](w, 200, "POST", "/v1/claim", `{"worker":"w","limit":3}`, auth...).Jobs, 3)
	w.nothingIsTakenUp()
}

// What waits has read its request, which takes up nothing any more: else a few clients who wait could keep all others out.
func TestWhatWaitsTakesUpNothing(t *testing.T) {
	w := newWorld(t, Options{})
	pad := strings.Repeat(" ", 1<<20)
	w.follow("POST", "/v1/wakeups", pad+`{}`)
	assert.Zero(t, w.api.all.bytes.used.Load(), "of a stream")
	go func() { _, _ = w.try(w.Context(), "POST", "/v1/claim", pad+`{"worker":"w","wait":"1m"}`) }()
	w.asleep(1)
	w.nothingIsTakenUp()
	assert.Len(t, w.api.all.polls, 1, "the claim waits still")
}

// TestAClaimThatWasWokenInVainTakesUpNothing: its answer has room only while the store is asked.
func TestAClaimThatWasWokenInVainTakesUpNothing(t *testing.T) {
	var w *world
	var looks, room atomic.Int64
	w = newWorld(t, Options{}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, after: func(context.Context, store.ClaimRequest, []store.Job) {
			room.Store(w.api.all.bytes.used.Load())
			looks.Add(1)
		}}
	})
	w.enqueue("default")
	require.Len(t, w.claim(`{"worker":"w"}`), 1) // from here on, the API knows how much an answer needs
	go func() { _, _ = w.try(w.Context(), "POST", "/v1/claim", `{"worker":"w","wait":"1m"}`) }()
	w.asleep(1)
	w.nothingIsTakenUp()
	before := looks.Load()
	w.api.waiters.tell("default")
	w.eventually("the claim looks again", func() bool { return looks.Load() == before+1 })
	assert.Positive(t, room.Load())
	w.nothingIsTakenUp()
	assert.Len(t, w.api.all.polls, 1, "the claim waits still")
}

// Whoever asks for too much takes nothing from others, not for a moment either.
func TestWhatIsRefusedTakesNothing(t *testing.T) {
	b := budget{most: 10}
	end := make(chan struct{})
	var greedy sync.WaitGroup
	greedy.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				assert.False(t, b.take(11, false))
			}
		}
	})
	refused := 0
	for range 200_000 {
		if b.take(1, false) {
			b.give(1)
		} else {
			refused++
		}
	}
	close(end)
	greedy.Wait()
	assert.Zero(t, refused)
}

// Large calls leave something to small ones: else a few producers whose bodies arrive slowly would end the leases of all workers, for
// whose heartbeats there is no room.
func TestLargeCallsLeaveRoomForHeartbeats(t *testing.T) {
	w := newWorld(t, Options{})
	large := &exchange{all: w.api.all, own: w.api.all}
	defer large.end()
	for range 100 {
		_ = large.take(2 << 20) // until there is no more
	}
	assert.Greater(t, w.api.all.bytes.used.Load(), int64(100<<20))
	assert.Equal(t, 200, w.ask("POST", "/v1/extend", `{"jobs":[{"id":"1","token":"1"}],"lease":"30s"}`).status)
	assert.Equal(t, 200, w.ask("GET", "/v1/stats", "").status)
	assert.Equal(t, 503, w.ask("POST", "/v1/jobs", strings.Repeat(" ", 1<<20)+`{"jobs":[]}`).status)
}

// A client that is told to come back hears it, also where it first sends all that it has, as most do: else it finds the connection
// reset, and does not know what was applied.
func TestWhoSendsMuchHearsThatTheServerIsBusy(t *testing.T) {
	w := newWorld(t, Options{MaxBytes: 1 << 20})
	w.hold(900 << 10)
	body := `{"jobs":[{"kind":"k"}]}` + strings.Repeat(" ", 12<<20)
	conn := w.raw(fmt.Sprintf("POST /v1/jobs HTTP/1.1\r\nHost: jq\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body)))
	_, err := io.WriteString(conn, body)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 503, resp.StatusCode)
}

// A token that takes up little is served, whatever the others take up: half bodies on thousands of streams, which are small each, kept
// the heartbeats and Acks of everybody else out.
func TestWhoTakesUpLittleIsServedBesideTheGreedy(t *testing.T) {
	w := newWorld(t, Options{})
	w.hold(DefaultMaxBytes)
	auth := []string{"Authorization", "Bearer " + w.onlyToken(Operator, newShare(w.api.options, 2))}
	extend := `{"jobs":[{"id":"1","token":"1"}],"lease":"30s"}`
	assert.Equal(t, 200, w.ask("POST", "/v1/extend", extend, auth...).status)
	assert.Equal(t, 201, w.ask("POST", "/v1/jobs", `{"jobs":[{"kind":"k","payload":"`+strings.Repeat("k", 100<<10)+`"}]}`, auth...).status)
	assert.Equal(t, 200, w.ask("GET", "/v1/jobs", "", auth...).status)
	assert.Equal(t, 503, w.ask("POST", "/v1/jobs", strings.Repeat(" ", 1<<20)+`{"jobs":[]}`, auth...).status)
	w.shareOfToken().bytes.used.Store(1 << 20) // by other calls of it
	assert.Equal(t, 503, w.ask("POST", "/v1/extend", extend, auth...).status)
	w.shareOfToken().bytes.used.Store(0)
	assert.Equal(t, int64(DefaultMaxBytes), w.api.all.bytes.used.Load(), "all is given back")
}

// What is refused is read on, for its client to hear of that, and not kept: it takes up nothing.
func TestWhatIsReadToBeThrownAwayTakesUpNothing(t *testing.T) {
	w := newWorld(t, Options{MaxBytes: 1 << 20})
	const others = 900 << 10
	w.hold(others)
	rest, answer := w.begin(strings.Repeat(" ", 12<<20)) // more than there is in buffers: it is refused, and read on
	w.eventually("nothing is taken up", func() bool { return w.api.all.bytes.used.Load() == others })
	select {
	case <-answer:
		assert.Fail(t, "it is not read on")
	default:
	}
	require.NoError(t, rest.Close())
	assert.Equal(t, 503, receive(t, answer, "the body is answered").StatusCode)
}

// A client that asks before it sends too much is told at once, and not to go on.
func TestWhoAsksBeforeItSendsTooMuchIsRefused(t *testing.T) {
	w := newWorld(t, Options{})
	server := httptest.NewServer(w.api) // alone: what records exchanges reads bodies
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = fmt.Fprintf(conn, "POST /v1/jobs HTTP/1.1\r\nHost: jq\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
		"Expect: 100-continue\r\n\r\n", wire.MaxBody+1)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 413, resp.StatusCode)
}

// A call without documents may have names at their limits, escaped byte by byte.
func TestLargestBriefCallsAreTaken(t *testing.T) {
	w := newWorld(t, Options{})
	names := make([]string, store.MaxItems)
	for i := range names {
		names[i] = strings.Repeat("\x1f", store.MaxNameBytes-3) + fmt.Sprintf("%03d", i)
	}
	ids := make([]wire.ID, store.MaxItems)
	for i := range ids {
		ids[i] = math.MaxInt64
	}
	for _, c := range []struct {
		method, path string
		body         any
		status       int
	}{
		{"PUT", "/v1/workers/w", wire.Worker{Host: names[0], Queues: names, StaleAfter: wire.Duration(time.Hour)}, 204},
		{"POST", wire.PathList, wire.List{Filter: wire.Filter{
			IDs: ids, Queue: names[0], Queues: names[:store.MaxPatterns], Kind: names[0], Tag: names[0], Worker: names[0], UniqueKey: names[0],
			Group: names[0], LimitKey: names[0],
		}}, 200},
		{"POST", wire.PathClaim, wire.Claim{Worker: names[0], Queues: names[:maxQueues]}, 200},
	} {
		text, err := wire.Marshal(c.body)
		require.NoError(t, err)
		assert.Equal(t, c.status, w.ask(c.method, c.path, string(text)).status, c.path)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

package httpapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

func TestClaimHasItsDefaults(t *testing.T) {
	w := newWorld(t, Options{})
	w.enqueue("default", "default", "other")
	jobs := w.claim(`{"worker":"w"}`)
	require.Len(t, jobs, 1)
	j := jobs[0]
	assert.Equal(t, []any{wire.ID(1), "default", "w", wire.ID(1)}, []any{j.ID, j.Queue, j.Worker, j.Token})
	assert.Equal(t, wire.Duration(30*time.Second), j.LeaseRemaining)
	assert.Equal(t, start.Add(30*time.Second), j.LeaseExpiresAt.Time)
	assert.Equal(t, "null", string(j.Payload))
	assert.Equal(t, 20, j.MaxRetries)
}

// TestRemainingCountsTheStoresTimeOff: the lease began at some moment while the store was asked, so the whole of that is counted.
func TestRemainingCountsTheStoresTimeOff(t *testing.T) {
	var w *world
	w = newWorld(t, Options{}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, after: func(context.Context, store.ClaimRequest, []store.Job) { w.clock.Add(2 * time.Second) }}
	})
	w.enqueue("default")
	assert.Equal(t, wire.Duration(28*time.Second), w.claim(`{"worker":"w"}`)[0].LeaseRemaining)
	got := call[wire.Results](w, 200, "POST", "/v1/extend", `{"jobs":[{"id":"1","token":"1"},{"id":"7","token":"1"}],"lease":"1m"}`).Results
	assert.Equal(t, wire.Duration(time.Minute), got[0].LeaseRemaining)
	assert.Equal(t, start.Add(62*time.Second), got[0].LeaseExpiresAt.Time)
	assert.Zero(t, got[1].LeaseRemaining)
}

// TestClaimWaits: it wakes when a job is enqueued, when one becomes due, and goes without when its time is over.
func TestClaimWaits(t *testing.T) {
	w := newWorld(t, Options{})
	got := make(chan []wire.Job, 1)
	wait := func() {
		go func() { got <- w.claim(`{"worker":"w","wait":"1m","queues":["default","other"]}`) }()
		w.asleep(1)
	}
	wait()
	w.enqueue("other")
	assert.Len(t, <-got, 1, "by a wake-up: the clock stands still")

	call[wire.Enqueued](w, 201, "POST", "/v1/jobs", `{"jobs":[{"kind":"k","delay":"10s"}]}`)
	wait()
	w.clock.Add(9 * time.Second)
	assert.Empty(t, got)
	w.eventually("the poll finds what is due", func() bool { w.clock.Add(20 * time.Millisecond); return len(got) == 1 })
	assert.Len(t, <-got, 1)

	wait()
	w.clock.Add(59 * time.Second)
	assert.Empty(t, got)
	w.clock.Add(time.Second)
	assert.Empty(t, <-got)
	w.asleep(0)
	w.api.waiters.mu.Lock()
	defer w.api.waiters.mu.Unlock()
	assert.Empty(t, w.api.waiters.byQueue, "nobody is left behind")
}

// TestClaimWaitsWithoutWakeups: where the store tells of none, the poll does.
func TestClaimWaitsWithoutWakeups(t *testing.T) {
	w := newWorld(t, Options{}, withoutAbilities)
	got := make(chan []wire.Job, 1)
	go func() { got <- w.claim(`{"worker":"w","wait":"1m"}`) }()
	w.asleep(1)
	w.enqueue("default")
	w.eventually("the poll finds it", func() bool { w.clock.Add(20 * time.Millisecond); return len(got) == 1 })
	assert.Len(t, <-got, 1)
}

// TestOneJobWakesOneClaim: many that wait cost no more than one, and all are fed when there is enough.
func TestOneJobWakesOneClaim(t *testing.T) {
	var asked atomic.Int64
	w := newWorld(t, Options{}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, after: func(context.Context, store.ClaimRequest, []store.Job) { asked.Add(1) }}
	})
	const many = 20
	got := make(chan []wire.Job, many)
	for n := range many {
		go func() { got <- w.claim(`{"worker":"w","wait":"1m"}`) }()
		w.asleep(n + 1)
	}
	asked.Store(0)
	w.enqueue("default")
	assert.Len(t, <-got, 1)
	w.asleep(many - 1)
	assert.LessOrEqual(t, asked.Load(), int64(2), "the one, and the next, to whom it hands the wake-up on")

	body := `{"jobs":[` + strings.TrimSuffix(strings.Repeat(`{"kind":"k"},`, many-1), ",") + `]}`
	call[wire.Enqueued](w, 201, "POST", "/v1/jobs", body)
	for range many - 1 {
		assert.Len(t, <-got, 1)
	}
}

// TestWakeupIsHandedOn: one that has reached a claim which ends before it looks goes to the next.
func TestWakeupIsHandedOn(t *testing.T) {
	var w waiters
	first, second := w.join([]string{"a", "b"}), w.join([]string{"a"})
	w.tell("a")
	w.tell("b") // the first one is awake
	assert.Empty(t, second.woken)
	w.leave(first)
	assert.Equal(t, "a", <-second.woken)
	w.tell("a")
	w.leave(second)
	w.tell("a")
	assert.Empty(t, w.byQueue)
}

// A notifier passes on the wake-ups of the test.
type notifier chan store.Wakeup

func (n notifier) Subscribe(context.Context, []string) (<-chan store.Wakeup, error) { return n, nil }

// TestCancellationWakesNoClaim: there is nothing to claim.
func TestCancellationWakesNoClaim(t *testing.T) {
	life, end := context.WithCancel(t.Context())
	a, wakeups := &API{life: life, clock: clock.NewMock()}, make(notifier)
	one := a.waiters.join([]string{"a"})
	var listening sync.WaitGroup
	listening.Go(func() { a.listen(wakeups) })
	wakeups <- store.Wakeup{Queue: "a", Cancelled: true}
	wakeups <- store.Wakeup{Queue: "b"} // once it is taken, the other was passed on
	assert.Empty(t, one.woken)
	wakeups <- store.Wakeup{Queue: "a"}
	assert.Equal(t, "a", receive(t, one.woken, "a job wakes it"))
	end()
	close(wakeups)
	listening.Wait()
}

// TestWakeupOfAVanishedClientIsHandedOn, whether it is noticed first that the client is gone or that there is a job.
func TestWakeupOfAVanishedClientIsHandedOn(t *testing.T) {
	w := newWorld(t, Options{})
	gone, vanish := context.WithCancel(t.Context())
	vanish()
	for range 50 {
		first, second := w.api.waiters.join([]string{"a"}), w.api.waiters.join([]string{"a"})
		w.api.waiters.tell("a")
		require.Len(t, first.woken, 1)
		jobs, err := w.api.sleep(gone, &exchange{}, claim{queues: []string{"a"}}, first, w.clock.Timer(time.Minute))
		require.NoError(t, err)
		assert.Empty(t, jobs)
		w.api.waiters.leave(first)
		require.Len(t, second.woken, 1, "the next one is woken")
		<-second.woken
		w.api.waiters.leave(second)
	}
}

func TestNoMoreClaimsWaitThanMay(t *testing.T) {
	w := newWorld(t, Options{MaxWaiting: 1})
	got := make(chan []wire.Job, 1)
	go func() { got <- w.claim(`{"worker":"w","wait":"1m"}`) }()
	w.asleep(1)
	refused := w.ask("POST", "/v1/claim", `{"worker":"v","wait":"1m"}`)
	assert.Equal(t, 429, refused.status)
	assert.Equal(t, "1", refused.header.Get("Retry-After"))
	assert.Empty(t, w.claim(`{"worker":"v"}`), "one that does not wait is served")
	w.enqueue("other")
	assert.Len(t, w.claim(`{"worker":"v","wait":"1m","queues":["other"]}`), 1, "and one that need not wait")
	w.enqueue("default")
	assert.Len(t, <-got, 1)
}

func TestCloseEndsClaimsThatWait(t *testing.T) {
	w := newWorld(t, Options{})
	got := make(chan []wire.Job, 1)
	go func() { got <- w.claim(`{"worker":"w","wait":"1m"}`) }()
	w.asleep(1)
	require.NoError(t, w.api.Close())
	assert.Empty(t, <-got)
	assert.Equal(t, urn+"closed", w.ask("POST", "/v1/claim", `{"worker":"w"}`).fail(t).Type)
	assert.Equal(t, 503, w.ask("GET", "/readyz", "").status)
	assert.Equal(t, 200, w.ask("GET", "/healthz", "").status)
}

// D7: a probe that asks whether the server is ready learns that the database is another one, and nothing that is nobody's business.
func TestReadyNamesWarnings(t *testing.T) {
	w := newWorld(t, Options{}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, warnings: []store.Finding{{Name: "another_server", Detail: "who the server is", Advice: "what to do"}}}
	})
	ready := w.ask("GET", "/readyz", "")
	assert.Equal(t, 200, ready.status)
	assert.JSONEq(t, `{"status":"ready","warnings":["another_server"]}`, ready.text)
}

// TestQueuesTakeTurns: each claim begins with another queue, and takes from the others what the first does not give.
func TestQueuesTakeTurns(t *testing.T) {
	w := newWorld(t, Options{})
	for range 3 {
		w.enqueue("a", "b", "c")
	}
	var first []string
	for range 3 {
		first = append(first, w.claim(`{"worker":"w","queues":["a","b","c"]}`)[0].Queue)
	}
	assert.Equal(t, []string{"a", "b", "c"}, first)
	assert.Len(t, w.claim(`{"worker":"w","queues":["a","b","c"],"limit":5}`), 5)
	assert.Len(t, w.claim(`{"worker":"w","queues":["a","b","c"],"limit":5}`), 1)
}

// TestRetriesHaveTheirShare: of many claims that say nothing a fifth goes to retries, in each queue, also one job at a time.
func TestRetriesHaveTheirShare(t *testing.T) {
	w := newWorld(t, Options{})
	for _, q := range []string{"a", "b"} {
		jobs := strings.TrimSuffix(strings.Repeat(fmt.Sprintf(`{"kind":"k","queue":%q,"backoff":{}},`, q), 20), ",")
		call[wire.Enqueued](w, 201, "POST", "/v1/jobs", `{"jobs":[`+jobs+`]}`)
		var nacks []string
		for _, j := range w.claim(fmt.Sprintf(`{"worker":"w","limit":20,"queues":[%q]}`, q)) {
			nacks = append(nacks, fmt.Sprintf(`{"id":"%d","token":"%d"}`, j.ID, j.Token))
		}
		call[wire.Results](w, 200, "POST", "/v1/nack", `{"jobs":[`+strings.Join(nacks, ",")+`]}`)
		call[wire.Enqueued](w, 201, "POST", "/v1/jobs", `{"jobs":[`+jobs+`]}`)
	}
	retries := map[string]int{}
	for n := range 20 {
		q := string("ab"[n%2])
		retries[q] += w.claim(fmt.Sprintf(`{"worker":"w","queues":[%q]}`, q))[0].Retries
	}
	assert.Equal(t, map[string]int{"a": 2, "b": 2}, retries)
	assert.Equal(t, 1, w.claim(`{"worker":"w","queues":["a"],"retry_quota":1}`)[0].Retries, "unless the claim says how many")
	assert.Equal(t, 0, w.claim(`{"worker":"w","queues":["a"],"retry_quota":0}`)[0].Retries)
}

// TestUnfilledClaimLeavesTheShareAlone, also beside others.
func TestUnfilledClaimLeavesTheShareAlone(t *testing.T) {
	l := lanes{part: 0.2}
	retries := 0
	for n := range 500 {
		p, got := l.take("q", 1), n%5/4
		l.took("q", 1, got, p)
		retries += got * p.quota
	}
	assert.Equal(t, 20, retries, "of 100 that were filled")
	for n := range 3 * maxLanes {
		l.take(fmt.Sprint(n), 1)
		require.LessOrEqual(t, len(l.known), maxLanes)
	}
}

// TestClaimsOfAFullQueueShare: claims get fewer jobs than they ask for, although more of both lanes wait.
func TestClaimsOfAFullQueueShare(t *testing.T) {
	for _, limit := range []int{2, 4, 20, 100} {
		for _, most := range []int{1, 3} {
			l := lanes{part: 0.2}
			jobs, retries := 0, 0
			for range 500 {
				p, got := l.take("q", limit), min(limit, most)
				l.took("q", limit, got, p)
				jobs, retries = jobs+got, retries+min(p.quota, got)
			}
			assert.InDelta(t, 0.2*float64(jobs), retries, 5, "of claims of %d jobs that got %d", limit, most)
		}
	}
}

// TestClaimThatFailsGivesWhatItHas: an error of a later queue does not lose the jobs of an earlier one.
func TestClaimThatFailsGivesWhatItHas(t *testing.T) {
	w := newWorld(t, Options{}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, fetch: func(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
			if req.Queue == "b" {
				return nil, store.ErrUnavailable
			}
			return s.FetchAndClaim(ctx, req)
		}}
	})
	w.enqueue("a")
	assert.Len(t, w.claim(`{"worker":"w","limit":2,"queues":["a","b"]}`), 1)
	assert.Equal(t, 503, w.ask("POST", "/v1/claim", `{"worker":"w","limit":2,"queues":["a","b"]}`).status)
}

// TestClaimOfSeveralQueuesEndsWhenItIsHeavy: each queue may give as much as an answer can hold.
func TestClaimOfSeveralQueuesEndsWhenItIsHeavy(t *testing.T) {
	w := newWorld(t, Options{})
	doc := []byte(`"` + strings.Repeat("x", store.MaxDocBytes-2) + `"`)
	for _, queue := range []string{"a", "b", "c"} {
		for range store.MaxAnswerBytes / store.MaxDocBytes {
			req := store.EnqueueRequest{Jobs: []store.NewJob{{Queue: queue, Kind: "k", Payload: doc}}}
			_, err := w.api.store.Enqueue(t.Context(), req)
			require.NoError(t, err)
		}
	}
	for range 3 {
		taken := len(w.claim(`{"worker":"w","limit":100,"queues":["a","b","c"]}`)) // a failure is not to print the documents
		assert.Equal(t, store.MaxAnswerBytes/store.MaxDocBytes, taken, "those of one queue")
	}
	assert.Empty(t, w.claim(`{"worker":"w","limit":100,"queues":["a","b","c"]}`))
}

// raw writes a request to a socket of its own.
func (w *world) raw(text string) net.Conn {
	w.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	require.NoError(w, err)
	w.Cleanup(func() { _ = conn.Close() })
	_, err = conn.Write([]byte(text))
	require.NoError(w, err)
	return conn
}

func rawClaim(body string) string {
	return fmt.Sprintf("POST /v1/claim HTTP/1.1\r\nHost: jq\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// TestVanishedClientLosesNothing: a client that is gone in the middle of its poll leaves its place, and what is claimed for it in
// that moment is released, long before the lease ends.
func TestVanishedClientLosesNothing(t *testing.T) {
	w := newWorld(t, Options{})
	conn := w.raw(rawClaim(`{"worker":"w","wait":"1m"}`))
	w.asleep(1)
	require.NoError(t, conn.Close())
	w.asleep(0)
	w.enqueue("default")
	assert.Equal(t, map[store.State]int64{store.Ready: 1}, w.counts())
}

// TestClaimForAVanishedClientIsReleased: the client goes while the store is claiming for it. The clock is a real one: a context of
// the fake one does not end at once with that of the client, and hid that the jobs were given back under the client's own.
func TestClaimForAVanishedClientIsReleased(t *testing.T) {
	claimed, gone := make(chan struct{}), make(chan struct{})
	w := newWorld(t, Options{Clock: clock.New()}, func(s *memory.Store) store.Store {
		return &meddled{Store: s, after: func(_ context.Context, _ store.ClaimRequest, jobs []store.Job) {
			if len(jobs) > 0 {
				close(claimed)
				<-gone
			}
		}}
	})
	vanished := make(chan struct{})
	inner := w.api.mux
	outer := http.NewServeMux()
	outer.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == wire.PathClaim {
			context.AfterFunc(r.Context(), func() { close(vanished) })
		}
		inner.ServeHTTP(rw, r)
	})
	w.api.mux = outer
	w.enqueue("default", "default")
	conn := w.raw(rawClaim(`{"worker":"w","limit":2}`))
	<-claimed
	assert.Equal(t, map[store.State]int64{store.InFlight: 2}, w.counts())
	require.NoError(t, conn.Close())
	<-vanished
	close(gone)
	w.eventually("the jobs are released", func() bool { return w.counts()[store.Ready] == 2 })
	detail, err := w.store.Get(t.Context(), 1)
	require.NoError(t, err)
	assert.Zero(t, detail.Attempts, "as if it had not been claimed")
	assert.Equal(t, store.EndReleased, detail.History[0].Ending)
}

// unwritable is a connection that takes nothing.
type unwritable struct {
	http.ResponseWriter
	flush bool // that only shows when it is flushed
}

var errGone = errors.New("gone")

func (u unwritable) Write(p []byte) (int, error) {
	if u.flush {
		return len(p), nil
	}
	return 0, errGone
}

func (u unwritable) FlushError() error { return errGone }

// TestClaimThatCanNotBeWrittenIsReleased: the answer does not reach the client.
func TestClaimThatCanNotBeWrittenIsReleased(t *testing.T) {
	for _, flush := range []bool{false, true} {
		w := newWorld(t, Options{})
		w.enqueue("default")
		inner := w.api.mux
		outer := http.NewServeMux()
		outer.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) { inner.ServeHTTP(unwritable{rw, flush}, r) })
		w.api.mux = outer
		conn := w.raw(rawClaim(`{"worker":"w"}`))
		_, err := http.ReadResponse(bufio.NewReader(conn), nil)
		_ = err // whatever reaches the client here was written by the server itself
		assert.Equal(t, map[store.State]int64{store.Ready: 1}, w.counts())
	}
}

// TestWhatIsClaimedIsReleasedOnce: a client that has read its answer and goes keeps its jobs.
func TestClientThatHasItsAnswerKeepsItsJobs(t *testing.T) {
	w := newWorld(t, Options{})
	for n := range 50 {
		w.enqueue("default")
		conn := w.raw(rawClaim(`{"worker":"w"}`))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		_ = resp.Body.Close()
		require.NoError(t, conn.Close())
		require.EqualValues(t, n+1, w.counts()[store.InFlight])
	}
}

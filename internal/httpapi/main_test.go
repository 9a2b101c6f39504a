package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

// TestMain fails where a test has left a goroutine behind, and, when all tests were run, where something is documented that none
// of them has seen.
func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	all := flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.fuzz").Value.String() == "" &&
		flag.Lookup("test.skip").Value.String() == "" && flag.Lookup("test.list").Value.String() == ""
	if unseen := theBook().unseen(); all && len(unseen) > 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "documented, and produced by no test: %s\n", strings.Join(unseen, ", "))
		code = 1
	}
	os.Exit(code)
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// A world is an API on a store in memory, both on one clock that stands still, reached over real sockets. Whatever goes over them
// is compared with what is documented.
type world struct {
	*testing.T
	clock  *clock.Mock
	store  *memory.Store
	api    *API
	url    string
	client *http.Client
	logged *logged
}

// newWorld lets a test choose its options, and put a store of its own before the one in memory.
func newWorld(t *testing.T, options Options, before ...func(*memory.Store) store.Store) *world {
	t.Helper()
	w := &world{T: t, clock: clock.NewMock(), logged: &logged{}}
	w.clock.Set(start)
	w.store = memory.New(memory.Options{Clock: w.clock})
	if options.Clock == nil {
		options.Clock = w.clock
	}
	options.Logger = slog.New(slog.NewTextHandler(w.logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var behind store.Store = &meddled{Store: w.store}
	for _, b := range before {
		behind = b(w.store)
	}
	listens := make(chan struct{})
	switch s := behind.(type) {
	case *meddled:
		s.subscribed = sync.OnceFunc(func() { close(listens) })
	case bare: // tells of nothing
		close(listens)
	default:
		t.Fatalf("a world on a %T: nothing tells when the API listens to it", s)
	}
	var err error
	w.api, err = New(behind, &options)
	require.NoError(t, err)
	<-listens // or what a test enqueues first might wake nobody
	server := httptest.NewServer(theBook().record(t, w.api))
	w.url, w.client = server.URL, server.Client()
	w.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(func() {
		require.NoError(t, w.api.Close())
		server.Close()
		require.NoError(t, w.store.Close())
	})
	return w
}

type logged struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A reply is an answer that was read to its end.
type answered struct {
	status int
	header http.Header
	text   string
}

func (a answered) fail(t testing.TB) wire.Fail {
	t.Helper()
	var f wire.Fail
	require.Equal(t, wire.Problem, a.header.Get("Content-Type"), a.text)
	require.NoError(t, json.Unmarshal([]byte(a.text), &f), a.text)
	require.Equal(t, a.status, f.Status)
	return f
}

// ask makes a request whose body, if there is one, is JSON.
func (w *world) ask(method, path, body string, headers ...string) answered {
	w.Helper()
	got, err := w.try(w.Context(), method, path, body, headers...)
	require.NoError(w, err)
	return got
}

func (w *world) try(ctx context.Context, method, path, body string, headers ...string) (answered, error) {
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		return answered{}, err
	}
	if body != "" {
		req.Header.Set("Content-Type", wire.JSON)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return answered{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	var text strings.Builder
	text.Grow(max(int(resp.ContentLength), 0)) // it would be copied again and again as it grows
	_, err = io.Copy(&text, resp.Body)
	return answered{resp.StatusCode, resp.Header, text.String()}, err
}

// direct makes a request without a socket.
func (w *world) direct(method, path, body string) answered {
	req := httptest.NewRequestWithContext(w.Context(), method, path, strings.NewReader(body))
	req.Header.Set("Content-Type", wire.JSON)
	told := httptest.NewRecorder()
	theBook().record(w.T, w.api).ServeHTTP(told, req)
	return answered{told.Code, told.Header(), told.Body.String()}
}

// call makes a request that must be answered with the status, and reads its answer.
func call[Answer any](w *world, status int, method, path, body string, headers ...string) Answer {
	w.Helper()
	got := w.ask(method, path, body, headers...)
	require.Equal(w, status, got.status, got.text)
	var answer Answer
	require.NoError(w, json.Unmarshal([]byte(got.text), &answer), got.text)
	return answer
}

// enqueue adds jobs by their queues.
func (w *world) enqueue(queues ...string) {
	w.Helper()
	for _, q := range queues {
		call[wire.Enqueued](w, 201, "POST", wire.PathJobs, fmt.Sprintf(`{"jobs":[{"kind":"k","queue":%q}]}`, q))
	}
}

// claim takes jobs.
func (w *world) claim(body string, headers ...string) []wire.Job {
	w.Helper()
	return call[wire.Jobs](w, 200, "POST", wire.PathClaim, body, headers...).Jobs
}

// counts are the numbers of jobs by phase.
func (w *world) counts() map[store.State]int64 {
	w.Helper()
	counts, err := w.store.Count(w.Context(), store.Filter{})
	require.NoError(w, err)
	all := map[store.State]int64{}
	for _, q := range counts.Queues {
		for state, n := range q.Jobs {
			all[state] += n
		}
	}
	return all
}

// eventually waits for what another goroutine or process does.
func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	require.Eventually(w, is, 10*time.Second, time.Millisecond, what)
}

// asleep waits until so many claims wait.
func (w *world) asleep(claims int) {
	w.Helper()
	w.eventually("claims wait", func() bool { return len(w.api.all.polls) == claims })
}

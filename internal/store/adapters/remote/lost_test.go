package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// assertOnly checks that the error is the one of the contract and none beside it, and says what it should.
func assertOnly(t *testing.T, err, want error, says, what string) {
	t.Helper()
	for _, known := range []error{
		store.ErrInvalid, store.ErrNotFound, store.ErrState, store.ErrDuplicate, store.ErrUnavailable, store.ErrDenied, store.ErrInDoubt,
		store.ErrClosed, errors.ErrUnsupported,
	} {
		assert.Equal(t, errors.Is(want, known), errors.Is(err, known), "%s: %v is %v", what, err, known)
	}
	assert.ErrorContains(t, err, says, what)
	assert.NotContains(t, err.Error(), "\n", what)
}

// write answers with a status, a media type and a text.
func write(status int, kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}
}

// TestNoAnswerIsInDoubt: what is no answer of a jq server leaves a write in doubt, and says of a read that it was not served.
func TestNoAnswerIsInDoubt(t *testing.T) {
	fine := `{"results":[{"id":"1","status":"ok","state":"succeeded","token":"2"}]}`
	for name, k := range map[string]struct {
		handle http.HandlerFunc
		says   string
	}{
		"BadGateway": {write(502, "text/html", "<h1>Bad Gateway</h1>"), "no answer of a jq server, is the URL right and nothing in between: HTTP 502, text/html"},
		"Gone":       {write(503, "text/html; charset=utf-8", ""), "HTTP 503, text/html"},
		"Late":       {write(504, "", ""), "HTTP 504"},
		"Elsewhere":  {write(404, "text/plain", "404 page not found"), "HTTP 404, text/plain"},
		"OtherAPI":   {write(400, wire.Problem, `{"type":"about:blank","title":"Odd","status":400}`), "HTTP 400, application/problem+json, Odd"},
		"Unknown":    {write(500, wire.Problem, `{"type":"urn:jq:newer","title":"news","status":500}`), "HTTP 500, application/problem+json, news"},
		"FineButOdd": {write(418, wire.JSON, fine), "HTTP 418"},
		"Page":       {write(200, "text/html", "<h1>Welcome</h1>"), "not the JSON that was expected"},
		"Empty":      {write(200, wire.JSON, ""), "not the JSON that was expected"},
		"Truncated":  {write(200, wire.JSON, fine[:40]), "not the JSON that was expected"},
		"Trailing":   {write(200, wire.JSON, fine+"{}"), "not the JSON that was expected"},
		"NotUTF8":    {write(200, wire.JSON, strings.Replace(fine, "succeeded", "\xff", 1)), "not in UTF-8"},
		"Object":     {write(200, wire.JSON, "{}"), "HTTP 200"},
		"List":       {write(200, wire.JSON, "[]"), "not the JSON that was expected"},
		"Null":       {write(200, wire.JSON, "null"), "HTTP 200"},
		"TooFew":     {write(200, wire.JSON, `{"results":[],"id":"7"}`), "HTTP 200"},
		"OtherJob":   {write(200, wire.JSON, strings.Replace(fine, `"1"`, `"7"`, 1)), "HTTP 200"},
		"NoStatus":   {write(200, wire.JSON, strings.Replace(fine, `"ok"`, `"great"`, 1)), "HTTP 200"},
		"Nothing":    {write(204, "", ""), "HTTP 204"},
		"Cut": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(fine[:40]))
		}, "the connection was lost: unexpected EOF"},
		"Reset": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "the connection was lost: EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			s := opened(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				k.handle(w, r)
			})
			assertOnly(t, oneAck(t.Context(), s), store.ErrInDoubt, k.says, "a write")
			assert.EqualValues(t, 1, calls.Swap(0), "a write is not repeated")
			assertOnly(t, get(t.Context(), s), store.ErrUnavailable, "", "a read")
			assert.EqualValues(t, 2, calls.Load(), "a read is repeated once")
		})
	}
}

// TestFenceWithoutAnEpochIsInDoubt: a fence raises the epoch by one at least, and to what was asked for.
func TestFenceWithoutAnEpochIsInDoubt(t *testing.T) {
	for answer, asked := range map[string]int64{`{}`: 0, `{"epoch":"0"}`: 0, `{"epoch":"-1"}`: 0, `{"epoch":"6"}`: 7} {
		s := opened(t, Options{}, write(200, wire.JSON, answer))
		_, err := s.Fence(t.Context(), store.FenceRequest{Epoch: asked})
		assertOnly(t, err, store.ErrInDoubt, "HTTP 200", answer)
	}
	s := opened(t, Options{}, write(200, wire.JSON, `{"epoch":"7"}`))
	epoch, err := s.Fence(t.Context(), store.FenceRequest{Epoch: 7})
	require.NoError(t, err)
	assert.EqualValues(t, 7, epoch)
}

// TestNotLetThrough: some statuses say, whoever gives them, that the request has reached nobody.
func TestNotLetThrough(t *testing.T) {
	for status, says := range map[int]string{
		401: "the server does not know the token, give another", 403: "something in between does not permit this",
		407: "the proxy in between wants to know who asks", 413: "a proxy in between finds the call too large",
		429: "too many requests",
	} {
		for _, kind := range []string{"text/html", wire.Problem} {
			t.Run(fmt.Sprint(status, kind), func(t *testing.T) {
				t.Parallel()
				var calls atomic.Int64
				s := opened(t, Options{Token: "secret"}, func(w http.ResponseWriter, r *http.Request) {
					calls.Add(1)
					write(status, kind, `{"type":"about:blank","title":"no"}`)(w, r)
				})
				for what, call := range map[string]func(context.Context, *Store) error{"a write": oneAck, "a read": get, "Enqueue": enqueueOne} {
					err := call(t.Context(), s)
					assertOnly(t, err, store.ErrUnavailable, says, what)
					assert.NotContains(t, err.Error(), "secret")
				}
				assert.EqualValues(t, 3, calls.Load(), "nothing is repeated")
			})
		}
	}
	s := opened(t, Options{}, write(401, wire.Problem, `{}`))
	assertOnly(t, oneAck(t.Context(), s), store.ErrUnavailable, "the server wants a token, give one (Options.Token, or JQ_TOKEN)", "without a token")
	s = opened(t, Options{Token: "secret"}, write(401, wire.Problem, `{"type":"urn:jq:token_expired","title":"no"}`))
	assertOnly(t, oneAck(t.Context(), s), store.ErrDenied, "the token has expired, give another (Options.Token, or JQ_TOKEN)", "an old token")
}

// TestWhoIsSentAwayComesBack when the server has said to, a few times and after no long pause.
func TestWhoIsSentAwayComesBack(t *testing.T) {
	busy := wire.Fail{Type: wire.Busy, Title: "busy", Status: 503}
	for name, k := range map[string]struct {
		status int
		body   any
		after  string
		pause  time.Duration // of each time; 0: it does not come back
	}{
		"Busy":    {503, busy, "1", time.Second},
		"ForLong": {503, busy, "3600", longestComeBack},
		"TooMany": {429, "<html>", "2", 2 * time.Second},
		"NoTime":  {503, busy, "", 0},
		"OddTime": {429, busy, "Fri, 31 Dec 1999 23:59:59 GMT", 0},
		"Away":    {503, wire.FailOf(store.ErrUnavailable), "1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			for what, call := range map[string]func(context.Context, *Store) error{"a write": oneAck, "a read": get, "Enqueue": enqueueOne} {
				bubble.Test(t, func(t *testing.T) {
					calls := 0
					s := openedOn(t, Options{}, func(r *http.Request) (*http.Response, error) {
						if r.Body != nil {
							_, _ = io.Copy(io.Discard, r.Body)
						}
						calls++
						answer := reply(k.status, k.body)
						answer.Header.Set("Retry-After", k.after)
						return answer, nil
					})
					began, times := time.Now(), 0
					if k.pause > 0 {
						times = comeBacks
					}
					assertOnly(t, call(t.Context(), s), store.ErrUnavailable, "", what)
					assert.Equal(t, 1+times, calls, what)
					assert.Equal(t, time.Duration(times)*k.pause, time.Since(began), what)
				})
			}
		})
	}
}

// TestErrorsOfTheServersStore: they come back as they are, but that the server is closing does not mean that this store is closed.
func TestErrorsOfTheServersStore(t *testing.T) {
	for want, given := range map[error]error{
		store.ErrUnavailable: store.ErrUnavailable, store.ErrInDoubt: store.ErrInDoubt, errors.ErrUnsupported: errors.ErrUnsupported,
		store.ErrNotFound: store.ErrNotFound, store.ErrState: store.ErrState, store.ErrDuplicate: store.ErrDuplicate,
		store.ErrInvalid: &store.InvalidError{Item: 3, Field: "payload", Rule: "must be short"},
	} {
		f := wire.FailOf(given)
		s := openedOn(t, Options{}, func(*http.Request) (*http.Response, error) { return reply(f.Status, f), nil })
		assertOnly(t, oneAck(t.Context(), s), want, "", f.Title)
		assertOnly(t, get(t.Context(), s), want, "", f.Title)
	}
	f := wire.FailOf(store.ErrClosed)
	s := openedOn(t, Options{}, func(*http.Request) (*http.Response, error) { return reply(f.Status, f), nil })
	assertOnly(t, oneAck(t.Context(), s), store.ErrUnavailable, "the server is shutting down", "closed")
	f = wire.FailOf(store.ErrDenied)
	s = openedOn(t, Options{}, func(*http.Request) (*http.Response, error) { return reply(f.Status, f), nil })
	assertOnly(t, oneAck(t.Context(), s), store.ErrUnavailable, "", "the server, not its client, lacks a right")
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	var followed atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	defer target.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := opened(t, Options{Token: "secret"}, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, strings.Replace(target.URL, "://", "://user:password@", 1)+r.URL.Path, status)
		})
		err := oneAck(t.Context(), s)
		assertOnly(t, err, store.ErrInDoubt, "something there redirects, open its other URL if that is meant", "a write")
		assert.NotContains(t, err.Error(), "password")
		assertOnly(t, get(t.Context(), s), store.ErrUnavailable, "something there redirects", "a read")
	}
	assert.Zero(t, followed.Load())
}

// TestEndlessAnswer is read no further than an answer can go.
func TestEndlessAnswer(t *testing.T) {
	var sent atomic.Int64
	s := opened(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		sent.Store(0)
		w.Header().Set("Content-Type", wire.JSON)
		_, _ = w.Write([]byte(`{"results":[`))
		for r.Context().Err() == nil {
			n, err := w.Write([]byte(strings.Repeat(`{"id":"1","status":"ok"},`, 1000)))
			if err != nil {
				return
			}
			sent.Add(int64(n))
		}
	})
	assertOnly(t, oneAck(t.Context(), s), store.ErrInDoubt, "longer than it can be", "a write")
	assert.Less(t, sent.Load(), int64(16<<20), "bytes that were sent before the connection was given up")
}

// TestRefusedConnection: what was not sent was surely not applied.
func TestRefusedConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := opened(t, Options{}, nil)
	s.base.Host = l.Addr().String()
	require.NoError(t, l.Close())
	for what, call := range map[string]func(context.Context, *Store) error{
		"a write": oneAck, "a read": get, "Enqueue": enqueueOne,
		"FetchAndClaim":  func(ctx context.Context, s *Store) error { _, err := s.FetchAndClaim(ctx, claimOf(1)); return err },
		"without a body": func(ctx context.Context, s *Store) error { return s.SetPaused(ctx, "q", true) },
		"a pause":        func(ctx context.Context, s *Store) error { return s.SetPaused(ctx, "q", true) },
		"a policy": func(ctx context.Context, s *Store) error {
			_, err := s.SetPolicy(ctx, "q", store.Policy{})
			return err
		},
		"a beat":         func(ctx context.Context, s *Store) error { return s.Beat(ctx, store.Worker{Name: "w"}) },
		"a subscription": func(ctx context.Context, s *Store) error { _, err := s.Subscribe(ctx, nil); return err },
		"a bulk": func(ctx context.Context, s *Store) error {
			_, err := s.Cancel(ctx, store.Filter{Queue: "q"}, 1)
			return err
		},
	} {
		assertOnly(t, call(t.Context(), s), store.ErrUnavailable, "no server answers there, start it or mend the URL", what)
	}
}

// TestHalfARequest: the server reads nothing, so that not all of the request leaves this side. That was surely not applied.
func TestHalfARequest(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	s := opened(t, Options{}, nil)
	s.base.Host = l.Addr().String()
	jobs := make([]store.NewJob, 8)
	for i := range jobs {
		jobs[i] = plain("k")
		jobs[i].Payload = []byte(`"` + strings.Repeat("x", store.MaxDocBytes-100) + `"`)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, _ = conn.Read(make([]byte, 1)) // the request is on its way
			cancel()
			<-t.Context().Done()
			_ = conn.Close()
		}
	}()
	_, err = s.Enqueue(ctx, store.EnqueueRequest{Jobs: jobs})
	assert.ErrorIs(t, err, store.ErrUnavailable)
	assert.ErrorIs(t, err, context.Canceled)
	assert.NotErrorIs(t, err, store.ErrInDoubt)
}

// TestSilentServer is given up after the time-out, and at once when the caller's context ends.
func TestSilentServer(t *testing.T) {
	calls := map[string]func(context.Context, *Store) error{
		"a write": oneAck, "a read": get,
		"FetchAndClaim":  func(ctx context.Context, s *Store) error { _, err := s.FetchAndClaim(ctx, claimOf(1)); return err },
		"without a body": func(ctx context.Context, s *Store) error { return s.SetPaused(ctx, "q", true) },
		"a subscription": func(ctx context.Context, s *Store) error { _, err := s.Subscribe(ctx, nil); return err },
	}
	reads := map[string]bool{"a read": true, "a subscription": true}
	for what, call := range calls {
		want := store.ErrInDoubt
		if reads[what] {
			want = store.ErrUnavailable
		}
		bubble.Test(t, func(t *testing.T) {
			asked := 0
			s := openedOn(t, Options{Timeout: 5 * time.Second}, func(r *http.Request) (*http.Response, error) {
				asked++
				if r.Body != nil {
					taken[any](r)
				}
				<-r.Context().Done()
				return nil, context.Cause(r.Context())
			})
			began := time.Now()
			assertOnly(t, call(t.Context(), s), want, "the server is silent for too long", what)
			assert.Equal(t, 5*time.Second, time.Since(began), what)
			assert.Equal(t, 1, asked, what)

			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(store.ErrClosed) }) // the worst cause: it looks like a store's error
			began = time.Now()
			err := call(ctx, s)
			assertOnly(t, err, want, "", what)
			assert.ErrorIs(t, err, context.Canceled, what)
			assert.Equal(t, time.Second, time.Since(began), what)

			closed := make(chan error)
			time.AfterFunc(time.Second, func() { closed <- s.Close() })
			began = time.Now()
			err = call(t.Context(), s)
			if reads[what] {
				want = store.ErrClosed
			}
			assertOnly(t, err, want, "", what)
			assert.Equal(t, time.Second, time.Since(began), what)
			assert.NoError(t, <-closed)
			assert.LessOrEqual(t, time.Since(began), time.Second+afterlife, "until Close has returned")
		})
	}
}

// TestLongAnswer is waited for as long as it comes, and given up when it stops.
func TestLongAnswer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := openedOn(t, Options{Timeout: 5 * time.Second}, func(r *http.Request) (*http.Response, error) {
			taken[any](r)
			out, in := io.Pipe()
			go func() {
				for range 10 {
					<-time.After(4 * time.Second)
					_, _ = in.Write([]byte(" "))
				}
				<-r.Context().Done()
				_ = in.CloseWithError(r.Context().Err())
			}()
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {wire.JSON}}, Body: out}, nil
		})
		began := time.Now()
		assertOnly(t, oneAck(t.Context(), s), store.ErrInDoubt, "the server is silent for too long", "a write")
		assert.Equal(t, 45*time.Second, time.Since(began))
	})
}

// TestTransportRepeatsNoWrite: a connection that ends when a request was written to it leaves the request in doubt. A
// transport that sees a request key would send it again by itself, and hide that there was a first time.
func TestTransportRepeatsNoWrite(t *testing.T) {
	keys := make(chan string, 10)
	var cut atomic.Bool
	s := opened(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == wire.PathCount {
			counted(w)
			return
		}
		keys <- r.Header.Get(wire.RequestKeyHeader)
		if cut.Load() {
			conn, _, err := http.NewResponseController(w).Hijack()
			if assert.NoError(t, err) {
				assert.NoError(t, conn.Close())
			}
			return
		}
		f := wire.FailOf(store.ErrUnavailable)
		answer(w, f.Status, f)
	})
	_, err := s.Count(t.Context(), store.Filter{}) // so that there is a connection that was used before
	require.NoError(t, err)
	cut.Store(true)
	assertOnly(t, oneAck(t.Context(), s), store.ErrInDoubt, "the connection was lost", "a write")
	assert.Empty(t, <-keys)

	cut.Store(false)
	_, err = s.Count(t.Context(), store.Filter{})
	require.NoError(t, err)
	cut.Store(true)
	c := enqueueCall(store.EnqueueRequest{Jobs: []store.NewJob{plain("k")}, RequestKey: "a key"})
	require.NoError(t, c.refused)
	_, err = ask(t.Context(), s, c, func(wire.Enqueued) error { return nil })
	assertOnly(t, err, store.ErrInDoubt, "the connection was lost", "one request with a key")
	assert.Equal(t, "a%20key", <-keys)
	assert.Empty(t, keys, "no request came twice")
}

package remote

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// TestMain fails where a test has left a goroutine behind.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(pgtest.Tests{M: m})
}

// counted answers what Open asks, and anything else that counts.
func counted(w http.ResponseWriter) {
	answer(w, http.StatusOK, store.Counts{Now: time.Now()})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", wire.JSON)
	w.WriteHeader(status)
	_ = wire.Encode(w, body)
}

// opened is a store on a server of the test, which is asked nothing until Open has returned.
func opened(t testing.TB, o Options, handle http.HandlerFunc) *Store {
	t.Helper()
	var open atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !open.Load() {
			counted(w)
			return
		}
		handle(w, r)
	}))
	t.Cleanup(server.Close)
	s, err := Open(t.Context(), server.URL, &o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	open.Store(true)
	return s
}

// A trip is a server without a network, for tests on a clock of their own.
type trip func(*http.Request) (*http.Response, error)

func (t trip) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }()
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return t(r)
}

// reply is an answer of such a server.
func reply(status int, body any) *http.Response {
	text, err := wire.Marshal(body)
	if err != nil {
		panic(err)
	}
	kind := wire.JSON
	if status >= 400 {
		kind = wire.Problem
	}
	return &http.Response{
		StatusCode: status, ContentLength: int64(len(text)), Header: http.Header{"Content-Type": {kind}},
		Body: io.NopCloser(strings.NewReader(string(text))),
	}
}

// openedOn is a store on a server without a network.
func openedOn(t testing.TB, o Options, serve trip) *Store {
	t.Helper()
	var open atomic.Bool
	o.Transport = trip(func(r *http.Request) (*http.Response, error) {
		if !open.Load() {
			return reply(http.StatusOK, store.Counts{Now: time.Now()}), nil
		}
		return serve(r)
	})
	s, err := Open(t.Context(), "http://server", &o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	open.Store(true)
	return s
}

// taken reads a request as a server does.
func taken[A any](r *http.Request) (body A) {
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	if err != nil {
		panic(err)
	}
	return body
}

// oneAck is a write, and get a read.
func oneAck(ctx context.Context, s *Store) error {
	_, err := s.Ack(ctx, []store.Ack{{Lease: store.Lease{ID: 1, Token: 2}, Result: []byte(`"done"`)}})
	return err
}

func get(ctx context.Context, s *Store) error {
	_, err := s.Get(ctx, 1)
	return err
}

func plain(kind string) store.NewJob {
	return store.NewJob{Queue: "q", Kind: kind, Payload: []byte(`{"a": 1}`), MaxRetries: 3}
}

func enqueueOne(ctx context.Context, s *Store) error {
	_, err := s.Enqueue(ctx, store.EnqueueRequest{Jobs: []store.NewJob{plain("k")}})
	return err
}

func claimOf(limit int) store.ClaimRequest {
	return store.ClaimRequest{Queue: "q", Limit: limit, Worker: "w", TTL: 30 * time.Second}
}

package remote

import (
	"net/http"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

// A slowTransport is one on which something happens before each request.
type slowTransport struct {
	*http.Transport
	before func(r *http.Request)
}

// RoundTrip is part of http.RoundTripper.
func (s slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	s.before(r)
	return s.Transport.RoundTrip(r)
}

// A lease runs from the server's now when the request arrives. The caller's clock, which is wrong here, and the way there do not count.
func TestExtendTakesTheServersNow(t *testing.T) {
	shown, callers := clock.NewMock(), clock.NewMock()
	shown.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	server, err := serve(memory.New(memory.Options{Clock: shown}), httpapi.Options{})
	require.NoError(t, err)
	defer func() { assert.NoError(t, server.stop()) }()
	travelled := 0
	s, err := Open(t.Context(), server.url, &Options{Clock: callers, Transport: slowTransport{newTransport("", nil), func(r *http.Request) {
		if r.URL.Path == wire.PathExtend {
			travelled++
			shown.Add(7 * time.Second)
			callers.Add(7 * time.Second)
		}
	}}})
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	_, err = s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: "q", Kind: "k", Payload: []byte(`{}`)}}})
	require.NoError(t, err)
	held, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	require.Len(t, held, 1)
	outcomes, err := s.Extend(t.Context(), []store.Lease{held[0].Lease()}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, 1, travelled)
	assert.Equal(t, shown.Now().Add(time.Minute), outcomes[0].Next)
}

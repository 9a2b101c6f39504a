package producer

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

// A recorder is a queue that records what it is asked to enqueue, and refuses loads in transactions.
type recorder struct {
	peer.Queue
	loads  chan peer.Load
	closed bool
}

func (r *recorder) Enqueue(_ context.Context, load peer.Load) error {
	if load.Tx {
		return errors.New("no transactions here")
	}
	r.loads <- load
	return nil
}

func (r *recorder) Close(context.Context) error {
	r.closed = true
	return nil
}

func TestRequestsAreAnsweredUntilThereAreNoMore(t *testing.T) {
	q := &recorder{loads: make(chan peer.Load, 10)}
	var place peer.Place
	p := peer.Peer{Name: "fake", Store: "none", Open: func(_ context.Context, at peer.Place, _ peer.Handler) (peer.Queue, error) {
		place = at
		return q, nil
	}}
	in, requests := io.Pipe()
	answers, out := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- serve(t.Context(), []peer.Peer{p}, opening{Peer: "fake-none", Place: peer.Place{DSN: "there"}}, in, out)
	}()
	lines := json.NewDecoder(answers)
	next := func() (a answer) {
		require.NoError(t, lines.Decode(&a))
		return a
	}
	require.Equal(t, answer{}, next(), "it is ready")
	require.Equal(t, "there", place.DSN)

	ask := func(load peer.Load) answer {
		require.NoError(t, json.NewEncoder(requests).Encode(request{Load: load, Pace: 10_000}))
		return next()
	}
	shape := peer.Shape{Text: 7, Slow: true}
	began := time.Now()
	a := ask(peer.Load{First: 3, Jobs: 2, Shape: shape})
	require.Empty(t, a.Error)
	require.Len(t, a.Called, 2)
	require.WithinRange(t, a.Called[0], began.Add(-time.Millisecond), time.Now())
	seen := map[int64]bool{}
	for range 2 {
		load := <-q.loads
		seen[load.First] = true
		require.Equal(t, peer.Load{First: load.First, Jobs: 1, Callers: 1, Batch: 1, Shape: shape}, load)
	}
	require.Equal(t, map[int64]bool{3: true, 4: true}, seen)
	require.Contains(t, ask(peer.Load{Jobs: 1, Tx: true}).Error, "no transactions here")

	require.NoError(t, requests.Close())
	require.NoError(t, <-served)
	require.True(t, q.closed)
}

func TestAStoreThatDoesNotOpenIsToldOf(t *testing.T) {
	p := peer.Peer{Name: "fake", Store: "none", Open: func(context.Context, peer.Place, peer.Handler) (peer.Queue, error) {
		return nil, errors.New("no store")
	}}
	var out strings.Builder
	err := serve(t.Context(), []peer.Peer{p}, opening{Peer: "fake-none"}, strings.NewReader(""), &out)
	require.ErrorContains(t, err, "no store")
	require.Contains(t, out.String(), "no store")
	err = serve(t.Context(), nil, opening{Peer: "fake-none"}, strings.NewReader(""), &out)
	require.ErrorContains(t, err, `there is no peer "fake-none"`)
}

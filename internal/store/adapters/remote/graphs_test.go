package remote

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/graph"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// TestServerReadsTheGraph: one request, and the same answer as from the store behind it.
func TestServerReadsTheGraph(t *testing.T) {
	back := memory.New(memory.Options{})
	s := behind(t, back)

	n, waits := plain("k"), plain("k")
	n.Group, waits.After = "odd/ä %", []store.Wait{{Group: "odd/ä %"}, {Item: 0}}
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n, waits}})
	require.NoError(t, err)
	want, err := graph.OfJob(t.Context(), back, 1)
	require.NoError(t, err)
	require.Len(t, want.Edges, 2)
	got, err := graph.OfJob(t.Context(), s, 2)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	got, err = graph.OfGroup(t.Context(), s, "odd/ä %")
	require.NoError(t, err)
	assert.Equal(t, want, got)

	_, err = graph.OfJob(t.Context(), s, 3)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = graph.OfGroup(t.Context(), s, "none")
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = graph.OfGroup(t.Context(), s, "")
	require.ErrorIs(t, err, store.ErrInvalid)
}

// TestOddGraphs that lead nowhere are refused, before somebody draws them.
func TestOddGraphs(t *testing.T) {
	for text, good := range map[string]bool{
		`{"nodes":[{"id":"1","layer":0}],"edges":[]}`:                                    true,
		`{"nodes":[{"id":"1","layer":0}],"edges":[{"waiter":0,"on":0}],"circles":[[0]]}`: true,
		`{}`: false,
		`{"nodes":[{"id":"1"}],"edges":[{"waiter":0,"on":1}]}`:  false,
		`{"nodes":[{"id":"1"}],"edges":[{"waiter":-1,"on":0}]}`: false,
		`{"nodes":[{"id":"1"}],"edges":[],"circles":[[0,1]]}`:   false,
	} {
		s := opened(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, err := w.Write([]byte(text))
			assert.NoError(t, err)
		})
		_, err := s.GraphOfJob(t.Context(), 1)
		assert.Equal(t, good, err == nil, "%s: %v", text, err)
		_, err = s.GraphOfGroup(t.Context(), "g")
		assert.Error(t, err, "a group without a graph")
	}
}

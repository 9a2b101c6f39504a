package remote

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// over returns a store over HTTP, until the test ends.
func over(t *testing.T, behind store.Store) *Store {
	t.Helper()
	server, err := serve(behind, httpapi.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.stop()) })
	s, err := Open(t.Context(), server.url, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// TestLargestCalls travel as they are: 8 MiB of documents that are the longest when they are written into JSON once more.
func TestLargestCalls(t *testing.T) {
	if race.Enabled {
		t.Skip("not under the race detector: a hundred megabytes of JSON take too long there")
	}
	s := over(t, memory.New(memory.Options{}))

	doc := []byte(` ["` + strings.Repeat(`\\`, (store.MaxDocBytes-5)/2) + `"]`)
	require.LessOrEqual(t, len(doc), store.MaxDocBytes)
	jobs := make([]store.NewJob, 8)
	for i := range jobs {
		jobs[i] = plain("k")
		jobs[i].Payload = slices.Clip(doc)
	}
	jobs[7].Payload = append([]byte(` ["`), doc[103:]...) // room for names
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: jobs})
	require.NoError(t, err)
	claimed, err := s.FetchAndClaim(t.Context(), claimOf(8))
	require.NoError(t, err)
	require.Len(t, claimed, 8)
	acks, saves := make([]store.Ack, 8), make([]store.Save, 4)
	for i, j := range claimed {
		require.True(t, bytes.Equal(jobs[i].Payload, j.Payload), "job %d", i)
		acks[i] = store.Ack{Lease: j.Lease(), Result: doc}
	}
	for i := range saves {
		saves[i] = store.Save{Lease: claimed[i].Lease(), Checkpoint: doc, Progress: doc}
	}
	outcomes, err := s.Save(t.Context(), saves)
	require.NoError(t, err)
	for _, o := range outcomes {
		assert.Equal(t, store.StatusOK, o.Status)
	}
	outcomes, err = s.Ack(t.Context(), acks)
	require.NoError(t, err)
	for _, o := range outcomes {
		assert.Equal(t, store.Succeeded, o.State)
	}
	listed := 0
	for page := (store.Page{Limit: 8}); listed == 0 || page.Cursor != ""; {
		part, err := s.List(t.Context(), store.Filter{}, page)
		require.NoError(t, err)
		for _, j := range part.Jobs {
			assert.True(t, bytes.Equal(doc, j.Result), "job %d", j.ID)
		}
		listed += len(part.Jobs)
		page.Cursor = part.Next
	}
	assert.Equal(t, 8, listed)
}

// TestTextThatGrows beyond what a server reads, when it is written into JSON, is refused here, and goes in smaller calls.
func TestTextThatGrows(t *testing.T) {
	s := over(t, memory.New(memory.Options{}))
	nacks := make([]store.NAck, 500)
	for i := range nacks {
		nacks[i] = store.NAck{Lease: store.Lease{ID: 1, Token: 1}, Form: store.Fail, Error: strings.Repeat("\x1b", store.MaxErrorBytes)}
	}
	_, err := s.NAck(t.Context(), nacks)
	assertOnly(t, err, store.ErrInvalid, "send fewer items at a time", "500 errors of 16 KiB of control characters")
	_, err = s.NAck(t.Context(), nacks[:100])
	require.NoError(t, err)
}

// TestDeepestDocumentsTravel: what one store takes, it takes through a server too, and a claim brings it with the jobs beside it.
func TestDeepestDocumentsTravel(t *testing.T) {
	s := over(t, memory.New(memory.Options{}))
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: "q", Kind: "k", Payload: []byte(deep)}, {Queue: "q", Kind: "k", Payload: []byte("1")}}})
	require.NoError(t, err)
	jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: 2, Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	require.Len(t, jobs, 2)
	assert.Equal(t, deep, string(jobs[0].Payload))
	detail, err := s.Get(t.Context(), jobs[0].ID)
	require.NoError(t, err)
	assert.Equal(t, deep, string(detail.Payload))
}

// TestLargestPageOfWorkers has as many names as there can be, each of which takes nine bytes of JSON for one.
func TestLargestPageOfWorkers(t *testing.T) {
	if race.Enabled {
		t.Skip("not under the race detector: tens of megabytes of JSON take too long there")
	}
	behind := memory.New(memory.Options{})
	s := over(t, behind)
	queues := slices.Repeat([]string{"\x01"}, store.MaxItems)
	for i := range store.MaxItems + 1 {
		require.NoError(t, behind.Beat(t.Context(), store.Worker{
			Name: strings.Repeat("\x01", store.MaxNameBytes-4) + fmt.Sprintf("%04d", i), Host: strings.Repeat("\x01", store.MaxNameBytes),
			Queues: queues, StaleAfter: store.MaxDuration,
		}))
	}
	page, err := s.Workers(t.Context(), store.WorkerFilter{}, store.Page{Limit: store.MaxItems})
	require.NoError(t, err)
	require.Len(t, page.Workers, store.MaxItems)
	assert.Equal(t, queues, page.Workers[store.MaxItems-1].Queues)
	page, err = s.Workers(t.Context(), store.WorkerFilter{}, store.Page{Limit: store.MaxItems, Cursor: page.Next})
	require.NoError(t, err)
	assert.Len(t, page.Workers, 1)
	assert.Empty(t, page.Next)
}

package httpapi

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// beats writes the rows of workers behind the back of the API.
func (w *world) beats(workers ...store.Worker) {
	w.Helper()
	for _, worker := range workers {
		worker.StaleAfter = time.Minute
		require.NoError(w, w.store.Beat(w.Context(), worker))
	}
}

// workerNames reads all pages of so many workers each, and returns their names page by page.
func (w *world) workerNames(limit int, headers ...string) [][]string {
	w.Helper()
	var pages [][]string
	for cursor := ""; ; {
		page := call[store.WorkerPage](w, 200, "GET", fmt.Sprint("/v1/workers?limit=", limit, cursor), "", headers...)
		var names []string
		for _, worker := range page.Workers {
			names = append(names, worker.Name)
		}
		pages = append(pages, names)
		if page.Next == "" {
			return pages
		}
		require.Less(w, len(pages), 100, "the pages do not end")
		cursor = "&cursor=" + page.Next
	}
}

// TestWorkersComeInPages of a hundred, or as many as are asked for, or one by its name.
func TestWorkersComeInPages(t *testing.T) {
	w := newWorld(t, Options{})
	for i := range 101 {
		w.beats(store.Worker{Name: fmt.Sprintf("w%03d", i), Queues: []string{"q"}})
	}
	first := call[store.WorkerPage](w, 200, "GET", "/v1/workers", "")
	require.Len(t, first.Workers, 100)
	second := call[store.WorkerPage](w, 200, "GET", "/v1/workers?cursor="+first.Next, "")
	require.Len(t, second.Workers, 1)
	assert.Equal(t, "w100", second.Workers[0].Name)
	assert.Empty(t, second.Next)
	pages := w.workerNames(40)
	require.Len(t, pages, 3)
	assert.Len(t, pages[1], 40)
	assert.Len(t, slices.Compact(slices.Concat(pages...)), 101)

	got := w.ask("GET", "/v1/workers?name=w007", "")
	assert.JSONEq(t, `{"workers":[{"name":"w007","queues":["q"],"slots":0,"running":0,"stale_after":"1m0s","beat_at":"2026-01-02T03:04:05Z"}]}`, got.text)
	assert.JSONEq(t, `{"workers":[]}`, w.ask("GET", "/v1/workers?name=w7", "").text)
}

// Workers of 255 kB each made an answer of 100 MB.
func TestWorkersOfManyQueuesMakeNoHugeAnswer(t *testing.T) {
	w := newWorld(t, Options{})
	many := slices.Repeat([]string{strings.Repeat("q", store.MaxNameBytes)}, store.MaxItems)
	for i := range 40 {
		w.beats(store.Worker{Name: fmt.Sprintf("w%02d", i), Queues: many})
	}
	got := w.ask("GET", "/v1/workers?limit=1000", "")
	require.Equal(t, 200, got.status)
	assert.Less(t, len(got.text), 2*store.MaxPageNames)
	pages := w.workerNames(1000)
	assert.Len(t, pages, 10)
	assert.Len(t, slices.Concat(pages...), 40)
}

// TestForeignWorkersTakeNoPlace: a token for some queues reads pages of its own workers, as if there were no others, and no cursor has
// the name of one.
func TestForeignWorkersTakeNoPlace(t *testing.T) {
	h := newHouse(t, Options{})
	many := slices.Repeat([]string{strings.Repeat("q", store.MaxNameBytes)}, store.MaxItems)
	var own []string
	for i := range 5 {
		for j := range 6 {
			h.beats(store.Worker{Name: fmt.Sprintf("w%d-secret-%d", i, j), Queues: many})
		}
		name := fmt.Sprintf("w%d-x", i)
		own = append(own, name)
		h.beats(store.Worker{Name: name, Queues: append(slices.Clone(many[1:]), ownQueue)})
	}
	h.beats(store.Worker{Name: "z-secret", Queues: []string{foreignQueue}})
	bearer := []string{"Authorization", "Bearer " + h.secrets[Viewer]}
	for size := 1; size <= len(own)+1; size++ {
		pages := h.workerNames(size, bearer...)
		assert.Equal(t, own, slices.Concat(pages...), "pages of %d", size)
		assert.Len(t, pages, (len(own)+size-1)/size, "pages of %d", size)
	}
	page := call[store.WorkerPage](h.world, 200, "GET", "/v1/workers?limit=2", "", bearer...)
	assert.Equal(t, []string{ownQueue}, page.Workers[0].Queues)
	raw, err := base64.RawURLEncoding.DecodeString(page.Next)
	require.NoError(t, err)
	assert.Contains(t, string(raw), "w1-x")
	assert.NotContains(t, string(raw), "secret")
	for _, name := range []string{"w0-secret-0", "nobody"} {
		assert.JSONEq(t, `{"workers":[]}`, h.as(Viewer, "GET", "/v1/workers?name="+name, "").text, name)
	}
	assert.Contains(t, h.as(Viewer, "GET", "/v1/workers?name=w0-x", "").text, `"queues":["mail-1"]`)
	after := store.WorkerFilter{}.Cursor("w3-secret-2") // by who has guessed a name
	assert.Contains(t, h.as(Viewer, "GET", "/v1/workers?limit=1&cursor="+after, "").text, `"name":"w3-x"`)
	for _, query := range []string{"limit=0", "limit=1001", "cursor=x", "name=%00"} {
		assert.Equal(t, 400, h.as(Viewer, "GET", "/v1/workers?"+query, "").status, query)
	}
}

// TestOwnWorkersOfManyQueuesComeInPages by the names that the token sees.
func TestOwnWorkersOfManyQueuesComeInPages(t *testing.T) {
	h := newHouse(t, Options{})
	many := slices.Repeat([]string{"mail-" + strings.Repeat("q", store.MaxNameBytes-5)}, store.MaxItems)
	for i := range 9 {
		h.beats(store.Worker{Name: fmt.Sprint("w", i), Queues: many})
	}
	pages := h.workerNames(1000, "Authorization", "Bearer "+h.secrets[Viewer])
	assert.Equal(t, [][]string{{"w0", "w1", "w2", "w3"}, {"w4", "w5", "w6", "w7"}, {"w8"}}, pages)
}

// Each beat of a token for some queues read every worker of the store.
func TestBeatOfALimitedTokenLooksForOneWorker(t *testing.T) {
	h := newHouse(t, Options{})
	h.beats(store.Worker{Name: "a", Queues: []string{foreignQueue}}, store.Worker{Name: "b", Queues: []string{foreignQueue}})
	var asked []store.WorkerFilter
	h.api.store.(*meddled).listing = func(f store.WorkerFilter) { asked = append(asked, f) }
	const body = `{"queues":["mail"],"slots":1,"stale_after":"1m"}`
	assert.Equal(t, 204, h.as(Worker, "PUT", "/v1/workers/w", body).status)
	assert.Equal(t, 204, h.as(Worker, "PUT", "/v1/workers/w", body).status)
	assert.Equal(t, 403, h.as(Worker, "PUT", "/v1/workers/b", body).status)
	assert.Equal(t, 204, h.as(Worker, "DELETE", "/v1/workers/w", "").status)
	assert.Equal(t, []store.WorkerFilter{{Name: "w"}, {Name: "w"}, {Name: "b"}, {Name: "w"}}, asked)
	for _, name := range []string{"%00", "%ff", strings.Repeat("x", 256)} {
		f := h.as(Worker, "PUT", "/v1/workers/"+name, body).fail(t)
		assert.Equal(t, 400, f.Status, name)
		assert.Equal(t, "name", f.Field, name)
	}
}

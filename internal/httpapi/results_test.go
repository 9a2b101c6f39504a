package httpapi

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// add adds jobs of own queues behind the back of the API.
func (h *house) add(req store.EnqueueRequest) {
	h.Helper()
	for i := range req.Jobs {
		req.Jobs[i].Kind, req.Jobs[i].Payload = "k", []byte(`{}`)
	}
	_, err := h.store.Enqueue(h.Context(), req)
	require.NoError(h, err)
}

// finish claims so many jobs of the queue, and finishes them with their ids as results.
func (h *house) finish(queue string, jobs int) {
	h.Helper()
	claimed, err := h.store.FetchAndClaim(h.Context(), store.ClaimRequest{Queue: queue, Worker: "w", TTL: time.Minute, Limit: jobs})
	require.NoError(h, err)
	require.Len(h, claimed, jobs)
	for _, j := range claimed {
		_, err := h.store.Ack(h.Context(), []store.Ack{{Lease: j.Lease(), Result: fmt.Appendf(nil, `"of %d"`, j.ID)}})
		require.NoError(h, err)
	}
}

// results asks as a worker what job 6 has waited for, which is in flight.
func (h *house) results(more string) wire.Jobs {
	h.Helper()
	return call[wire.Jobs](h.world, 200, "POST", wire.PathWaited, `{"id":"6","token":"1"`+more+`}`, "Authorization", "Bearer "+h.secrets[Worker])
}

func resultsIn(jobs wire.Jobs) (found []string) {
	for _, j := range jobs.Jobs {
		found = append(found, string(j.Result))
	}
	return found
}

// newFamily returns a house with job 6 in flight. It has waited for job 1, for job 2, which is gone, and for groups with the jobs 3 to 5.
func newFamily(t *testing.T) *house {
	t.Helper()
	h := newHouse(t, Options{})
	h.add(store.EnqueueRequest{Jobs: []store.NewJob{
		{Queue: "mail"}, {Queue: "mail"}, {Queue: "mail", Group: "m/g"}, {Queue: "mail", Group: "m/g"}, {Queue: "mail", Group: "theirs"},
		{Queue: "mail", After: []store.Wait{{Item: 1}, {Group: "m/g"}, {Item: 0, Any: true}, {Group: "theirs"}, {Group: "m/g", Any: true}, {Group: "m/none"}}},
	}})
	h.finish("mail", 5)
	_, err := h.store.Delete(t.Context(), store.Filter{IDs: []int64{2}}, 1)
	require.NoError(t, err)
	h.claim(`{"worker":"w","queues":["mail"]}`, "Authorization", "Bearer "+h.secrets[Worker])
	return h
}

// TestHolderOfALeaseReadsResults, page by page, and no tokens.
func TestHolderOfALeaseReadsResults(t *testing.T) {
	h := newFamily(t)
	got := h.results("")
	assert.Equal(t, []string{`"of 1"`}, resultsIn(got))
	assert.Equal(t, []any{`{}`, wire.ID(0), ""}, []any{string(got.Jobs[0].Payload), got.Jobs[0].Token, got.Next})
	waits := []store.Waiting{
		{Group: "m/g", Met: true, State: store.Succeeded}, {ID: 1, Any: true, Met: true, State: store.Succeeded},
		{Group: "m/g", Any: true, Met: true, State: store.Succeeded}, {Group: "m/none", Met: true, State: store.Succeeded},
	}
	assert.Equal(t, waits, got.Waits, "a token for queues does not learn of jobs that are gone, and of groups with other names")

	var all []string
	for more := `,"groups":true,"limit":1`; ; {
		page := h.results(more)
		all = append(all, resultsIn(page)...)
		if page.Next == "" {
			break
		}
		more = `,"groups":true,"limit":1,"cursor":"` + page.Next + `"`
	}
	assert.Equal(t, []string{`"of 4"`, `"of 3"`, `"of 5"`}, all, "each group once, and those with other names too")
	for _, cursor := range []string{"9.", "-1.", "x", "0", "01.", "0.AAAA"} {
		f := h.as(Worker, "POST", wire.PathWaited, `{"id":"6","token":"1","groups":true,"cursor":"`+cursor+`"}`).fail(t)
		assert.Equal(t, []any{400, "cursor"}, []any{f.Status, f.Field}, cursor)
	}
	f := h.as(Worker, "POST", wire.PathWaited, `{"id":"6","token":"1","limit":1001}`).fail(t)
	assert.Equal(t, []any{400, "limit"}, []any{f.Status, f.Field})
}

// TestOnlyTheHolderOfALeaseReadsResults: neither does whoever has held it, nor whoever guesses.
func TestOnlyTheHolderOfALeaseReadsResults(t *testing.T) {
	h := newFamily(t)
	foreign := h.job(foreignQueue, "")
	refused := func(status int, problem, id, token string) {
		t.Helper()
		for _, role := range []Role{Worker, Operator} {
			f := h.as(role, "POST", wire.PathWaited, `{"id":"`+id+`","token":"`+token+`"}`).fail(t)
			assert.Equal(t, []any{status, urn + problem}, []any{f.Status, f.Type}, "job %s, token %s", id, token)
		}
	}
	refused(409, "stale", "6", "2")
	refused(409, "stale", "6", "0")
	refused(409, "stale", "1", "1") // it has ended
	refused(404, "not_found", "2", "1")
	refused(404, "not_found", fmt.Sprint(foreign.ID), "1")
	h.clock.Add(2 * time.Minute)
	assert.Len(t, h.results("").Jobs, 1, "a lease that nobody has ended yet is still good")
	_, err := h.store.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 10})
	require.NoError(t, err)
	refused(409, "stale", "6", "1")
	refused(409, "stale", "6", "2") // it is retrying
}

// TestForeignResultsAreLeftOut, where a job has waited for jobs of other queues.
func TestForeignResultsAreLeftOut(t *testing.T) {
	h := newHouse(t, Options{})
	h.add(store.EnqueueRequest{Jobs: []store.NewJob{
		{Queue: foreignQueue}, {Queue: foreignQueue, Group: "m/g"}, {Queue: "mail", Group: "m/g"}, {Queue: "mail"}, {Queue: "mail"},
		{Queue: "mail", After: []store.Wait{{Item: 0}, {Item: 3}, {Group: "m/g"}}},
	}})
	h.finish(foreignQueue, 2)
	h.finish("mail", 3)
	h.claim(`{"worker":"w","queues":["mail"]}`, "Authorization", "Bearer "+h.secrets[Worker])
	got := h.results("")
	assert.Equal(t, []string{`"of 4"`}, resultsIn(got))
	assert.Equal(t, []store.Waiting{{ID: 4, Met: true, State: store.Succeeded}, {Group: "m/g", Met: true, State: store.Succeeded}}, got.Waits)
	assert.Equal(t, []string{`"of 3"`}, resultsIn(h.results(`,"groups":true`)))
}

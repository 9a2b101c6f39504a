package remote

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

// behind is a remote store before the given one.
func behind(t *testing.T, back store.Store) *Store {
	t.Helper()
	v, err := serve(back, httpapi.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, v.stop()) })
	s, err := Open(t.Context(), v.url, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// TestLimitKeysTravel both ways, and so do the limit, the turns and the order.
func TestLimitKeysTravel(t *testing.T) {
	back := memory.New(memory.Options{})
	s := behind(t, back)

	const key = "odd/ä %"
	set, err := s.SetPolicy(t.Context(), "q", store.Policy{MaxInFlight: 10, MaxPerKey: 1, Fair: true, Ordered: true})
	require.NoError(t, err)
	assert.Equal(t, store.Policy{MaxInFlight: 10, MaxPerKey: 1, Fair: true, Ordered: true, Version: 1}, set)
	for _, one := range []store.PolicyKeeper{s, back} {
		got, err := one.Policy(t.Context(), "q")
		require.NoError(t, err)
		assert.Equal(t, set, got)
		queues, err := one.Queues(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []store.Queue{{Name: "q", Policy: set}}, queues)
	}

	n := plain("k")
	n.LimitKey = key
	_, err = s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n, n, plain("k")}})
	require.NoError(t, err)
	for _, one := range []store.Store{s, back} {
		got, err := one.Get(t.Context(), 1)
		require.NoError(t, err)
		assert.Equal(t, key, got.LimitKey())
		page, err := one.List(t.Context(), store.Filter{LimitKey: key}, store.Page{Limit: 10})
		require.NoError(t, err)
		assert.Len(t, page.Jobs, 2)
		counts, err := one.Count(t.Context(), store.Filter{LimitKey: "another"})
		require.NoError(t, err)
		assert.Empty(t, counts.Queues)
	}
	claimed, err := s.FetchAndClaim(t.Context(), claimOf(10))
	require.NoError(t, err)
	require.Len(t, claimed, 2, "the key has room for one job")
	assert.Equal(t, []string{key, ""}, []string{claimed[0].LimitKey(), claimed[1].LimitKey()})
	outcomes, err := s.Cancel(t.Context(), store.Filter{LimitKey: key}, 10)
	require.NoError(t, err)
	assert.Len(t, outcomes, 2)

	of := aSchedule("s")
	of.Job.LimitKey = key
	schedule, err := s.SetSchedule(t.Context(), of)
	require.NoError(t, err)
	assert.Equal(t, key, schedule.Job.LimitKey)
}

// TestServerWithoutLimitKeys refuses what it does not know, and changes nothing. Otherwise jobs would run that must not, and a bulk call
// would change others than those that were meant.
func TestServerWithoutLimitKeys(t *testing.T) {
	s := opened(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		for _, field := range []string{"limit_key", "max_per_key", "fair", "ordered"} {
			if strings.Contains(string(body), `"`+field+`":`) {
				write(400, wire.Problem, `{"type":"urn:jq:invalid","status":400,"field":"`+field+`","rule":"is not known here"}`)(w, r)
				return
			}
		}
		assert.Fail(t, "the server is not told", "%s %s %s", r.Method, r.URL, body)
	})
	n, of := plain("k"), aSchedule("s")
	n.LimitKey, of.Job.LimitKey = "c7", "c7"
	filter := store.Filter{LimitKey: "c7"}
	_, setPolicy := s.SetPolicy(t.Context(), "q", store.Policy{MaxPerKey: 3})
	_, setFair := s.SetPolicy(t.Context(), "q", store.Policy{Fair: true})
	_, setOrdered := s.SetPolicy(t.Context(), "q", store.Policy{Ordered: true})
	_, enqueue := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n}})
	_, setSchedule := s.SetSchedule(t.Context(), of)
	_, list := s.List(t.Context(), filter, store.Page{Limit: 1})
	_, count := s.Count(t.Context(), filter)
	_, remove := s.Delete(t.Context(), filter, 1)
	for call, err := range map[string]error{
		"SetPolicy": setPolicy, "SetPolicy/Fair": setFair, "SetPolicy/Ordered": setOrdered, "Enqueue": enqueue, "SetSchedule": setSchedule,
		"List": list, "Count": count, "Delete": remove,
	} {
		require.ErrorIs(t, err, store.ErrInvalid, call)
		assert.ErrorContains(t, err, "is not known here", call)
	}
}

package remote

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

// TestRatesTravel both ways, and claims through the server keep to them.
func TestRatesTravel(t *testing.T) {
	back := memory.New(memory.Options{})
	s := behind(t, back)

	for i, r := range []store.Rate{{N: store.MaxRate, Per: store.MinPer}, {N: 2, Per: store.MaxPer}} {
		set, err := s.SetPolicy(t.Context(), "q", store.Policy{Rate: r, Version: int64(i)})
		require.NoError(t, err)
		assert.Equal(t, store.Policy{Rate: r, Version: int64(i) + 1}, set)
		for _, one := range []store.PolicyKeeper{s, back} {
			got, err := one.Policy(t.Context(), "q")
			require.NoError(t, err)
			assert.Equal(t, set, got)
			queues, err := one.Queues(t.Context())
			require.NoError(t, err)
			assert.Equal(t, []store.Queue{{Name: "q", Policy: set}}, queues)
		}
	}
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{plain("k"), plain("k"), plain("k")}})
	require.NoError(t, err)
	claimed, err := s.FetchAndClaim(t.Context(), claimOf(10))
	require.NoError(t, err)
	assert.Len(t, claimed, 2)
}

// TestServerWithoutRates refuses a rate. Otherwise more jobs would run than the policy allows.
func TestServerWithoutRates(t *testing.T) {
	s := opened(t, Options{}, write(400, wire.Problem, `{"type":"urn:jq:invalid","status":400,"field":"rate","rule":"is not known here"}`))
	_, err := s.SetPolicy(t.Context(), "q", store.Policy{Rate: store.Rate{N: 1, Per: time.Minute}})
	require.ErrorIs(t, err, store.ErrInvalid)
	assert.ErrorContains(t, err, "rate is not known here")
}

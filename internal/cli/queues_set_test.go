package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
)

// If two clients change different settings of a queue at the same time, neither change is lost.
func TestConcurrentPolicyChangesAreKept(t *testing.T) {
	store := jq.NewMemory(nil)
	defer func() { require.NoError(t, store.Close()) }()
	client := jq.NewClient(store, nil)
	reads := 0
	got, err := changedPolicy(t.Context(), client, "mail", func(p jq.Policy) jq.Policy {
		if reads++; reads == 1 {
			_, err := client.SetPolicy(t.Context(), "mail", jq.Policy{RetainSucceeded: 48 * time.Hour, Version: p.Version})
			require.NoError(t, err)
		}
		p.RetainDead = time.Hour
		return p
	})
	require.NoError(t, err)
	assert.Equal(t, jq.Policy{RetainSucceeded: 48 * time.Hour, RetainDead: time.Hour, Version: 2}, got)
	assert.Equal(t, 2, reads)
}

// A policy change gives up if another client keeps changing the policy.
func TestPolicyChangeGivesUp(t *testing.T) {
	store := jq.NewMemory(nil)
	defer func() { require.NoError(t, store.Close()) }()
	client := jq.NewClient(store, nil)
	_, err := changedPolicy(t.Context(), client, "mail", func(p jq.Policy) jq.Policy {
		other := p
		other.RetainSucceeded += time.Hour
		_, err := client.SetPolicy(t.Context(), "mail", other)
		require.NoError(t, err)
		p.RetainDead = time.Hour
		return p
	})
	require.ErrorIs(t, err, jq.ErrConflict)
}

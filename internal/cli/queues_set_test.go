package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
)

// Two who change different settings of one queue at the same time both find theirs kept.
func TestBothChangesOfPolicyAreKept(t *testing.T) {
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

// Somebody who changes the policy without end keeps nobody waiting without end.
func TestChangeOfPolicyGivesUp(t *testing.T) {
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

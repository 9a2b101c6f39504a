package policy_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/policy"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

func declared(version int64, most int) store.Policy {
	return store.Policy{Owner: "billing", Declared: version, MaxInFlight: most}
}

func TestHigherVersionReplacesThePolicy(t *testing.T) {
	s := memory.New(memory.Options{})
	for _, k := range []struct {
		declared, version int64 // of the program, and of the policy that the queue has then
		most, want        int
	}{
		{2, 1, 5, 5},
		{2, 1, 6, 5}, // the same again changes nothing, whatever it says
		{1, 1, 7, 5},
		{3, 2, 8, 8},
	} {
		got, err := policy.Declare(t.Context(), s, "q", declared(k.declared, k.most))
		require.NoError(t, err)
		assert.Equal(t, k.want, got.MaxInFlight, "%+v", k)
		assert.Equal(t, k.version, got.Version, "%+v", k)
		kept, err := s.Policy(t.Context(), "q")
		require.NoError(t, err)
		assert.Equal(t, kept, got)
	}
}

func TestChangeByAPersonStaysUntilAHigherVersion(t *testing.T) {
	s := memory.New(memory.Options{})
	p, err := policy.Declare(t.Context(), s, "q", declared(1, 5))
	require.NoError(t, err)
	p.MaxInFlight = 50
	_, err = s.SetPolicy(t.Context(), "q", p)
	require.NoError(t, err)
	p, err = policy.Declare(t.Context(), s, "q", declared(1, 5))
	require.NoError(t, err)
	assert.Equal(t, 50, p.MaxInFlight)
	p, err = policy.Declare(t.Context(), s, "q", declared(2, 6))
	require.NoError(t, err)
	assert.Equal(t, 6, p.MaxInFlight)
}

func TestPolicyThatNobodyHasDeclaredIsReplaced(t *testing.T) {
	s := memory.New(memory.Options{})
	_, err := s.SetPolicy(t.Context(), "q", store.Policy{MaxInFlight: 50})
	require.NoError(t, err)
	p, err := policy.Declare(t.Context(), s, "q", declared(1, 5))
	require.NoError(t, err)
	assert.Equal(t, 5, p.MaxInFlight)
}

func TestPolicyOfAnotherProgramIsRefused(t *testing.T) {
	s := memory.New(memory.Options{})
	_, err := policy.Declare(t.Context(), s, "q", declared(1, 5))
	require.NoError(t, err)
	other := declared(7, 6)
	other.Owner = "mail"
	_, err = policy.Declare(t.Context(), s, "q", other)
	require.ErrorIs(t, err, store.ErrConflict)
	assert.ErrorContains(t, err, `the policy of the queue "q" belongs to "billing"`)
}

// meddling changes the policy each time between the two calls of a declaration.
type meddling struct {
	store.PolicyKeeper
	left int
}

func (m *meddling) SetPolicy(ctx context.Context, queue string, p store.Policy) (store.Policy, error) {
	if m.left--; m.left >= 0 {
		if _, err := m.PolicyKeeper.SetPolicy(ctx, queue, store.Policy{MaxInFlight: m.left + 1, Version: p.Version}); err != nil {
			return store.Policy{}, err
		}
	}
	return m.PolicyKeeper.SetPolicy(ctx, queue, p)
}

func TestDeclarationStartsAgainAfterAChange(t *testing.T) {
	s := memory.New(memory.Options{})
	p, err := policy.Declare(t.Context(), &meddling{s, 3}, "q", declared(1, 5))
	require.NoError(t, err)
	assert.Equal(t, int64(4), p.Version)
	_, err = policy.Declare(t.Context(), &meddling{s, 100}, "q", declared(2, 5))
	assert.ErrorIs(t, err, store.ErrUnavailable, "it does not try for ever")
}

func TestDeclarationIsChecked(t *testing.T) {
	for field, p := range map[string]store.Policy{
		"owner":         {Declared: 1},
		"declared":      {Owner: "billing"},
		"max_in_flight": {Owner: "billing", Declared: 1, MaxInFlight: -1},
	} {
		_, err := policy.Declare(t.Context(), memory.New(memory.Options{}), "q", p)
		var invalid *store.InvalidError
		require.ErrorAs(t, err, &invalid)
		assert.Equal(t, field, invalid.Field)
	}
}

package remote

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

// TestOwnersOfPoliciesTravel both ways. SetPolicy replaces the whole policy, so an empty owner takes the policy from its program, although a
// PUT without an owner does not.
func TestOwnersOfPoliciesTravel(t *testing.T) {
	back := memory.New(memory.Options{})
	s := behind(t, back)

	for i, p := range []store.Policy{
		{MaxInFlight: 5, Owner: "odd/ä %", Declared: 3},
		{MaxInFlight: 6, Owner: "odd/ä %", Declared: 3}, // a person's change
		{MaxInFlight: 6},
		{MaxInFlight: 6, Declared: 3},
		{Owner: "mail", Declared: 1},
		{Owner: "mail"},
	} {
		p.Version = int64(i)
		set, err := s.SetPolicy(t.Context(), "q", p)
		require.NoError(t, err)
		p.Version++
		assert.Equal(t, p, set)
		for _, one := range []store.PolicyKeeper{s, back} {
			got, err := one.Policy(t.Context(), "q")
			require.NoError(t, err)
			assert.Equal(t, set, got)
		}
	}
}

// TestServerWithoutOwners still takes policies that nobody has declared, and refuses others.
func TestServerWithoutOwners(t *testing.T) {
	var sent []string
	s := opened(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		if sent = append(sent, string(text)); strings.Contains(string(text), "owner") {
			write(400, wire.Problem, `{"type":"urn:jq:invalid","status":400,"field":"owner","rule":"is not known here"}`)(w, r)
			return
		}
		write(200, wire.JSON, `{"max_in_flight":3,"version":1}`)(w, r)
	})
	p, err := s.SetPolicy(t.Context(), "q", store.Policy{MaxInFlight: 3})
	require.NoError(t, err)
	assert.Equal(t, store.Policy{MaxInFlight: 3, Version: 1}, p)
	assert.Equal(t, []string{`{"max_in_flight":3,"owner":"","version":0}`, `{"max_in_flight":3,"version":0}`}, trimmed(sent))
	_, err = s.SetPolicy(t.Context(), "q", store.Policy{MaxInFlight: 3, Owner: "billing", Declared: 1})
	require.ErrorIs(t, err, store.ErrInvalid)
	assert.ErrorContains(t, err, "owner is not known here")
}

func trimmed(texts []string) []string {
	for i, text := range texts {
		texts[i] = strings.TrimSpace(text)
	}
	return texts
}

package httpapi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/policy"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// TestDeclaredPolicyIsKeptUnlessTheOwnerIsSent: the dashboard and scripts send what they change, and must not take the policy from its program.
func TestDeclaredPolicyIsKeptUnlessTheOwnerIsSent(t *testing.T) {
	w := newWorld(t, Options{})
	_, err := policy.Declare(t.Context(), w.store, "mail", store.Policy{Owner: "billing", Declared: 3, MaxInFlight: 5})
	require.NoError(t, err)
	const path = "/v1/queues/mail/policy"
	assert.JSONEq(t, `{"max_in_flight":5,"owner":"billing","declared":3,"version":1}`, w.ask("GET", path, "").text)
	for _, k := range []struct{ sent, want string }{
		{`{"max_in_flight":50,"version":1}`, `{"max_in_flight":50,"owner":"billing","declared":3,"version":2}`},
		{`{"max_in_flight":50,"version":1}`, `{"max_in_flight":50,"owner":"billing","declared":3,"version":2}`}, // a repeat
		{`{"owner":"billing","declared":4,"version":2}`, `{"owner":"billing","declared":4,"version":3}`},
		{`{"owner":"mail","declared":1,"version":3}`, `{"owner":"mail","declared":1,"version":4}`},
		{`{"max_in_flight":7,"owner":"","version":4}`, `{"max_in_flight":7,"version":5}`},
		{`{"max_in_flight":8,"version":5}`, `{"max_in_flight":8,"version":6}`},
		{`{"owner":"","declared":2,"version":6}`, `{"owner":"","declared":2,"version":7}`}, // so that it can be sent again as it is read
	} {
		got := w.ask("PUT", path, k.sent)
		assert.Equal(t, 200, got.status, k.sent)
		assert.JSONEq(t, k.want, got.text, k.sent)
		assert.JSONEq(t, k.want, w.ask("GET", path, "").text, k.sent)
	}
}

// TestOtherVersionOfADeclaredPolicy is refused, also if the owner is left out.
func TestOtherVersionOfADeclaredPolicy(t *testing.T) {
	w := newWorld(t, Options{})
	const path = "/v1/queues/mail/policy"
	set := call[wire.Policy](w, 200, "PUT", path, `{"max_in_flight":5,"owner":"billing","declared":3}`)
	for _, sent := range []string{`{"max_in_flight":6}`, `{"max_in_flight":6,"owner":"billing","declared":4,"version":2}`} {
		assert.Equal(t, 409, w.ask("PUT", path, sent).fail(t).Status, sent)
	}
	assert.Equal(t, set, call[wire.Policy](w, 200, "GET", path, ""))
}

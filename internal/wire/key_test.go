package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

func TestEveryRequestKeyFitsTheHeader(t *testing.T) {
	for _, key := range []string{"order-17", " a b ", "100%", "%41", "a+b", "\x01\n\x7f", "\u00e4\U0001f600", `"`, strings.Repeat("\u00e4", 127)} {
		value := wire.KeyHeader(key)
		assert.Equal(t, -1, strings.IndexFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }), "what a header can not carry in %q", value)
		got, err := wire.KeyOf(value)
		require.NoError(t, err)
		assert.Equal(t, key, got)
	}
	assert.Equal(t, "order-17", wire.KeyHeader("order-17"), "a plain key stands as it is")
	_, err := wire.KeyOf("100%")
	require.ErrorIs(t, err, store.ErrInvalid)
}

func TestRandomKeysHaveTheirForm(t *testing.T) {
	key := wire.RandomKey()
	assert.True(t, wire.IsRandomKey(key))
	text := strings.TrimPrefix(key, "remote-")
	require.NotEqual(t, key, text)
	for _, other := range []string{"", "remote-", text, "other-" + text, "remote-" + text[1:], key + "A", "remote-" + strings.Repeat("1", len(text)), "remote-" + strings.ToLower(text)} {
		assert.False(t, wire.IsRandomKey(other), other)
	}
}

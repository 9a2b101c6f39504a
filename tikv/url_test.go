package tikv_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/tikv"
)

func TestURLs(t *testing.T) {
	for _, right := range []string{"tikv://a:2379/jobs", "TIKV://a.example:1,[::1]:2/jobs/more", "tikv://a:1/%2Fjobs%25"} {
		assert.NoError(t, tikv.CheckURL(right), right)
	}
	for _, k := range []struct{ wrong, why string }{
		{"etcd://a:1/jobs", "it must begin with tikv://"},
		{"tikv:a:1/jobs", "it must begin with tikv://"},
		{"tikv://a/jobs", "each host must be HOST:PORT"},
		{"tikv://a:0/jobs", "each host must be HOST:PORT"},
		{"tikv://:1/jobs", "each host must be HOST:PORT"},
		{"tikv://me@a:1/jobs", "each host must be HOST:PORT"},
		{"tikv://a:1,,b:1/jobs", "a host is empty"},
		{"tikv://a:1", "it must end with a prefix"},
		{"tikv://a:1/", "it must end with a prefix"},
		{"tikv://a:1/%00", "none of them zero or one"},
		{"tikv://a:1/%zz", "an invalid URL escape"},
		{"tikv://a:1/jobs?ca=x", "no ?"},
		{"tikv://a:1/jobs#x", "no #"},
	} {
		assert.ErrorContains(t, tikv.CheckURL(k.wrong), k.why, k.wrong)
		_, err := tikv.Open(t.Context(), k.wrong, nil)
		assert.ErrorContains(t, err, k.why, k.wrong)
	}
}

// Open looks for no server if its context has ended.
func TestOpenAfterTheEndOfItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := tikv.Open(ctx, "tikv://127.0.0.1:1/jobs", nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestNewRefusesWhatItCannotUse(t *testing.T) {
	_, err := tikv.New(nil, "jobs")
	require.ErrorContains(t, err, "needs a client")
	client, err := cluster(t).cluster.Client(nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, client.Close()) }()
	for _, prefix := range []string{"", "a\x00", "a\x01"} {
		_, err = tikv.New(client, prefix)
		require.ErrorContains(t, err, "the prefix must have 1 to 100 bytes")
	}
}

package etcd_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-ed332417/jq/etcd"
	"github.com/seed-ed332417/jq/etcd/internal/etcdtest"
)

// A member starts with the flags of the guide, has the quota that they say, and a store opens there. The guide explains each flag.
func TestPageStartsMembers(t *testing.T) {
	page, err := os.ReadFile("../docs/guides/etcd.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(page), "```sh\netcd ")
	require.True(t, found, "the page starts etcd")
	block, after, found := strings.Cut(block, "```")
	require.True(t, found)
	shown, rest := strings.CutSuffix(block, " ...\n")
	require.True(t, rest, "the block ends in an ellipsis for the flags of a member")
	flags := strings.Fields(strings.ReplaceAll(shown, "\\\n", ""))
	for _, flag := range flags {
		if strings.HasPrefix(flag, "--") {
			assert.Contains(t, after, "`"+flag+"`", "the page explains the flag")
		}
	}

	c := start(t, etcdtest.Options{Members: 1, NoSync: true, Flags: flags})
	e, err := etcd.New(t.Context(), clientv3.Config{Endpoints: c.Endpoints()}, "jobs")
	require.NoError(t, err)
	require.NoError(t, e.Close())
	status, err := c.Client().Status(t.Context(), c.Endpoints()[0])
	require.NoError(t, err)
	assert.EqualValues(t, 8<<30, status.DbSizeQuota)
}

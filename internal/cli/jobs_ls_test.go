package cli

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/jqtest"
)

// The list has a column of limit keys as soon as one of its jobs has a key.
func TestListShowsLimitKeys(t *testing.T) {
	s := jqtest.NewStore(t)
	add := func(key string) {
		_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{{Queue: "mail", Kind: "k", Payload: []byte(`{}`), LimitKey: key}}})
		require.NoError(t, err)
	}
	url, secret := servedWith(t, s, httpapi.Viewer)
	ls := func(args ...string) []string {
		var out, stderr bytes.Buffer
		args = append([]string{"jobq", "jobs", "ls", "--server", url, "--token", secret}, args...)
		require.Zero(t, run(t.Context(), args, quiet(&out, &stderr)), stderr.String())
		return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	}
	add("")
	assert.NotContains(t, ls()[0], "limit key")

	add("acme\t1")
	lines := ls()
	require.Len(t, lines, 3)
	assert.Regexp(t, `^job  state  queue  kind  limit key  attempts  enqueued +when +error$`, lines[0])
	assert.Regexp(t, `^2    ready  mail   k     acme\\t1    0         `, lines[1])
	assert.Regexp(t, `^1    ready  mail   k     -          0         `, lines[2])
	assert.NotContains(t, ls("--limit", "1", "--queue", "none")[0], "limit key")
}

// A long list is printed while it is read. If the first key comes late, a new head stands above it.
func TestLongListShowsLimitKeysFromTheFirstOneOn(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: bufio.NewWriter(&out)}
	show := a.tableOfJobs()
	for i := range 3*linesAligned + 1 {
		job := jq.Job{ID: int64(i + 1), State: jq.Ready, Queue: "mail", Kind: "k"}
		if i == linesAligned+7 {
			job.Extras = &contract.Extras{LimitKey: "acme"}
		}
		require.NoError(t, show(&job))
	}
	require.NoError(t, show(nil))
	require.NoError(t, a.out.Flush())
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	require.Len(t, lines, 3*linesAligned+1+2)
	assert.NotContains(t, lines[0], "limit key")
	assert.Contains(t, lines[1+linesAligned], "  limit key  ")
	assert.Contains(t, lines[2+linesAligned+7], "  acme  ")
	assert.Contains(t, lines[3*linesAligned+2], "  -  ", "the column stays")
}

package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/sqlite"
)

func TestStatsOfTheLastHour(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jq.db")
	s, err := sqlite.Open(t.Context(), path, nil)
	require.NoError(t, err)
	stats := func(code int, flags ...string) (stdout, stderr string) {
		t.Helper()
		var out, failed bytes.Buffer
		args := append([]string{"jobq", "stats", "--store", "sqlite:" + path}, flags...)
		require.Equal(t, code, run(t.Context(), args, quiet(&out, &failed)), failed.String())
		return out.String(), failed.String()
	}
	said, _ := stats(exitOK, "--last", "1h")
	assert.Regexp(t, `^no server did anything since \S+\n$`, said)

	var waited, ran jq.Histogram
	for range 99 {
		waited.Add(2 * time.Millisecond)
		ran.Add(40 * time.Second)
	}
	waited.Add(2 * time.Hour)
	require.NoError(t, s.AddActivity(t.Context(), []contract.Activity{
		{Queue: "mail", Kind: "send", Succeeded: 95, Retried: 3, Dead: 1, Snoozed: 1, Recovered: 2, Stale: 4, Waited: waited, Ran: ran},
		{Queue: "mail\x1b[2J", Kind: "old", Expired: 7},
	}))
	require.NoError(t, s.Close())
	said, _ = stats(exitOK, "--last", "1h")
	assert.Equal(t, `queue        kind  succeeded  retried  dead  snoozed  recovered  expired  stale  wait p50  wait p95  run p50  run p95
mail         send  95         3        1     1        2          0        4      2ms       2.9ms     45s      59s
mail\x1b[2J  old   0          0        0     0        0          7        0      -         -         -        -
`, said)
	said, _ = stats(exitOK, "--last", "24h", "--json")
	var page jq.ActivityPage
	require.NoError(t, json.Unmarshal([]byte(said), &page))
	require.Len(t, page.Spans, 2)
	assert.Equal(t, waited, page.Spans[0].Waited)

	_, said = stats(exitFailed, "--last", "200h")
	assert.Contains(t, said, "last must be 1m to 168h")
}

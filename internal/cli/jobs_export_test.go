package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/jqtest"
)

// A repeated import left out jobs that had expired since the first. That changed the calls after it, and their jobs were added twice.
func TestRepeatedImportAddsNothingTwiceAfterJobsHaveExpired(t *testing.T) {
	const line = `{"id":"%d","queue":"q","kind":"k","payload":1,"state":"ready","run_at":%q%s}` + "\n"
	at := func(d time.Duration) string { return jqtest.Epoch.Add(d).Format(time.RFC3339Nano) }
	expires := map[int]string{2: at(time.Minute), 3: at(time.Minute), 7: at(2 * time.Minute)}
	var lines strings.Builder
	for i := range 1500 {
		also := ""
		if expires[i] != "" {
			also = fmt.Sprintf(`,"expires_at":%q`, expires[i])
		}
		fmt.Fprintf(&lines, line, i+1, at(0), also)
	}
	load := func(s jq.Store) (added, expired int64) {
		began, _ := loading(s, "")
		l, i := began.app.importing(s, "", 0)
		require.NoError(t, l.run(t.Context(), strings.NewReader(lines.String())))
		return l.added, i.expired
	}
	s := jqtest.NewStore(t)
	load(s)
	require.Equal(t, int64(1500), jobsIn(t, s))
	for range 3 {
		s.Clock.Add(time.Minute)
		load(s)
		assert.Equal(t, int64(1500), jobsIn(t, s))
	}

	later := jqtest.NewStore(t)
	later.Clock.Add(time.Hour)
	added, expired := load(later)
	assert.Equal(t, []int64{1497, 3}, []int64{added, expired})
	load(later)
	assert.Equal(t, int64(1497), jobsIn(t, later))
}

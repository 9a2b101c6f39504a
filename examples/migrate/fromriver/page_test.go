package fromriver

import (
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The query of the page counts the jobs that are not finished, by their state.
func TestPageCountsWhatIsLeft(t *testing.T) {
	ctx := within(t)
	pool, _ := opened(t)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	require.NoError(t, err)
	page, err := os.ReadFile("../../../docs/guides/migrate-from-river.md")
	require.NoError(t, err)
	_, query, found := strings.Cut(string(page), "```sql\n")
	require.True(t, found)
	query, _, found = strings.Cut(query, "```")
	require.True(t, found)

	for _, state := range []string{"completed", "cancelled", "discarded", "running", "running", "pending"} {
		added, err := client.Insert(ctx, Welcome{state}, nil)
		require.NoError(t, err)
		_, err = pool.Exec(ctx, `UPDATE river_job SET state = $1::text::river_job_state, attempted_at = now(),
			finalized_at = CASE WHEN $1::text IN ('completed', 'cancelled', 'discarded') THEN now() END WHERE id = $2`, state, added.Job.ID)
		require.NoError(t, err)
	}
	rows, err := pool.Query(ctx, query)
	require.NoError(t, err)
	left, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		State string
		Count int
	}])
	require.NoError(t, err)
	counts := map[string]int{}
	for _, l := range left {
		counts[l.State] = l.Count
	}
	assert.Equal(t, map[string]int{"running": 2, "pending": 1}, counts)
}

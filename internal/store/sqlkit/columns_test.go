package sqlkit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// No two columns have one name, or one field of a record.
func TestColumnsAreOfDifferentFields(t *testing.T) {
	e := &store.Record{}
	names, seen := map[string]bool{}, map[any]string{}
	for _, c := range sqlkit.All {
		require.False(t, names[c.Name], c.Name)
		names[c.Name] = true
		field := c.Field(e)
		require.Empty(t, seen[field], c.Name)
		seen[field] = c.Name
	}
}

func TestColumnsAreChosenByTheirUses(t *testing.T) {
	some := sqlkit.All.Except("id").For(sqlkit.Updated | sqlkit.Inserted)
	assert.Contains(t, some.Names(), `queue, kind, priority, state, run_at, retry_at`)
	assert.NotContains(t, some.Names(), `enqueued_at`)
	assert.Equal(t, `payload, checkpoint, progress, result`, sqlkit.All.For(sqlkit.Document).Names())
	assert.NotContains(t, sqlkit.All.Without(sqlkit.Document).Names(), `progress,`)
	assert.Equal(t, `payload = $3, checkpoint = $4`, sqlkit.All.For(sqlkit.Document).Except("progress", "result").Each(`{name} = ${n}`, 3))
}

func TestMicrosReadMicroseconds(t *testing.T) {
	d := sqlkit.Micros(time.Hour)
	require.NoError(t, d.Scan(int64(1500)))
	assert.Equal(t, 1500*time.Microsecond, time.Duration(d))
	require.NoError(t, d.Scan(nil))
	assert.Zero(t, d)
	assert.EqualError(t, d.Scan("1"), "a duration can not be read from string")
}

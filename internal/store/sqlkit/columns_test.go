package sqlkit_test

import (
	"encoding/binary"
	"reflect"
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

// The rules that clients set by default are NULL, and every column with rules gives them back as they were.
func TestRulesAreReadAsTheyWereWritten(t *testing.T) {
	usual := store.Job{MaxRetries: 20, Backoff: store.Backoff{Base: time.Second, Cap: time.Hour, Jitter: 10}}
	all := []store.Job{usual, {}, {MaxRetries: 1_000_000, Timeout: time.Microsecond, Backoff: store.Backoff{Base: 1500 * time.Microsecond, Cap: 100 * 365 * 24 * time.Hour, Jitter: 100}}}
	for _, change := range []func(j *store.Job){
		func(j *store.Job) { j.MaxRetries++ },
		func(j *store.Job) { j.Backoff.Base += store.Resolution },
		func(j *store.Job) { j.Backoff.Cap += store.Resolution },
		func(j *store.Job) { j.Backoff.Jitter++ },
		func(j *store.Job) { j.Timeout += store.Resolution },
	} {
		j := usual
		change(&j)
		all = append(all, j)
	}
	for _, j := range all {
		text, err := sqlkit.Rules{Of: &j}.Value()
		require.NoError(t, err)
		assert.Equal(t, reflect.DeepEqual(j, usual), text == nil, text)
		read := store.Job{MaxRetries: 7, Timeout: time.Hour}
		require.NoError(t, sqlkit.Rules{Of: &read}.Scan(text))
		assert.Equal(t, j, read, text)
	}
	var j store.Job
	for src, problem := range map[any]string{
		"1 2 3 4":   `rules: strconv.ParseInt: parsing "": invalid syntax`,
		"1 2 x 4 5": `rules: strconv.ParseInt: parsing "x": invalid syntax`,
		int64(1):    "rules can not be read from int64",
	} {
		assert.EqualError(t, sqlkit.Rules{Of: &j}.Scan(src), problem)
	}
}

func TestMicrosReadMicroseconds(t *testing.T) {
	d := sqlkit.Micros(time.Hour)
	require.NoError(t, d.Scan(int64(1500)))
	assert.Equal(t, 1500*time.Microsecond, time.Duration(d))
	require.NoError(t, d.Scan(nil))
	assert.Zero(t, d)
	assert.EqualError(t, d.Scan("1"), "a duration can not be read from string")
}

// A time comes as what the driver makes of it, and anything else is refused.
func TestTimesAreReadFromWhatDriversGive(t *testing.T) {
	at := time.Date(2026, 11, 1, 1, 2, 3, 456789000, time.UTC)
	micros := at.UnixMicro() - sqlkit.PostgresEpoch
	binary := binary.BigEndian.AppendUint64(nil, uint64(micros))
	for _, given := range []any{at, at.In(time.FixedZone("x", 3600)), at.UnixMicro(), binary} {
		var read sqlkit.Time
		require.NoError(t, read.Scan(given))
		assert.Equal(t, at, time.Time(read))
	}
	read := sqlkit.Time(at)
	require.NoError(t, read.Scan(nil))
	assert.True(t, time.Time(read).IsZero())
	assert.EqualError(t, read.Scan(binary[:7]), "a time can not be read from 7 bytes")
	assert.EqualError(t, read.Scan("noon"), "a time can not be read from string")
}

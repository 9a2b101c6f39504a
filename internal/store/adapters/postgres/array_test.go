package postgres

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
)

// The server reads each array as the same list, whether it is sent in binary or as a text.
func TestArraysAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	some := newArray(ofNumbers, 0)
	for _, n := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64} {
		some.int(n)
	}
	some.null()
	words := arrayOfTexts([]string{"", "NULL", `a"b\c{},`, " é\n🦀 ", "null"})
	words.null()
	words.doc([]byte(`{"a": "\\"}`))
	words.doc(nil)
	when := newArray(ofTimes, 0)
	for _, at := range []time.Time{
		time.Date(2026, 11, 1, 1, 2, 3, 456789000, time.FixedZone("x", 3600)), time.Date(1969, 12, 31, 23, 59, 59, 999999000, time.UTC),
		time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), {},
	} {
		when.stamp(at)
	}
	when.place(cursor.Position{})
	when.place(cursor.Position{At: time.Unix(1, 0)})
	for a, want := range map[*array]string{
		some:                   `{0,1,-1,9223372036854775807,-9223372036854775808,NULL}`,
		words:                  `{"","NULL","a\"b\\c{},"," é` + "\n" + `🦀 ","null",NULL,"{\"a\": \"\\\\\"}",NULL}`,
		when:                   `{"2026-11-01 00:02:03.456789Z","1969-12-31 23:59:59.999999Z","0001-01-01 00:00:00.000001Z","9999-12-31 00:00:00Z",NULL,-infinity,"1970-01-01 00:00:01Z"}`,
		newArray(ofNumbers, 0): `{}`,
		newArray(ofTexts, 9):   `{}`,
		newArray(ofTimes, 0):   `{}`,
	} {
		binary, err := a.BinaryValue()
		require.NoError(t, err)
		value, err := a.Value()
		require.NoError(t, err)
		assert.Equal(t, want, value)
		assert.Equal(t, want == `{}`, a.empty())
		var same bool
		var length int
		require.NoError(t, s.db.QueryRow(`SELECT $1::`+a.kind.String()+`[] = $2::text::`+a.kind.String()+`[], cardinality($1)`, a, value).Scan(&same, &length))
		assert.True(t, same, want)
		assert.Equal(t, a.values, length, want)
		_, err = s.db.Exec(`SELECT 1 WHERE $1::text = ''`, a)
		assert.Equal(t, "22021", codeOf(err), "it was sent in binary: %x", binary)
	}
}

// A list of large documents is copied about once more while it grows, not four times.
func TestArraysOfLargeDocumentsGrowInLargeSteps(t *testing.T) {
	t.Parallel()
	const documents, size = 1_000, 5_000
	a, doc, allocated := newArray(ofTexts, documents*numberBytes), make([]byte, size), 0
	for before := cap(a.bytes); a.values < documents; before = cap(a.bytes) {
		if a.doc(doc); cap(a.bytes) != before {
			allocated += cap(a.bytes)
		}
	}
	assert.Len(t, a.bytes, headerBytes+documents*(4+size))
	assert.Less(t, allocated, 4*len(a.bytes))
	a.null()
	assert.EqualValues(t, 1, a.nulls)
}

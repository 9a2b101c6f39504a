package postgres

import (
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// An array is an argument of a statement: a list of values in the server's binary format, which neither side must parse. A driver
// that cannot send arguments in that format sends a text that the server reads as the same array. The statement must cast the
// argument to the array type of the kind: $1::bigint[].
type array struct {
	kind   kind
	values int
	nulls  uint32 // 1 if there is a NULL
	bytes  []byte // the header, which binary fills in, and the values, each after its length
}

// A kind is the type of an array's values, by the server's number for it.
type kind uint32

const (
	ofNumbers kind = 20   // int64
	ofTexts   kind = 25   // strings
	ofTimes   kind = 1184 // times
)

// String returns the name of the type.
func (k kind) String() string {
	return map[kind]string{ofNumbers: `bigint`, ofTexts: `text`, ofTimes: `timestamptz`}[k]
}

const (
	headerBytes = 20
	numberBytes = 12 // of a number or a time, with its length
	nullLength  = math.MaxUint32
)

// newArray returns an empty array with room for that many bytes of values.
func newArray(k kind, room int) *array {
	return &array{kind: k, bytes: make([]byte, headerBytes, headerBytes+room)}
}

// arrayOf returns an array of the numbers.
func arrayOf(list []int64) *array {
	a := newArray(ofNumbers, len(list)*numberBytes)
	for _, n := range list {
		a.int(n)
	}
	return a
}

// arrayOfTexts returns an array of the strings.
func arrayOfTexts(list []string) *array {
	a := newArray(ofTexts, 0)
	for _, s := range list {
		a.string(s)
	}
	return a
}

func (a *array) empty() bool { return a.values == 0 }

// length begins a value of that many bytes. An array that has no room for it grows to at least twice its size: append would let large ones grow by
// a quarter, and so copy all values four times.
func (a *array) length(n uint32) {
	a.values++
	if more := 4 + int(n); n != nullLength && len(a.bytes)+more > cap(a.bytes) {
		a.bytes = slices.Grow(a.bytes, max(more, len(a.bytes)))
	}
	a.bytes = binary.BigEndian.AppendUint32(a.bytes, n)
}

func (a *array) int(n int64) {
	a.length(8)
	a.bytes = binary.BigEndian.AppendUint64(a.bytes, uint64(n))
}

func (a *array) null() {
	a.length(nullLength)
	a.nulls = 1
}

func (a *array) string(s string) {
	a.length(uint32(len(s)))
	a.bytes = append(a.bytes, s...)
}

// doc appends a JSON document, or NULL for none.
func (a *array) doc(doc []byte) {
	if len(doc) == 0 {
		a.null()
		return
	}
	a.length(uint32(len(doc)))
	a.bytes = append(a.bytes, doc...)
}

// stamp appends a time, or NULL for the zero time.
func (a *array) stamp(t time.Time) {
	if t.IsZero() {
		a.null()
		return
	}
	a.int(t.UnixMicro() - sqlkit.PostgresEpoch)
}

// place appends the time of a position. The first position of all has none.
func (a *array) place(p cursor.Position) {
	if p.At.IsZero() {
		a.int(math.MinInt64)
		return
	}
	a.stamp(p.At)
}

// field appends the value of a column, given a pointer to the record's field.
func (a *array) field(value any) {
	switch v := value.(type) {
	case *sqlkit.Int:
		a.int(int64(*v))
	case *int64:
		a.int(*v)
	case *string:
		a.string(*v)
	case *sqlkit.Time:
		a.stamp(time.Time(*v))
	case sqlkit.ExpiresAt:
		a.stamp(v.Time())
	case *sqlkit.Micros:
		a.int(time.Duration(*v).Microseconds())
	case driver.Valuer:
		a.value(v)
	case *[]byte:
		a.doc(*v)
	default:
		panic(fmt.Sprintf("no column has a %T", value))
	}
}

// kindOf returns the kind of an array of the field. The server casts the values to the column's type.
func kindOf(field any) kind {
	switch field.(type) {
	case *sqlkit.Int, *int64, *sqlkit.Micros:
		return ofNumbers
	case *sqlkit.Time, sqlkit.ExpiresAt:
		return ofTimes
	default:
		return ofTexts
	}
}

// value appends the text of a list, of rules or of a schedule, or NULL for none.
func (a *array) value(v driver.Valuer) {
	text, _ := v.Value() // valid strings and numbers: cannot fail
	if text, ok := text.(string); ok {
		a.string(text)
		return
	}
	a.null()
}

// BinaryValue is for lib/pq.
func (a *array) BinaryValue() ([]byte, error) {
	header := [...]uint32{1, a.nulls, uint32(a.kind), uint32(a.values), 1} // how many dimensions, …, the first index
	for i, n := range header {
		binary.BigEndian.PutUint32(a.bytes[4*i:], n)
	}
	return a.bytes, nil
}

// Value is part of driver.Valuer.
func (a *array) Value() (driver.Value, error) { return a.String(), nil }

// String returns the array as a text.
func (a *array) String() string {
	text := make([]byte, 1, len(a.bytes)+a.values)
	text[0] = '{'
	for left := a.bytes[headerBytes:]; len(left) > 0; {
		length := binary.BigEndian.Uint32(left)
		left = left[4:]
		if len(text) > 1 {
			text = append(text, ',')
		}
		if length == nullLength {
			text = append(text, "NULL"...)
			continue
		}
		text = a.kind.appendText(text, left[:length])
		left = left[length:]
	}
	return string(append(text, '}'))
}

var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// appendText appends the text of a value.
func (k kind) appendText(text, value []byte) []byte {
	if k == ofTexts {
		return append(append(append(text, '"'), escaped.Replace(string(value))...), '"')
	}
	n := int64(binary.BigEndian.Uint64(value))
	switch {
	case k == ofNumbers:
		return strconv.AppendInt(text, n, 10)
	case n == math.MinInt64:
		return append(text, "-infinity"...)
	default:
		return append(time.UnixMicro(n+sqlkit.PostgresEpoch).UTC().AppendFormat(append(text, '"'), stampFormat), '"')
	}
}

const stampFormat = "2006-01-02 15:04:05.999999Z07:00"

// placeText returns the time of a position, for a statement.
func placeText(p cursor.Position) string {
	if p.At.IsZero() {
		return "-infinity"
	}
	return p.At.UTC().Format(stampFormat)
}

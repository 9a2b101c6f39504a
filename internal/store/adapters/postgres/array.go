package postgres

import (
	"database/sql/driver"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// An array is a list of values as Postgres writes arrays in text. Every driver can send it as a plain string; the statement
// casts it: $1::bigint[].
type array struct{ text []byte }

// roomFor returns an empty array with capacity for that many values of that many bytes each.
func roomFor(values, bytes int) array { return array{make([]byte, 0, values*(bytes+1)+2)} }

// The size in bytes of most numbers, and of times.
const (
	numberBytes = 10
	stampBytes  = 31
)

// arrayOf returns an array of the numbers.
func arrayOf(numbers []int64) string {
	a := roomFor(len(numbers), numberBytes)
	for _, n := range numbers {
		a.int(n)
	}
	return a.String()
}

// arrayOfTexts returns an array of the strings.
func arrayOfTexts(list []string) string {
	var a array
	for _, s := range list {
		a.string(s)
	}
	return a.String()
}

// String returns the whole array.
func (a *array) String() string {
	if len(a.text) == 0 {
		return "{}"
	}
	return string(append(a.text, '}'))
}

func (a *array) next() {
	if len(a.text) == 0 {
		a.text = append(a.text, '{')
	} else {
		a.text = append(a.text, ',')
	}
}

func (a *array) int(n int64) {
	a.next()
	a.text = strconv.AppendInt(a.text, n, 10)
}

func (a *array) null() {
	a.next()
	a.text = append(a.text, "NULL"...)
}

func (a *array) string(s string) {
	a.next()
	a.text = append(a.text, '"')
	for {
		i := strings.IndexAny(s, `"\`)
		if i < 0 {
			break
		}
		a.text = append(a.text, s[:i]...)
		a.text = append(a.text, '\\', s[i])
		s = s[i+1:]
	}
	a.text = append(a.text, s...)
	a.text = append(a.text, '"')
}

// field appends the value of a column, given a pointer to the record's field.
func (a *array) field(value any) {
	switch v := value.(type) {
	case *int:
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
	case *sqlkit.List:
		a.value(*v)
	case sqlkit.Scheduled:
		a.value(v)
	case *[]byte:
		a.doc(*v)
	default:
		panic(fmt.Sprintf("no column has a %T", value))
	}
}

// typeOf returns the element type of the field's array. The server casts the elements to the column's type.
func typeOf(field any) string {
	switch field.(type) {
	case *int, *int64, *sqlkit.Micros:
		return `bigint`
	case *sqlkit.Time, sqlkit.ExpiresAt:
		return `timestamptz`
	default:
		return `text`
	}
}

// doc appends a JSON document, or NULL for none.
func (a *array) doc(doc []byte) {
	if len(doc) == 0 {
		a.null()
		return
	}
	a.string(string(doc))
}

const stampFormat = "2006-01-02 15:04:05.999999Z07:00"

// stamp appends a time, or NULL for the zero time.
func (a *array) stamp(t time.Time) {
	if t.IsZero() {
		a.null()
		return
	}
	a.next()
	a.text = append(a.text, '"')
	a.text = t.UTC().AppendFormat(a.text, stampFormat)
	a.text = append(a.text, '"')
}

// place appends the time of a position.
func (a *array) place(p cursor.Position) {
	a.next()
	a.text = append(a.text, '"')
	a.text = append(a.text, placeText(p)...)
	a.text = append(a.text, '"')
}

// placeText returns the time of a position, for a statement.
func placeText(p cursor.Position) string {
	if p.At.IsZero() {
		return "-infinity"
	}
	return p.At.UTC().Format(stampFormat)
}

// value appends the JSON of a list or of a schedule, or NULL for none.
func (a *array) value(v driver.Valuer) {
	text, _ := v.Value() // valid strings: cannot fail
	if text, ok := text.(string); ok {
		a.string(text)
		return
	}
	a.null()
}

func (a *array) empty() bool { return len(a.text) == 0 }

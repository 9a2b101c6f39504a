package postgres

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// An array is a list of values in the way Postgres writes arrays as text. As such it is a plain string to every driver, and
// is cast where it is used: $1::bigint[].
type array struct{ text []byte }

// roomFor is an empty array with room for so many values of so many bytes each.
func roomFor(values, bytes int) array { return array{make([]byte, 0, values*(bytes+1)+2)} }

// The bytes of most numbers, and of times.
const (
	numberBytes = 10
	stampBytes  = 31
)

// arrayOf is the array of the numbers.
func arrayOf(numbers []int64) string {
	a := roomFor(len(numbers), numberBytes)
	for _, n := range numbers {
		a.int(n)
	}
	return a.String()
}

// arrayOfTexts is the array of the strings.
func arrayOfTexts(list []string) string {
	var a array
	for _, s := range list {
		a.string(s)
	}
	return a.String()
}

// String is the whole array.
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

// field is the value of a column, by the pointer to where a record has it.
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
	case *sqlkit.Micros:
		a.int(time.Duration(*v).Microseconds())
	case *sqlkit.List:
		a.list(*v)
	case *[]byte:
		a.doc(*v)
	default:
		panic(fmt.Sprintf("no column has a %T", value))
	}
}

// typeOf is the type of the elements of the array of the field. The server casts them to that of the column.
func typeOf(field any) string {
	switch field.(type) {
	case *int, *int64, *sqlkit.Micros:
		return `bigint`
	case *sqlkit.Time:
		return `timestamptz`
	default:
		return `text`
	}
}

// doc is a JSON document, or NULL for none.
func (a *array) doc(doc []byte) {
	if len(doc) == 0 {
		a.null()
		return
	}
	a.string(string(doc))
}

const stampFormat = "2006-01-02 15:04:05.999999Z07:00"

// stamp is a time, or NULL for the zero time.
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

// place is the time of a position.
func (a *array) place(p cursor.Position) {
	a.next()
	a.text = append(a.text, '"')
	a.text = append(a.text, placeText(p)...)
	a.text = append(a.text, '"')
}

// placeText is the time of a position, for a statement.
func placeText(p cursor.Position) string {
	if p.At.IsZero() {
		return "-infinity"
	}
	return p.At.UTC().Format(stampFormat)
}

// list is a list of strings as the JSON of [sqlkit.List], or NULL for none.
func (a *array) list(list sqlkit.List) {
	text, _ := list.Value() // valid strings: cannot fail
	if text, ok := text.(string); ok {
		a.string(text)
		return
	}
	a.null()
}

func (a *array) empty() bool { return len(a.text) == 0 }

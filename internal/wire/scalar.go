package wire

import (
	"encoding/json"
	"reflect"
	"strconv"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// An ID is a number written as a string: the id of a job, or a token.
type ID int64

// MarshalText writes the digits.
func (i ID) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(i), 10), nil }

// UnmarshalJSON reads the number from a string. It refuses JSON numbers.
func (i *ID) UnmarshalJSON(text []byte) error {
	var digits string
	if err := json.Unmarshal(text, &digits); err != nil {
		return mistake(i, "a string with a number")
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != digits { // each number has only one text
		return mistake(i, "a string with a number")
	}
	*i = ID(n)
	return nil
}

// IDs converts numbers.
func IDs(numbers []int64) []ID {
	var ids []ID
	for _, n := range numbers {
		ids = append(ids, ID(n))
	}
	return ids
}

// A Duration is written as "1m30s".
type Duration time.Duration

// MarshalText writes the duration with its units.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalJSON reads a duration from a string. It refuses numbers, which would have no unit.
func (d *Duration) UnmarshalJSON(text []byte) error {
	var written string
	if err := json.Unmarshal(text, &written); err != nil {
		return mistake(d, `a duration such as "30s"`)
	}
	parsed, err := time.ParseDuration(written)
	if err != nil {
		return mistake(d, `a duration such as "30s"`)
	}
	*d = Duration(parsed)
	return nil
}

// A Retention is written like a Duration, or as "keep" if jobs are kept for ever.
type Retention time.Duration

// Keep is the text of an unlimited retention.
const Keep = "keep"

// MarshalText writes the duration, or Keep.
func (r Retention) MarshalText() ([]byte, error) {
	if time.Duration(r) == store.KeepForEver {
		return []byte(Keep), nil
	}
	return Duration(r).MarshalText()
}

// UnmarshalJSON reads the retention. It must be positive: a store takes zero for the default.
func (r *Retention) UnmarshalJSON(text []byte) error {
	var written string
	if err := json.Unmarshal(text, &written); err == nil && written == Keep {
		*r = Retention(store.KeepForEver)
		return nil
	}
	var d Duration
	if err := d.UnmarshalJSON(text); err != nil || d <= 0 {
		return mistake(r, `a duration such as "48h", or "keep"`)
	}
	*r = Retention(d)
	return nil
}

// A Time is written in UTC, as in RFC 3339.
type Time struct{ time.Time }

// MarshalJSON writes the time in UTC.
func (t Time) MarshalJSON() ([]byte, error) {
	return t.UTC().AppendFormat(nil, `"`+time.RFC3339Nano+`"`), nil
}

// UnmarshalJSON reads a time from a string.
func (t *Time) UnmarshalJSON(text []byte) error {
	var written string
	if err := json.Unmarshal(text, &written); err != nil {
		return mistake(t, `a time such as "2006-01-02T15:04:05Z"`)
	}
	parsed, err := time.Parse(time.RFC3339Nano, written)
	if err != nil {
		return mistake(t, `a time such as "2006-01-02T15:04:05Z"`)
	}
	t.Time = parsed.UTC()
	return nil
}

// mistake returns an error to which the decoder adds the name of the field.
func mistake(into any, want string) error {
	return &json.UnmarshalTypeError{Value: want, Type: reflect.TypeOf(into).Elem()}
}

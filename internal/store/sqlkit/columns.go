package sqlkit

import (
	"database/sql/driver"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Column is a column of the table jobs.
type Column struct {
	Name string

	// Field returns where a record keeps the value: a pointer to an [Int], an int64, a string, a [Time], a [Micros], a [List] or
	// a JSON document, or a [Rules], a [Scheduled], a [Group], a [LimitKey] or an [ExpiresAt]. Rows are scanned into it, and statements are written from it.
	Field func(e *store.Record) any

	uses Uses
}

// Uses says in which statements a column appears, in addition to those that read every column.
type Uses int

// The uses. An insert gives some columns the same value for every job, such as state, and a claim sets some columns or knows
// their values. Those columns do not have the use: their statement names them itself.
const (
	Inserted Uses = 1 << iota // an insert writes it
	Rare                      // an insert writes it if one of its jobs has extras
	Linked                    // an insert writes it if one of its jobs waits for others
	Updated                   // an operation may change it
	Replaced                  // an Enqueue with Replace may change it
	Claimed                   // a claim reads it
	Document                  // it may be large
)

// Columns lists columns of the table jobs in the order in which statements name them.
type Columns []Column

// All lists every column of the table jobs.
var All = Columns{
	{"id", func(e *store.Record) any { return &e.ID }, Claimed},
	{"queue", func(e *store.Record) any { return &e.Queue }, Inserted},
	{"kind", func(e *store.Record) any { return &e.Kind }, Inserted | Claimed},
	{"priority", func(e *store.Record) any { return (*Int)(&e.Priority) }, Inserted | Replaced | Claimed},
	{"state", func(e *store.Record) any { return (*string)(&e.State) }, Updated | Claimed},
	{"run_at", func(e *store.Record) any { return (*Time)(&e.RunAt) }, Inserted | Updated | Replaced | Claimed},
	{"retry_at", func(e *store.Record) any { return (*Time)(&e.RetryAt) }, Updated | Replaced | Claimed},
	{"token", func(e *store.Record) any { return &e.Token }, Updated | Replaced | Claimed},
	{"lease_expires_at", func(e *store.Record) any { return (*Time)(&e.LeaseExpiresAt) }, Updated},
	{"lease_for", func(e *store.Record) any { return (*Micros)(&e.LeaseFor) }, Updated},
	{"worker", func(e *store.Record) any { return &e.Worker }, 0},
	{"attempts", func(e *store.Record) any { return (*Int)(&e.Attempts) }, Updated | Claimed},
	{"retries", func(e *store.Record) any { return (*Int)(&e.Retries) }, Updated | Claimed},
	{"rules", func(e *store.Record) any { return Rules{&e.Job} }, Inserted | Claimed},
	{"unique_key", func(e *store.Record) any { return &e.UniqueKey }, Inserted | Claimed},
	{"unique_for", func(e *store.Record) any { return (*Micros)(&e.UniqueFor) }, Inserted | Claimed},
	{"enqueued_at", func(e *store.Record) any { return (*Time)(&e.EnqueuedAt) }, Claimed},
	{"finished_at", func(e *store.Record) any { return (*Time)(&e.FinishedAt) }, Linked | Updated},
	{"finished_by", func(e *store.Record) any { return (*string)(&e.FinishedBy) }, Updated | Replaced},
	{"claim_token", func(e *store.Record) any { return &e.ClaimToken }, Updated | Claimed},
	{"claimed_at", func(e *store.Record) any { return (*Time)(&e.ClaimedAt) }, 0},
	{"ended_at", func(e *store.Record) any { return (*Time)(&e.EndedAt) }, Updated},
	{"ending", func(e *store.Record) any { return (*string)(&e.Ending) }, Updated},
	{"reason", func(e *store.Record) any { return &e.Reason }, Updated},
	{"checkpoint_seq", func(e *store.Record) any { return &e.CheckpointSeq }, Updated | Replaced},
	{"progress_seq", func(e *store.Record) any { return &e.ProgressSeq }, Updated | Replaced},
	{"scheduled", func(e *store.Record) any { return Scheduled{&e.Extras} }, Rare | Claimed},
	{"group_name", func(e *store.Record) any { return Group{&e.Extras} }, Rare | Claimed},
	{"limit_key", func(e *store.Record) any { return LimitKey{&e.Extras} }, Rare | Claimed},
	{"expires_at", func(e *store.Record) any { return ExpiresAt{&e.Extras} }, Rare | Replaced | Claimed},
	{"trace", func(e *store.Record) any { return &e.Trace }, Inserted | Claimed},
	{"tags", func(e *store.Record) any { return (*List)(&e.Tags) }, Inserted | Claimed},
	{"error", func(e *store.Record) any { return &e.Error }, Linked | Updated | Claimed},
	{"payload", func(e *store.Record) any { return &e.Payload }, Inserted | Replaced | Claimed | Document},
	{"checkpoint", func(e *store.Record) any { return &e.Checkpoint }, Updated | Replaced | Claimed | Document},
	{"progress", func(e *store.Record) any { return &e.Progress }, Updated | Replaced | Claimed | Document},
	{"result", func(e *store.Record) any { return &e.Result }, Updated | Claimed | Document},
}

// epoch is the store's epoch, which queries read beside the columns of a job.
var epoch = Column{"epoch", func(e *store.Record) any { return &e.Epoch }, 0}

// Links is the column of the job's links, which some queries read beside the others.
var Links = Column{"links", func(e *store.Record) any { return (*Int)(&e.Links) }, 0}

// For returns the columns that have the use.
func (c Columns) For(use Uses) Columns {
	return slices.DeleteFunc(slices.Clone(c), func(one Column) bool { return one.uses&use == 0 })
}

// Without returns the columns that do not have the use.
func (c Columns) Without(use Uses) Columns {
	return slices.DeleteFunc(slices.Clone(c), func(one Column) bool { return one.uses&use != 0 })
}

// Except returns the columns without those that are named.
func (c Columns) Except(names ...string) Columns {
	return slices.DeleteFunc(slices.Clone(c), func(one Column) bool { return slices.Contains(names, one.Name) })
}

// Each repeats the text for each column, joined by commas. It replaces {name} by the column's name and {n} by its number. The
// numbers start at first.
func (c Columns) Each(text string, first int) string {
	all := make([]string, len(c))
	for i, one := range c {
		all[i] = strings.NewReplacer(`{name}`, one.Name, `{n}`, fmt.Sprint(first+i)).Replace(text)
	}
	return strings.Join(all, `, `)
}

// Names returns the names of the columns, separated by commas.
func (c Columns) Names() string { return c.Each(`{name}`, 0) }

// Int reads a number that is an int in a record. Without it, database/sql formats and parses the number.
type Int int

// Scan reads the column.
func (i *Int) Scan(src any) error {
	n, ok := src.(int64)
	if !ok {
		return fmt.Errorf("a number can not be read from %T", src)
	}
	*i = Int(n)
	return nil
}

// Rules is the column of how a job is retried and how long it may run: MaxRetries, Backoff and Timeout, as numbers with spaces
// between them. Most jobs have the rules of a client that sets none: they are NULL.
type Rules struct{ Of *store.Job }

// usual are the rules that are stored as NULL. They never change, since stored jobs have them.
var usual = store.Job{MaxRetries: 20, Backoff: store.Backoff{Base: time.Second, Cap: time.Hour, Jitter: 10}}

// Scan reads the column.
func (r Rules) Scan(src any) error {
	j := r.Of
	var text string
	switch v := src.(type) {
	case nil:
		j.MaxRetries, j.Backoff, j.Timeout = usual.MaxRetries, usual.Backoff, usual.Timeout
		return nil
	case string:
		text = v
	case []byte:
		text = string(v)
	default:
		return fmt.Errorf("rules can not be read from %T", src)
	}
	var numbers [5]int64
	for i := range numbers {
		var one string
		var err error
		one, text, _ = strings.Cut(text, " ")
		if numbers[i], err = strconv.ParseInt(one, 10, 64); err != nil {
			return fmt.Errorf("rules: %w", err)
		}
	}
	duration := func(micros int64) time.Duration { return time.Duration(micros) * time.Microsecond }
	j.MaxRetries, j.Timeout = int(numbers[0]), duration(numbers[4])
	j.Backoff = store.Backoff{Base: duration(numbers[1]), Cap: duration(numbers[2]), Jitter: int(numbers[3])}
	return nil
}

// Value writes the column.
func (r Rules) Value() (driver.Value, error) {
	j := r.Of
	if j.MaxRetries == usual.MaxRetries && j.Backoff == usual.Backoff && j.Timeout == usual.Timeout {
		return nil, nil
	}
	text := make([]byte, 0, 40)
	for _, n := range [...]int64{
		int64(j.MaxRetries), j.Backoff.Base.Microseconds(), j.Backoff.Cap.Microseconds(), int64(j.Backoff.Jitter), j.Timeout.Microseconds(),
	} {
		text = append(strconv.AppendInt(text, n, 10), ' ')
	}
	return string(text[:len(text)-1]), nil
}

// Micros reads a duration from a column of microseconds. NULL is zero.
type Micros time.Duration

// Scan reads the column.
func (m *Micros) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*m = 0
	case int64:
		*m = Micros(time.Duration(v) * time.Microsecond)
	default:
		return fmt.Errorf("a duration can not be read from %T", src)
	}
	return nil
}

// PostgresEpoch is the time from which Postgres counts the microseconds of its times, in microseconds since 1970.
const PostgresEpoch = 946_684_800_000_000

// Time reads a time from a column of times, of microseconds since 1970, or of times in the binary format of Postgres. NULL is the
// zero time.
type Time time.Time

// Scan reads the column.
func (t *Time) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*t = Time{}
	case int64:
		*t = Time(time.UnixMicro(v).UTC())
	case time.Time:
		*t = Time(v.UTC())
	case []byte:
		if len(v) != 8 {
			return fmt.Errorf("a time can not be read from %d bytes", len(v))
		}
		*t = Time(time.UnixMicro(int64(binary.BigEndian.Uint64(v)) + PostgresEpoch).UTC())
	default:
		return fmt.Errorf("a time can not be read from %T", src)
	}
	return nil
}

// ExpiresAt is the column of a job's ExpiresAt.
type ExpiresAt struct{ Of **store.Extras }

// Scan reads the column.
func (e ExpiresAt) Scan(src any) error {
	var at Time
	err := at.Scan(src)
	*e.Of = (*e.Of).WithExpiresAt(time.Time(at))
	return err
}

// Time returns the value to write: NULL if it is zero.
func (e ExpiresAt) Time() time.Time { return store.Job{Extras: *e.Of}.ExpiresAt() }

// List is a list of strings, stored as a JSON array; an empty list is NULL.
type List []string

// Scan reads the column.
func (l *List) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*l = nil
		return nil
	case string:
		return json.Unmarshal([]byte(v), l)
	case []byte:
		return json.Unmarshal(v, l)
	default:
		return fmt.Errorf("a list can not be read from %T", src)
	}
}

// Value writes the column.
func (l List) Value() (driver.Value, error) {
	if len(l) == 0 {
		return nil, nil
	}
	text, err := json.Marshal([]string(l))
	return string(text), err
}

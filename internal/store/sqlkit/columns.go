package sqlkit

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Columns is one row of the table jobs, by the names of its columns.
type Columns struct {
	ID       int64  `db:"id"`
	Queue    string `db:"queue"`
	Kind     string `db:"kind"`
	Payload  []byte `db:"payload"`
	Priority int    `db:"priority"`
	Tags     List   `db:"tags"`
	Trace    string `db:"trace"`

	State   store.State `db:"state"`
	RunAt   Time        `db:"run_at"`
	RetryAt Time        `db:"retry_at"`

	Attempts      int    `db:"attempts"`
	Retries       int    `db:"retries"`
	MaxRetries    int    `db:"max_retries"`
	BackoffBase   Micros `db:"backoff_base"`
	BackoffCap    Micros `db:"backoff_cap"`
	BackoffJitter int    `db:"backoff_jitter"`
	Timeout       Micros `db:"timeout"`

	Token          int64  `db:"token"`
	LeaseExpiresAt Time   `db:"lease_expires_at"`
	LeaseFor       Micros `db:"lease_for"`
	Worker         string `db:"worker"`

	Checkpoint    []byte `db:"checkpoint"`
	CheckpointSeq int64  `db:"checkpoint_seq"`
	Progress      []byte `db:"progress"`
	ProgressSeq   int64  `db:"progress_seq"`
	Result        []byte `db:"result"`
	Error         string `db:"error"`

	UniqueKey string `db:"unique_key"`
	UniqueFor Micros `db:"unique_for"`

	EnqueuedAt Time `db:"enqueued_at"`
	FinishedAt Time `db:"finished_at"`

	FinishedBy store.FinishedBy `db:"finished_by"`
	ClaimToken int64            `db:"claim_token"`
	ClaimedAt  Time             `db:"claimed_at"`
	EndedAt    Time             `db:"ended_at"`
	Ending     store.Ending     `db:"ending"`

	Epoch int64 `db:"epoch"` // of the store
}

// Record is the row as a job with what is kept beside it.
func (c *Columns) Record() store.Record {
	return store.Record{
		Job: store.Job{
			ID: c.ID, Queue: c.Queue, Kind: c.Kind, Payload: c.Payload, Priority: c.Priority, Tags: c.Tags, Trace: c.Trace,
			State: c.State, RunAt: time.Time(c.RunAt), RetryAt: time.Time(c.RetryAt),
			Attempts: c.Attempts, Retries: c.Retries, MaxRetries: c.MaxRetries, Timeout: c.Timeout.Duration(),
			Backoff: store.Backoff{Base: c.BackoffBase.Duration(), Cap: c.BackoffCap.Duration(), Jitter: c.BackoffJitter},
			Token:   c.Token, LeaseExpiresAt: time.Time(c.LeaseExpiresAt), Worker: c.Worker,
			Checkpoint: c.Checkpoint, CheckpointSeq: c.CheckpointSeq, Progress: c.Progress, ProgressSeq: c.ProgressSeq,
			Result: c.Result, Error: c.Error,
			UniqueKey: c.UniqueKey, UniqueFor: c.UniqueFor.Duration(),
			EnqueuedAt: time.Time(c.EnqueuedAt), FinishedAt: time.Time(c.FinishedAt),
		},
		Epoch: c.Epoch, FinishedBy: c.FinishedBy, ClaimToken: c.ClaimToken,
		ClaimedAt: time.Time(c.ClaimedAt), EndedAt: time.Time(c.EndedAt), Ending: c.Ending, LeaseFor: c.LeaseFor.Duration(),
	}
}

// Micros is a duration kept as microseconds.
type Micros int64

// Duration is the duration.
func (m Micros) Duration() time.Duration { return time.Duration(m) * time.Microsecond }

// MicrosOf truncates a duration to microseconds.
func MicrosOf(d time.Duration) Micros { return Micros(d.Microseconds()) }

// Time reads a time from a column of times or of microseconds since 1970; NULL is the zero time.
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
	default:
		return fmt.Errorf("a time can not be read from %T", src)
	}
	return nil
}

// Unix is the time as microseconds since 1970 for a column of integers, and NULL for the zero time.
func Unix(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// Stamp is the time for a column of times, and NULL for the zero time.
func Stamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

// List is a list of strings kept as a JSON array, and as NULL when it is empty.
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

// Doc is a JSON document for a column of text, and NULL for none.
func Doc(doc []byte) any {
	if len(doc) == 0 {
		return nil
	}
	return string(doc)
}

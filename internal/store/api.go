package store

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// The JSON of the HTTP API. Package wire makes its requests and answers of these types.
//
// Ids and tokens are strings, durations are written as "1m30s", and empty fields are left out. A document is embedded as JSON.
// If its exact text differs because of white space, a second field has that text: payload_text beside payload. If it nests very deep, only
// that field is there.

// A JobJSON is a job as the store has it.
type JobJSON struct {
	ID          IDJSON          `json:"id"`
	Queue       string          `json:"queue"`
	Kind        string          `json:"kind"`
	Payload     json.RawMessage `json:"payload,omitempty"`
	PayloadText *string         `json:"payload_text,omitempty"`
	Priority    int             `json:"priority,omitempty"`
	Tags        []string        `json:"tags,omitempty"`
	Trace       string          `json:"trace,omitempty"`

	State   State    `json:"state"`
	RunAt   TimeJSON `json:"run_at,omitzero"`
	RetryAt TimeJSON `json:"retry_at,omitzero"`

	Attempts   int          `json:"attempts"`
	Retries    int          `json:"retries"`
	MaxRetries int          `json:"max_retries"`
	Backoff    BackoffJSON  `json:"backoff,omitzero"`
	Timeout    DurationJSON `json:"timeout,omitzero"`

	Token          IDJSON       `json:"token,omitzero"`
	LeaseExpiresAt TimeJSON     `json:"lease_expires_at,omitzero"`
	LeaseRemaining DurationJSON `json:"lease_remaining,omitzero"` // in the answer to a claim
	ClaimedAt      TimeJSON     `json:"claimed_at,omitzero"`
	Worker         string       `json:"worker,omitempty"`

	Checkpoint     json.RawMessage `json:"checkpoint,omitempty"`
	CheckpointText *string         `json:"checkpoint_text,omitempty"`
	CheckpointSeq  int64           `json:"checkpoint_seq,omitempty"`
	Progress       json.RawMessage `json:"progress,omitempty"`
	ProgressText   *string         `json:"progress_text,omitempty"`
	ProgressSeq    int64           `json:"progress_seq,omitempty"`
	Result         json.RawMessage `json:"result,omitempty"`
	ResultText     *string         `json:"result_text,omitempty"`
	Error          string          `json:"error,omitempty"`

	UniqueKey string       `json:"unique_key,omitempty"`
	UniqueFor DurationJSON `json:"unique_for,omitzero"`

	ExpiresAt TimeJSON `json:"expires_at,omitzero"`
	Group     string   `json:"group,omitempty"`
	LimitKey  string   `json:"limit_key,omitempty"`

	*Scheduled

	EnqueuedAt TimeJSON `json:"enqueued_at,omitzero"`
	FinishedAt TimeJSON `json:"finished_at,omitzero"`

	Redacted bool `json:"redacted,omitempty"` // documents and tokens are left out, because the caller's role may not see them
}

// JSONOfJob returns the JSON of a job. The result shares the documents with j.
func JSONOfJob(j Job) JobJSON {
	out := JobJSON{
		ID: IDJSON(j.ID), Queue: j.Queue, Kind: j.Kind, Priority: j.Priority, Tags: j.Tags, Trace: j.Trace,
		State: j.State, RunAt: TimeJSON{j.RunAt}, RetryAt: TimeJSON{j.RetryAt},
		Attempts: j.Attempts, Retries: j.Retries, MaxRetries: j.MaxRetries, Backoff: jsonOfBackoff(j.Backoff),
		Timeout: DurationJSON(j.Timeout),
		Token:   IDJSON(j.Token), LeaseExpiresAt: TimeJSON{j.LeaseExpiresAt}, ClaimedAt: TimeJSON{j.ClaimedAt}, Worker: j.Worker,
		CheckpointSeq: j.CheckpointSeq, ProgressSeq: j.ProgressSeq, Error: j.Error,
		UniqueKey: j.UniqueKey, UniqueFor: DurationJSON(j.UniqueFor), ExpiresAt: TimeJSON{j.ExpiresAt()}, Group: j.Group(), LimitKey: j.LimitKey(), Scheduled: j.Scheduled(),
		EnqueuedAt: TimeJSON{j.EnqueuedAt}, FinishedAt: TimeJSON{j.FinishedAt},
	}
	out.Payload, out.PayloadText = SplitDocument(j.Payload)
	out.Checkpoint, out.CheckpointText = SplitDocument(j.Checkpoint)
	out.Progress, out.ProgressText = SplitDocument(j.Progress)
	out.Result, out.ResultText = SplitDocument(j.Result)
	return out
}

// Store converts the job back.
func (j JobJSON) Store() Job {
	return Job{
		ID: int64(j.ID), Queue: j.Queue, Kind: j.Kind, Payload: JoinDocument(j.Payload, j.PayloadText),
		Priority: j.Priority, Tags: j.Tags, Trace: j.Trace,
		State: j.State, RunAt: j.RunAt.Time, RetryAt: j.RetryAt.Time,
		Attempts: j.Attempts, Retries: j.Retries, MaxRetries: j.MaxRetries, Backoff: j.Backoff.store(),
		Timeout: time.Duration(j.Timeout),
		Token:   int64(j.Token), LeaseExpiresAt: j.LeaseExpiresAt.Time, ClaimedAt: j.ClaimedAt.Time, Worker: j.Worker,
		Checkpoint: JoinDocument(j.Checkpoint, j.CheckpointText), CheckpointSeq: j.CheckpointSeq,
		Progress: JoinDocument(j.Progress, j.ProgressText), ProgressSeq: j.ProgressSeq,
		Result: JoinDocument(j.Result, j.ResultText), Error: j.Error,
		UniqueKey: j.UniqueKey, UniqueFor: time.Duration(j.UniqueFor),
		Extras:     Extras{j.ExpiresAt.Time, j.Scheduled, j.Group, j.LimitKey}.pointer(),
		EnqueuedAt: j.EnqueuedAt.Time, FinishedAt: j.FinishedAt.Time,
	}
}

// A JobDetailJSON is a job with its attempts, oldest first.
type JobDetailJSON struct {
	JobJSON
	History []Attempt `json:"history"`
	Waits   []Waiting `json:"waits,omitempty"`
}

// JSONOfDetail returns the JSON of a job and its history.
func JSONOfDetail(d JobDetail) JobDetailJSON {
	return JobDetailJSON{JSONOfJob(d.Job), neverNull(d.History), d.Waits}
}

// Store converts the job and its history back.
func (d JobDetailJSON) Store() JobDetail { return JobDetail{d.JobJSON.Store(), d.History, d.Waits} }

// A BackoffJSON is how long a job waits before each retry.
type BackoffJSON struct {
	Base   DurationJSON `json:"base,omitzero"`
	Cap    DurationJSON `json:"cap,omitzero"`
	Jitter int          `json:"jitter,omitempty"` // percent
}

func jsonOfBackoff(b Backoff) BackoffJSON {
	return BackoffJSON{DurationJSON(b.Base), DurationJSON(b.Cap), b.Jitter}
}

func (b BackoffJSON) store() Backoff {
	return Backoff{time.Duration(b.Base), time.Duration(b.Cap), b.Jitter}
}

// A NewJobJSON is a job to enqueue. In the HTTP API, fields that are left out have the defaults of the library.
type NewJobJSON struct {
	Queue       *string         `json:"queue,omitempty"`
	Kind        string          `json:"kind"`
	Payload     json.RawMessage `json:"payload,omitempty"`
	PayloadText *string         `json:"payload_text,omitempty"`
	Priority    int             `json:"priority,omitempty"`
	Tags        []string        `json:"tags,omitempty"`
	Trace       string          `json:"trace,omitempty"`
	RunAt       TimeJSON        `json:"run_at,omitzero"`
	Delay       DurationJSON    `json:"delay,omitzero"`
	MaxRetries  *int            `json:"max_retries,omitempty"`
	Backoff     *BackoffJSON    `json:"backoff,omitempty"`
	Timeout     DurationJSON    `json:"timeout,omitzero"`
	UniqueKey   string          `json:"unique_key,omitempty"`
	UniqueFor   DurationJSON    `json:"unique_for,omitzero"`
	Replace     bool            `json:"replace,omitempty"`
	ExpiresAt   TimeJSON        `json:"expires_at,omitzero"`
	After       []WaitJSON      `json:"after,omitempty" list:"some"`
	Group       string          `json:"group,omitempty"`
	LimitKey    string          `json:"limit_key,omitempty"`
}

// A WaitJSON names what a new job waits for: a job by its id or as an item of the same call, or a group.
type WaitJSON struct {
	ID    IDJSON `json:"id,omitzero"`
	Item  *int   `json:"item,omitempty"`
	Group string `json:"group,omitempty"`
	Any   bool   `json:"any,omitempty"`
}

// Store converts the wait back.
func (w WaitJSON) Store() Wait {
	out := Wait{ID: int64(w.ID), Group: w.Group, Any: w.Any}
	switch {
	case w.Item != nil:
		out.Item = *w.Item
	case w.ID == 0 && w.Group == "":
		out.Item = -1 // names nothing
	}
	return out
}

// JSONOfNewJob returns the JSON of a new job. It sets every field that has a default, even to zero.
func JSONOfNewJob(n NewJob) NewJobJSON {
	backoff := jsonOfBackoff(n.Backoff)
	out := NewJobJSON{
		Queue: &n.Queue, Kind: n.Kind, Priority: n.Priority, Tags: n.Tags, Trace: n.Trace,
		RunAt: TimeJSON{n.RunAt}, Delay: DurationJSON(n.Delay), MaxRetries: &n.MaxRetries, Backoff: &backoff,
		Timeout: DurationJSON(n.Timeout), UniqueKey: n.UniqueKey, UniqueFor: DurationJSON(n.UniqueFor),
		Replace: n.Replace, ExpiresAt: TimeJSON{n.ExpiresAt}, Group: n.Group, LimitKey: n.LimitKey,
	}
	for _, w := range n.After {
		wait := WaitJSON{ID: IDJSON(w.ID), Group: w.Group, Any: w.Any}
		if w.ID == 0 && w.Group == "" {
			wait.Item = &w.Item
		}
		out.After = append(out.After, wait)
	}
	out.Payload, out.PayloadText = SplitDocument(n.Payload)
	return out
}

// Store converts the job back. Fields that are left out are those of defaults.
func (n NewJobJSON) Store(defaults NewJob) NewJob {
	out := NewJob{
		Queue: defaults.Queue, Kind: n.Kind, Payload: defaults.Payload, Priority: n.Priority, Tags: n.Tags, Trace: n.Trace,
		RunAt: n.RunAt.Time, Delay: time.Duration(n.Delay), MaxRetries: defaults.MaxRetries, Backoff: defaults.Backoff,
		Timeout: time.Duration(n.Timeout), UniqueKey: n.UniqueKey, UniqueFor: time.Duration(n.UniqueFor),
		Replace: n.Replace, ExpiresAt: n.ExpiresAt.Time, Group: n.Group, LimitKey: n.LimitKey,
	}
	for _, w := range n.After {
		out.After = append(out.After, w.Store())
	}
	if n.Payload != nil || n.PayloadText != nil {
		out.Payload = JoinDocument(n.Payload, n.PayloadText)
	}
	if n.Queue != nil {
		out.Queue = *n.Queue
	}
	if n.MaxRetries != nil {
		out.MaxRetries = *n.MaxRetries
	}
	if n.Backoff != nil {
		out.Backoff = n.Backoff.store()
	}
	return out
}

// A PolicyJSON has the settings of a queue. Fields that are left out have their defaults.
type PolicyJSON struct {
	RetainSucceeded RetentionJSON `json:"retain_succeeded,omitzero"`
	RetainCancelled RetentionJSON `json:"retain_cancelled,omitzero"`
	RetainDead      RetentionJSON `json:"retain_dead,omitzero"`
	MaxInFlight     int           `json:"max_in_flight,omitzero"`
	MaxPerKey       int           `json:"max_per_key,omitzero"`
	Fair            bool          `json:"fair,omitzero"`
	Ordered         bool          `json:"ordered,omitzero"`
	Rate            RateJSON      `json:"rate,omitzero"`
	Owner           *string       `json:"owner,omitempty"` // nil leaves owner and declared as they are
	Declared        int64         `json:"declared,omitzero"`
	Version         int64         `json:"version"`
}

// JSONOfPolicy returns the JSON of a policy. It leaves out what is not set.
func JSONOfPolicy(p Policy) PolicyJSON {
	out := PolicyJSON{
		RetainSucceeded: RetentionJSON(p.RetainSucceeded), RetainCancelled: RetentionJSON(p.RetainCancelled), RetainDead: RetentionJSON(p.RetainDead),
		MaxInFlight: p.MaxInFlight, MaxPerKey: p.MaxPerKey, Fair: p.Fair, Ordered: p.Ordered, Rate: RateJSON{p.Rate.N, DurationJSON(p.Rate.Per)},
		Declared: p.Declared, Version: p.Version,
	}
	if p.Owner != "" || p.Declared != 0 { // the API takes no declared without owner
		out.Owner = &p.Owner
	}
	return out
}

// Store converts the policy back.
func (p PolicyJSON) Store() Policy {
	out := Policy{
		RetainSucceeded: time.Duration(p.RetainSucceeded), RetainCancelled: time.Duration(p.RetainCancelled), RetainDead: time.Duration(p.RetainDead),
		MaxInFlight: p.MaxInFlight, MaxPerKey: p.MaxPerKey, Fair: p.Fair, Ordered: p.Ordered, Rate: Rate{p.Rate.N, time.Duration(p.Rate.Per)},
		Declared: p.Declared, Version: p.Version,
	}
	if p.Owner != nil {
		out.Owner = *p.Owner
	}
	return out
}

// A RateJSON is how many jobs may be claimed in how long.
type RateJSON struct {
	N   int          `json:"n"`
	Per DurationJSON `json:"per"`
}

// A WorkerJSON is what a worker process reports about itself.
type WorkerJSON struct {
	Name       string       `json:"name,omitempty"`
	Host       string       `json:"host,omitempty"`
	PID        int          `json:"pid,omitempty"`
	Queues     []string     `json:"queues,omitempty"`
	Slots      int          `json:"slots"`
	Running    int          `json:"running"`
	StaleAfter DurationJSON `json:"stale_after,omitzero"`
	BeatAt     TimeJSON     `json:"beat_at,omitzero"`
	Stale      bool         `json:"stale,omitempty"`
}

// Store converts the worker back.
func (w WorkerJSON) Store() Worker {
	return Worker{
		Name: w.Name, Host: w.Host, PID: w.PID, Queues: w.Queues, Slots: w.Slots, Running: w.Running,
		StaleAfter: time.Duration(w.StaleAfter), BeatAt: w.BeatAt.Time, Stale: w.Stale,
	}
}

// An ActivityPageJSON is the answer of Activity, with the upper bounds of the classes of its histograms.
type ActivityPageJSON struct {
	Now    TimeJSON       `json:"now"`
	From   TimeJSON       `json:"from"`
	Step   DurationJSON   `json:"step,omitzero"`
	Bounds []DurationJSON `json:"bounds"`
	Spans  []Activity     `json:"spans"`
}

// JSONOfActivity returns the JSON of an answer.
func JSONOfActivity(p ActivityPage) ActivityPageJSON {
	out := ActivityPageJSON{Now: TimeJSON{p.Now}, From: TimeJSON{p.From}, Step: DurationJSON(p.Step), Spans: neverNull(p.Spans)}
	for _, bound := range histogramBounds {
		out.Bounds = append(out.Bounds, DurationJSON(bound))
	}
	return out
}

// Store converts the answer back.
func (p ActivityPageJSON) Store() ActivityPage {
	return ActivityPage{Now: p.Now.Time, From: p.From.Time, Step: time.Duration(p.Step), Spans: p.Spans}
}

// A FilterJSON chooses jobs.
type FilterJSON struct {
	IDs           []IDJSON     `json:"ids,omitempty" list:"some"`
	After         IDJSON       `json:"after,omitzero"`
	Queue         string       `json:"queue,omitempty"`
	Queues        []string     `json:"queues,omitempty" list:"some"`
	Kind          string       `json:"kind,omitempty"`
	Tag           string       `json:"tag,omitempty"`
	Worker        string       `json:"worker,omitempty"`
	UniqueKey     string       `json:"unique_key,omitempty"`
	Group         string       `json:"group,omitempty"`
	LimitKey      string       `json:"limit_key,omitempty"`
	States        []State      `json:"states,omitempty" list:"some"`
	FinishedFor   DurationJSON `json:"finished_for,omitzero"`
	WaitsFor      IDJSON       `json:"waits_for,omitzero"`
	WaitsForGroup string       `json:"waits_for_group,omitempty"`
	Unneeded      bool         `json:"unneeded,omitempty"`
}

// JSONOfFilter returns the JSON of a filter.
func JSONOfFilter(f Filter) FilterJSON {
	out := FilterJSON{
		After: IDJSON(f.After), Queue: f.Queue, Queues: f.Queues, Kind: f.Kind, Tag: f.Tag, Worker: f.Worker,
		UniqueKey: f.UniqueKey, Group: f.Group, LimitKey: f.LimitKey, States: f.States, FinishedFor: DurationJSON(f.FinishedFor),
		WaitsFor: IDJSON(f.WaitsFor), WaitsForGroup: f.WaitsForGroup, Unneeded: f.Unneeded,
	}
	for _, id := range f.IDs {
		out.IDs = append(out.IDs, IDJSON(id))
	}
	return out
}

// Store converts the filter back.
func (f FilterJSON) Store() Filter {
	out := Filter{
		After: int64(f.After), Queue: f.Queue, Queues: f.Queues, Kind: f.Kind, Tag: f.Tag, Worker: f.Worker,
		UniqueKey: f.UniqueKey, Group: f.Group, LimitKey: f.LimitKey, States: f.States, FinishedFor: time.Duration(f.FinishedFor),
		WaitsFor: int64(f.WaitsFor), WaitsForGroup: f.WaitsForGroup, Unneeded: f.Unneeded,
	}
	for _, id := range f.IDs {
		out.IDs = append(out.IDs, int64(id))
	}
	return out
}

// An IDJSON is a number written as a string, because many languages read numbers as floats: the id of a job, or a token.
type IDJSON int64

// MarshalText writes the digits.
func (i IDJSON) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(i), 10), nil }

// UnmarshalJSON reads the number from a string. It refuses JSON numbers.
func (i *IDJSON) UnmarshalJSON(text []byte) error {
	digits, ok := quoted(text)
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || strconv.FormatInt(n, 10) != digits { // each number has only one text
		return mistake(i, "a string with a number")
	}
	*i = IDJSON(n)
	return nil
}

// A DurationJSON is written as "1m30s".
type DurationJSON time.Duration

// MarshalText writes the duration with its units.
func (d DurationJSON) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalJSON reads a duration from a string. It refuses numbers, which would have no unit.
func (d *DurationJSON) UnmarshalJSON(text []byte) error {
	written, ok := quoted(text)
	parsed, err := time.ParseDuration(written)
	if !ok || err != nil {
		return mistake(d, `a duration such as "30s"`)
	}
	*d = DurationJSON(parsed)
	return nil
}

// A RetentionJSON is written like a DurationJSON, or as "keep" if jobs are kept for ever.
type RetentionJSON time.Duration

// KeepJSON is the text of an unlimited retention.
const KeepJSON = "keep"

// MarshalText writes the duration, or KeepJSON.
func (r RetentionJSON) MarshalText() ([]byte, error) {
	if time.Duration(r) == KeepForEver {
		return []byte(KeepJSON), nil
	}
	return DurationJSON(r).MarshalText()
}

// UnmarshalJSON reads the retention. It must be positive: a store takes zero for the default.
func (r *RetentionJSON) UnmarshalJSON(text []byte) error {
	if written, ok := quoted(text); ok && written == KeepJSON {
		*r = RetentionJSON(KeepForEver)
		return nil
	}
	var d DurationJSON
	if err := d.UnmarshalJSON(text); err != nil || d <= 0 {
		return mistake(r, `a duration such as "48h", or "keep"`)
	}
	*r = RetentionJSON(d)
	return nil
}

// A TimeJSON is written in UTC, as in RFC 3339.
type TimeJSON struct{ time.Time }

// MarshalJSON writes the time in UTC.
func (t TimeJSON) MarshalJSON() ([]byte, error) {
	return t.UTC().AppendFormat(nil, `"`+time.RFC3339Nano+`"`), nil
}

// UnmarshalJSON reads a time from a string.
func (t *TimeJSON) UnmarshalJSON(text []byte) error {
	written, ok := quoted(text)
	parsed, err := time.Parse(time.RFC3339Nano, written)
	if !ok || err != nil {
		return mistake(t, `a time such as "2006-01-02T15:04:05Z"`)
	}
	t.Time = parsed.UTC()
	return nil
}

// quoted reads a string, and reports whether it is one.
func quoted(text []byte) (string, bool) {
	var written string
	err := json.Unmarshal(text, &written)
	return written, err == nil
}

// mistake returns an error to which the decoder adds the name of the field.
func mistake(into any, want string) error {
	return &json.UnmarshalTypeError{Value: want, Type: reflect.TypeOf(into).Elem()}
}

// Wanted returns what an error of mistake says is wanted, and nothing for an error of the decoder itself.
func Wanted(m *json.UnmarshalTypeError) string {
	if strings.HasPrefix(m.Value, "a ") {
		return m.Value
	}
	return ""
}

// maxEmbedded is how deep a document may nest that is written as JSON. A decoder of Go refuses more than 10,000 levels, and the document is
// inside of others.
const maxEmbedded = 9_000

// nestsDeeper reports whether the JSON document has more levels.
func nestsDeeper(doc []byte, most int) bool {
	if bytes.Count(doc, []byte("["))+bytes.Count(doc, []byte("{")) <= most {
		return false // nearly always
	}
	depth, quoted := 0, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case quoted && c == '\\':
			i++ // the next byte ends no string
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[', c == '{':
			if depth++; depth > most {
				return true
			}
		case c == ']', c == '}':
			depth--
		}
	}
	return false
}

// SplitDocument returns the document as JSON, and its exact text if that differs. If it nests too deep, it returns only the text.
func SplitDocument(doc []byte) (json.RawMessage, *string) {
	if len(doc) == 0 {
		return nil, nil
	}
	if nestsDeeper(doc, maxEmbedded) {
		text := string(doc)
		return nil, &text
	}
	var compact bytes.Buffer
	compact.Grow(len(doc))
	if err := json.Compact(&compact, doc); err != nil { // not JSON: it was sent so, or a row was changed by hand; only the text is written
		text := string(doc)
		return nil, &text
	}
	if compact.Len() == len(doc) {
		return doc, nil
	}
	text := string(doc)
	return compact.Bytes(), &text
}

// JoinDocument returns the document that SplitDocument was given.
func JoinDocument(doc json.RawMessage, text *string) []byte {
	if text != nil {
		return []byte(*text)
	}
	return doc
}

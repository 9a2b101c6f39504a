package store

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
)

// These types have the same JSON as in jq's HTTP API: ids and tokens are strings, durations are written as "1m30s", and empty
// fields are left out. A document is embedded as JSON. If its exact text differs because of white space, a second field has
// that text: payload_text beside payload. The tags define most of it, and the methods here define what tags cannot. A test in
// package wire compares both.

// The types without their methods, as the tags alone would write them.
type (
	plainJob          Job
	plainNewJob       NewJob
	plainBackoff      Backoff
	plainWorker       Worker
	plainFilter       Filter
	plainJobPage      JobPage
	plainWorkerPage   WorkerPage
	plainSchedulePage SchedulePage
	plainCounts       Counts
	plainDue          Due
)

// jobJSON has what differs from the tags. A field here replaces the field of the same name in plainJob.
type jobJSON struct {
	plainJob
	Payload        json.RawMessage `json:"payload,omitempty"`
	PayloadText    *string         `json:"payload_text,omitempty"`
	Timeout        durationJSON    `json:"timeout,omitzero"`
	Checkpoint     json.RawMessage `json:"checkpoint,omitempty"`
	CheckpointText *string         `json:"checkpoint_text,omitempty"`
	Progress       json.RawMessage `json:"progress,omitempty"`
	ProgressText   *string         `json:"progress_text,omitempty"`
	Result         json.RawMessage `json:"result,omitempty"`
	ResultText     *string         `json:"result_text,omitempty"`
	UniqueFor      durationJSON    `json:"unique_for,omitzero"`
	*Scheduled
}

func jsonOfJob(j Job) jobJSON {
	out := jobJSON{plainJob: plainJob(j), Scheduled: j.Scheduled, Timeout: durationJSON(j.Timeout), UniqueFor: durationJSON(j.UniqueFor)}
	out.Payload, out.PayloadText = splitDocument(j.Payload)
	out.Checkpoint, out.CheckpointText = splitDocument(j.Checkpoint)
	out.Progress, out.ProgressText = splitDocument(j.Progress)
	out.Result, out.ResultText = splitDocument(j.Result)
	return out
}

func (in jobJSON) job() Job {
	j := Job(in.plainJob)
	j.Scheduled = in.Scheduled
	j.Timeout, j.UniqueFor = time.Duration(in.Timeout), time.Duration(in.UniqueFor)
	j.Payload = joinDocument(in.Payload, in.PayloadText)
	j.Checkpoint = joinDocument(in.Checkpoint, in.CheckpointText)
	j.Progress = joinDocument(in.Progress, in.ProgressText)
	j.Result = joinDocument(in.Result, in.ResultText)
	return j
}

// MarshalJSON writes the job as the HTTP API does. A struct that embeds a Job has this method too, so it needs a method of its
// own to write its other fields.
func (j Job) MarshalJSON() ([]byte, error) { return json.Marshal(jsonOfJob(j)) }

// UnmarshalJSON reads the JSON of MarshalJSON or of the HTTP API.
func (j *Job) UnmarshalJSON(text []byte) error {
	in, err := decoded[jobJSON](text)
	if err == nil {
		*j = in.job()
	}
	return err
}

type jobDetailJSON struct {
	jobJSON
	History []Attempt `json:"history"`
}

// MarshalJSON writes the job and its history as the HTTP API does.
func (d JobDetail) MarshalJSON() ([]byte, error) {
	return json.Marshal(jobDetailJSON{jsonOfJob(d.Job), neverNull(d.History)})
}

// UnmarshalJSON reads the JSON of MarshalJSON or of the HTTP API.
func (d *JobDetail) UnmarshalJSON(text []byte) error {
	in, err := decoded[jobDetailJSON](text)
	if err == nil {
		*d = JobDetail{in.job(), in.History}
	}
	return err
}

// recordJSON has everything that a store keeps, byte for byte: documents in base64, durations in nanoseconds.
type recordJSON struct {
	plainJob
	FinishedBy FinishedBy    `json:"finished_by,omitempty"`
	LeaseFor   time.Duration `json:"lease_for,omitempty"`
	ClaimToken int64         `json:"claim_token,omitempty,string"`
	EndedAt    time.Time     `json:"ended_at,omitzero"`
	Ending     Ending        `json:"ending,omitempty"`
	Reason     string        `json:"reason,omitempty"`
	*Scheduled
}

// MarshalJSON writes the record for a store that keeps it as JSON: all of it, byte for byte, unlike a [Job] for people and
// programs. The epoch belongs to the store and is not included.
func (r Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(recordJSON{plainJob(r.Job), r.FinishedBy, r.LeaseFor, r.ClaimToken, r.EndedAt, r.Ending, r.Reason, r.Scheduled})
}

// UnmarshalJSON reads the JSON of MarshalJSON.
func (r *Record) UnmarshalJSON(text []byte) error {
	in, err := decoded[recordJSON](text)
	if err == nil {
		*r = Record{
			Job: Job(in.plainJob), Epoch: r.Epoch, FinishedBy: in.FinishedBy, LeaseFor: in.LeaseFor,
			ClaimToken: in.ClaimToken, EndedAt: in.EndedAt, Ending: in.Ending, Reason: in.Reason,
		}
		r.Scheduled = in.Scheduled
	}
	return err
}

type newJobJSON struct {
	plainNewJob
	Payload     json.RawMessage `json:"payload,omitempty"`
	PayloadText *string         `json:"payload_text,omitempty"`
	Delay       durationJSON    `json:"delay,omitzero"`
	Timeout     durationJSON    `json:"timeout,omitzero"`
	UniqueFor   durationJSON    `json:"unique_for,omitzero"`
}

// MarshalJSON writes the job as the HTTP API reads it.
func (n NewJob) MarshalJSON() ([]byte, error) {
	out := newJobJSON{
		plainNewJob: plainNewJob(n),
		Delay:       durationJSON(n.Delay), Timeout: durationJSON(n.Timeout), UniqueFor: durationJSON(n.UniqueFor),
	}
	out.Payload, out.PayloadText = splitDocument(n.Payload)
	return json.Marshal(out)
}

// UnmarshalJSON reads the JSON of MarshalJSON. Unlike in the HTTP API, no field has a default.
func (n *NewJob) UnmarshalJSON(text []byte) error {
	in, err := decoded[newJobJSON](text)
	if err == nil {
		*n = NewJob(in.plainNewJob)
		n.Payload = joinDocument(in.Payload, in.PayloadText)
		n.Delay, n.Timeout, n.UniqueFor = time.Duration(in.Delay), time.Duration(in.Timeout), time.Duration(in.UniqueFor)
	}
	return err
}

type backoffJSON struct {
	plainBackoff
	Base durationJSON `json:"base,omitzero"`
	Cap  durationJSON `json:"cap,omitzero"`
}

// MarshalJSON writes the backoff as the HTTP API does.
func (b Backoff) MarshalJSON() ([]byte, error) {
	return json.Marshal(backoffJSON{plainBackoff(b), durationJSON(b.Base), durationJSON(b.Cap)})
}

// UnmarshalJSON reads the JSON of MarshalJSON or of the HTTP API.
func (b *Backoff) UnmarshalJSON(text []byte) error {
	in, err := decoded[backoffJSON](text)
	if err == nil {
		*b = Backoff{Base: time.Duration(in.Base), Cap: time.Duration(in.Cap), Jitter: in.Jitter}
	}
	return err
}

type policyJSON struct {
	RetainSucceeded retentionJSON `json:"retain_succeeded,omitzero"`
	RetainCancelled retentionJSON `json:"retain_cancelled,omitzero"`
	RetainDead      retentionJSON `json:"retain_dead,omitzero"`
	Version         int64         `json:"version"`
}

// MarshalJSON writes the policy as the HTTP API does: "keep" is KeepForEver.
func (p Policy) MarshalJSON() ([]byte, error) {
	return json.Marshal(policyJSON{
		retentionJSON(p.RetainSucceeded), retentionJSON(p.RetainCancelled), retentionJSON(p.RetainDead), p.Version,
	})
}

// UnmarshalJSON reads the JSON of MarshalJSON or of the HTTP API.
func (p *Policy) UnmarshalJSON(text []byte) error {
	in, err := decoded[policyJSON](text)
	if err == nil {
		*p = Policy{
			RetainSucceeded: time.Duration(in.RetainSucceeded), RetainCancelled: time.Duration(in.RetainCancelled),
			RetainDead: time.Duration(in.RetainDead), Version: in.Version,
		}
	}
	return err
}

type workerJSON struct {
	plainWorker
	StaleAfter durationJSON `json:"stale_after,omitzero"`
}

// MarshalJSON writes the worker as the HTTP API does.
func (w Worker) MarshalJSON() ([]byte, error) {
	return json.Marshal(workerJSON{plainWorker(w), durationJSON(w.StaleAfter)})
}

// UnmarshalJSON reads the JSON of MarshalJSON or of the HTTP API.
func (w *Worker) UnmarshalJSON(text []byte) error {
	in, err := decoded[workerJSON](text)
	if err == nil {
		*w = Worker(in.plainWorker)
		w.StaleAfter = time.Duration(in.StaleAfter)
	}
	return err
}

type filterJSON struct {
	plainFilter
	IDs         []idJSON     `json:"ids,omitempty"`
	FinishedFor durationJSON `json:"finished_for,omitzero"`
}

// MarshalJSON writes the filter as the HTTP API reads it.
func (f Filter) MarshalJSON() ([]byte, error) {
	out := filterJSON{plainFilter: plainFilter(f), FinishedFor: durationJSON(f.FinishedFor)}
	for _, id := range f.IDs {
		out.IDs = append(out.IDs, idJSON(id))
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads the JSON of MarshalJSON.
func (f *Filter) UnmarshalJSON(text []byte) error {
	in, err := decoded[filterJSON](text)
	if err == nil {
		*f = Filter(in.plainFilter)
		f.IDs, f.FinishedFor = nil, time.Duration(in.FinishedFor)
		for _, id := range in.IDs {
			f.IDs = append(f.IDs, int64(id))
		}
	}
	return err
}

// MarshalJSON writes the page as the HTTP API does: no jobs are an empty list.
func (p JobPage) MarshalJSON() ([]byte, error) {
	p.Jobs = neverNull(p.Jobs)
	return json.Marshal(plainJobPage(p))
}

// MarshalJSON writes the page as the HTTP API does: no workers are an empty list.
func (p WorkerPage) MarshalJSON() ([]byte, error) {
	p.Workers = neverNull(p.Workers)
	return json.Marshal(plainWorkerPage(p))
}

// MarshalJSON writes the page as the HTTP API does: no schedules are an empty list.
func (p SchedulePage) MarshalJSON() ([]byte, error) {
	p.Schedules = neverNull(p.Schedules)
	return json.Marshal(plainSchedulePage(p))
}

// MarshalJSON writes the counts as the HTTP API does: no queues are an empty list.
func (c Counts) MarshalJSON() ([]byte, error) {
	c.Queues = neverNull(c.Queues)
	return json.Marshal(plainCounts(c))
}

// MarshalJSON writes the answer as the HTTP API does: no queues are an empty list.
func (d Due) MarshalJSON() ([]byte, error) {
	d.Queues = neverNull(d.Queues)
	return json.Marshal(plainDue(d))
}

func decoded[T any](text []byte) (value T, err error) { return value, json.Unmarshal(text, &value) }

func neverNull[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// splitDocument returns a document as JSON, and its text if that differs.
func splitDocument(doc []byte) (json.RawMessage, *string) {
	if len(doc) == 0 {
		return nil, nil
	}
	text := string(doc)
	var compact bytes.Buffer
	if err := json.Compact(&compact, doc); err != nil { // no store keeps such a document: if it is not JSON, only its text is written
		return nil, &text
	}
	if compact.Len() == len(doc) {
		return doc, nil
	}
	return compact.Bytes(), &text
}

func joinDocument(doc json.RawMessage, text *string) []byte {
	if text != nil {
		return []byte(*text)
	}
	return doc
}

// An idJSON is a number written as a string, because many languages read numbers as floats.
type idJSON int64

func (i idJSON) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(i), 10), nil }

func (i *idJSON) UnmarshalText(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 64)
	*i = idJSON(n)
	return err
}

// A durationJSON is written as "1m30s".
type durationJSON time.Duration

func (d durationJSON) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *durationJSON) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = durationJSON(parsed)
	return err
}

// A retentionJSON is written like a duration, or as "keep".
type retentionJSON time.Duration

const keepJSON = "keep"

func (r retentionJSON) MarshalText() ([]byte, error) {
	if time.Duration(r) == KeepForEver {
		return []byte(keepJSON), nil
	}
	return durationJSON(r).MarshalText()
}

func (r *retentionJSON) UnmarshalText(text []byte) error {
	if string(text) == keepJSON {
		*r = retentionJSON(KeepForEver)
		return nil
	}
	return (*durationJSON)(r).UnmarshalText(text)
}

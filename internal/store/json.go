package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// These types have the same JSON as in jq's HTTP API, which sends and reads the types JobJSON, NewJobJSON and so on. Other types
// are written as their tags say.

// The types without their methods, as the tags alone would write them.
type (
	plainJob          Job
	plainJobPage      JobPage
	plainWorkerPage   WorkerPage
	plainSchedulePage SchedulePage
	plainCounts       Counts
	plainDue          Due
)

// MarshalJSON writes the job as the HTTP API does. A struct that embeds a Job has this method too, so it needs a method of its
// own to write its other fields.
func (j Job) MarshalJSON() ([]byte, error) { return encoded(JSONOfJob(j)) }

// UnmarshalJSON reads the JSON of MarshalJSON or of the HTTP API.
func (j *Job) UnmarshalJSON(text []byte) error { return decoded(text, j, JobJSON.Store) }

// MarshalJSON writes the job and its history as the HTTP API does.
func (d JobDetail) MarshalJSON() ([]byte, error) { return encoded(JSONOfDetail(d)) }

// UnmarshalJSON reads the JSON of MarshalJSON or of the HTTP API.
func (d *JobDetail) UnmarshalJSON(text []byte) error { return decoded(text, d, JobDetailJSON.Store) }

// recordJSON has everything that a store keeps, byte for byte: documents in base64, durations in nanoseconds.
type recordJSON struct {
	plainJob
	FinishedBy FinishedBy    `json:"finished_by,omitempty"`
	LeaseFor   time.Duration `json:"lease_for,omitempty"`
	ClaimToken int64         `json:"claim_token,omitempty,string"`
	EndedAt    time.Time     `json:"ended_at,omitzero"`
	Ending     Ending        `json:"ending,omitempty"`
	Reason     string        `json:"reason,omitempty"`
	ExpiresAt  time.Time     `json:"expires_at,omitzero"`
	Group      string        `json:"group,omitempty"`
	LimitKey   string        `json:"limit_key,omitempty"`
	Links      Links         `json:"links,omitempty"`
	*Scheduled
}

// MarshalJSON writes the record for a store that keeps it as JSON: all of it, byte for byte, unlike a [Job] for people and
// programs. The epoch belongs to the store and is not included.
func (r Record) MarshalJSON() ([]byte, error) {
	return encoded(recordJSON{plainJob(r.Job), r.FinishedBy, r.LeaseFor, r.ClaimToken, r.EndedAt, r.Ending, r.Reason, r.ExpiresAt(), r.Group(), r.LimitKey(), r.Links, r.Scheduled()})
}

// UnmarshalJSON reads the JSON of MarshalJSON.
func (r *Record) UnmarshalJSON(text []byte) error {
	return decoded(text, r, func(in recordJSON) Record {
		kept := Record{
			Job: Job(in.plainJob), Epoch: r.Epoch, FinishedBy: in.FinishedBy, LeaseFor: in.LeaseFor,
			ClaimToken: in.ClaimToken, EndedAt: in.EndedAt, Ending: in.Ending, Reason: in.Reason, Links: in.Links,
		}
		kept.Extras = Extras{in.ExpiresAt, in.Scheduled, in.Group, in.LimitKey}.pointer()
		return kept
	})
}

// MarshalJSON writes the job as the HTTP API reads it.
func (n NewJob) MarshalJSON() ([]byte, error) { return encoded(JSONOfNewJob(n)) }

// UnmarshalJSON reads the JSON of MarshalJSON. Unlike in the HTTP API, no field has a default.
func (n *NewJob) UnmarshalJSON(text []byte) error {
	return decoded(text, n, func(in NewJobJSON) NewJob { return in.Store(NewJob{}) })
}

// MarshalJSON writes the backoff as the HTTP API does.
func (b Backoff) MarshalJSON() ([]byte, error) { return encoded(jsonOfBackoff(b)) }

// UnmarshalJSON reads the JSON of MarshalJSON or of the HTTP API.
func (b *Backoff) UnmarshalJSON(text []byte) error { return decoded(text, b, BackoffJSON.store) }

// MarshalJSON writes the policy as the HTTP API does: "keep" is KeepForEver.
func (p Policy) MarshalJSON() ([]byte, error) { return encoded(JSONOfPolicy(p)) }

// UnmarshalJSON reads the JSON of MarshalJSON or of the HTTP API.
func (p *Policy) UnmarshalJSON(text []byte) error { return decoded(text, p, PolicyJSON.Store) }

// MarshalJSON writes the worker as the HTTP API does.
func (w Worker) MarshalJSON() ([]byte, error) {
	return encoded(WorkerJSON{
		Name: w.Name, Host: w.Host, PID: w.PID, Queues: w.Queues, Slots: w.Slots, Running: w.Running,
		StaleAfter: DurationJSON(w.StaleAfter), BeatAt: TimeJSON{w.BeatAt}, Stale: w.Stale,
	})
}

// UnmarshalJSON reads the JSON of MarshalJSON or of the HTTP API.
func (w *Worker) UnmarshalJSON(text []byte) error { return decoded(text, w, WorkerJSON.Store) }

// MarshalJSON writes the filter as the HTTP API reads it.
func (f Filter) MarshalJSON() ([]byte, error) { return encoded(JSONOfFilter(f)) }

// UnmarshalJSON reads the JSON of MarshalJSON.
func (f *Filter) UnmarshalJSON(text []byte) error { return decoded(text, f, FilterJSON.Store) }

// MarshalJSON writes the page as the HTTP API does: no jobs are an empty list.
func (p JobPage) MarshalJSON() ([]byte, error) {
	p.Jobs = neverNull(p.Jobs)
	return encoded(plainJobPage(p))
}

// MarshalJSON writes the page as the HTTP API does: no workers are an empty list.
func (p WorkerPage) MarshalJSON() ([]byte, error) {
	p.Workers = neverNull(p.Workers)
	return encoded(plainWorkerPage(p))
}

// MarshalJSON writes the page as the HTTP API does: no schedules are an empty list.
func (p SchedulePage) MarshalJSON() ([]byte, error) {
	p.Schedules = neverNull(p.Schedules)
	return encoded(plainSchedulePage(p))
}

// MarshalJSON writes the counts as the HTTP API does: no queues are an empty list.
func (c Counts) MarshalJSON() ([]byte, error) {
	c.Queues = neverNull(c.Queues)
	return encoded(plainCounts(c))
}

// MarshalJSON writes the answer as the HTTP API does: no queues are an empty list.
func (d Due) MarshalJSON() ([]byte, error) {
	d.Queues = neverNull(d.Queues)
	return encoded(plainDue(d))
}

// MarshalJSON writes the answer as the HTTP API does, with the bounds of its histograms.
func (p ActivityPage) MarshalJSON() ([]byte, error) { return encoded(JSONOfActivity(p)) }

// UnmarshalJSON reads the JSON of MarshalJSON or of the HTTP API.
func (p *ActivityPage) UnmarshalJSON(text []byte) error {
	return decoded(text, p, ActivityPageJSON.Store)
}

func neverNull[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// encoded does not escape HTML: whoever asks for the JSON decides that.
func encoded(v any) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return text.Bytes(), err
}

// decoded changes nothing if the text can not be read.
func decoded[From, To any](text []byte, into *To, as func(From) To) error {
	var from From
	err := json.Unmarshal(text, &from)
	var mismatch *json.UnmarshalTypeError
	switch {
	case err == nil:
		*into = as(from)
	case errors.As(err, &mismatch) && Wanted(mismatch) != "":
		return fmt.Errorf("%s must be %s", mismatch.Field, mismatch.Value)
	}
	return err
}

package wire

import (
	"encoding/json"

	"github.com/seed-ed332417/jq/internal/store"
)

// The JSON of the contract's types is defined beside them.

type (
	// ID is a number that is written as a string.
	ID = store.IDJSON
	// Duration is written as "1m30s".
	Duration = store.DurationJSON
	// Retention is a Duration, or "keep".
	Retention = store.RetentionJSON
	// Time is written in UTC.
	Time = store.TimeJSON
	// Job is a job as the store has it.
	Job = store.JobJSON
	// JobDetail is a job with its attempts and with what it waits for.
	JobDetail = store.JobDetailJSON
	// NewJob is a job to enqueue.
	NewJob = store.NewJobJSON
	// Wait names a job that a new job waits for.
	Wait = store.WaitJSON
	// Policy has the settings of a queue.
	Policy = store.PolicyJSON
	// Rate is how many jobs may be claimed in how long.
	Rate = store.RateJSON
	// Worker is what a worker process reports about itself.
	Worker = store.WorkerJSON
	// Filter selects jobs.
	Filter = store.FilterJSON
)

// Keep is the text of an unlimited retention.
const Keep = store.KeepJSON

// JobOf converts a job of a store. The result shares the documents with j.
func JobOf(j store.Job) Job { return store.JSONOfJob(j) }

// DetailOf converts a job of a store with its history.
func DetailOf(d store.JobDetail) JobDetail { return store.JSONOfDetail(d) }

// NewJobOf converts a new job. It sets every field that has a default, even to zero.
func NewJobOf(n store.NewJob) NewJob { return store.JSONOfNewJob(n) }

// FilterOf converts a filter.
func FilterOf(f store.Filter) Filter { return store.JSONOfFilter(f) }

// size estimates the size of the encoded job, in bytes.
func size(j *Job) int {
	size := 512 + len(j.Error) + len(j.Trace)
	for _, document := range []json.RawMessage{j.Payload, j.Checkpoint, j.Progress, j.Result} {
		size += len(document)
	}
	for _, text := range []*string{j.PayloadText, j.CheckpointText, j.ProgressText, j.ResultText} {
		if text != nil {
			size += len(*text)
		}
	}
	return size
}

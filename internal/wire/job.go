package wire

import (
	"encoding/json"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Job is a job as the store has it.
type Job struct {
	ID          ID              `json:"id"`
	Queue       string          `json:"queue"`
	Kind        string          `json:"kind"`
	Payload     json.RawMessage `json:"payload,omitempty"`
	PayloadText *string         `json:"payload_text,omitempty"`
	Priority    int             `json:"priority,omitempty"`
	Tags        []string        `json:"tags,omitempty"`
	Trace       string          `json:"trace,omitempty"`

	State   store.State `json:"state"`
	RunAt   Time        `json:"run_at,omitzero"`
	RetryAt Time        `json:"retry_at,omitzero"`

	Attempts   int      `json:"attempts"`
	Retries    int      `json:"retries"`
	MaxRetries int      `json:"max_retries"`
	Backoff    Backoff  `json:"backoff,omitzero"`
	Timeout    Duration `json:"timeout,omitzero"`

	Token          ID       `json:"token,omitzero"`
	LeaseExpiresAt Time     `json:"lease_expires_at,omitzero"`
	LeaseRemaining Duration `json:"lease_remaining,omitzero"` // in the answer to a claim
	ClaimedAt      Time     `json:"claimed_at,omitzero"`
	Worker         string   `json:"worker,omitempty"`

	Checkpoint     json.RawMessage `json:"checkpoint,omitempty"`
	CheckpointText *string         `json:"checkpoint_text,omitempty"`
	CheckpointSeq  int64           `json:"checkpoint_seq,omitempty"`
	Progress       json.RawMessage `json:"progress,omitempty"`
	ProgressText   *string         `json:"progress_text,omitempty"`
	ProgressSeq    int64           `json:"progress_seq,omitempty"`
	Result         json.RawMessage `json:"result,omitempty"`
	ResultText     *string         `json:"result_text,omitempty"`
	Error          string          `json:"error,omitempty"`

	UniqueKey string   `json:"unique_key,omitempty"`
	UniqueFor Duration `json:"unique_for,omitzero"`

	*store.Scheduled

	EnqueuedAt Time `json:"enqueued_at,omitzero"`
	FinishedAt Time `json:"finished_at,omitzero"`

	Redacted bool `json:"redacted,omitempty"` // documents and tokens are left out, because the caller's role may not see them
}

// size estimates the size of the encoded job, in bytes.
func (j *Job) size() int {
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

// A Backoff is how long a job waits before each retry.
type Backoff struct {
	Base   Duration `json:"base,omitzero"`
	Cap    Duration `json:"cap,omitzero"`
	Jitter int      `json:"jitter,omitempty"` // percent
}

func backoffOf(b store.Backoff) Backoff {
	return Backoff{Base: Duration(b.Base), Cap: Duration(b.Cap), Jitter: b.Jitter}
}

func (b Backoff) store() store.Backoff {
	return store.Backoff{Base: timeOf(b.Base), Cap: timeOf(b.Cap), Jitter: b.Jitter}
}

// JobOf converts a job of a store. The result shares the documents with j.
func JobOf(j store.Job) Job {
	out := Job{
		ID: ID(j.ID), Queue: j.Queue, Kind: j.Kind, Priority: j.Priority, Tags: j.Tags, Trace: j.Trace,
		State: j.State, RunAt: Time{j.RunAt}, RetryAt: Time{j.RetryAt},
		Attempts: j.Attempts, Retries: j.Retries, MaxRetries: j.MaxRetries, Backoff: backoffOf(j.Backoff),
		Timeout: Duration(j.Timeout),
		Token:   ID(j.Token), LeaseExpiresAt: Time{j.LeaseExpiresAt}, ClaimedAt: Time{j.ClaimedAt}, Worker: j.Worker,
		CheckpointSeq: j.CheckpointSeq, ProgressSeq: j.ProgressSeq, Error: j.Error,
		UniqueKey: j.UniqueKey, UniqueFor: Duration(j.UniqueFor), Scheduled: j.Scheduled,
		EnqueuedAt: Time{j.EnqueuedAt}, FinishedAt: Time{j.FinishedAt},
	}
	out.Payload, out.PayloadText = split(j.Payload)
	out.Checkpoint, out.CheckpointText = split(j.Checkpoint)
	out.Progress, out.ProgressText = split(j.Progress)
	out.Result, out.ResultText = split(j.Result)
	return out
}

// Store converts the job back.
func (j Job) Store() store.Job {
	return store.Job{
		ID: int64(j.ID), Queue: j.Queue, Kind: j.Kind, Payload: join(j.Payload, j.PayloadText),
		Priority: j.Priority, Tags: j.Tags, Trace: j.Trace,
		State: j.State, RunAt: j.RunAt.Time, RetryAt: j.RetryAt.Time,
		Attempts: j.Attempts, Retries: j.Retries, MaxRetries: j.MaxRetries, Backoff: j.Backoff.store(),
		Timeout: timeOf(j.Timeout),
		Token:   int64(j.Token), LeaseExpiresAt: j.LeaseExpiresAt.Time, ClaimedAt: j.ClaimedAt.Time, Worker: j.Worker,
		Checkpoint: join(j.Checkpoint, j.CheckpointText), CheckpointSeq: j.CheckpointSeq,
		Progress: join(j.Progress, j.ProgressText), ProgressSeq: j.ProgressSeq,
		Result: join(j.Result, j.ResultText), Error: j.Error,
		UniqueKey: j.UniqueKey, UniqueFor: timeOf(j.UniqueFor), Scheduled: j.Scheduled,
		EnqueuedAt: j.EnqueuedAt.Time, FinishedAt: j.FinishedAt.Time,
	}
}

// A JobDetail is a job with its attempts, oldest first.
type JobDetail struct {
	Job
	History []store.Attempt `json:"history"`
}

// DetailOf converts a job of a store with its history.
func DetailOf(d store.JobDetail) JobDetail {
	return JobDetail{Job: JobOf(d.Job), History: Listed(d.History)}
}

// Store converts the job and its history back.
func (d JobDetail) Store() store.JobDetail {
	return store.JobDetail{Job: d.Job.Store(), History: d.History}
}

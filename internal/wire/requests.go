package wire

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// An Enqueue adds all of its jobs, or none. The request key is in a header.
type Enqueue struct {
	Jobs []NewJob `json:"jobs"`
	Open []string `json:"open,omitempty" list:"some"`
}

// A Claim asks for jobs. The remote store names one queue, sets a retry quota, and does not wait.
type Claim struct {
	Queues     []string `json:"queues,omitempty"`
	Worker     string   `json:"worker"`
	Limit      *int     `json:"limit,omitempty"`
	Lease      Duration `json:"lease,omitzero"`
	Wait       Duration `json:"wait,omitzero"`
	RetryQuota *int     `json:"retry_quota,omitempty"`
}

// A Lease identifies a lease by the job's id and the token.
type Lease struct {
	ID    ID `json:"id"`
	Token ID `json:"token"`
}

// LeaseOf converts a lease.
func LeaseOf(l store.Lease) Lease { return Lease{ID: ID(l.ID), Token: ID(l.Token)} }

// Store converts the lease back.
func (l Lease) Store() store.Lease { return store.Lease{ID: int64(l.ID), Token: int64(l.Token)} }

// Acks finish jobs that have succeeded.
type Acks struct {
	Jobs []Ack `json:"jobs"`
}

// An Ack finishes one job. If the result breaks a limit, ResultFault says which, and the result itself is not sent.
type Ack struct {
	Lease
	Result      json.RawMessage `json:"result,omitempty"`
	ResultText  *string         `json:"result_text,omitempty"`
	ResultFault Fault           `json:"result_fault,omitempty"`
}

// A Fault is the reason why the store will refuse a result.
type Fault string

// The faults.
const (
	TooLong Fault = "too_long"
	NotJSON Fault = "not_json"
)

// Invalid results to pass to the store for each fault, so that the store refuses them as it would have refused the real ones.
var (
	tooLong = make([]byte, store.MaxDocBytes+1)
	notJSON = []byte("?")
)

// AckOf converts an Ack.
func AckOf(a store.Ack) Ack {
	out := Ack{Lease: LeaseOf(a.Lease)}
	switch {
	case a.Refused() == nil:
		out.Result, out.ResultText = store.SplitDocument(a.Result)
	case len(a.Result) > store.MaxDocBytes:
		out.ResultFault = TooLong
	default:
		out.ResultFault = NotJSON
	}
	return out
}

// Store converts the Ack back.
func (a Ack) Store() (store.Ack, error) {
	out := store.Ack{Lease: a.Lease.Store(), Result: store.JoinDocument(a.Result, a.ResultText)}
	switch a.ResultFault {
	case "":
	case TooLong:
		out.Result = tooLong
	case NotJSON:
		out.Result = notJSON
	default:
		return out, refuse("result_fault", "must be too_long or not_json")
	}
	return out, nil
}

// NAcks ends leases without success.
type NAcks struct {
	Jobs []NAck `json:"jobs"`
}

// A NAck ends one lease. The default Form is fail.
type NAck struct {
	Lease
	Form  store.Form `json:"form,omitempty"`
	Delay Duration   `json:"delay,omitzero"`
	Error string     `json:"error,omitempty"`
}

// NAckOf converts a NAck.
func NAckOf(n store.NAck) NAck {
	return NAck{Lease: LeaseOf(n.Lease), Form: n.Form, Delay: Duration(n.Delay), Error: store.CleanError(n.Error)}
}

// Store converts the NAck back.
func (n NAck) Store() store.NAck {
	return store.NAck{Lease: n.Lease.Store(), Form: cmp.Or(n.Form, store.Fail), Delay: time.Duration(n.Delay), Error: n.Error}
}

// An Extend renews leases.
type Extend struct {
	Jobs  []Lease  `json:"jobs"`
	Lease Duration `json:"lease"`
}

// Releases give jobs back as if they had not been claimed.
type Releases struct {
	Jobs []Lease `json:"jobs"`
}

// Checkpoints saves the checkpoints and the progress of jobs.
type Checkpoints struct {
	Jobs []Checkpoint `json:"jobs"`
}

// A Checkpoint saves the checkpoint, the progress, or both of one job.
type Checkpoint struct {
	Lease
	Seq            int64           `json:"seq"`
	Checkpoint     json.RawMessage `json:"checkpoint,omitempty"`
	CheckpointText *string         `json:"checkpoint_text,omitempty"`
	Progress       json.RawMessage `json:"progress,omitempty"`
	ProgressText   *string         `json:"progress_text,omitempty"`
}

// CheckpointOf converts a save.
func CheckpointOf(s store.Save) Checkpoint {
	out := Checkpoint{Lease: LeaseOf(s.Lease), Seq: s.Seq}
	out.Checkpoint, out.CheckpointText = store.SplitDocument(s.Checkpoint)
	out.Progress, out.ProgressText = store.SplitDocument(s.Progress)
	return out
}

// Store converts the save back.
func (c Checkpoint) Store() store.Save {
	return store.Save{
		Lease: c.Lease.Store(), Seq: c.Seq,
		Checkpoint: store.JoinDocument(c.Checkpoint, c.CheckpointText), Progress: store.JoinDocument(c.Progress, c.ProgressText),
	}
}

// A Recover ends expired leases.
type Recover struct {
	Limit *int     `json:"limit,omitempty"`
	Grace Duration `json:"grace,omitzero"`
}

// A Settle cancels expired jobs.
type Settle struct {
	Limit *int `json:"limit,omitempty"`
}

// A Fence raises the epoch.
type Fence struct {
	EndLeases bool `json:"end_leases,omitempty"`
	Epoch     ID   `json:"epoch,omitzero"`
}

// A List asks for one page of jobs.
type List struct {
	Filter Filter `json:"filter,omitzero"`
	Limit  *int   `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

// A Waited asks for one page of the jobs that a job in flight has waited for: those that it named, or those of its groups.
type Waited struct {
	Lease
	Groups bool   `json:"groups,omitempty"`
	Limit  *int   `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

// A Count asks how many jobs match.
type Count struct {
	Filter Filter `json:"filter,omitzero"`
}

// A Bulk changes all jobs that match, up to a limit. Only a reschedule may have a RunAt.
type Bulk struct {
	Action Action `json:"action"`
	Filter Filter `json:"filter"`
	RunAt  Time   `json:"run_at,omitzero"`
	Limit  *int   `json:"limit,omitempty"`
}

// A DueTime reschedules one job; without a time, it is due now.
type DueTime struct {
	RunAt Time `json:"run_at,omitzero"`
}

// An Action is what a Bulk does.
type Action string

// The actions.
const (
	Cancel     Action = "cancel"
	Requeue    Action = "requeue"
	Reschedule Action = "reschedule"
	Delete     Action = "delete"
)

// Wakeups asks for an event whenever one of the queues may have a job to claim, or has lost a job in flight to a cancellation.
// Without queues, it asks for all of them.
type Wakeups struct {
	Queues []string `json:"queues,omitempty"`
}

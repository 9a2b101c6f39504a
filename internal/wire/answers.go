package wire

import (
	"bytes"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Enqueued is the answer to an Enqueue: one entry for each job, in order.
type Enqueued struct {
	Jobs []store.Enqueued `json:"jobs"`
}

// Jobs is the answer to a claim, and a page of a listing. Next is the cursor of the next page.
type Jobs struct {
	Jobs []Job  `json:"jobs"`
	Next string `json:"next,omitempty"`
}

// JobsOf converts the jobs of a store.
func JobsOf(jobs []store.Job) Jobs { return Jobs{Jobs: each(jobs, JobOf)} }

// Size estimates the size of the encoded answer, in bytes.
func (j Jobs) Size() int {
	size := 64 + len(j.Next)
	for i := range j.Jobs {
		size += j.Jobs[i].size()
	}
	return size
}

// marshal writes one job after the other into a buffer that is large enough. The standard encoder would build the whole
// answer first, and copy it each time its buffer grows.
func (j Jobs) marshal() ([]byte, error) {
	text := bytes.NewBuffer(make([]byte, 0, j.Size()))
	add := func(before string, v any) error {
		text.WriteString(before)
		if err := Encode(text, v); err != nil {
			return err
		}
		text.Truncate(text.Len() - 1) // without the newline
		return nil
	}
	text.WriteString(`{"jobs":[`)
	comma := ""
	for i := range j.Jobs {
		if err := add(comma, &j.Jobs[i]); err != nil {
			return nil, err
		}
		comma = ","
	}
	text.WriteString("]")
	if j.Next != "" {
		if err := add(`,"next":`, j.Next); err != nil {
			return nil, err
		}
	}
	text.WriteString("}")
	return text.Bytes(), nil
}

// Store converts the jobs back.
func (j Jobs) Store() []store.Job { return each(j.Jobs, Job.Store) }

// Results has one outcome for each item of a call, in order.
type Results struct {
	Results []Outcome `json:"results"`
}

// An Outcome is the result for one item.
type Outcome struct {
	store.Outcome
	LeaseExpiresAt Time     `json:"lease_expires_at,omitzero"` // of Extend, where it is ok
	LeaseRemaining Duration `json:"lease_remaining,omitzero"`  // likewise
}

// ResultsOf are the outcomes for the wire.
func ResultsOf(outcomes []store.Outcome) Results {
	return Results{Results: each(outcomes, func(o store.Outcome) Outcome { return Outcome{Outcome: o} })}
}

// Store converts the outcomes back.
func (r Results) Store() []store.Outcome {
	return each(r.Results, func(o Outcome) store.Outcome { return o.Outcome })
}

// Recovered is the answer to a Recover.
type Recovered struct {
	Recovered []store.Recovered `json:"recovered"`
}

// Fenced is the answer to a Fence.
type Fenced struct {
	Epoch ID `json:"epoch"`
}

// Queues are those that have a job, are paused, or have a policy that sets something.
type Queues struct {
	Queues []store.Queue `json:"queues"`
}

// A Policy has the settings of a queue. Fields that are left out have their defaults.
type Policy struct {
	RetainSucceeded Retention `json:"retain_succeeded,omitzero"`
	RetainCancelled Retention `json:"retain_cancelled,omitzero"`
	RetainDead      Retention `json:"retain_dead,omitzero"`
	Version         int64     `json:"version"`
}

// PolicyOf converts a policy of a store.
func PolicyOf(p store.Policy) Policy {
	return Policy{
		RetainSucceeded: Retention(p.RetainSucceeded), RetainCancelled: Retention(p.RetainCancelled),
		RetainDead: Retention(p.RetainDead), Version: p.Version,
	}
}

// Store converts the policy back.
func (p Policy) Store() store.Policy {
	return store.Policy{
		RetainSucceeded: time.Duration(p.RetainSucceeded), RetainCancelled: time.Duration(p.RetainCancelled),
		RetainDead: time.Duration(p.RetainDead), Version: p.Version,
	}
}

// Workers is a page of the known workers.
type Workers struct {
	Workers []Worker `json:"workers"`
	Next    string   `json:"next,omitempty"`
}

// A Worker is what a worker process reports about itself.
type Worker struct {
	Name       string   `json:"name,omitempty"`
	Host       string   `json:"host,omitempty"`
	PID        int      `json:"pid,omitempty"`
	Queues     []string `json:"queues,omitempty"`
	Slots      int      `json:"slots"`
	Running    int      `json:"running"`
	StaleAfter Duration `json:"stale_after,omitzero"`
	BeatAt     Time     `json:"beat_at,omitzero"`
	Stale      bool     `json:"stale,omitempty"`
}

// WorkerOf converts a worker of a store.
func WorkerOf(w store.Worker) Worker {
	return Worker{
		Name: w.Name, Host: w.Host, PID: w.PID, Queues: w.Queues, Slots: w.Slots, Running: w.Running,
		StaleAfter: Duration(w.StaleAfter), BeatAt: Time{w.BeatAt}, Stale: w.Stale,
	}
}

// Store converts the worker back.
func (w Worker) Store() store.Worker {
	return store.Worker{
		Name: w.Name, Host: w.Host, PID: w.PID, Queues: w.Queues, Slots: w.Slots, Running: w.Running,
		StaleAfter: timeOf(w.StaleAfter), BeatAt: w.BeatAt.Time, Stale: w.Stale,
	}
}

// WorkersOf converts the answer of a store.
func WorkersOf(p store.WorkerPage) Workers {
	return Workers{Workers: each(p.Workers, WorkerOf), Next: p.Next}
}

// Store converts the answer back.
func (w Workers) Store() store.WorkerPage {
	return store.WorkerPage{Workers: each(w.Workers, Worker.Store), Next: w.Next}
}

// Health says that a server answers, and lists warnings that operators should look at.
type Health struct {
	Status   string   `json:"status"`
	Warnings []string `json:"warnings,omitempty"`
}

// Findings lists the problems that an examination of the store has found.
type Findings struct {
	Findings []store.Finding `json:"findings"`
}

// A Wakeup says that a claim from the queue may now find a job.
type Wakeup struct {
	Queue string `json:"queue,omitempty"`
}

// Listed returns the items, and an empty list in place of nil, which would be written as null.
func Listed[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

// each is never nil, so that an empty list is written as one.
func each[A, B any](items []A, of func(A) B) []B {
	out := make([]B, len(items))
	for i, item := range items {
		out[i] = of(item)
	}
	return out
}

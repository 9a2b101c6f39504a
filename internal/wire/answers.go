package wire

import (
	"bytes"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Enqueued answers an Enqueue, job by job.
type Enqueued struct {
	Jobs []Added `json:"jobs"`
}

// Added is what became of one new job.
type Added struct {
	ID        ID          `json:"id"`
	State     store.State `json:"state,omitempty"`
	Duplicate bool        `json:"duplicate,omitempty"`
}

// EnqueuedOf is the answer for the wire.
func EnqueuedOf(added []store.Enqueued) Enqueued {
	return Enqueued{Jobs: each(added, func(e store.Enqueued) Added {
		return Added{ID: ID(e.ID), State: e.State, Duplicate: e.Duplicate}
	})}
}

// Store is the answer as the store gave it.
func (e Enqueued) Store() []store.Enqueued {
	return each(e.Jobs, func(a Added) store.Enqueued {
		return store.Enqueued{ID: int64(a.ID), State: a.State, Duplicate: a.Duplicate}
	})
}

// Jobs answer a claim, and are a page of a listing: Next is the cursor of the next one.
type Jobs struct {
	Jobs []Job  `json:"jobs"`
	Next string `json:"next,omitempty"`
}

// JobsOf are the jobs for the wire.
func JobsOf(jobs []store.Job) Jobs { return Jobs{Jobs: each(jobs, JobOf)} }

// Size is about how many bytes the text of the answer has.
func (j Jobs) Size() int {
	size := 64 + len(j.Next)
	for i := range j.Jobs {
		size += j.Jobs[i].size()
	}
	return size
}

// marshal writes job by job into a text that has room for all. The encoder would collect the whole answer first, and copy it each time
// that it outgrows its room.
func (j Jobs) marshal() ([]byte, error) {
	text := bytes.NewBuffer(make([]byte, 0, j.Size()))
	add := func(before string, v any) error {
		text.WriteString(before)
		if err := Encode(text, v); err != nil {
			return err
		}
		text.Truncate(text.Len() - 1) // the end of the line
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

// Store are the jobs as the store gave them.
func (j Jobs) Store() []store.Job { return each(j.Jobs, Job.Store) }

// Results answer for each item of a call, in order.
type Results struct {
	Results []Outcome `json:"results"`
}

// An Outcome is what became of one item.
type Outcome struct {
	ID     ID           `json:"id"`
	Status store.Status `json:"status"`
	State  store.State  `json:"state,omitempty"`
	Token  ID           `json:"token,omitzero"`
	Next   Time         `json:"next,omitzero"`
	Reason string       `json:"reason,omitempty"`

	LeaseExpiresAt Time     `json:"lease_expires_at,omitzero"` // of Extend, where it is ok
	LeaseRemaining Duration `json:"lease_remaining,omitzero"`  // likewise
}

// OutcomeOf is the outcome for the wire.
func OutcomeOf(o store.Outcome) Outcome {
	return Outcome{ID: ID(o.ID), Status: o.Status, State: o.State, Token: ID(o.Token), Next: Time{o.Next}, Reason: o.Reason}
}

// ResultsOf are the outcomes for the wire.
func ResultsOf(outcomes []store.Outcome) Results { return Results{Results: each(outcomes, OutcomeOf)} }

// Store are the outcomes as the store gave them.
func (r Results) Store() []store.Outcome {
	return each(r.Results, func(o Outcome) store.Outcome {
		return store.Outcome{
			ID: int64(o.ID), Status: o.Status, State: o.State, Token: int64(o.Token), Next: o.Next.Time, Reason: o.Reason,
		}
	})
}

// Recovered answers a Recover.
type Recovered struct {
	Recovered []Recovery `json:"recovered"`
}

// A Recovery is one lease that was ended.
type Recovery struct {
	ID     ID          `json:"id"`
	Queue  string      `json:"queue"`
	Kind   string      `json:"kind"`
	Worker string      `json:"worker"`
	State  store.State `json:"state"`
	Token  ID          `json:"token"`
	Next   Time        `json:"next,omitzero"`
}

// RecoveredOf is the answer for the wire.
func RecoveredOf(leases []store.Recovered) Recovered {
	return Recovered{Recovered: each(leases, func(r store.Recovered) Recovery {
		return Recovery{
			ID: ID(r.ID), Queue: r.Queue, Kind: r.Kind, Worker: r.Worker, State: r.State, Token: ID(r.Token), Next: Time{r.Next},
		}
	})}
}

// Store is the answer as the store gave it.
func (r Recovered) Store() []store.Recovered {
	return each(r.Recovered, func(r Recovery) store.Recovered {
		return store.Recovered{
			ID: int64(r.ID), Queue: r.Queue, Kind: r.Kind, Worker: r.Worker, State: r.State, Token: int64(r.Token), Next: r.Next.Time,
		}
	})
}

// Fenced answers a Fence.
type Fenced struct {
	Epoch ID `json:"epoch"`
}

// Counts is how many jobs there are.
type Counts struct {
	Now    Time         `json:"now"`
	Queues []QueueCount `json:"queues"`
}

// A QueueCount counts the matching jobs of one queue, by phase.
type QueueCount struct {
	Queue     string                `json:"queue"`
	Jobs      map[store.State]int64 `json:"jobs"`
	Due       int64                 `json:"due"`
	OldestDue Time                  `json:"oldest_due,omitzero"`
}

// CountsOf is the answer for the wire.
func CountsOf(c store.Counts) Counts {
	return Counts{Now: Time{c.Now}, Queues: each(c.Queues, func(q store.QueueCount) QueueCount {
		return QueueCount{Queue: q.Queue, Jobs: q.Jobs, Due: q.Due, OldestDue: Time{q.OldestDue}}
	})}
}

// Store is the answer as the store gave it.
func (c Counts) Store() store.Counts {
	return store.Counts{Now: c.Now.Time, Queues: each(c.Queues, func(q QueueCount) store.QueueCount {
		return store.QueueCount{Queue: q.Queue, Jobs: q.Jobs, Due: q.Due, OldestDue: q.OldestDue.Time}
	})}
}

// Due says since when jobs wait for a claim.
type Due struct {
	Now    Time       `json:"now"`
	Queues []QueueDue `json:"queues"`
}

// A QueueDue is a queue with a job that is due.
type QueueDue struct {
	Queue     string `json:"queue"`
	OldestDue Time   `json:"oldest_due"`
}

// DueOf is the answer for the wire.
func DueOf(d store.Due) Due {
	return Due{Now: Time{d.Now}, Queues: each(d.Queues, func(q store.QueueDue) QueueDue {
		return QueueDue{Queue: q.Queue, OldestDue: Time{q.OldestDue}}
	})}
}

// Store is the answer as the store gave it.
func (d Due) Store() store.Due {
	return store.Due{Now: d.Now.Time, Queues: each(d.Queues, func(q QueueDue) store.QueueDue {
		return store.QueueDue{Queue: q.Queue, OldestDue: q.OldestDue.Time}
	})}
}

// Queues are those that have a job, are paused, or have a policy that sets something.
type Queues struct {
	Queues []Queue `json:"queues"`
}

// A Queue is one of them.
type Queue struct {
	Name   string `json:"name"`
	Paused bool   `json:"paused"`
	Policy Policy `json:"policy,omitzero"`
}

// QueuesOf is the answer for the wire.
func QueuesOf(queues []store.Queue) Queues {
	return Queues{Queues: each(queues, func(q store.Queue) Queue {
		return Queue{Name: q.Name, Paused: q.Paused, Policy: PolicyOf(q.Policy)}
	})}
}

// Store is the answer as the store gave it.
func (q Queues) Store() []store.Queue {
	return each(q.Queues, func(q Queue) store.Queue {
		return store.Queue{Name: q.Name, Paused: q.Paused, Policy: q.Policy.Store()}
	})
}

// A Policy is the settings of a queue. What is left out is as by default.
type Policy struct {
	RetainSucceeded Retention `json:"retain_succeeded,omitzero"`
	RetainCancelled Retention `json:"retain_cancelled,omitzero"`
	RetainDead      Retention `json:"retain_dead,omitzero"`
	Version         int64     `json:"version"`
}

// PolicyOf is the policy for the wire.
func PolicyOf(p store.Policy) Policy {
	return Policy{
		RetainSucceeded: Retention(p.RetainSucceeded), RetainCancelled: Retention(p.RetainCancelled),
		RetainDead: Retention(p.RetainDead), Version: p.Version,
	}
}

// Store is the policy as the store has it.
func (p Policy) Store() store.Policy {
	return store.Policy{
		RetainSucceeded: time.Duration(p.RetainSucceeded), RetainCancelled: time.Duration(p.RetainCancelled),
		RetainDead: time.Duration(p.RetainDead), Version: p.Version,
	}
}

// Workers are those that have been heard of, or a page of them.
type Workers struct {
	Workers []Worker `json:"workers"`
	Next    string   `json:"next,omitempty"`
}

// A Worker is what a process says of itself.
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

// WorkerOf is the worker for the wire.
func WorkerOf(w store.Worker) Worker {
	return Worker{
		Name: w.Name, Host: w.Host, PID: w.PID, Queues: w.Queues, Slots: w.Slots, Running: w.Running,
		StaleAfter: Duration(w.StaleAfter), BeatAt: Time{w.BeatAt}, Stale: w.Stale,
	}
}

// Store is the worker as the store has it.
func (w Worker) Store() store.Worker {
	return store.Worker{
		Name: w.Name, Host: w.Host, PID: w.PID, Queues: w.Queues, Slots: w.Slots, Running: w.Running,
		StaleAfter: timeOf(w.StaleAfter), BeatAt: w.BeatAt.Time, Stale: w.Stale,
	}
}

// WorkersOf is the answer for the wire.
func WorkersOf(p store.WorkerPage) Workers {
	return Workers{Workers: each(p.Workers, WorkerOf), Next: p.Next}
}

// Store is the answer as the store gave it.
func (w Workers) Store() store.WorkerPage {
	return store.WorkerPage{Workers: each(w.Workers, Worker.Store), Next: w.Next}
}

// Health says that a server answers, and names what people must look at all the same.
type Health struct {
	Status   string   `json:"status"`
	Warnings []string `json:"warnings,omitempty"`
}

// Findings are what a doctor has found.
type Findings struct {
	Findings []Finding `json:"findings"`
}

// A Finding is something that people should know, and do something about.
type Finding struct {
	Name   string `json:"name"`
	Detail string `json:"detail"`
	Advice string `json:"advice"`
}

// FindingsOf are the findings for the wire.
func FindingsOf(found []store.Finding) Findings {
	return Findings{Findings: each(found, func(f store.Finding) Finding { return Finding(f) })}
}

// A Wakeup says that a claim from the queue may now find something.
type Wakeup struct {
	Queue string `json:"queue,omitempty"`
}

// each is never nil, so that an empty list is written as one.
func each[A, B any](items []A, of func(A) B) []B {
	out := make([]B, len(items))
	for i, item := range items {
		out[i] = of(item)
	}
	return out
}

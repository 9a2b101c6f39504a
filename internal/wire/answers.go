package wire

import (
	"bytes"

	"github.com/seed-ed332417/jq/internal/graph"
	"github.com/seed-ed332417/jq/internal/store"
)

// Enqueued is the answer to an Enqueue: one entry for each job, in order.
type Enqueued struct {
	Jobs []store.Enqueued `json:"jobs"`
}

// Groups is a page of groups.
type Groups struct {
	Groups []store.Group `json:"groups"`
	Next   string        `json:"next,omitempty"`
}

// A GroupDetail is a group with how many jobs are in it, by phase, and the graph around it.
type GroupDetail struct {
	store.Group
	Jobs  map[store.State]int64 `json:"jobs"`
	Graph graph.Graph           `json:"graph"`
}

// GroupDetailOf takes the counts of the group's jobs from the graph.
func GroupDetailOf(g store.Group, around graph.Graph) GroupDetail {
	detail := GroupDetail{Group: g, Jobs: map[store.State]int64{}, Graph: around}
	for _, n := range around.Nodes {
		if n.Name == g.Name {
			detail.Jobs = n.Jobs
		}
	}
	return detail
}

// Jobs is the answer to a claim, and a page of a listing. Next is the cursor of the next page.
type Jobs struct {
	Jobs  []Job           `json:"jobs"`
	Next  string          `json:"next,omitempty"`
	Waits []store.Waiting `json:"waits,omitempty"` // of the job that has waited for these, in the answer to a Waited
}

// JobsOf converts the jobs of a store.
func JobsOf(jobs []store.Job) Jobs { return Jobs{Jobs: Each(jobs, JobOf)} }

// Size estimates the size of the encoded answer, in bytes.
func (j Jobs) Size() int {
	all := 64 + len(j.Next)
	for _, w := range j.Waits {
		all += 128 + len(w.Group)
	}
	for i := range j.Jobs {
		all += size(&j.Jobs[i])
	}
	return all
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
	if len(j.Waits) > 0 {
		if err := add(`,"waits":`, j.Waits); err != nil {
			return nil, err
		}
	}
	text.WriteString("}")
	return text.Bytes(), nil
}

// Store converts the jobs back.
func (j Jobs) Store() []store.Job { return Each(j.Jobs, Job.Store) }

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
	return Results{Results: Each(outcomes, func(o store.Outcome) Outcome { return Outcome{Outcome: o} })}
}

// Store converts the outcomes back.
func (r Results) Store() []store.Outcome {
	return Each(r.Results, func(o Outcome) store.Outcome { return o.Outcome })
}

// Recovered is the answer to a Recover.
type Recovered struct {
	Recovered []store.Recovered `json:"recovered"`
}

// Settled is the answer to a Settle.
type Settled struct {
	Settled []store.Settled `json:"settled"`
}

// Fenced is the answer to a Fence.
type Fenced struct {
	Epoch ID `json:"epoch"`
}

// Queues are those that have a job, are paused, or have a policy that sets something.
type Queues struct {
	Queues []store.Queue `json:"queues"`
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

// A Wakeup says that a claim from the queue may now find a job or, with Cancelled, that a job of the queue that was in flight
// has been cancelled.
type Wakeup struct {
	Queue     string `json:"queue,omitempty"`
	Cancelled bool   `json:"cancelled,omitempty"`
}

// Listed returns the items, and an empty list in place of nil, which would be written as null.
func Listed[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

// Each converts the items. The list is never nil, so that an empty one is written as one.
func Each[A, B any](items []A, of func(A) B) []B {
	out := make([]B, len(items))
	for i, item := range items {
		out[i] = of(item)
	}
	return out
}

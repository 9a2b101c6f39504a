package jq

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Flow is jobs that wait for each other, for [Client.EnqueueFlow]. A step can need only steps that were added before it, so no circle is
// possible. The zero value has no steps. Adding to a copy does not change the original. A Flow is not safe for concurrent use.
type Flow struct {
	steps []*step
	owner *Flow // of the array of steps, which a copy must not write to
}

type step struct {
	Item
	needs []Step
}

// A Step is a job of a [Flow].
type Step struct {
	Index int // of its answer

	step *step
	any  bool
}

// Any returns the step for [Flow.Add]: the job that is added waits until the step has ended in whatever way.
func (s Step) Any() Step {
	s.any = true
	return s
}

// Add adds a job that waits until the steps that it needs have succeeded. Options may be nil. Their After may name jobs outside the flow,
// by their ids, and groups.
func (f *Flow) Add(payload Payload, options *EnqueueOptions, needs ...Step) Step {
	added := &step{Item{Payload: payload}, slices.Clone(needs)}
	if options != nil {
		added.Options = new(*options)
	}
	if f.owner != f {
		f.steps, f.owner = slices.Clone(f.steps), f
	}
	f.steps = append(f.steps, added)
	return Step{Index: len(f.steps) - 1, step: added}
}

// Chain returns a flow in which each job waits until the one before it has succeeded.
func Chain(items ...Item) *Flow {
	var f Flow
	var before []Step
	for _, item := range items {
		before = []Step{f.Add(item.Payload, item.Options, before...)}
	}
	return &f
}

// EnqueueFlow adds the jobs of a flow, and answers in the order in which they were added to it. If a step is refused, the [InvalidError] has
// its index. Options may be nil.
//
// It adds all jobs or none if they fit into one call: up to 1,000 jobs with 4,000 waits and 4 MiB of payloads. A larger flow takes several
// calls and needs a RequestKey, and its first jobs may run before the last are added. After an error such as ErrUnavailable some may be
// missing. Repeat the call with the same flow and key within a day of the first, and before the first jobs are deleted: it adds only those.
func (c *Client) EnqueueFlow(ctx context.Context, f *Flow, options *EnqueueManyOptions) ([]Enqueued, error) {
	return c.flow(inTx(ctx, false), c.store, f, options)
}

// EnqueueFlowTx is EnqueueFlow in the caller's own SQL transaction, without the need for a RequestKey. After an error, roll back: a part of
// a large flow may have been added.
func (c *Client) EnqueueFlowTx(ctx context.Context, tx Tx, f *Flow, options *EnqueueManyOptions) ([]Enqueued, error) {
	w, err := c.inTx(tx)
	if err != nil {
		return nil, err
	}
	return c.flow(inTx(ctx, true), w, f, options)
}

func (c *Client) flow(ctx context.Context, w store.Writer, f *Flow, options *EnqueueManyOptions) ([]Enqueued, error) {
	jobs, err := c.steps(f)
	if err != nil {
		return nil, err
	}
	return c.sendParts(ctx, w, "flow", jobs, options.open(), options.key())
}

// sendParts sends the jobs of a flow or a batch in as many calls as they need. The first call opens the groups.
func (c *Client) sendParts(ctx context.Context, w store.Writer, of string, jobs []NewJob, open []string, key string) ([]Enqueued, error) {
	if n := store.FitOneCall(jobs); n < len(jobs) {
		if key == "" && !InTx(ctx) {
			return nil, &InvalidError{Item: -1, Field: "request_key", Rule: fmt.Sprintf(
				"is required: the %s has %d jobs, and only %d fit into one call, so an error may leave a part of it", of, len(jobs), n)}
		}
		if len(c.middleware) == 0 { // which may change the jobs
			if err := checkEach(jobs); err != nil {
				return nil, err
			}
		}
	}
	var added []Enqueued
	for len(added) < len(jobs) {
		begin := len(added)
		part := jobs[begin : begin+store.FitOneCall(jobs[begin:])]
		if err := resolve(part, added); err != nil {
			return nil, err
		}
		room := roomFor(len(part))
		copy(*room, part)
		clear(part) // whose payloads are needed no more once they are sent
		some, err := c.send(ctx, w, room, open, partKey(key, begin))
		if err != nil {
			return nil, fromStep(begin, err)
		}
		added, open = append(added, some...), nil
	}
	return added, nil
}

// steps returns the jobs of the flow. Their waits for steps have the indices of these in the flow.
func (c *Client) steps(f *Flow) ([]NewJob, error) {
	items := make([]Item, len(f.steps))
	place := make(map[*step]int, len(f.steps))
	for i, s := range f.steps {
		items[i], place[s] = s.Item, i
	}
	room, err := c.jobs(items)
	if err != nil {
		return nil, err
	}
	jobs := *room
	for i, s := range f.steps {
		own := jobs[i].After
		if slices.ContainsFunc(own, func(w Wait) bool { return w.ID == 0 && w.Group == "" }) {
			return nil, &InvalidError{Item: i, Field: "after", Rule: "must name jobs outside the flow by their ids, and its steps in Flow.Add"}
		}
		if len(own)+len(s.needs) > store.MaxWaits {
			return nil, &InvalidError{Item: i, Field: "after", Rule: fmt.Sprintf("must have at most %d waits", store.MaxWaits)}
		}
		jobs[i].After = slices.Clone(own)
		for _, need := range s.needs {
			at, found := place[need.step]
			if !found {
				return nil, &InvalidError{Item: i, Field: "after", Rule: "must name steps of the same flow"}
			}
			jobs[i].After = append(jobs[i].After, Wait{Item: at, Any: need.any})
		}
	}
	return jobs, nil
}

// checkEach finds what a store would refuse in a later call, when the first jobs may run already.
func checkEach(jobs []NewJob) error {
	one := make([]NewJob, 1)
	for i := range jobs {
		one[0] = jobs[i]
		one[0].After = nil
		err := EnqueueRequest{Jobs: one}.Check()
		if invalid, ok := errors.AsType[*InvalidError](err); ok && invalid.Item >= 0 {
			invalid.Item = i
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// resolve makes waits for steps that have been added waits for their ids, and counts the others from the first of the part.
func resolve(part []NewJob, added []Enqueued) error {
	for i := range part {
		for k := range part[i].After {
			switch w := &part[i].After[k]; {
			case w.ID != 0 || w.Group != "":
			case w.Item >= len(added):
				w.Item -= len(added)
			case added[w.Item].ID <= 0:
				return &InvalidError{Item: len(added) + i, Field: "after", Rule: fmt.Sprintf(
					"needs step %d, whose id was not answered: its unique key belongs to a job that this client may not see", w.Item)}
			default:
				w.ID, w.Item = added[w.Item].ID, 0
			}
		}
	}
	return nil
}

// partKey returns the request key of the part of a flow or a batch that begins at the step. Nobody else chooses one like it, and its length is fixed.
func partKey(key string, begin int) string {
	if key == "" || begin == 0 {
		return key
	}
	return fmt.Sprintf("flow %x", sha256.Sum256(fmt.Appendf(nil, "%d %s", begin, key)))
}

// fromStep returns the error of the part of a flow or a batch that begins at the step.
func fromStep(begin int, err error) error {
	if begin == 0 {
		return err
	}
	if invalid, ok := errors.AsType[*InvalidError](err); ok && invalid.Item >= 0 {
		ofFlow := *invalid
		ofFlow.Item += begin
		return fmt.Errorf("%w (the jobs before step %d were added; the call for those after it: %w)", &ofFlow, begin, err)
	}
	return fmt.Errorf("jq: the jobs from step %d on were not added: %w", begin, err)
}

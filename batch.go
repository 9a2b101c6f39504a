package jq

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Batch is any number of jobs, and jobs that wait until all of these have ended. For [Client.EnqueueBatch].
type Batch struct {
	// Name is the beginning of the name of the group in which the jobs are. The rest is made up, so that each batch has a group of its own.
	// Default: batch.
	Name string
	// Items are the jobs. While one of them runs, its handler may add more jobs to the batch, with the Group of its own job.
	Items []Item
	// OnSuccess is a job that runs once all others have succeeded. While one of them is dead, it waits. If one of them is cancelled, so is it.
	OnSuccess *Item
	// OnEnd is a job that runs once all others have ended, in whatever way.
	OnEnd *Item
}

// Batched is the answer of [Client.EnqueueBatch]. Wait for OnSuccess or OnEnd to learn that the batch has ended.
type Batched struct {
	Group     string     // the name of the group
	Jobs      []Enqueued // in the order of the items; a duplicate is not in the group
	OnSuccess Enqueued   // zero if there is none
	OnEnd     Enqueued   // zero if there is none
}

// EnqueueBatch adds the jobs of a batch. If an item is refused, the [InvalidError] has its index. Options may be nil.
//
// It adds all jobs or none if they fit into one call: up to 1,000 with 4 MiB of payloads. A larger batch takes several calls and needs a
// RequestKey, and its first jobs may run before the last are added. Its group is open until all are. After an error such as ErrUnavailable
// some may be missing. Repeat the call with the same batch and key within a day of the first: it adds only those.
func (c *Client) EnqueueBatch(ctx context.Context, b *Batch, options *EnqueueManyOptions) (Batched, error) {
	return c.batch(inTx(ctx, false), c.store, b, options)
}

// EnqueueBatchTx is EnqueueBatch in the caller's own SQL transaction, without the need for a RequestKey. After an error, roll back: a part of
// a large batch may have been added.
func (c *Client) EnqueueBatchTx(ctx context.Context, tx Tx, b *Batch, options *EnqueueManyOptions) (Batched, error) {
	w, err := c.inTx(tx)
	if err != nil {
		return Batched{}, err
	}
	return c.batch(inTx(ctx, true), w, b, options)
}

func (c *Client) batch(ctx context.Context, w store.Writer, b *Batch, options *EnqueueManyOptions) (Batched, error) {
	key := options.key()
	batched := Batched{Group: b.group(key)}
	jobs, first, err := c.jobsOf(b, batched.Group)
	if err != nil || len(jobs) == 0 {
		return batched, err
	}
	open := options.open()
	several := store.FitOneCall(jobs) < len(jobs)
	if several {
		open = append(slices.Clone(open), batched.Group)
	}
	added, err := c.sendParts(ctx, w, "batch", jobs, open, key)
	if err != nil {
		return batched, b.fromItem(err, first)
	}
	if several {
		if err := sealed(ctx, w, batched.Group); err != nil {
			return batched, fmt.Errorf("jq: all jobs of the batch were added, but its group is still open; repeat the call: %w", err)
		}
	}
	batched.Jobs = added[first:]
	if b.OnSuccess != nil {
		batched.OnSuccess, added = added[0], added[1:]
	}
	if b.OnEnd != nil {
		batched.OnEnd = added[0]
	}
	return batched, nil
}

// group returns a name for the group. A repeat with the same request key gets the same one.
func (b *Batch) group(key string) string {
	var suffix [12]byte // short, because each job has the name
	_, _ = rand.Read(suffix[:])
	if key != "" {
		sum := sha256.Sum256([]byte("batch " + key))
		copy(suffix[:], sum[:])
	}
	return cmp.Or(b.Name, "batch") + "-" + base64.RawURLEncoding.EncodeToString(suffix[:])
}

// jobsOf returns the jobs of the batch: first those that wait for the others.
func (c *Client) jobsOf(b *Batch, group string) (jobs []NewJob, first int, err error) {
	var items []Item
	var ends []bool
	for end, item := range []*Item{b.OnSuccess, b.OnEnd} {
		if item != nil {
			items, ends = append(items, *item), append(ends, end == 1)
		}
	}
	first = len(items)
	room, err := c.jobs(append(items, b.Items...))
	if err != nil {
		return nil, first, b.fromItem(err, first)
	}
	jobs = *room
	for i := range jobs {
		if i < first {
			jobs[i].After = append(slices.Clone(jobs[i].After), Wait{Group: group, Any: ends[i]})
		} else if jobs[i].Group != "" {
			return nil, first, &InvalidError{Item: i - first, Field: "group", Rule: "must not be set: the job is in the group of the batch"}
		} else {
			jobs[i].Group = group
		}
		if slices.ContainsFunc(jobs[i].After, func(w Wait) bool { return w.ID == 0 && w.Group == "" }) {
			return nil, first, b.fromItem(&InvalidError{Item: i, Field: "after", Rule: "must name jobs by their ids: use a Flow for jobs that wait for each other"}, first)
		}
	}
	return jobs, first, nil
}

// fromItem counts the item of an error from the first item of the batch, behind the jobs that wait for the others.
func (b *Batch) fromItem(err error, first int) error {
	invalid, ok := errors.AsType[*InvalidError](err)
	if !ok || invalid.Item < 0 {
		return err
	}
	ofBatch := *invalid
	if ofBatch.Item -= first; ofBatch.Item < 0 {
		which := "on_success."
		if b.OnSuccess == nil || invalid.Item == 1 {
			which = "on_end."
		}
		ofBatch.Item, ofBatch.Field = -1, which+invalid.Field
	}
	if error(invalid) != err { //nolint:errorlint // an error of a later call says more
		return fmt.Errorf("%w: %w", &ofBatch, err)
	}
	return &ofBatch
}

// sealed seals a group that may be sealed already.
func sealed(ctx context.Context, w store.Writer, name string) error {
	err := seal(ctx, w, name)
	if invalid, is := errors.AsType[*InvalidError](err); is && invalid.Field == "group" {
		return nil
	}
	return err
}

func seal(ctx context.Context, w store.Writer, name string) error {
	keeper, ok := w.(store.GroupKeeper)
	if !ok {
		return missing("keep groups")
	}
	return keeper.SealGroup(ctx, name)
}

// SealGroup seals a group that an enqueueing has opened: it has all its jobs, and what waits for it goes on once they have ended. A group
// that is not open is refused with ErrInvalid. EnqueueBatch seals its groups itself.
func (c *Client) SealGroup(ctx context.Context, name string) error {
	return seal(ctx, c.store, name)
}

// SealGroupTx is SealGroup in the caller's own SQL transaction.
func (c *Client) SealGroupTx(ctx context.Context, tx Tx, name string) error {
	w, err := c.inTx(tx)
	if err != nil {
		return err
	}
	return seal(ctx, w, name)
}

// Groups iterates over the groups that match, by name. It reads them page by page. After an error it yields nothing more.
func (c *Client) Groups(ctx context.Context, filter GroupFilter) iter.Seq2[Group, error] {
	return func(yield func(Group, error) bool) {
		keeper, ok := c.store.(store.GroupKeeper)
		if !ok {
			yield(Group{}, missing("keep groups"))
			return
		}
		page := Page{Limit: 100}
		for {
			part, err := keeper.Groups(ctx, filter, page)
			if err != nil {
				yield(Group{}, err)
				return
			}
			for _, g := range part.Groups {
				if !yield(g, nil) {
					return
				}
			}
			if page.Cursor = part.Next; page.Cursor == "" {
				return
			}
		}
	}
}

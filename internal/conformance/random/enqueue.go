package random

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ed332417/jq/internal/store"
)

// A draft is a job to enqueue, its RunAt and ExpiresAt told from now.
type draft struct {
	store.NewJob
	runIn, expiresIn time.Duration
	after            []awaited
}

// An awaited is what a job waits for: a picked job, or the item before in the call, if there is one, or a group.
type awaited struct {
	pick
	before, any bool
	group       string
}

func (a awaited) String() string {
	return when(a.group != "", "group %s", a.group) + when(a.before && a.group == "", "the item before") +
		when(!a.before && a.group == "", "%v", a.pick) + when(a.any, " to end")
}

func drawAwaited(t *rapid.T) awaited {
	a := awaited{pick: drawJob(t), before: rarely(t, 3), any: rarely(t, 3)}
	if rarely(t, 3) {
		a.group = drawGroup(t)
	}
	return a
}

func drawGroup(t *rapid.T) string { return among(t, "g", "g", "h", "i") }

func (d draft) String() string {
	return fmt.Sprintf("%s.%s p%d max%d", d.Queue, d.Kind, d.Priority, d.MaxRetries) + when(d.Delay > 0, " delay %v", d.Delay) +
		when(d.runIn != 0, " at now%+v", d.runIn) + when(d.UniqueKey != "", " unique %s/%v", d.UniqueKey, d.UniqueFor) + when(d.Replace, " replace") +
		when(d.expiresIn != 0, " expires in %v", d.expiresIn) + when(len(d.after) > 0, " after %s", texts(d.after)) +
		when(d.Group != "", " in %s", d.Group) + when(d.LimitKey != "", " limited by %s", d.LimitKey)
}

// newJob is the job to enqueue now, as the item of a call.
func (d draft) newJob(r *run, item int) store.NewJob {
	n, now := d.NewJob, r.clk.Now()
	if r.noWaits {
		n.Group = ""
	}
	for _, a := range d.after {
		switch {
		case r.noWaits:
		case a.group != "":
			n.After = append(n.After, store.Wait{Group: a.group, Any: a.any})
		case a.before && item > 0:
			n.After = append(n.After, store.Wait{Item: item - 1, Any: a.any})
		default:
			n.After = append(n.After, store.Wait{ID: r.job(a.pick), Any: a.any})
		}
	}
	if d.runIn != 0 {
		n.RunAt = now.Add(d.runIn)
	}
	if d.expiresIn != 0 {
		n.ExpiresAt = now.Add(d.expiresIn)
	}
	return n
}

func drawDraft(t *rapid.T) draft {
	d := draft{NewJob: store.NewJob{
		Queue: among(t, "a", "a", "b"), Kind: among(t, "k", "l"), Payload: []byte(among(t, `{}`, ` [1, 2]`)),
		Priority: among(t, 0, 0, 0, 9, -9), Tags: among(t, nil, []string{"t"}, []string{"t", "u"}),
		MaxRetries: among(t, 2, 1, 0, 3),
		Backoff: among(t,
			store.Backoff{Base: time.Second, Cap: 1500 * time.Millisecond}, store.Backoff{},
			store.Backoff{Base: time.Second, Cap: time.Hour, Jitter: 50}),
	}}
	switch among(t, "now", "now", "now", "delay", "at") {
	case "delay":
		d.Delay = among(t, time.Second, time.Microsecond, 999*time.Nanosecond, time.Hour)
	case "at":
		d.runIn = among(t, time.Second, -time.Hour, 1500*time.Nanosecond)
	}
	if rarely(t, 2) {
		d.UniqueKey = among(t, "x", "y", "z")
		d.UniqueFor = among(t, 0, 10*time.Second, time.Hour)
		d.Replace = rarely(t, 2)
	}
	if rarely(t, 5) {
		d.expiresIn = among(t, time.Second, 30*time.Second, time.Hour+1500*time.Nanosecond, 10*time.Microsecond)
	}
	if rarely(t, 5) {
		d.after = several(t, drawAwaited, func(a *awaited, before awaited) { a.pick = before.pick })
	}
	if rarely(t, 4) {
		d.Group = drawGroup(t)
	}
	d.LimitKey = among(t, "", "u", "uv", "")
	if rarely(t, 60) {
		d.Priority = store.MaxPriority + 1
	}
	return d
}

// enqueue adds one to four jobs.
func enqueue(t *rapid.T) op {
	drafts := several(t, drawDraft, func(d *draft, before draft) {
		d.UniqueKey, d.Replace, d.LimitKey = before.UniqueKey, before.Replace, before.LimitKey
	})
	for i := range drafts {
		if drafts[i].UniqueKey == "" {
			drafts[i].UniqueFor, drafts[i].Replace = 0, false
		}
	}
	key := ""
	if rarely(t, 6) {
		key = among(t, "r", "s")
	}
	var open []string
	if rarely(t, 8) {
		open = []string{drawGroup(t)}
	}
	return op{"enqueue " + texts(drafts) + when(len(open) > 0, ", open %v", open) + when(key != "", ", request key %s", key), func(r *run) error {
		req := store.EnqueueRequest{RequestKey: key}
		if !r.noWaits {
			req.Open = open
		}
		for i, d := range drafts {
			req.Jobs = append(req.Jobs, d.newJob(r, i))
		}
		return r.enqueue(req)
	}}
}

// again repeats a call that had a request key, with the same jobs or with one that differs.
func again(t *rapid.T) op {
	place := rapid.IntRange(0, 3).Draw(t, "")
	change := rarely(t, 4)
	return op{fmt.Sprintf("enqueue again ~%d, changed %v", place, change), func(r *run) error {
		if len(r.requests) == 0 {
			return nil
		}
		req := r.requests[len(r.requests)-1-place%len(r.requests)]
		if change {
			req.Jobs = slices.Clone(req.Jobs)
			req.Jobs[0].Trace += "t"
		}
		return r.enqueue(req)
	}}
}

// enqueue makes the call on the store first, for the model must take over the ids of new jobs.
func (r *run) enqueue(req store.EnqueueRequest) error {
	got, gotErr := r.store.Enqueue(r.ctx, req)
	fresh := r.newIDs(got)
	r.model.GiveIDs(fresh...)
	want, wantErr := r.model.Enqueue(r.ctx, req)
	if err := compare("Enqueue", got, gotErr, want, wantErr); err != nil {
		return err
	}
	r.note("%+v, error: %s", got, kind(gotErr))
	if gotErr != nil {
		return nil
	}
	r.ids = append(r.ids, fresh...)
	r.touched = fresh
	for i, e := range got {
		n := req.Jobs[i]
		if e.State == store.Blocked { // a lease that nobody has given
			r.leases = append(r.leases, store.Lease{ID: e.ID})
		}
		if e.Replaced { // a token that no claim has given is tried as well, unless a repeat answers what is gone
			replaced, err := r.store.Get(r.ctx, e.ID)
			if err == nil {
				r.touched, r.leases = append(r.touched, e.ID), append(r.leases, replaced.Lease())
			} else if !errors.Is(err, store.ErrNotFound) {
				return err
			}
		}
		if n.UniqueFor > 0 && !e.Duplicate {
			r.ends = append(r.ends, r.now().Add(n.UniqueFor))
		}
		if !n.ExpiresAt.IsZero() && (!e.Duplicate || e.Replaced) {
			r.ends = append(r.ends, store.Truncate(n.ExpiresAt))
		}
	}
	if req.RequestKey != "" {
		r.requests = append(r.requests, req)
		r.ends = append(r.ends, r.now().Add(store.RequestKeyLife))
	}
	return nil
}

// newIDs are the ids in the answer that can only be of new jobs: each is greater than all before it. An answer with other
// ids than these will differ from the model's.
func (r *run) newIDs(answer []store.Enqueued) []int64 {
	var fresh []int64
	for _, e := range answer {
		if !e.Duplicate && e.ID > r.floor {
			fresh = append(fresh, e.ID)
			r.floor = e.ID
		}
	}
	return fresh
}

package httpapi

import (
	"context"
	"errors"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/waited"
	"github.com/seed-ed332417/jq/internal/wire"
)

// A view is the store as a limited bearer sees it. Jobs and queues that the bearer may not see do not exist in it. A call
// that names a queue or a key that the bearer may not use is refused. The view embeds no store, so a method that is new in
// the contract stays closed until somebody adds it here.
type view struct {
	api    *API
	of     store.Store
	bearer *bearer
}

// Enqueue refuses foreign queues and keys. It hides the id of the job that holds a unique key if the bearer may not see that
// job.
func (v *view) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	if err := v.bearer.needsAll(req); err != nil {
		return nil, err
	}
	unseen, err := v.unseenWaits(ctx, req)
	if err != nil {
		return nil, err
	}
	added, err := v.of.Enqueue(ctx, withoutUnseen(req, unseen))
	if len(unseen) > 0 && usedKey(err) { // perhaps by this very request, when jobs were there that are gone now
		if err := v.leaveAbsent(ctx, unseen); err != nil {
			return nil, err
		}
		added, err = v.of.Enqueue(ctx, withoutUnseen(req, unseen))
	}
	if err != nil {
		return nil, asAbsent(err, req.Jobs, unseen)
	}
	return v.hideHolders(ctx, added), nil
}

// unseenWaits returns the jobs for which new jobs are to wait, and which the bearer may not see or which do not exist.
func (v *view) unseenWaits(ctx context.Context, req store.EnqueueRequest) (map[int64]bool, error) {
	ids := waitedFor(req.Jobs)
	if len(ids) == 0 || len(v.bearer.Queues) == 0 {
		return nil, nil
	}
	if err := req.Check(); err != nil { // among others, too many waits to look at
		return nil, err
	}
	unseen := map[int64]bool{}
	for part := range slices.Chunk(ids, store.MaxItems) {
		own, err := v.seen(ctx, slices.Clone(part))
		if err != nil {
			return nil, err
		}
		for _, id := range part {
			if !own[id] {
				unseen[id] = true
			}
		}
	}
	return unseen, nil
}

// leaveAbsent removes the jobs that do not exist, in whatever queue.
func (v *view) leaveAbsent(ctx context.Context, unseen map[int64]bool) error {
	for part := range slices.Chunk(slices.Collect(maps.Keys(unseen)), store.MaxItems) {
		there, err := v.among(ctx, slices.Clone(part), nil)
		if err != nil {
			return err
		}
		for _, id := range part {
			if !there[id] {
				delete(unseen, id)
			}
		}
	}
	return nil
}

// usedKey reports whether the store has seen the request key with another request.
func usedKey(err error) bool {
	refused, ok := errors.AsType[*store.InvalidError](err)
	return ok && refused.Field == "request_key"
}

// noJob is the id of no job.
const noJob = math.MaxInt64

// withoutUnseen returns the request with noJob in place of the unseen jobs. So a store answers alike whether they exist or not: it still
// checks everything else in its order.
func withoutUnseen(req store.EnqueueRequest, unseen map[int64]bool) store.EnqueueRequest {
	if len(unseen) == 0 {
		return req
	}
	req.Jobs = slices.Clone(req.Jobs)
	for i := range req.Jobs {
		n := &req.Jobs[i]
		n.After = slices.Clone(n.After)
		for k := range n.After {
			if unseen[n.After[k].ID] {
				n.After[k].ID = noJob
			}
		}
	}
	return req
}

// asAbsent returns the error of a store with the id of the unseen job in place of noJob.
func asAbsent(err error, jobs []store.NewJob, unseen map[int64]bool) error {
	refused, ok := errors.AsType[*store.InvalidError](err)
	if !ok || len(unseen) == 0 || refused.Error() != store.NoSuchWait(refused.Item, noJob).Error() {
		return err
	}
	for _, w := range jobs[refused.Item].After {
		if unseen[w.ID] || w.ID == noJob {
			return store.NoSuchWait(refused.Item, w.ID)
		}
	}
	return err
}

// waitedFor returns the ids of the jobs that the new jobs wait for.
func waitedFor(jobs []store.NewJob) (ids []int64) {
	for _, n := range jobs {
		for _, w := range n.After {
			if w.ID != 0 {
				ids = append(ids, w.ID)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// hideWaits leaves out the waits for jobs and groups that the bearer may not see. A job that is gone is left out too, because nobody knows
// in which queue it was.
func (v *view) hideWaits(ctx context.Context, d *store.JobDetail) error {
	if len(v.bearer.Queues) == 0 {
		return nil
	}
	var ids []int64
	for _, w := range d.Waits {
		if w.Group == "" {
			ids = append(ids, w.ID)
		}
	}
	seen, err := v.seen(ctx, ids)
	if err != nil {
		return err
	}
	hidden := func(w store.Waiting) bool {
		if w.Group != "" {
			return !v.bearer.hasGroup(w.Group)
		}
		return !seen[w.ID]
	}
	d.Waits = slices.DeleteFunc(slices.Clone(d.Waits), hidden) // others may have the same slice
	return v.hideNeeded(ctx, []*store.Job{&d.Job})
}

// neededJob finds in an error of store.End.Reason which job it names.
var neededJob = regexp.MustCompile(`^job ([0-9]+), which it needs, was `)

// neededGroup finds in an error of store.spoiledReason which group it names.
var neededGroup = regexp.MustCompile(`^group ("(?:[^"\\]|\\.)*"), which it needs, `)

// hideNeeded takes jobs and groups that the bearer may not see out of the errors of jobs that were cancelled because of them.
func (v *view) hideNeeded(ctx context.Context, jobs []*store.Job) error {
	if len(v.bearer.Queues) == 0 {
		return nil
	}
	needed := map[*store.Job]int64{}
	for _, j := range jobs {
		if named := neededJob.FindStringSubmatch(j.Error); named != nil && j.State == store.Cancelled {
			needed[j], _ = strconv.ParseInt(named[1], 10, 64) // a number that is too long names no job, like 0
		}
		if named := neededGroup.FindStringSubmatch(j.Error); named != nil && j.State == store.Cancelled {
			if name, err := strconv.Unquote(named[1]); err != nil || !v.bearer.hasGroup(name) {
				j.Error = "a group, which it needs, " + j.Error[len(named[0]):]
			}
		}
	}
	seen, err := v.seen(ctx, slices.Collect(maps.Values(needed)))
	if err != nil {
		return err
	}
	for j, id := range needed {
		if !seen[id] {
			j.Error = neededJob.ReplaceAllString(j.Error, "a job, which it needs, was ")
		}
	}
	return nil
}

// hideHolders hides the ids of jobs that hold a unique key if the bearer may not see them.
func (v *view) hideHolders(ctx context.Context, added []store.Enqueued) []store.Enqueued {
	var holders []int64
	for _, e := range added {
		if e.Duplicate {
			holders = append(holders, e.ID)
		}
	}
	seen, err := v.seen(ctx, holders)
	for i, e := range added {
		if e.Duplicate && (err != nil || !seen[e.ID]) { // the jobs are added, so a failed lookup must not fail the call
			added[i] = store.Enqueued{Duplicate: true, Replaced: e.Replaced}
		}
	}
	return added
}

// seen returns which of the jobs the bearer may see.
func (v *view) seen(ctx context.Context, ids []int64) (map[int64]bool, error) {
	return v.among(ctx, ids, v.bearer.Queues)
}

// among returns which of the jobs are in the queues. If that is all of them, it takes a single call to the store.
func (v *view) among(ctx context.Context, ids []int64, queues []string) (map[int64]bool, error) {
	found := map[int64]bool{}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 0 {
		return found, nil
	}
	f := store.Filter{IDs: ids, Queues: queues}
	counts, err := v.of.Count(ctx, f)
	if err != nil {
		return nil, err
	}
	if counts.Total() == int64(len(ids)) {
		for _, id := range ids {
			found[id] = true
		}
		return found, nil
	}
	for page := (store.Page{Limit: len(ids)}); ; {
		jobs, err := v.of.List(ctx, f, page)
		if err != nil {
			return nil, err
		}
		for _, j := range jobs.Jobs {
			found[j.ID] = true
		}
		if page.Cursor = jobs.Next; page.Cursor == "" {
			return found, nil
		}
	}
}

// FetchAndClaim refuses foreign queues.
func (v *view) FetchAndClaim(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
	if err := v.bearer.needs("queue", req.Queue); err != nil {
		return nil, err
	}
	return v.of.FetchAndClaim(ctx, req)
}

// Ack finishes only jobs that the bearer may see.
func (v *view) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	return ofOwn(ctx, v, acks, func(a store.Ack) store.Lease { return a.Lease }, v.of.Ack)
}

// NAck ends only leases of jobs that the bearer may see.
func (v *view) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	return ofOwn(ctx, v, nacks, func(n store.NAck) store.Lease { return n.Lease }, v.of.NAck)
}

// Extend renews only leases of jobs that the bearer may see.
func (v *view) Extend(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Outcome, error) {
	return ofOwn(ctx, v, leases, func(l store.Lease) store.Lease { return l }, func(ctx context.Context, own []store.Lease) ([]store.Outcome, error) {
		return v.of.Extend(ctx, own, ttl)
	})
}

// Save works only for jobs that the bearer may see.
func (v *view) Save(ctx context.Context, saves []store.Save) ([]store.Outcome, error) {
	return ofOwn(ctx, v, saves, func(s store.Save) store.Lease { return s.Lease }, v.of.Save)
}

// ofOwn calls do with the items whose jobs the bearer may see. The others are not found. The queues of leases that this
// server has given are known; for the rest it asks the store once.
func ofOwn[Item any](
	ctx context.Context, v *view, items []Item, leaseOf func(Item) store.Lease, do func(context.Context, []Item) ([]store.Outcome, error),
) ([]store.Outcome, error) {
	if len(items) > store.MaxItems {
		return do(ctx, items) // do refuses it
	}
	known := map[int64]bool{}
	var unknown []int64
	for _, item := range items {
		l := leaseOf(item)
		if queue, ok := v.api.held.queue(l); ok {
			known[l.ID] = v.bearer.sees(queue)
		} else {
			unknown = append(unknown, l.ID)
		}
	}
	seen, err := v.seen(ctx, unknown)
	if err != nil {
		return nil, err
	}
	var own []Item
	outcomes := make([]store.Outcome, len(items))
	var at []int
	for i, item := range items {
		id := leaseOf(item).ID
		outcomes[i] = store.Outcome{ID: id, Status: store.StatusNotFound}
		if known[id] || seen[id] {
			own, at = append(own, item), append(at, i)
		}
	}
	if len(own) == 0 {
		return outcomes, nil
	}
	done, err := do(ctx, own)
	if err != nil {
		return nil, inItsPlace(err, at)
	}
	for i, o := range done {
		outcomes[at[i]] = o
	}
	return outcomes, nil
}

// inItsPlace gives the item of the error its index in the whole call.
func inItsPlace(err error, at []int) error {
	if invalid, ok := err.(*store.InvalidError); ok && invalid.Item >= 0 { //nolint:errorlint // a copy is returned
		return &store.InvalidError{Item: at[invalid.Item], Field: invalid.Field, Rule: invalid.Rule}
	}
	return err
}

// RecoverExpiredLeases recovers leases of all queues, and returns those of the bearer's queues. It publishes and counts the
// others here, because nothing else does.
func (v *view) RecoverExpiredLeases(ctx context.Context, req store.RecoverRequest) ([]store.Recovered, error) {
	recovered, err := v.of.RecoverExpiredLeases(ctx, req)
	own, foreign := divided(v, recovered, func(r store.Recovered) string { return r.Queue })
	v.api.tellRecovered(foreign)
	return own, err
}

// Settle cancels expired jobs and lets others go on in all queues, and returns those of the bearer's queues. It publishes and counts the others
// here, because nothing else does.
func (v *view) Settle(ctx context.Context, limit int) ([]store.Settled, error) {
	settled, err := v.of.Settle(ctx, limit)
	own, foreign := divided(v, settled, func(s store.Settled) string { return s.Queue })
	v.api.tellSettled(foreign)
	return own, err
}

// divided returns the items of the bearer's queues, and the others.
func divided[T any](v *view, items []T, queueOf func(T) string) (own, foreign []T) {
	for _, item := range items {
		if v.bearer.sees(queueOf(item)) {
			own = append(own, item)
		} else {
			foreign = append(foreign, item)
		}
	}
	return own, foreign
}

// Get finds only jobs that the bearer may see.
func (v *view) Get(ctx context.Context, id int64) (store.JobDetail, error) {
	detail, err := v.of.Get(ctx, id)
	if err == nil && !v.bearer.sees(detail.Queue) {
		return store.JobDetail{}, store.ErrNotFound
	}
	if err == nil {
		err = v.hideWaits(ctx, &detail)
	}
	return detail, err
}

// List lists only jobs that the bearer may see.
func (v *view) List(ctx context.Context, filter store.Filter, page store.Page) (store.JobPage, error) {
	filter, err := v.narrow(ctx, filter)
	if err != nil {
		return store.JobPage{}, err
	}
	found, err := v.of.List(ctx, filter, page)
	if err != nil {
		return store.JobPage{}, err
	}
	jobs := make([]*store.Job, len(found.Jobs))
	for i := range found.Jobs {
		jobs[i] = &found.Jobs[i]
	}
	return found, v.hideNeeded(ctx, jobs)
}

// WaitedFor returns only jobs that the bearer may see. Those of a group are read whoever may use its name, because the lease proves that the
// job waits for it.
func (v *view) WaitedFor(ctx context.Context, req waited.Request) (waited.Page, error) {
	if err := req.Check(); err != nil {
		return waited.Page{}, err
	}
	job, err := v.of.Get(ctx, req.ID)
	if err != nil {
		return waited.Page{}, err
	}
	if !v.bearer.sees(job.Queue) {
		return waited.Page{}, store.ErrNotFound
	}
	found, err := req.Read(ctx, v, job)
	if err != nil {
		return waited.Page{}, err
	}
	err = v.hideWaits(ctx, &job)
	found.Waits = job.Waits
	return found, err
}

// Count counts only jobs that the bearer may see.
func (v *view) Count(ctx context.Context, filter store.Filter) (store.Counts, error) {
	filter, err := v.narrow(ctx, filter)
	if err != nil {
		return store.Counts{}, err
	}
	return v.of.Count(ctx, filter)
}

// Cancel works only on jobs that the bearer may see.
func (v *view) Cancel(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return v.bulk(ctx, v.of.Cancel, filter, limit)
}

// Requeue works only on jobs that the bearer may see. It hides which job holds a unique key, since the bearer may not see
// that job.
func (v *view) Requeue(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	outcomes, err := v.bulk(ctx, v.of.Requeue, filter, limit)
	for i := range outcomes {
		if outcomes[i].Status == store.StatusDuplicate && len(v.bearer.Queues) > 0 {
			outcomes[i].Reason = "another job holds the unique key"
		}
	}
	return outcomes, err
}

// Reschedule works only on jobs that the bearer may see.
func (v *view) Reschedule(ctx context.Context, filter store.Filter, at time.Time, limit int) ([]store.Outcome, error) {
	do := func(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
		return v.of.Reschedule(ctx, filter, at, limit)
	}
	return v.bulk(ctx, do, filter, limit)
}

// Delete works only on jobs that the bearer may see.
func (v *view) Delete(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	return v.bulk(ctx, v.of.Delete, filter, limit)
}

// bulk narrows the filter to the bearer's queues. An empty filter is still refused: the bearer's queues do not count as a
// choice.
func (v *view) bulk(
	ctx context.Context, do func(context.Context, store.Filter, int) ([]store.Outcome, error), filter store.Filter, limit int,
) ([]store.Outcome, error) {
	if filter.Empty() {
		return do(ctx, filter, limit)
	}
	filter, err := v.narrow(ctx, filter)
	if err != nil {
		return nil, err
	}
	return do(ctx, filter, limit)
}

// narrow restricts a filter to the bearer's queues, and to waits that the bearer may see. It checks the filter first, because a narrowed
// one may look valid.
func (v *view) narrow(ctx context.Context, f store.Filter) (store.Filter, error) {
	if err := f.Check(); err != nil {
		return f, err
	}
	if len(v.bearer.Queues) == 0 {
		return f, nil
	}
	f.Queues = both(f.Queues, v.bearer.Queues)
	none := len(f.Queues) == 0
	if f.WaitsFor != 0 {
		seen, err := v.seen(ctx, []int64{f.WaitsFor})
		if err != nil {
			return f, err
		}
		none = none || !seen[f.WaitsFor]
	}
	none = none || f.WaitsForGroup != "" && !v.bearer.hasGroup(f.WaitsForGroup)
	if none {
		f.Queues, f.After = v.bearer.Queues, math.MaxInt64
	}
	return f, nil
}

// both returns patterns for the queues that match a pattern of each list. An empty list means all queues.
func both(some, others []string) []string {
	if len(some) == 0 {
		return others
	}
	var out []string
	for _, s := range some {
		for _, o := range others {
			switch {
			case within(s, o):
				out = append(out, s)
			case within(o, s):
				out = append(out, o)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// within reports whether every queue that matches the pattern also matches the other one.
func within(pattern, other string) bool {
	begin, open := strings.CutSuffix(other, "*")
	return pattern == other || open && strings.HasPrefix(strings.TrimSuffix(pattern, "*"), begin)
}

// Close does nothing: other callers use the same store.
func (v *view) Close() error { return nil }

// Queues lists only the bearer's queues.
func (v *view) Queues(ctx context.Context) ([]store.Queue, error) {
	queues, err := v.of.(store.QueueKeeper).Queues(ctx)
	return slices.DeleteFunc(queues, func(q store.Queue) bool { return !v.bearer.sees(q.Name) }), err
}

// SetPaused refuses foreign queues.
func (v *view) SetPaused(ctx context.Context, queue string, paused bool) error {
	if err := v.bearer.needs("queue", queue); err != nil {
		return err
	}
	return v.of.(store.QueueKeeper).SetPaused(ctx, queue, paused)
}

// Policy refuses foreign queues.
func (v *view) Policy(ctx context.Context, queue string) (store.Policy, error) {
	if err := v.bearer.needs("queue", queue); err != nil {
		return store.Policy{}, err
	}
	return v.of.(store.PolicyKeeper).Policy(ctx, queue)
}

// SetPolicy refuses foreign queues.
func (v *view) SetPolicy(ctx context.Context, queue string, p store.Policy) (store.Policy, error) {
	if err := v.bearer.needs("queue", queue); err != nil {
		return store.Policy{}, err
	}
	return v.of.(store.PolicyKeeper).SetPolicy(ctx, queue, p)
}

// Beat refuses foreign queues, a worker without queues, and the name of a worker that also serves foreign queues.
func (v *view) Beat(ctx context.Context, w store.Worker) error {
	if err := v.bearer.needs("queues", w.Queues...); err != nil {
		return err
	}
	if !v.ownsWorker(w) {
		return notYours("queues", "name a queue that the token is for")
	}
	if err := v.needsWorker(ctx, w.Name); err != nil {
		return err
	}
	return v.of.(store.Registry).Beat(ctx, w)
}

// Leave refuses the name of a worker that also serves foreign queues.
func (v *view) Leave(ctx context.Context, name string) error {
	if err := v.needsWorker(ctx, name); err != nil {
		return err
	}
	return v.of.(store.Registry).Leave(ctx, name)
}

func (v *view) needsWorker(ctx context.Context, name string) error {
	if err := (store.Worker{Name: name}).Check(); err != nil { // without a name the filter below would match every worker
		return err
	}
	found, err := v.of.(store.Registry).Workers(ctx, store.WorkerFilter{Name: name}, store.Page{Limit: 1})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(found.Workers, func(w store.Worker) bool { return !v.ownsWorker(w) }) {
		return notYours("name", "a worker with other queues than yours has this name: choose another one")
	}
	return nil
}

// ownsWorker reports whether the worker only serves queues that the bearer may see.
func (v *view) ownsWorker(w store.Worker) bool {
	foreign := func(queue string) bool { return !v.bearer.sees(queue) }
	return v.bearer.seesWorker(w) && !slices.ContainsFunc(w.Queues, foreign)
}

// Workers lists the workers of the bearer's queues, each only with those queues. Other workers take no place on a page, and
// the cursor is the name of a worker that the bearer sees. So it reads the store page by page, for as long as the call may
// last, however many other workers are in between.
func (v *view) Workers(ctx context.Context, filter store.WorkerFilter, page store.Page) (store.WorkerPage, error) {
	if _, err := filter.Position(page); err != nil {
		return store.WorkerPage{}, err
	}
	workers, next, err := ownPage(page, store.MaxPageNames,
		func(page store.Page) ([]store.Worker, string, error) {
			part, err := v.of.(store.Registry).Workers(ctx, filter, page)
			workers := slices.DeleteFunc(part.Workers, func(w store.Worker) bool { return !v.bearer.seesWorker(w) })
			for i := range workers {
				workers[i].Queues = slices.DeleteFunc(workers[i].Queues, func(q string) bool { return !v.bearer.sees(q) })
			}
			return workers, part.Next, err
		},
		func(w store.Worker) string { return filter.Cursor(w.Name) })
	return store.WorkerPage{Workers: workers, Next: next}, err
}

// ownPage collects a page of a listing of which read returns only what the bearer may see. Room is the maximum weight of the page.
func ownPage[Item interface{ Weight() int }](
	page store.Page, room int, read func(store.Page) (items []Item, next string, err error), cursor func(Item) string,
) (found []Item, next string, err error) {
	for part := (store.Page{Limit: store.MaxItems, Cursor: page.Cursor}); ; {
		items, following, err := read(part)
		if err != nil {
			return nil, "", err
		}
		for _, item := range items {
			if room -= item.Weight(); len(found) == page.Limit || room < 0 {
				return found, cursor(found[len(found)-1]), nil
			}
			found = append(found, item)
		}
		if part.Cursor = following; part.Cursor == "" {
			return found, "", nil
		}
	}
}

// SealGroup refuses foreign groups.
func (v *view) SealGroup(ctx context.Context, name string) error {
	if err := v.bearer.needsGroup("group", name); err != nil {
		return err
	}
	return v.of.(store.GroupKeeper).SealGroup(ctx, name)
}

// Groups lists only groups that the bearer may use. It reads the store page by page, like Workers.
func (v *view) Groups(ctx context.Context, filter store.GroupFilter, page store.Page) (store.GroupPage, error) {
	if _, err := filter.Position(page); err != nil {
		return store.GroupPage{}, err
	}
	groups, next, err := ownPage(page, math.MaxInt,
		func(page store.Page) ([]ownGroup, string, error) {
			part, err := v.of.(store.GroupKeeper).Groups(ctx, filter, page)
			own := slices.DeleteFunc(part.Groups, func(g store.Group) bool { return !v.bearer.hasGroup(g.Name) })
			return wire.Each(own, func(g store.Group) ownGroup { return ownGroup{g} }), part.Next, err
		},
		func(g ownGroup) string { return filter.Cursor(g.Name) })
	return store.GroupPage{Groups: wire.Each(groups, func(g ownGroup) store.Group { return g.Group }), Next: next}, err
}

// An ownGroup has no weight: a page may have any groups.
type ownGroup struct{ store.Group }

// Weight is for ownPage.
func (ownGroup) Weight() int { return 0 }

// Ping has no limits.
func (v *view) Ping(ctx context.Context) error { return v.of.(store.Monitor).Ping(ctx) }

// OldestDue returns only the bearer's queues.
func (v *view) OldestDue(ctx context.Context) (store.Due, error) {
	due, err := v.of.(store.Monitor).OldestDue(ctx)
	due.Queues = slices.DeleteFunc(due.Queues, func(q store.QueueDue) bool { return !v.bearer.sees(q.Queue) })
	return due, err
}

// Fence is refused, because it affects every queue.
func (v *view) Fence(context.Context, store.FenceRequest) (int64, error) {
	return 0, notYours("", "to fence the store is for a token without queues and keys of its own")
}

// Subscribe sends only wake-ups of the bearer's queues.
func (v *view) Subscribe(ctx context.Context, queues []string) (<-chan store.Wakeup, error) {
	if err := v.bearer.needs("queues", queues...); err != nil {
		return nil, err
	}
	all, err := v.of.(store.Notifier).Subscribe(ctx, queues)
	if err != nil || len(queues) > 0 {
		return all, err
	}
	own := make(chan store.Wakeup)
	go func() { // ends when the context ends
		defer close(own)
		for w := range all {
			if !v.bearer.sees(w.Queue) {
				continue
			}
			select {
			case own <- w:
			case <-ctx.Done():
				return
			}
		}
	}()
	return own, nil
}

// Package recordtest compares what a store does to a job with what store.Record does: each call, in each phase, alone and with
// other items. Stores have faster ways for some of these than asking the record.
package recordtest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// An Adapter is a store under test, on a clock of its own.
type Adapter struct {
	Store store.Store
	Clock *clock.Mock
	Read  func(id int64) store.Record // as stored, with its documents

	NoWaits bool // the store does not let jobs wait for others
}

// Run makes a job for each phase and each call, and compares the stored job and the outcome with what the record returns.
func Run(t *testing.T, a Adapter) {
	t.Helper()
	_, err := a.Store.(store.Fencer).Fence(t.Context(), store.FenceRequest{}) // gives tokens a floor
	require.NoError(t, err)
	b := &bench{T: t, Adapter: a}
	phases := slices.DeleteFunc(slices.Clone(store.Phases), func(p store.State) bool { return p == store.Blocked && a.NoWaits })
	for _, phase := range phases {
		for _, c := range calls {
			b.compare(phase, c)
		}
	}
	require.Equal(t, len(phases)*len(calls), b.made)
}

// A call is one way to change a job. record returns no outcome if the store's answer is not about this job.
type call struct {
	name   string
	store  func(b *bench, j store.Job) store.Outcome
	record func(r *store.Record, l store.Lease, now time.Time) store.Outcome
}

var calls = slices.Concat(
	acks("ack", nil), acks("ack with a result", []byte(`{"a": 1}`)), acks("ack with half a result", []byte(`{`)),
	nacks(store.Fail, 0), nacks(store.Never, 0), nacks(store.After, time.Second+1), nacks(store.Snooze, time.Second), nacks(store.Release, 0),
	nacks(store.Release, time.Second), // is refused
	saves(1), saves(3),
	items("extend", func(l store.Lease) store.Lease { return l },
		func(s store.Store, ctx context.Context, leases []store.Lease) ([]store.Outcome, error) {
			return s.Extend(ctx, leases, time.Hour)
		},
		func(r *store.Record, l store.Lease, now time.Time) store.Outcome { return r.Extend(l, time.Hour, now) }),
	filters("cancel", store.Store.Cancel, func(j store.Job) bool { return !j.Terminal() }, (*store.Record).Cancel),
	filters("requeue", store.Store.Requeue, store.Job.Terminal,
		func(r *store.Record, now time.Time) store.Outcome { return r.Requeue(0, now) }),
	reschedules("now", time.Time{}), reschedules("at a time to come", time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)),
	[]call{{"claim", (*bench).claimed, claimed}, {"recover", (*bench).recovered, recovered}, {"settle", (*bench).settled, settled}},
)

func reschedules(when string, at time.Time) []call {
	return filters("reschedule "+when,
		func(s store.Store, ctx context.Context, f store.Filter, limit int) ([]store.Outcome, error) {
			return s.Reschedule(ctx, f, at, limit)
		},
		func(j store.Job) bool { return j.Phase() == store.Ready || j.Phase() == store.Retrying },
		func(r *store.Record, now time.Time) store.Outcome { return r.Reschedule(at, now) })
}

func acks(name string, result []byte) []call {
	return items(name, func(l store.Lease) store.Ack { return store.Ack{Lease: l, Result: result} }, store.Store.Ack,
		func(r *store.Record, a store.Ack, now time.Time) store.Outcome { return r.Ack(a, a.Refused(), now) })
}

func nacks(form store.Form, delay time.Duration) []call {
	return items(fmt.Sprintf("nack by %s with delay %v", form, delay),
		func(l store.Lease) store.NAck { return store.NAck{Lease: l, Form: form, Delay: delay, Error: "boom"} }, store.Store.NAck,
		func(r *store.Record, n store.NAck, now time.Time) store.Outcome { return r.NAck(n, n.Failure(), now) })
}

func saves(number int64) []call {
	return items(fmt.Sprintf("save number %d", number), func(l store.Lease) store.Save {
		return store.Save{Lease: l, Seq: number, Checkpoint: []byte(`"c"`), Progress: []byte(`"p"`)}
	}, store.Store.Save, func(r *store.Record, s store.Save, _ time.Time) store.Outcome { return r.Save(s, s.Check()) })
}

// noJob is a lease whose job does not exist.
var noJob = store.Lease{ID: 1 << 40, Token: 1}

// items are the calls that send items under leases: one item alone, with others, and under a lease that is out of date.
func items[T any](
	name string, item func(store.Lease) T, send func(store.Store, context.Context, []T) ([]store.Outcome, error),
	record func(*store.Record, T, time.Time) store.Outcome,
) []call {
	way := func(how string, leases func(store.Lease) []store.Lease) call {
		return call{
			name: name + ", " + how,
			store: func(b *bench, j store.Job) store.Outcome {
				var all []T
				for _, l := range leases(j.Lease()) {
					all = append(all, item(l))
				}
				outcomes, err := send(b.Store, b.Context(), all)
				require.NoError(b, err)
				return outcomes[0]
			},
			record: func(r *store.Record, l store.Lease, now time.Time) (first store.Outcome) {
				for i, l := range leases(l) {
					if l == noJob {
						continue
					}
					o := record(r, item(l), now)
					if i == 0 {
						first = o
					}
				}
				return first
			},
		}
	}
	return []call{
		way("alone", func(l store.Lease) []store.Lease { return []store.Lease{l} }),
		way("beside no job", func(l store.Lease) []store.Lease { return []store.Lease{l, noJob} }),
		way("twice", func(l store.Lease) []store.Lease { return []store.Lease{l, l} }),
		way("under an older lease", func(l store.Lease) []store.Lease { return []store.Lease{{ID: l.ID, Token: l.Token - 1}} }),
	}
}

// filters are the calls that select jobs: by id, and by queue, where the store selects the jobs that it can change.
func filters(
	name string, send func(store.Store, context.Context, store.Filter, int) ([]store.Outcome, error), can func(store.Job) bool,
	record func(*store.Record, time.Time) store.Outcome,
) []call {
	by := func(filter func(store.Job) store.Filter) func(*bench, store.Job) store.Outcome {
		return func(b *bench, j store.Job) (o store.Outcome) {
			outcomes, err := send(b.Store, b.Context(), filter(j), 10)
			require.NoError(b, err)
			for _, o = range outcomes {
			}
			return o
		}
	}
	return []call{
		{name + " by id", by(func(j store.Job) store.Filter { return store.Filter{IDs: []int64{j.ID}} }),
			func(r *store.Record, _ store.Lease, now time.Time) store.Outcome { return record(r, now) }},
		{name + " by queue", by(func(j store.Job) store.Filter { return store.Filter{Queue: j.Queue} }),
			func(r *store.Record, _ store.Lease, now time.Time) (o store.Outcome) {
				if can(r.Job) {
					o = record(r, now)
				}
				return o
			}},
	}
}

const (
	lease  = time.Minute
	expiry = time.Hour // from the enqueueing of a job
)

func (b *bench) claimed(j store.Job) store.Outcome {
	b.claim(j.Queue, "another")
	return store.Outcome{}
}

func claimed(r *store.Record, _ store.Lease, now time.Time) store.Outcome {
	if r.Claimable(now) {
		r.Claim(store.ClaimRequest{Worker: "another", TTL: lease}, now)
	}
	return store.Outcome{}
}

func (b *bench) recovered(store.Job) store.Outcome {
	b.Clock.Add(lease)
	_, err := b.Store.RecoverExpiredLeases(b.Context(), store.RecoverRequest{Limit: store.MaxItems})
	require.NoError(b, err)
	return store.Outcome{}
}

func recovered(r *store.Record, _ store.Lease, now time.Time) store.Outcome {
	if r.State == store.InFlight {
		r.Recover(now)
	}
	return store.Outcome{}
}

// settled lets the job expire.
func (b *bench) settled(store.Job) store.Outcome {
	b.Clock.Add(expiry)
	_, err := b.Store.Settle(b.Context(), store.MaxItems)
	require.NoError(b, err)
	return store.Outcome{}
}

func settled(r *store.Record, _ store.Lease, now time.Time) store.Outcome {
	if store.ExpiredOf(&r.Job, now) {
		r.Cancel(now)
	}
	return store.Outcome{}
}

type bench struct {
	*testing.T
	Adapter

	made int // how many jobs were made
}

func (b *bench) compare(phase store.State, c call) {
	b.Helper()
	id := b.jobIn(phase)
	before, earlier := b.Read(id), b.history(id)
	require.Equal(b, phase, before.Phase())
	latest, kept := before.Latest()
	if kept {
		earlier = earlier[:len(earlier)-1]
	}
	what := fmt.Sprintf("%s of a job that is %s", c.name, phase)
	got := c.store(b, before.Job)
	want := before
	outcome := c.record(&want, before.Lease(), b.Clock.Now().UTC())
	assert.Equal(b, outcome, got, what)
	assert.Equal(b, want, b.Read(id), what)
	if kept && want.ClaimToken != before.ClaimToken {
		earlier = append(earlier, latest)
	}
	assert.Equal(b, want.Detail(earlier).History, b.history(id), what)
}

// history is the attempts of the job.
func (b *bench) history(id int64) []store.Attempt {
	b.Helper()
	detail, err := b.Store.Get(b.Context(), id)
	require.NoError(b, err)
	return detail.History
}

// jobIn makes a job in the phase, in its own queue. The job has failed once and has documents.
func (b *bench) jobIn(phase store.State) int64 {
	b.Helper()
	b.made++
	queue := fmt.Sprint("q", b.made)
	n := store.NewJob{
		Queue: queue, Kind: "k", Payload: []byte(`{"p": 1}`), MaxRetries: 2, Backoff: store.Backoff{Base: time.Second, Cap: time.Hour, Jitter: 10},
		ExpiresAt: b.Clock.Now().Add(expiry),
	}
	if phase == store.Blocked {
		return b.blocked(n)
	}
	added, err := b.Store.Enqueue(b.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n}})
	require.NoError(b, err)
	l := b.claim(queue, "w")
	_, err = b.Store.Save(b.Context(), []store.Save{{Lease: l, Seq: 2, Checkpoint: []byte(`1`), Progress: []byte(`2`)}})
	require.NoError(b, err)
	b.nack(l, store.Fail)
	b.Clock.Add(2 * time.Second)
	switch phase {
	case store.Ready:
		b.nack(b.claim(queue, "w"), store.Snooze)
	case store.InFlight:
		b.nack(b.claim(queue, "w"), store.Snooze)
		b.claim(queue, "w")
	case store.Succeeded:
		_, err = b.Store.Ack(b.Context(), []store.Ack{{Lease: b.claim(queue, "w"), Result: []byte(`3`)}})
	case store.Dead:
		b.nack(b.claim(queue, "w"), store.Never)
	case store.Cancelled:
		b.nack(b.claim(queue, "w"), store.Snooze)
		_, err = b.Store.Cancel(b.Context(), store.Filter{IDs: []int64{added[0].ID}}, 1)
	}
	require.NoError(b, err)
	return added[0].ID
}

// blocked makes a job that waits for one in another queue.
func (b *bench) blocked(n store.NewJob) int64 {
	b.Helper()
	first := n
	first.Queue = "first"
	n.After = []store.Wait{{Item: 0}}
	added, err := b.Store.Enqueue(b.Context(), store.EnqueueRequest{Jobs: []store.NewJob{first, n}})
	require.NoError(b, err)
	return added[1].ID
}

// claim claims the queue's job, if it is claimable.
func (b *bench) claim(queue, worker string) store.Lease {
	b.Helper()
	jobs, err := b.Store.FetchAndClaim(b.Context(), store.ClaimRequest{Queue: queue, Limit: 1, Worker: worker, TTL: lease})
	require.NoError(b, err)
	if len(jobs) == 0 {
		return store.Lease{}
	}
	return jobs[0].Lease()
}

func (b *bench) nack(l store.Lease, form store.Form) {
	b.Helper()
	_, err := b.Store.NAck(b.Context(), []store.NAck{{Lease: l, Form: form, Error: "an earlier one"}})
	require.NoError(b, err)
}

// Upgraded leaves a snoozed and a requeued job in the store, whose step down undoes the migration that brought the reasons of snoozes, and
// what programs before ClaimedAt did to the requeued one. The store that was opened again must go on with both.
func Upgraded(t *testing.T, s store.Store, down func(requeued int64) store.Store) {
	t.Helper()
	claim := func() []store.Job {
		jobs, err := s.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Limit: 2, Worker: "w", TTL: lease})
		require.NoError(t, err)
		require.Len(t, jobs, 2)
		return jobs
	}
	finish := func(nacks ...store.NAck) {
		_, err := s.NAck(t.Context(), nacks)
		require.NoError(t, err)
	}
	n := store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{}`)}
	usual := n
	usual.MaxRetries, usual.Backoff = 20, store.Backoff{Base: time.Second, Cap: time.Hour, Jitter: 10}
	other := n
	other.MaxRetries, other.Timeout, other.Backoff = 3, time.Minute, store.Backoff{Base: 1500 * time.Microsecond, Cap: 2 * time.Second, Jitter: 100}
	_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{usual, other}})
	require.NoError(t, err)
	jobs := claim()
	snoozed, requeued := jobs[0].ID, jobs[1].ID
	finish(store.NAck{Lease: jobs[0].Lease(), Form: store.Snooze}, store.NAck{Lease: jobs[1].Lease(), Form: store.Never, Error: "boom"})
	_, err = s.Requeue(t.Context(), store.Filter{IDs: []int64{requeued}}, 1)
	require.NoError(t, err)

	s = down(requeued)
	detail, err := s.Get(t.Context(), requeued)
	require.NoError(t, err)
	assert.Zero(t, detail.ClaimedAt)
	jobs = claim()
	for i, want := range []store.NewJob{usual, other} {
		j := jobs[i]
		assert.False(t, j.ClaimedAt.IsZero())
		got := store.NewJob{Queue: j.Queue, Kind: j.Kind, Payload: j.Payload, MaxRetries: j.MaxRetries, Backoff: j.Backoff, Timeout: j.Timeout}
		assert.Equal(t, want, got)
	}
	finish(store.NAck{Lease: store.Lease{ID: snoozed, Token: 2}, Form: store.Snooze, Error: "not yet"})
	for id, want := range map[int64][]string{snoozed: {"", "not yet"}, requeued: {"boom", ""}} {
		detail, err := s.Get(t.Context(), id)
		require.NoError(t, err)
		var errors []string
		for _, a := range detail.History {
			errors = append(errors, a.Error)
		}
		assert.Equal(t, want, errors)
	}
}

package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/bubble"
)

// many are more jobs than one call cancels, so that a part is left to the servers.
const many = 1_300

func ofMany() Options {
	o := small(Flows)
	o.Jobs, o.Rate, o.Duration = many, 10, 10*time.Second
	return o
}

// figure returns a figure, which must exist.
func figure(t *testing.T, parts []Part, part, name string) float64 {
	t.Helper()
	for _, p := range parts {
		if f, ok := p.Figure(name); ok && p.Name == part {
			return f.Value
		}
	}
	require.Fail(t, "no such figure", "%s of %s in %v", name, part, parts)
	return 0
}

// A slow store takes its time, so that figures show from where to where they measure.
type slow struct {
	jq.Store
	contract.GroupKeeper
	ack, cancel time.Duration
}

func (s *slow) Ack(ctx context.Context, acks []contract.Ack) ([]jq.Outcome, error) {
	if err := sleep(ctx, s.ack); err != nil {
		return nil, err
	}
	return s.Store.Ack(ctx, acks)
}

func (s *slow) Cancel(ctx context.Context, filter jq.Filter, limit int) ([]jq.Outcome, error) {
	outcomes, err := s.Store.Cancel(ctx, filter, limit)
	if err := sleep(ctx, s.cancel); err != nil {
		return nil, err
	}
	return outcomes, err
}

// The rest of a cancellation is settled by servers, which look every ten seconds. The probe goes on until then, and counts until the Ack.
func TestCancellationIsTimedUntilTheLastJob(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := stores()["memory"](t)
		s := &slow{Store: m, GroupKeeper: m.(contract.GroupKeeper), ack: 40 * time.Millisecond, cancel: 300 * time.Millisecond}
		parts, err := newRun(s, filled(t, ofMany())).cascades(t.Context())
		require.NoError(t, err)
		require.Len(t, parts, 3)
		assert.InDelta(t, many, figure(t, parts, FanOut, "jobs"), 0)
		assert.InDelta(t, 300, figure(t, parts, FanOut, "cancel"), 1, "milliseconds of the call")
		settled := figure(t, parts, FanOut, Settled)
		assert.Greater(t, settled, 0.3, "seconds: the call has left some jobs")
		assert.LessOrEqual(t, settled, 10.0, "seconds: a server has looked since")
		assert.InDelta(t, many/shallower, figure(t, parts, Chained, "jobs"), 0)
		assert.InDelta(t, 0.3, figure(t, parts, Chained, Settled), 0.001, "seconds: the call has cancelled all, and says so when it returns")
		for _, part := range []string{Rest, FanOut, Chained} {
			p50, worst := figure(t, parts, part, P50), figure(t, parts, part, Max)
			assert.GreaterOrEqual(t, p50, 40.0, "milliseconds of %s", part)
			assert.Less(t, worst, 150.0, "milliseconds of %s", part)
		}
	})
}

func filled(t *testing.T, o Options) Options {
	t.Helper()
	o, err := o.filled()
	require.NoError(t, err)
	return o
}

// What follows from an Ack is timed from it, not from its answer, and until the last claim.
func TestWaitersAndCallbacksAreTimedFromTheAck(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := stores()["memory"](t)
		w := &witness{Store: m, GroupKeeper: m.(contract.GroupKeeper)}
		r := newRun(w, filled(t, small(Flows)))
		tally := newTally()
		server, err := r.work(nothing, tally)
		require.NoError(t, err)
		require.NoError(t, server.server.Start(t.Context()))
		took, err := r.release(t.Context(), tally, 60)
		require.NoError(t, err)
		require.NoError(t, server.stop(t.Context()))
		w.check(t, took)
		_, took, err = r.beside("batch").lives(t.Context(), Batched)
		require.NoError(t, err)
		w.check(t, took)
	})
}

func TestLatestIsOfAllJobs(t *testing.T) {
	r := newRun(stores()["memory"](t), filled(t, small(Flows)))
	require.NoError(t, r.fill(t.Context(), portion+1, nil))
	first := time.Unix(0, 0).Add(-time.Duration(r.ids.before()))
	last, err := r.latest(t.Context(), jq.Filter{Queue: r.queue}, func(j jq.Job) time.Time { return first.Add(-time.Duration(j.ID)) })
	require.NoError(t, err)
	assert.Equal(t, first.Add(-time.Duration(r.ids.before()+1)), last)
}

// A witness notes when jobs were claimed last, and which Ack began last before that. It has no wake-ups and answers an Ack late.
type witness struct {
	jq.Store
	contract.GroupKeeper
	mu                  sync.Mutex // guards the fields below
	acked, claimed, ack time.Time
}

func (w *witness) Ack(ctx context.Context, acks []contract.Ack) ([]jq.Outcome, error) {
	w.mu.Lock()
	w.ack = time.Now()
	outcomes, err := w.Store.Ack(ctx, acks)
	w.mu.Unlock()
	if err := sleep(ctx, 70*time.Millisecond); err != nil {
		return nil, err
	}
	return outcomes, err
}

func (w *witness) FetchAndClaim(ctx context.Context, req contract.ClaimRequest) ([]jq.Job, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	jobs, err := w.Store.FetchAndClaim(ctx, req)
	if len(jobs) > 0 {
		w.acked, w.claimed = w.ack, time.Now()
	}
	return jobs, err
}

func (w *witness) check(t *testing.T, took time.Duration) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	assert.Positive(t, took)
	assert.InDelta(t, w.claimed.Sub(w.acked), took, float64(2*time.Microsecond))
}

// A run whose jobs do not all follow the cancelled one does not count.
func TestCancellationThatDoesNotGoOnDoesNotCount(t *testing.T) {
	for name, c := range map[string]struct {
		store func(jq.Store) jq.Store
		want  string
	}{
		"NothingIsSettled": {func(s jq.Store) jq.Store { return unsettled{s} }, "jobs are still blocked 20s after the cancellation"},
		"BlockedAreHidden": {func(s jq.Store) jq.Store { return unsettled{unlistedBlocked{s}} }, "300 blocked where 0 should be, 1001 cancelled where 1301 should be"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				m := stores()["memory"](t)
				alone := stranger(t, m)
				o := ofMany()
				o.patience = 20 * time.Second
				_, err := newRun(c.store(m), filled(t, o)).cascades(t.Context())
				require.ErrorContains(t, err, "fan-out: the run does not count: ")
				require.ErrorContains(t, err, c.want)
				alone()
			})
		})
	}
}

// An unsettled store leaves what a call has left.
type unsettled struct{ jq.Store }

func (unsettled) Settle(context.Context, int) ([]jq.Settled, error) { return nil, nil }

// An unlistedBlocked store lists no blocked jobs.
type unlistedBlocked struct{ jq.Store }

func (s unlistedBlocked) List(ctx context.Context, filter jq.Filter, page jq.Page) (jq.JobPage, error) {
	if len(filter.States) > 0 {
		return jq.JobPage{}, nil
	}
	return s.Store.List(ctx, filter, page)
}

// A batch that could not be enqueued as a whole leaves no group open, since nobody else would seal it.
func TestInterruptedBatchLeavesNoOpenGroup(t *testing.T) {
	m := stores()["memory"](t)
	alone := stranger(t, m)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := &breaker{Store: m, after: 2, cut: cancel}
	s := struct {
		*breaker
		contract.GroupKeeper
	}{b, m.(contract.GroupKeeper)}
	r := newRun(s, filled(t, ofMany()))
	_, err := r.sendAll(ctx, Batched)
	require.ErrorIs(t, err, context.Canceled)
	for g, err := range jq.NewClient(m, nil).Groups(t.Context(), jq.GroupFilter{}) {
		require.NoError(t, err)
		assert.False(t, g.Open, "group %s", g.Name)
	}
	require.NoError(t, r.remove(t.Context()))
	alone()
}

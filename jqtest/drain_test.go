package jqtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/jqtest"
)

type welcome struct{ Name string }

func (welcome) Kind() string { return "welcome" }

type reminder struct{ Name string }

func (reminder) Kind() string { return "reminder" }

// A recorder is a test that may fail without failing this one.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatal(args ...any) { r.stop(fmt.Sprint(args...)) }

func (r *recorder) Fatalf(format string, args ...any) { r.stop(fmt.Sprintf(format, args...)) }

func (r *recorder) stop(said string) {
	r.said = said
	panic(r)
}

// failure is what a test of its own said when it failed, or nothing if it did not.
func failure(t *testing.T, test func(t testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(r) {
				panic(p)
			}
		}()
		test(r)
	}()
	return r.said
}

func enqueue(t testing.TB, s jq.Store, p jq.Payload, options *jq.EnqueueOptions) {
	t.Helper()
	_, err := jq.NewClient(s, nil).Enqueue(t.Context(), p, options)
	require.NoError(t, err)
}

func TestDrainRunsWhatJobsEnqueueAndWhatFails(t *testing.T) {
	s := jqtest.NewStore(t)
	client := jq.NewClient(s, nil)
	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, w welcome) error {
		if run.Retries < 2 {
			return errors.New("mail server away")
		}
		_, err := client.Enqueue(ctx, reminder(w), &jq.EnqueueOptions{Delay: 24 * time.Hour})
		return err
	})
	jq.Handle(&handlers, func(context.Context, *jq.Run, reminder) error { return nil })
	enqueue(t, s, welcome{"Ada"}, &jq.EnqueueOptions{Backoff: jq.Backoff{Base: time.Minute, Cap: time.Hour, Jitter: -1}})

	ran := jqtest.Drain(t, s, &handlers, nil)

	var lines []string
	for _, r := range ran {
		lines = append(lines, r.String())
	}
	assert.Equal(t, []string{
		`2026-01-01 12:00:00  job 1, welcome {"Name":"Ada"}, attempt 1: retrying: mail server away`,
		`2026-01-01 12:01:00  job 1, welcome {"Name":"Ada"}, attempt 2: retrying: mail server away`,
		`2026-01-01 12:03:00  job 1, welcome {"Name":"Ada"}, attempt 3: succeeded`,
		`2026-01-02 12:03:00  job 2, reminder {"Name":"Ada"}, attempt 1: succeeded`,
	}, lines)
}

func TestDrainGoesNoFurtherThanItIsTold(t *testing.T) {
	s := jqtest.NewStore(t)
	var handlers jq.Handlers
	jq.Handle(&handlers, func(context.Context, *jq.Run, welcome) error { return nil })
	enqueue(t, s, welcome{"at once"}, nil)
	enqueue(t, s, welcome{"in an hour"}, &jq.EnqueueOptions{Delay: time.Hour})
	enqueue(t, s, welcome{"elsewhere"}, &jq.EnqueueOptions{Queue: "other"})
	enqueue(t, s, welcome{"paused"}, &jq.EnqueueOptions{Queue: "paused"})
	require.NoError(t, s.SetPaused(t.Context(), "paused", true))

	assert.Len(t, jqtest.Drain(t, s, &handlers, &jqtest.DrainOptions{Queues: []string{"default"}, Until: jqtest.Epoch.Add(time.Hour - 1)}), 1)
	s.Advance(time.Hour)
	assert.Len(t, jqtest.Drain(t, s, &handlers, &jqtest.DrainOptions{Queues: []string{"default"}, Until: jqtest.Epoch}), 1)
	assert.Len(t, jqtest.Drain(t, s, &handlers, nil), 1, "the other queue")
	assert.Empty(t, jqtest.Drain(t, s, &handlers, nil), "the paused queue")
}

func TestDrainWithoutEndFails(t *testing.T) {
	s := jqtest.NewStore(t)
	var handlers jq.Handlers
	jq.Handle(&handlers, func(context.Context, *jq.Run, welcome) error { return jq.Snooze(time.Minute) })
	enqueue(t, s, welcome{"Ada"}, nil)
	said := failure(t, func(t testing.TB) { jqtest.Drain(t, s, &handlers, &jqtest.DrainOptions{MaxRuns: 2}) })
	assert.Equal(t, `the drain has run 2 jobs and comes to no end
The latest runs:
  2026-01-01 12:00:00  job 1, welcome {"Name":"Ada"}, attempt 1: ready
  2026-01-01 12:01:00  job 1, welcome {"Name":"Ada"}, attempt 2: ready`, said)
}

func TestDrainFailsForAnUnknownKind(t *testing.T) {
	s := jqtest.NewStore(t)
	enqueue(t, s, welcome{"Ada"}, nil)
	said := failure(t, func(t testing.TB) { jqtest.Drain(t, s, &jq.Handlers{}, nil) })
	assert.Equal(t, `job 1: jq: no handler for kind "welcome"`, said)
}

func TestDrainCancelsWhatHasExpired(t *testing.T) {
	s := jqtest.NewStore(t)
	var handlers jq.Handlers
	jq.Handle(&handlers, func(context.Context, *jq.Run, welcome) error { return errors.New("mail server away") })
	enqueue(t, s, welcome{"too late"}, &jq.EnqueueOptions{ExpiresAt: jqtest.Epoch.Add(time.Minute)})
	s.Advance(time.Hour)
	enqueue(t, s, welcome{"too late to retry"}, &jq.EnqueueOptions{ExpiresAt: jqtest.Epoch.Add(61 * time.Minute), Backoff: jq.Backoff{Base: time.Hour}})

	ran := jqtest.Drain(t, s, &handlers, nil)

	require.Len(t, ran, 1)
	assert.Equal(t, int64(2), ran[0].ID)
	for _, job := range jqtest.RequireEnqueued(t, s, jqtest.Want{Times: 2}) {
		assert.Equal(t, jq.Cancelled, job.State, "job %d", job.ID)
	}
}

func TestDrainKeepsToLimits(t *testing.T) {
	for name, c := range map[string]struct {
		policy jq.Policy
		want   []string
	}{
		"rate":    {jq.Policy{Rate: jq.Rate{N: 2, Per: time.Minute}}, []string{"1 at 0s", "2 at 0s", "3 at 1m0s", "1 at 1m0s"}},
		"ordered": {jq.Policy{Ordered: true}, []string{"1 at 0s", "1 at 1s", "2 at 1s", "3 at 1s"}},
		"none":    {jq.Policy{}, []string{"1 at 0s", "2 at 0s", "3 at 0s", "1 at 1s"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := jqtest.NewStore(t)
			_, err := jq.NewClient(s, nil).SetPolicy(t.Context(), "default", c.policy)
			require.NoError(t, err)
			var handlers jq.Handlers
			jq.Handle(&handlers, func(_ context.Context, run *jq.Run, _ welcome) error {
				if run.ID == 1 && run.Attempts == 1 {
					return jq.RetryAfter(time.Second, errors.New("mail server away"))
				}
				return nil
			})
			for range 3 {
				enqueue(t, s, welcome{"Ada"}, &jq.EnqueueOptions{LimitKey: "ada"})
			}
			var got []string
			for _, ran := range jqtest.Drain(t, s, &handlers, nil) {
				got = append(got, fmt.Sprint(ran.ID, " at ", ran.At.Sub(jqtest.Epoch)))
			}
			assert.Equal(t, c.want, got)
		})
	}
}

// A job of the test's own, which it has not finished, takes the room of the others.
func TestDrainEndsWhenALimitLeavesNoRoom(t *testing.T) {
	s := jqtest.NewStore(t)
	_, err := jq.NewClient(s, nil).SetPolicy(t.Context(), "default", jq.Policy{MaxInFlight: 1})
	require.NoError(t, err)
	enqueue(t, s, welcome{"Ada"}, nil)
	enqueue(t, s, welcome{"Grace"}, nil)
	_, err = s.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "default", Limit: 1, Worker: "the test", TTL: time.Minute})
	require.NoError(t, err)
	assert.Empty(t, jqtest.Drain(t, s, &jq.Handlers{}, nil))
}

package jq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/jqtest"
)

// drained runs one job of the payload to its end, and returns its runs.
func drained(t *testing.T, p jq.Payload, o *jq.EnqueueOptions, register func(h *jq.Handlers)) []jqtest.Ran {
	t.Helper()
	s := jqtest.NewStore(t)
	_, err := jq.NewClient(s, nil).Enqueue(t.Context(), p, o)
	require.NoError(t, err)
	var h jq.Handlers
	register(&h)
	return jqtest.Drain(t, s, &h, nil)
}

// handling is a handler of welcomes.
func handling(handle func(ctx context.Context, run *jq.Run, w welcome) error) func(*jq.Handlers) {
	return func(h *jq.Handlers) { jq.Handle(h, handle) }
}

// R31: what a handler returns decides what becomes of the job.
func TestReturnDecidesWhatBecomesOfTheJob(t *testing.T) {
	away := errors.New("mail server away")
	for name, c := range map[string]struct {
		err   error
		phase jq.State
		text  string
		next  time.Duration
	}{
		"nil":               {nil, jq.Succeeded, "", 0},
		"error":             {away, jq.Retrying, "mail server away", time.Minute},
		"never":             {jq.Never(away), jq.Dead, "mail server away", 0},
		"never for nothing": {jq.Never(nil), jq.Dead, "no reason given", 0},
		"after":             {jq.RetryAfter(time.Hour, away), jq.Retrying, "mail server away", time.Hour},
		"wrapped":           {errors.Join(errors.New("outer"), jq.Never(away)), jq.Dead, "outer\nmail server away", 0},
		"snooze":            {jq.Snooze(time.Hour), jq.Ready, "", time.Hour},
		"snooze because":    {jq.SnoozeBecause(time.Hour, away), jq.Ready, "", time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			first := true
			ran := drained(t, welcome{"Ada"}, &jq.EnqueueOptions{Backoff: jq.Backoff{Base: time.Minute, Cap: time.Hour, Jitter: -1}},
				handling(func(context.Context, *jq.Run, welcome) error {
					if first {
						first = false
						return c.err
					}
					return nil
				}))
			after := ran[0].After
			assert.Equal(t, []any{c.phase, c.text}, []any{after.Phase(), after.Error})
			if c.next > 0 {
				assert.Equal(t, jqtest.Epoch.Add(c.next), after.Next())
			}
		})
	}
	assert.True(t, jq.IsSnooze(jq.Snooze(time.Second)) && jq.IsSnooze(jq.SnoozeBecause(time.Second, away)))
	assert.ErrorIs(t, jq.SnoozeBecause(time.Second, away), away)
	assert.False(t, jq.IsSnooze(jq.Never(away)) || jq.IsSnooze(nil))
	assert.ErrorIs(t, jq.RetryAfter(time.Second, away), away)
}

// The reason of a snooze stands in the history, with what was wrapped around it, and is no error of the job.
func TestSnoozeSaysWhy(t *testing.T) {
	away := errors.New("mail server away")
	for _, c := range []struct {
		err  error
		want string
	}{
		{jq.Snooze(time.Hour), ""},
		{fmt.Errorf("outer: %w", jq.Snooze(time.Hour)), ""},
		{jq.SnoozeBecause(time.Hour, away), "mail server away"},
		{fmt.Errorf("outer: %w", jq.SnoozeBecause(time.Hour, away)), "outer: mail server away"},
		{jq.SnoozeBecause(time.Hour, nil), "no reason given"},
	} {
		detail := returning(t, c.err)
		assert.Equal(t, c.want, detail.History[0].Error)
		assert.Empty(t, detail.Error)
	}
}

func TestImpossibleWishesFailAndSaySo(t *testing.T) {
	for _, err := range []error{jq.Snooze(11 * 365 * 24 * time.Hour), jq.RetryAfter(11*365*24*time.Hour, errors.New("x"))} {
		after := returning(t, err)
		assert.Equal(t, jq.Retrying, after.Phase(), "the job must not stay in flight until its lease runs out")
		assert.Contains(t, after.Error, "jq: invalid: delay must be 0 to 87600h0m0s")
	}
}

// D9: Snooze(time.Until(t)) just after t failed the run, and killed a job that had no retries left.
func TestSnoozeThatIsOverAlreadyKilledTheJob(t *testing.T) {
	snoozed := returning(t, jq.Snooze(-time.Second))
	assert.Equal(t, []any{jq.Ready, "", 0, jqtest.Epoch}, []any{snoozed.State, snoozed.Error, snoozed.Retries, snoozed.RunAt})

	retried := returning(t, jq.RetryAfter(-time.Second, errors.New("mail server away")))
	assert.Equal(t, []any{jq.Retrying, "mail server away", 1, jqtest.Epoch}, []any{retried.Phase(), retried.Error, retried.Retries, retried.RetryAt})
	assert.EqualError(t, jq.Snooze(-time.Second), "jq: snooze for 0s")
}

// returning is a job with one retry after a run whose handler returned the error.
func returning(t *testing.T, err error) jq.JobDetail {
	t.Helper()
	s := jqtest.NewStore(t)
	added := enqueued(t, s, jq.NewClient(s, nil), welcome{"Ada"}, &jq.EnqueueOptions{MaxRetries: new(1)})
	var h jq.Handlers
	jq.Handle(&h, func(context.Context, *jq.Run, welcome) error { return err })
	jobs, claimErr := s.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "default", Limit: 1, Worker: "w", TTL: time.Minute})
	require.NoError(t, claimErr)
	require.Len(t, jobs, 1)
	_, runErr := h.RunJob(t.Context(), s, jobs[0])
	require.NoError(t, runErr)
	after, getErr := s.Get(t.Context(), added.ID)
	require.NoError(t, getErr)
	return after
}

func TestPayloadThatDoesNotFitIsAnError(t *testing.T) {
	ran := drained(t, jq.Raw{Name: "welcome", Document: json.RawMessage(`[1]`)}, &jq.EnqueueOptions{MaxRetries: new(0)},
		handling(func(context.Context, *jq.Run, welcome) error { panic("not reached") }))
	assert.Contains(t, ran[0].After.Error, `jq: the payload of kind "welcome" does not decode into *jq_test.welcome: json: cannot unmarshal array`)
}

func TestPanicIsAFailureWithItsStack(t *testing.T) {
	ran := drained(t, welcome{"Ada"}, &jq.EnqueueOptions{MaxRetries: new(0)},
		handling(func(context.Context, *jq.Run, welcome) error { panic("oops") }))
	assert.True(t, strings.HasPrefix(ran[0].After.Error, "panic: oops\n"), ran[0].After.Error)
	assert.Contains(t, ran[0].After.Error, "handler_test.go")
}

type pointed struct{ Name string }

func (p *pointed) Kind() string { return "pointed" }

func TestPointersArePayloadsToo(t *testing.T) {
	ran := drained(t, &pointed{"Ada"}, nil, func(h *jq.Handlers) {
		jq.Handle(h, func(_ context.Context, run *jq.Run, p *pointed) error { return run.SetResult(p.Name) })
	})
	got, err := jq.Result[string](ran[0].After)
	require.NoError(t, err)
	assert.Equal(t, "Ada", got)
	_, err = jq.Result[int](ran[0].After)
	require.ErrorContains(t, err, "jq: the result of job 1 does not decode into int")
	_, err = jq.Result[string](ran[0].Job)
	require.EqualError(t, err, "jq: job 1 has no result: it is in_flight")
}

func TestHandlersAreFoundByKindOrOtherwise(t *testing.T) {
	var kinds []string
	note := func(name string) jq.HandlerFunc {
		return func(_ context.Context, run *jq.Run) error {
			kinds = append(kinds, name+" "+run.Kind)
			return nil
		}
	}
	s := jqtest.NewStore(t)
	client := jq.NewClient(s, nil)
	for _, p := range []jq.Payload{welcome{"Ada"}, jq.Raw{Name: "report", Document: json.RawMessage(`1`)}, jq.Raw{Name: "raw", Document: json.RawMessage(`1`)}} {
		_, err := client.Enqueue(t.Context(), p, &jq.EnqueueOptions{Queue: "one"})
		require.NoError(t, err)
	}
	var h jq.Handlers
	h.Func("welcome", note("own"))
	h.Otherwise(note("otherwise"))
	jqtest.Drain(t, s, &h, nil)
	assert.Equal(t, []string{"own welcome", "otherwise report", "otherwise raw"}, kinds)
}

// What can not be is refused when it is registered, and not when a job comes.
func TestImpossibleHandlersAreRefused(t *testing.T) {
	done := func(context.Context, *jq.Run) error { return nil }
	for want, register := range map[string]func(h *jq.Handlers){
		"jq: kind x: the handler is nil":       func(h *jq.Handlers) { h.Func("x", nil) },
		"jq: kind welcome: the handler is nil": func(h *jq.Handlers) { jq.Handle[welcome](h, nil) },
		"jq: Otherwise: the handler is nil":    func(h *jq.Handlers) { h.Otherwise(nil) },
		"jq: Use: a middleware is nil":         func(h *jq.Handlers) { h.Use(nil) },
		"jq: Func needs a kind; Otherwise registers a handler for all kinds without one": func(h *jq.Handlers) {
			h.Func("", done)
		},
		"jq: jq.Raw needs a value to know its kind: register its handler by Func": func(h *jq.Handlers) {
			jq.Handle(h, func(context.Context, *jq.Run, jq.Raw) error { return nil })
		},
		"jq: jq.Payload is an interface: register a handler for each kind": func(h *jq.Handlers) {
			jq.Handle(h, func(context.Context, *jq.Run, jq.Payload) error { return nil })
		},
		"jq: a middleware returned a nil handler": func(h *jq.Handlers) {
			h.Use(func(jq.HandlerFunc) jq.HandlerFunc { return nil })
			h.Func("x", done)
			_, _ = jq.NewServer(jqtest.NewStore(t), h, nil)
		},
	} {
		assert.PanicsWithValue(t, want, func() { register(&jq.Handlers{}) })
	}
}

func TestHandlersAreFilledFirst(t *testing.T) {
	var h jq.Handlers
	done := func(context.Context, *jq.Run) error { return nil }
	h.Func("welcome", done)
	assert.PanicsWithValue(t, `jq: kind "welcome" already has a handler`, func() { h.Func("welcome", done) })
	_, err := jq.NewServer(jqtest.NewStore(t), &h, nil)
	require.NoError(t, err)
	_, err = jq.NewServer(jqtest.NewStore(t), &h, nil)
	require.NoError(t, err, "two servers may have the same handlers")
	for _, late := range []func(){func() { h.Func("late", done) }, func() { h.Otherwise(done) }, func() { h.Use() }} {
		assert.Panics(t, late)
	}
}

func TestMiddlewareStandsAroundEveryHandler(t *testing.T) {
	var order []string
	named := func(name string) jq.Middleware {
		return func(next jq.HandlerFunc) jq.HandlerFunc {
			return func(ctx context.Context, run *jq.Run) error {
				order = append(order, name)
				defer func() { order = append(order, "/"+name) }()
				return next(ctx, run)
			}
		}
	}
	drained(t, welcome{"Ada"}, nil, func(h *jq.Handlers) {
		h.Use(named("outer"))
		handling(func(context.Context, *jq.Run, welcome) error { order = append(order, "handler"); return nil })(h)
		h.Use(named("inner"))
	})
	want := []string{"outer", "inner", "handler", "/inner", "/outer"}
	assert.Equal(t, want, order)

	order = nil
	drained(t, welcome{"Ada"}, nil, func(h *jq.Handlers) {
		h.Use(named("outer"), named("inner"))
		h.Otherwise(func(context.Context, *jq.Run) error { order = append(order, "handler"); return nil })
	})
	assert.Equal(t, want, order, "of all kinds that have no handler of their own")
}

// R64: a checkpoint survives the attempt that has saved it.
func TestCheckpointReachesTheNextAttempt(t *testing.T) {
	var reached []int
	ran := drained(t, welcome{"Ada"}, nil, handling(func(ctx context.Context, run *jq.Run, _ welcome) error {
		page := 0
		found, err := run.LoadCheckpoint(&page)
		require.NoError(t, err)
		require.Equal(t, run.Attempts > 1, found)
		reached = append(reached, page)
		if page == 3 {
			return run.SaveProgress(ctx, "done")
		}
		if err := run.SaveCheckpoint(ctx, page+1); err != nil {
			return err
		}
		return errors.New("interrupted")
	}))
	assert.Equal(t, []int{0, 1, 2, 3}, reached)
	assert.Equal(t, `"done"`, string(ran[3].After.Progress))
}

// R63: a function deep down finds the token in its context.
func TestRunIsInTheContext(t *testing.T) {
	drained(t, welcome{"Ada"}, nil, handling(func(ctx context.Context, run *jq.Run, _ welcome) error {
		assert.Equal(t, run.Lease(), jq.RunFrom(ctx).Lease())
		assert.Equal(t, jq.Lease{ID: 1, Token: 1}, run.Lease())
		return nil
	}))
	assert.Nil(t, jq.RunFrom(t.Context()))
}

// R3: a result that breaks the limit fails the job, and says why.
func TestHugeResultFailsTheJob(t *testing.T) {
	ran := drained(t, welcome{"Ada"}, nil, handling(func(_ context.Context, run *jq.Run, _ welcome) error {
		return run.SetResult(strings.Repeat("x", 1<<20))
	}))
	assert.Equal(t, jq.Dead, ran[0].After.Phase())
	assert.Contains(t, ran[0].After.Error, "result refused: it must have at most 1048576 bytes")
}

// R66: the effect and the end of the job stand or fall together.
func TestJobIsFinishedInTheHandlersTransaction(t *testing.T) {
	for name, c := range map[string]struct {
		commit bool
		err    error
		phase  jq.State
		text   string
	}{
		"committed":                    {true, nil, jq.Succeeded, ""},
		"committed, then an error":     {true, errors.New("too late"), jq.Succeeded, ""},
		"rolled back, and an error":    {false, errors.New("no"), jq.Dead, "no"},
		"rolled back, and nil at last": {false, nil, jq.Dead, "the handler finished the job in a transaction that was not committed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := jqtest.NewStore(t)
			client := jq.NewClient(s, nil)
			_, err := client.Enqueue(t.Context(), welcome{"Ada"}, &jq.EnqueueOptions{MaxRetries: new(0)})
			require.NoError(t, err)
			var h jq.Handlers
			jq.Handle(&h, func(ctx context.Context, run *jq.Run, _ welcome) error {
				require.NoError(t, run.SetResult("sent"))
				tx, err := s.DB().BeginTx(ctx, nil)
				require.NoError(t, err)
				_, err = client.EnqueueTx(ctx, tx, report{1}, &jq.EnqueueOptions{Delay: time.Hour})
				require.NoError(t, err)
				require.NoError(t, run.FinishTx(ctx, tx))
				if c.commit {
					require.NoError(t, tx.Commit())
				} else {
					require.NoError(t, tx.Rollback())
				}
				return c.err
			})
			h.Func("report", func(context.Context, *jq.Run) error { return nil })
			ran := jqtest.Drain(t, s, &h, nil)
			assert.Equal(t, []any{c.phase, c.text}, []any{ran[0].After.Phase(), ran[0].After.Error})
			if c.commit {
				assert.Len(t, ran, 2, "the job that was enqueued with it")
				assert.Equal(t, `"sent"`, string(ran[0].After.Result))
			} else {
				assert.Len(t, ran, 1)
			}
		})
	}
}

func TestStaleRunFinishesNothing(t *testing.T) {
	s := jqtest.NewStore(t)
	client := jq.NewClient(s, nil)
	_, err := client.Enqueue(t.Context(), welcome{"Ada"}, nil)
	require.NoError(t, err)
	var h jq.Handlers
	first := true
	jq.Handle(&h, func(ctx context.Context, run *jq.Run, _ welcome) error {
		if !first {
			return nil
		}
		first = false
		require.NoError(t, client.Cancel(ctx, run.ID))
		tx, err := s.DB().BeginTx(ctx, nil)
		require.NoError(t, err)
		require.ErrorIs(t, run.FinishTx(ctx, tx), jq.ErrStaleLease)
		require.NoError(t, tx.Rollback())
		require.ErrorIs(t, run.SaveCheckpoint(ctx, 1), jq.ErrStaleLease)
		require.ErrorIs(t, context.Cause(ctx), jq.ErrCancelled, "a refused write tells the handler to stop")
		return nil
	})
	ran := jqtest.Drain(t, s, &h, nil)
	require.Len(t, ran, 1)
	assert.Equal(t, jq.Cancelled, ran[0].After.State)
}

// A handler may do what it likes with its job: what the server has claimed stays as it was. R20, R63.
func TestJobOfARunIsACopy(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		seen := &endedJobs{}
		s := jq.NewMemory(nil)
		added, err := jq.NewClient(s, nil).Enqueue(t.Context(), welcome{"Ada"}, nil)
		require.NoError(t, err)
		var h jq.Handlers
		h.Use(func(next jq.HandlerFunc) jq.HandlerFunc {
			return func(ctx context.Context, run *jq.Run) error {
				run.Payload = []byte(`{"Name":"Grace"}`) // as one that decrypts
				return next(ctx, run)
			}
		})
		jq.Handle(&h, func(ctx context.Context, run *jq.Run, w welcome) error {
			lease := run.Lease()
			run.ID, run.Token, run.Queue, run.Kind = 99, 99, "other", "other"
			assert.Equal(t, lease, jq.RunFrom(ctx).Lease())
			assert.JSONEq(t, `{"Name":"Ada"}`, string(jq.RunFrom(ctx).Payload))
			if err := run.SaveCheckpoint(ctx, 1); err != nil {
				return err
			}
			<-time.After(time.Minute) // beats go on
			return run.SetResult(w.Name)
		})
		server, err := jq.NewServer(s, &h, &jq.ServerOptions{Queues: map[string]jq.QueueOptions{"default": {Slots: 1}}, Observer: seen})
		require.NoError(t, err)
		require.NoError(t, server.Start(t.Context()))
		<-time.After(2 * time.Minute)
		require.Len(t, seen.jobs, 1)
		assert.Equal(t, added.ID, seen.jobs[0].ID)
		assert.JSONEq(t, `{"Name":"Ada"}`, string(seen.jobs[0].Payload))
		j, err := s.Get(t.Context(), added.ID)
		require.NoError(t, err)
		assert.Equal(t, jq.Succeeded, j.State, j.Error)
		assert.Equal(t, []string{`"Grace"`, "1"}, []string{string(j.Result), string(j.Checkpoint)})
		assert.Len(t, j.History, 1)
		require.NoError(t, server.Stop(t.Context()))
		require.NoError(t, s.Close())
	})
}

type endedJobs struct {
	jq.NopObserver
	jobs []jq.Job
}

func (e *endedJobs) Ended(j jq.Job, _ jq.Ending, _ jq.State, _ time.Duration) {
	e.jobs = append(e.jobs, j)
}

// R36: a job that is run without a server has its timeout all the same.
func TestRunJobKeepsTheTimeout(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := jq.NewMemory(nil)
		added, err := jq.NewClient(s, nil).Enqueue(t.Context(), welcome{"Ada"}, &jq.EnqueueOptions{Timeout: time.Minute, MaxRetries: new(0)})
		require.NoError(t, err)
		jobs, err := s.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "default", Limit: 1, Worker: "w", TTL: time.Hour})
		require.NoError(t, err)
		var h jq.Handlers
		jq.Handle(&h, func(ctx context.Context, _ *jq.Run, _ welcome) error {
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), jq.ErrTimeout)
			return ctx.Err()
		})
		began := time.Now()
		_, err = h.RunJob(t.Context(), s, jobs[0])
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(began))
		j, err := s.Get(t.Context(), added.ID)
		require.NoError(t, err)
		assert.Equal(t, "timed out after 1m0s", j.Error)
		require.NoError(t, s.Close())
	})
}

// A caller that ends has not let its job fail (C13).
func TestRunJobThatIsCutShortIsReleased(t *testing.T) {
	s := jq.NewMemory(nil)
	_, err := jq.NewClient(s, nil).Enqueue(t.Context(), welcome{"Ada"}, nil)
	require.NoError(t, err)
	jobs, err := s.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "default", Limit: 1, Worker: "w", TTL: time.Hour})
	require.NoError(t, err)
	ctx, end := context.WithCancel(t.Context())
	var h jq.Handlers
	jq.Handle(&h, func(ctx context.Context, _ *jq.Run, _ welcome) error {
		end()
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), jq.ErrDrained)
		return ctx.Err()
	})
	outcome, err := h.RunJob(ctx, s, jobs[0])
	require.NoError(t, err)
	assert.Equal(t, jq.Ready, outcome.State)
	j, err := s.Get(t.Context(), jobs[0].ID)
	require.NoError(t, err)
	assert.Zero(t, j.Retries)
	assert.Zero(t, j.Attempts)
	require.NoError(t, s.Close())
}

// Jobs may be run side by side with the same handlers, and middleware is put around each of them once.
func TestRunJobFromManyGoroutines(t *testing.T) {
	s := jq.NewMemory(nil)
	const n = 20
	_, err := jq.NewClient(s, nil).EnqueueMany(t.Context(), slices.Repeat([]jq.Item{{Payload: welcome{"Ada"}}}, n), nil)
	require.NoError(t, err)
	jobs, err := s.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "default", Limit: n, Worker: "w", TTL: time.Hour})
	require.NoError(t, err)
	var built, ran atomic.Int64
	var h jq.Handlers
	h.Use(func(next jq.HandlerFunc) jq.HandlerFunc {
		built.Add(1)
		return next
	})
	jq.Handle(&h, func(context.Context, *jq.Run, welcome) error { ran.Add(1); return nil })
	var all sync.WaitGroup
	for _, j := range jobs {
		all.Go(func() {
			_, err := h.RunJob(t.Context(), s, j)
			assert.NoError(t, err)
		})
	}
	all.Wait()
	assert.Equal(t, []int64{n, 1}, []int64{ran.Load(), built.Load()})
	require.NoError(t, s.Close())
}

// A result that is no JSON is an error where it is set: later it would end the job for good.
func TestResultThatIsNoJSONIsRefusedAtOnce(t *testing.T) {
	ran := drained(t, welcome{"Ada"}, nil, handling(func(ctx context.Context, run *jq.Run, _ welcome) error {
		for _, bad := range []any{json.RawMessage("{"), json.RawMessage(nil), make(chan int)} {
			assert.ErrorContains(t, run.SetResult(bad), "jq: the result is not JSON")
			assert.ErrorContains(t, run.SaveCheckpoint(ctx, bad), "jq: the checkpoint is not JSON")
			assert.ErrorContains(t, run.SaveProgress(ctx, bad), "jq: the progress is not JSON")
		}
		return run.SetResult(json.RawMessage(" [1] "))
	}))
	assert.Equal(t, " [1] ", string(ran[0].After.Result))
}

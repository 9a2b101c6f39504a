package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/remote"
)

// A summary is a payload of jobs that read what others have returned, and its results are what they have read.
type summary struct{ Named, Counted []string }

func (summary) Kind() string { return "summary" }

// summarize reads the results of what the run has waited for.
func summarize(ctx context.Context, run *jq.Run) (s summary, err error) {
	named, err := run.WaitedFor(ctx)
	if err != nil {
		return s, err
	}
	for _, j := range named {
		s.Named = append(s.Named, string(j.Result))
	}
	for j, err := range run.WaitedForGroups(ctx) {
		if err != nil {
			return s, err
		}
		if j.Token != 0 {
			return s, fmt.Errorf("job %d has its token", j.ID)
		}
		s.Counted = append(s.Counted, string(j.Result))
	}
	return s, nil
}

// withToken opens the store of a server with a token of the role, for queues.
func withToken(t *testing.T, role httpapi.Role, queues ...string) (s *remote.Store, back jq.Store) {
	t.Helper()
	secret, token, err := httpapi.NewToken(httpapi.Token{Name: "t", Role: role, Queues: queues})
	require.NoError(t, err)
	known, err := httpapi.ReadTokens(bytes.NewReader(token.Line()))
	require.NoError(t, err)
	url, back := serveWith(t, httpapi.Options{Tokens: known})
	s, err = remote.Open(t.Context(), url, &remote.Options{Token: secret})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s, back
}

// TestHandlersReadResultsWithAWorkersToken of single jobs and of a batch that takes more than one page.
func TestHandlersReadResultsWithAWorkersToken(t *testing.T) {
	s, back := withToken(t, httpapi.Worker)
	client := jq.NewClient(back, nil)
	first, err := client.Enqueue(t.Context(), greeting{"first"}, nil)
	require.NoError(t, err)
	second, err := client.Enqueue(t.Context(), greeting{"second"}, nil)
	require.NoError(t, err)
	batch := jq.Batch{OnSuccess: &jq.Item{Payload: summary{}, Options: &jq.EnqueueOptions{After: []jq.Wait{{ID: second.ID}, {ID: first.ID, Any: true}}}}}
	var want summary
	want.Named = []string{`"Hello, second"`, `"Hello, first"`}
	const jobs = 150
	for i := range jobs {
		batch.Items = append(batch.Items, jq.Item{Payload: greeting{fmt.Sprint(i)}})
		want.Counted = append(want.Counted, fmt.Sprintf(`"Hello, %d"`, jobs-1-i))
	}
	added, err := client.EnqueueBatch(t.Context(), &batch, nil)
	require.NoError(t, err)

	var handlers jq.Handlers
	jq.Handle(&handlers, func(_ context.Context, run *jq.Run, g greeting) error { return run.SetResult("Hello, " + g.Name) })
	jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, _ summary) error {
		if _, err := jq.NewClient(s, nil).WaitedFor(ctx, run.ID); !errors.Is(err, jq.ErrDenied) {
			return jq.Never(fmt.Errorf("without the lease the answer is %w", err))
		}
		got, err := summarize(ctx, run)
		if err != nil {
			return jq.Never(err)
		}
		return run.SetResult(got)
	})
	server, err := jq.NewServer(s, &handlers, options(30*time.Second))
	require.NoError(t, err)
	require.NoError(t, server.Start(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done, err := client.Wait(ctx, added.OnSuccess.ID)
	require.NoError(t, err)
	require.NoError(t, server.Stop(ctx))
	got, err := jq.Result[summary](done.Job)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

// TestResultsAreForTheHolderOfTheLease: on every store, a run that has lost its job reads nothing more.
func TestResultsAreForTheHolderOfTheLease(t *testing.T) {
	s, back := withToken(t, httpapi.Worker)
	for name, store := range map[string]jq.Store{"Here": back, "OverHTTP": s} {
		t.Run(name, func(t *testing.T) {
			client := jq.NewClient(back, nil)
			_, err := client.EnqueueFlow(t.Context(), jq.Chain(jq.Item{Payload: greeting{"a"}}, jq.Item{Payload: summary{}}), nil)
			require.NoError(t, err)
			claim := func() jq.Job {
				jobs, err := store.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "default", Limit: 1, Worker: "w", TTL: time.Minute})
				require.NoError(t, err)
				require.Len(t, jobs, 1)
				return jobs[0]
			}
			var handlers jq.Handlers
			jq.Handle(&handlers, func(_ context.Context, run *jq.Run, _ greeting) error { return run.SetResult("done") })
			jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, _ summary) error {
				got, err := summarize(ctx, run)
				require.NoError(t, err)
				assert.Equal(t, summary{Named: []string{`"done"`}}, got)
				require.NoError(t, client.Cancel(ctx, run.ID))
				_, err = run.WaitedFor(ctx)
				require.ErrorIs(t, err, jq.ErrStaleLease)
				for j, err := range run.WaitedForGroups(ctx) {
					require.ErrorIs(t, err, jq.ErrStaleLease)
					assert.Zero(t, j)
				}
				require.NoError(t, client.Requeue(ctx, run.ID))
				claim()
				_, err = run.WaitedFor(ctx)
				require.ErrorIs(t, err, jq.ErrStaleLease, "another run has the job")
				return nil
			})
			for range 2 {
				_, err := handlers.RunJob(t.Context(), store, claim())
				require.NoError(t, err)
			}
		})
	}
}

// TestResultsOfOtherQueuesAreLeftOut for a token that is limited to queues, although the job has waited for them.
func TestResultsOfOtherQueuesAreLeftOut(t *testing.T) {
	s, back := withToken(t, httpapi.Worker, "own")
	client := jq.NewClient(back, nil)
	own, other := &jq.EnqueueOptions{Queue: "own"}, &jq.EnqueueOptions{Queue: "other"}
	var flow jq.Flow
	foreign, near := flow.Add(greeting{"foreign"}, other), flow.Add(greeting{"near"}, own)
	_, err := client.EnqueueBatch(t.Context(), &jq.Batch{
		Items:     []jq.Item{{Payload: greeting{"foreign member"}, Options: other}, {Payload: greeting{"member"}, Options: own}},
		OnSuccess: &jq.Item{Payload: summary{}, Options: own},
	}, nil)
	require.NoError(t, err)
	flow.Add(summary{}, own, foreign, near)
	_, err = client.EnqueueFlow(t.Context(), &flow, nil)
	require.NoError(t, err)

	var got summary
	var handlers jq.Handlers
	jq.Handle(&handlers, func(_ context.Context, run *jq.Run, g greeting) error { return run.SetResult(g.Name) })
	jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, _ summary) error {
		part, err := summarize(ctx, run)
		got.Named, got.Counted = append(got.Named, part.Named...), append(got.Counted, part.Counted...)
		return err
	})
	for ran := 0; ran < 6; {
		before := ran
		for queue, through := range map[string]jq.Store{"own": s, "other": back} {
			jobs, err := through.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: queue, Limit: 10, Worker: "w", TTL: time.Minute})
			require.NoError(t, err)
			for _, j := range jobs {
				_, err := handlers.RunJob(t.Context(), through, j)
				require.NoError(t, err)
				ran++
			}
		}
		require.NotEqual(t, before, ran, "a job is left that nobody can claim")
	}
	assert.Equal(t, summary{Named: []string{`"near"`}, Counted: []string{`"member"`}}, got)
}

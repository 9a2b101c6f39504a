package jq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/bubble"
)

// step is a payload of tests of flows.
type step struct{ Name string }

func (step) Kind() string { return "step" }

// waitsOf returns what each job waits for.
func waitsOf(t *testing.T, client *jq.Client, added []jq.Enqueued) [][]jq.Waiting {
	t.Helper()
	waits := make([][]jq.Waiting, len(added))
	for i, e := range added {
		d, err := client.Get(t.Context(), e.ID)
		require.NoError(t, err)
		waits[i] = d.Waits
	}
	return waits
}

func TestFlow(t *testing.T) {
	store := jq.NewMemory(nil)
	client := jq.NewClient(store, nil)
	outside, err := client.Enqueue(t.Context(), step{"outside"}, nil)
	require.NoError(t, err)

	var flow jq.Flow
	extract := flow.Add(step{"extract"}, nil)
	load := flow.Add(step{"load"}, &jq.EnqueueOptions{After: []jq.Wait{{ID: outside.ID}}}, extract)
	flow.Add(step{"tidy"}, &jq.EnqueueOptions{Queue: "slow"}, extract, load.Any())
	added, err := client.EnqueueFlow(t.Context(), &flow, nil)
	require.NoError(t, err)
	require.Len(t, added, 3)
	assert.Equal(t, [][]jq.Waiting{
		{},
		{{ID: outside.ID, State: jq.Ready}, {ID: added[extract.Index].ID, State: jq.Ready}},
		{{ID: added[extract.Index].ID, State: jq.Ready}, {ID: added[load.Index].ID, Any: true, State: jq.Blocked}},
	}, waitsOf(t, client, added))
	tidy, err := client.Get(t.Context(), added[2].ID)
	require.NoError(t, err)
	assert.Equal(t, []any{"slow", `{"Name":"tidy"}`}, []any{tidy.Queue, string(tidy.Payload)})

	none, err := client.EnqueueFlow(t.Context(), new(jq.Flow), nil)
	require.NoError(t, err)
	assert.Empty(t, none, "a flow without steps")
	again, err := client.EnqueueFlow(t.Context(), &flow, nil)
	require.NoError(t, err)
	assert.NotEqual(t, added, again, "a flow can be enqueued more than once")
}

func TestChain(t *testing.T) {
	client := jq.NewClient(jq.NewMemory(nil), nil)
	added, err := client.EnqueueFlow(t.Context(), jq.Chain(
		jq.Item{Payload: step{"1"}}, jq.Item{Payload: step{"2"}, Options: &jq.EnqueueOptions{Priority: new(3)}}, jq.Item{Payload: step{"3"}},
	), nil)
	require.NoError(t, err)
	assert.Equal(t, [][]jq.Waiting{{}, {{ID: added[0].ID, State: jq.Ready}}, {{ID: added[1].ID, State: jq.Blocked}}}, waitsOf(t, client, added))
	second, err := client.Get(t.Context(), added[1].ID)
	require.NoError(t, err)
	assert.Equal(t, 3, second.Priority)
}

func TestRefusedFlows(t *testing.T) {
	var other jq.Flow
	foreign := other.Add(step{"other"}, nil)
	for name, c := range map[string]struct {
		build func(f *jq.Flow)
		want  jq.InvalidError
	}{
		"step of another flow":   {func(f *jq.Flow) { f.Add(step{"a"}, nil); f.Add(step{"b"}, nil, foreign) }, jq.InvalidError{Item: 1, Field: "after"}},
		"step that nobody added": {func(f *jq.Flow) { f.Add(step{"a"}, nil, jq.Step{}) }, jq.InvalidError{Item: 0, Field: "after"}},
		"item in options": {func(f *jq.Flow) {
			f.Add(step{"a"}, nil)
			f.Add(step{"b"}, &jq.EnqueueOptions{After: []jq.Wait{{Item: 0}}})
		}, jq.InvalidError{Item: 1, Field: "after"}},
		"unknown id":               {func(f *jq.Flow) { f.Add(step{"a"}, &jq.EnqueueOptions{After: []jq.Wait{{ID: 7}}}) }, jq.InvalidError{Item: 0, Field: "after"}},
		"request key of a step":    {func(f *jq.Flow) { f.Add(step{"a"}, &jq.EnqueueOptions{RequestKey: "k"}) }, jq.InvalidError{Item: 0, Field: "request_key"}},
		"payload without document": {func(f *jq.Flow) { f.Add(nil, nil) }, jq.InvalidError{Item: 0, Field: "payload"}},
		"65 waits": {func(f *jq.Flow) {
			var needs []jq.Step
			for range 65 {
				needs = append(needs, f.Add(step{"a"}, nil))
			}
			f.Add(step{"b"}, nil, needs...)
		}, jq.InvalidError{Item: 65, Field: "after"}},
	} {
		t.Run(name, func(t *testing.T) {
			client := jq.NewClient(jq.NewMemory(nil), nil)
			var flow jq.Flow
			c.build(&flow)
			added, err := client.EnqueueFlow(t.Context(), &flow, nil)
			var invalid *jq.InvalidError
			require.ErrorAs(t, err, &invalid)
			assert.Equal(t, c.want, jq.InvalidError{Item: invalid.Item, Field: invalid.Field}, "%v", err)
			assert.Empty(t, added)
			counts, err := client.Count(t.Context(), jq.Filter{})
			require.NoError(t, err)
			assert.Empty(t, counts.Queues, "nothing was added")
		})
	}
}

// star returns a flow of so many jobs, of which each needs the first and the one before it.
func star(jobs int, payload string) *jq.Flow {
	var f jq.Flow
	first := f.Add(step{payload}, nil)
	for before := first; before.Index < jobs-1; {
		before = f.Add(step{fmt.Sprint(before.Index+1, payload)}, nil, first, before)
	}
	return &f
}

// An interrupted client fails its first calls in the middle of flows, before or after they have taken effect.
func interrupted(t *testing.T, store jq.Store) (client *jq.Client, calls *[]int) {
	t.Helper()
	calls = new([]int)
	return jq.NewClient(store, &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{func(next jq.EnqueueFunc) jq.EnqueueFunc {
		return func(ctx context.Context, req jq.EnqueueRequest) ([]jq.Enqueued, error) {
			*calls = append(*calls, len(req.Jobs))
			switch len(*calls) {
			case 2:
				return nil, jq.ErrUnavailable
			case 4:
				if _, err := next(ctx, req); err != nil {
					return nil, err
				}
				return nil, jq.ErrInDoubt
			default:
				return next(ctx, req)
			}
		}
	}}}), calls
}

func TestFlowOfSeveralCalls(t *testing.T) {
	const jobs = 2500
	client, calls := interrupted(t, jq.NewMemory(nil))
	flow, key := star(jobs, ""), &jq.EnqueueManyOptions{RequestKey: "k"}
	_, err := client.EnqueueFlow(t.Context(), flow, key)
	require.ErrorIs(t, err, jq.ErrUnavailable)
	_, err = client.EnqueueFlow(t.Context(), flow, key)
	require.ErrorIs(t, err, jq.ErrInDoubt)
	added, err := client.EnqueueFlow(t.Context(), flow, key)
	require.NoError(t, err)
	assert.Equal(t, []int{1000, 1000, 1000, 1000, 1000, 1000, 500}, *calls)
	counts, err := client.Count(t.Context(), jq.Filter{})
	require.NoError(t, err)
	assert.Equal(t, map[jq.State]int64{jq.Ready: 1, jq.Blocked: jobs - 1}, counts.Queues[0].Jobs, "each job was added once")
	waits := waitsOf(t, client, added)
	for i := 2; i < jobs; i++ {
		require.Equal(t, []jq.Waiting{{ID: added[0].ID, State: jq.Ready}, {ID: added[i-1].ID, State: jq.Blocked}}, waits[i], "step %d", i)
	}
}

func TestLargeFlowNeedsARequestKey(t *testing.T) {
	client := jq.NewClient(jq.NewMemory(nil), nil)
	for name, flow := range map[string]*jq.Flow{"jobs": star(1001, ""), "bytes": star(20, strings.Repeat("x", 1<<19))} {
		_, err := client.EnqueueFlow(t.Context(), flow, nil)
		var invalid *jq.InvalidError
		require.ErrorAs(t, err, &invalid, name)
		assert.Equal(t, "request_key", invalid.Field, "%v", err)
	}
	counts, err := client.Count(t.Context(), jq.Filter{})
	require.NoError(t, err)
	assert.Empty(t, counts.Queues, "nothing was added")

	var flow jq.Flow
	var needs []jq.Step
	for range 64 {
		needs = append(needs, flow.Add(step{"a"}, nil))
	}
	for range 64 {
		flow.Add(step{"b"}, nil, needs...)
	}
	added, err := client.EnqueueFlow(t.Context(), &flow, &jq.EnqueueManyOptions{RequestKey: "waits"})
	require.NoError(t, err)
	for i, waits := range waitsOf(t, client, added[64:]) {
		assert.Len(t, waits, 64, "job %d of those with 64 waits, of which a call takes 62", i)
	}

	before, err := client.Count(t.Context(), jq.Filter{})
	require.NoError(t, err)
	refused := star(1500, "")
	refused.Add(step{"refused"}, &jq.EnqueueOptions{Priority: new(10)})
	_, err = client.EnqueueFlow(t.Context(), refused, &jq.EnqueueManyOptions{RequestKey: "r"})
	var invalid *jq.InvalidError
	require.ErrorAs(t, err, &invalid)
	assert.Equal(t, []any{1500, "priority"}, []any{invalid.Item, invalid.Field}, "%v", err)
	after, err := client.Count(t.Context(), jq.Filter{})
	require.NoError(t, err)
	assert.Equal(t, before.Queues, after.Queues, "nothing was added")
}

// TestResultsOfOthers runs a chain whose last step adds up what the others have returned.
func TestResultsOfOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := jq.NewMemory(nil)
		client := jq.NewClient(store, nil)
		var flow jq.Flow
		one, two := flow.Add(step{"1"}, nil), flow.Add(step{"2"}, nil)
		gone := flow.Add(step{"gone"}, nil)
		flow.Add(step{"sum"}, &jq.EnqueueOptions{Delay: time.Minute}, two, one, gone.Any())
		added, err := client.EnqueueFlow(t.Context(), &flow, nil)
		require.NoError(t, err)

		var handlers jq.Handlers
		jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, s step) error {
			if s.Name != "sum" {
				return run.SetResult(s.Name + "!")
			}
			waited, err := run.WaitedFor(ctx)
			if err != nil {
				return err
			}
			var results []string
			for _, j := range waited[:2] {
				result, err := jq.Result[string](j)
				if err != nil {
					return err
				}
				results = append(results, result)
			}
			if len(waited) != 3 || waited[2].ID != added[gone.Index].ID || waited[2].State != "" {
				return jq.Never(fmt.Errorf("what was deleted is %+v", waited[2]))
			}
			return run.SetResult(results)
		})
		server, err := jq.NewServer(store, &handlers, nil)
		require.NoError(t, err)
		require.NoError(t, server.Start(t.Context()))
		_, err = client.Wait(t.Context(), added[gone.Index].ID)
		require.NoError(t, err)
		require.NoError(t, client.Delete(t.Context(), added[gone.Index].ID))
		done, err := client.Wait(t.Context(), added[3].ID)
		require.NoError(t, err)
		assert.Equal(t, []any{jq.Succeeded, `["2!","1!"]`}, []any{done.State, string(done.Result)}, "%s", done.Error)
		require.NoError(t, server.Stop(t.Context()))

		waited, err := client.WaitedFor(t.Context(), added[one.Index].ID)
		require.NoError(t, err)
		assert.Empty(t, waited, "it waited for nothing")
		_, err = client.WaitedFor(t.Context(), 100)
		require.ErrorIs(t, err, jq.ErrNotFound)
		require.NoError(t, store.Close())
	})
}

func TestFlowInATransaction(t *testing.T) {
	s := jq.NewMemory(nil)
	client := jq.NewClient(s, nil)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	added, err := client.EnqueueFlowTx(t.Context(), tx, star(1500, ""), nil)
	require.NoError(t, err)
	assert.Len(t, added, 1500)
	require.NoError(t, tx.Rollback())
	counts, err := client.Count(t.Context(), jq.Filter{})
	require.NoError(t, err)
	assert.Empty(t, counts.Queues, "a rollback leaves nothing, although no key was given")

	_, err = client.EnqueueFlowTx(t.Context(), nil, star(1, ""), nil)
	require.ErrorIs(t, err, jq.ErrInvalid)
}

// A copy of a flow goes on by itself, and a step has the options that it was added with.
func TestCopiesOfFlows(t *testing.T) {
	client := jq.NewClient(jq.NewMemory(nil), nil)
	var f jq.Flow
	o := &jq.EnqueueOptions{Queue: "a"}
	first := f.Add(step{"1"}, o)
	f.Add(step{"2"}, o)
	f.Add(step{"3"}, o) // the array has room for one more
	o.Queue = "b"
	g := f
	last := f.Add(step{"f"}, nil, first)
	g.Add(step{"g"}, nil, first)
	for name, flow := range map[string]*jq.Flow{"f": &f, "g": &g} {
		added, err := client.EnqueueFlow(t.Context(), flow, nil)
		require.NoError(t, err)
		d, err := client.Get(t.Context(), added[3].ID)
		require.NoError(t, err)
		assert.Equal(t, []any{`{"Name":"` + name + `"}`, added[0].ID}, []any{string(d.Payload), d.Waits[0].ID})
		d, err = client.Get(t.Context(), added[0].ID)
		require.NoError(t, err)
		assert.Equal(t, "a", d.Queue)
	}
	g.Add(step{"h"}, nil, last)
	_, err := client.EnqueueFlow(t.Context(), &g, nil)
	require.ErrorContains(t, err, "item 4: after must name steps of the same flow")
}

// Parts of large flows have keys of their own, whatever keys are in use.
func TestKeysOfLargeFlows(t *testing.T) {
	client := jq.NewClient(jq.NewMemory(nil), nil)
	total := 0
	for _, key := range []string{"import", "import 2", strings.Repeat("k", 255)} {
		added, err := client.EnqueueFlow(t.Context(), star(1500, ""), &jq.EnqueueManyOptions{RequestKey: key})
		require.NoError(t, err, key)
		total += len(added)
	}
	counts, err := client.Count(t.Context(), jq.Filter{})
	require.NoError(t, err)
	assert.EqualValues(t, total, counts.Queues[0].Jobs[jq.Ready]+counts.Queues[0].Jobs[jq.Blocked])
}

var errNotNow = errors.New("not now")

func TestErrorsInLaterCallsOfAFlow(t *testing.T) {
	key := &jq.EnqueueManyOptions{RequestKey: "k"}
	for name, c := range map[string]struct {
		second func(req jq.EnqueueRequest) error
		item   int
	}{
		"invalid": {func(jq.EnqueueRequest) error {
			return fmt.Errorf("%w: %w", errNotNow, &jq.InvalidError{Item: 3, Field: "kind"})
		}, 1003},
		"unavailable": {func(jq.EnqueueRequest) error { return fmt.Errorf("%w: %w", errNotNow, jq.ErrUnavailable) }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			client := jq.NewClient(jq.NewMemory(nil), &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{func(next jq.EnqueueFunc) jq.EnqueueFunc {
				return func(ctx context.Context, req jq.EnqueueRequest) ([]jq.Enqueued, error) {
					if calls++; calls == 2 {
						return nil, c.second(req)
					}
					return next(ctx, req)
				}
			}}})
			_, err := client.EnqueueFlow(t.Context(), star(1500, ""), key)
			require.ErrorIs(t, err, errNotNow)
			var invalid *jq.InvalidError
			if c.item < 0 {
				require.ErrorIs(t, err, jq.ErrUnavailable)
				require.ErrorContains(t, err, "from step 1000 on")
				return
			}
			require.ErrorAs(t, err, &invalid)
			assert.Equal(t, c.item, invalid.Item, "%v", err)
		})
	}
}

// The id of a job that the client may not see is not answered, so nothing can wait for it by its id.
func TestStepWithoutAnID(t *testing.T) {
	client := jq.NewClient(jq.NewMemory(nil), &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{func(next jq.EnqueueFunc) jq.EnqueueFunc {
		return func(ctx context.Context, req jq.EnqueueRequest) ([]jq.Enqueued, error) {
			added, err := next(ctx, req)
			added[0] = jq.Enqueued{Duplicate: true}
			return added, err
		}
	}}})
	_, err := client.EnqueueFlow(t.Context(), star(1500, ""), &jq.EnqueueManyOptions{RequestKey: "k"})
	require.ErrorContains(t, err, "item 1000: after needs step 0")
}

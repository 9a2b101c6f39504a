package jq_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/jqtest"
)

type welcome struct{ Name string }

func (welcome) Kind() string { return "welcome" }

// report has options of its own for its kind.
type report struct{ Month int }

func (report) Kind() string { return "report" }

func (report) Defaults() jq.EnqueueOptions {
	return jq.EnqueueOptions{Queue: "reports", Priority: new(2), MaxRetries: new(3), Timeout: time.Hour, Backoff: jq.Backoff{Base: time.Minute, Cap: time.Hour}}
}

// enqueued is the job as it stands after the call.
func enqueued(t *testing.T, s jq.Store, c *jq.Client, p jq.Payload, o *jq.EnqueueOptions) jq.Job {
	t.Helper()
	added, err := c.Enqueue(t.Context(), p, o)
	require.NoError(t, err)
	j, err := s.Get(t.Context(), added.ID)
	require.NoError(t, err)
	return j.Job
}

func TestOptionsAreTakenFromWhoeverSaysThemFirst(t *testing.T) {
	s := jqtest.NewStore(t)
	client := jq.NewClient(s, &jq.ClientOptions{Defaults: jq.EnqueueOptions{Queue: "of the client", Priority: new(1), Tags: []string{"client"}, LimitKey: "client"}})

	plain := enqueued(t, s, jq.NewClient(s, nil), welcome{"Ada"}, nil)
	assert.Equal(t, []any{"default", 0, 20, jq.DefaultBackoff, time.Duration(0), ""},
		[]any{plain.Queue, plain.Priority, plain.MaxRetries, plain.Backoff, plain.Timeout, plain.LimitKey()}, "nobody said anything")

	byClient := enqueued(t, s, client, welcome{"Ada"}, nil)
	assert.Equal(t, []any{"of the client", 1, []string{"client"}, 20, "client"},
		[]any{byClient.Queue, byClient.Priority, byClient.Tags, byClient.MaxRetries, byClient.LimitKey()})

	byType := enqueued(t, s, client, report{1}, nil)
	assert.Equal(t, []any{"reports", 2, 3, time.Hour, jq.Backoff{Base: time.Minute, Cap: time.Hour, Jitter: 10}, []string{"client"}},
		[]any{byType.Queue, byType.Priority, byType.MaxRetries, byType.Timeout, byType.Backoff, byType.Tags})

	byCall := enqueued(t, s, client, report{1}, &jq.EnqueueOptions{Queue: "here", MaxRetries: new(0), Tags: []string{}, Delay: time.Hour, Priority: new(-9), LimitKey: "call"})
	assert.Equal(t, []any{"here", -9, 0, time.Hour, "call"}, []any{byCall.Queue, byCall.Priority, byCall.MaxRetries, byCall.Timeout, byCall.LimitKey()})
	assert.Empty(t, byCall.Tags, "no tags are said by an empty list")
	assert.Equal(t, jqtest.Epoch.Add(time.Hour), byCall.RunAt)
}

// D31: a backoff of which only the base was said was refused, for its cap was none.
func TestBackoffIsFilledFieldByField(t *testing.T) {
	s := jqtest.NewStore(t)
	client := jq.NewClient(s, &jq.ClientOptions{Defaults: jq.EnqueueOptions{Backoff: jq.Backoff{Jitter: 50}}})
	for _, c := range []struct{ said, want jq.Backoff }{
		{jq.Backoff{}, jq.Backoff{Base: time.Second, Cap: time.Hour, Jitter: 50}},
		{jq.Backoff{Base: time.Minute}, jq.Backoff{Base: time.Minute, Cap: time.Hour, Jitter: 50}},
		{jq.Backoff{Base: 2 * time.Hour}, jq.Backoff{Base: 2 * time.Hour, Cap: 2 * time.Hour, Jitter: 50}},
		{jq.Backoff{Cap: time.Minute}, jq.Backoff{Base: time.Second, Cap: time.Minute, Jitter: 50}},
		{jq.Backoff{Cap: time.Millisecond}, jq.Backoff{Base: time.Millisecond, Cap: time.Millisecond, Jitter: 50}},
		{jq.Backoff{Jitter: -1}, jq.Backoff{Base: time.Second, Cap: time.Hour}},
	} {
		assert.Equal(t, c.want, enqueued(t, s, client, welcome{"Ada"}, &jq.EnqueueOptions{Backoff: c.said}).Backoff, "%+v", c.said)
	}
	_, err := client.Enqueue(t.Context(), welcome{"Ada"}, &jq.EnqueueOptions{Backoff: jq.Backoff{Base: time.Hour, Cap: time.Minute}})
	require.ErrorIs(t, err, jq.ErrInvalid, "what contradicts itself is not mended")
}

// D31: a priority of the type's could not be set back to 0, and no retries were 20.
func TestZeroCanBeSaid(t *testing.T) {
	s := jqtest.NewStore(t)
	j := enqueued(t, s, jq.NewClient(s, nil), report{1}, &jq.EnqueueOptions{Priority: new(0), MaxRetries: new(0)})
	assert.Equal(t, []int{0, 0}, []int{j.Priority, j.MaxRetries})
	_, err := jq.NewClient(s, nil).Enqueue(t.Context(), report{1}, &jq.EnqueueOptions{MaxRetries: new(-1)})
	require.ErrorIs(t, err, jq.ErrInvalid)
}

// D9: time.Until of a moment that has just passed is negative, and must not be refused.
func TestDurationsThatAreOverWereRefused(t *testing.T) {
	s := jqtest.NewStore(t)
	client := jq.NewClient(s, &jq.ClientOptions{Defaults: jq.EnqueueOptions{Delay: time.Hour, Timeout: time.Hour, UniqueFor: time.Hour}})
	for _, over := range []time.Duration{-1, -time.Second, math.MinInt64} {
		j := enqueued(t, s, client, welcome{"Ada"}, &jq.EnqueueOptions{
			Delay: over, Timeout: over, Backoff: jq.Backoff{Base: over, Cap: over}, UniqueKey: fmt.Sprint(over), UniqueFor: over,
		})
		assert.Equal(t, []any{jqtest.Epoch, jq.Backoff{Jitter: 10}}, []any{j.RunAt, j.Backoff}, "due at once, and retried at once")
		assert.Equal(t, []any{time.Microsecond, time.Microsecond}, []any{j.Timeout, j.UniqueFor},
			"zero would mean the server's timeout, and the life of the job")
	}
	short := enqueued(t, s, client, welcome{"Ada"}, &jq.EnqueueOptions{Timeout: time.Nanosecond, UniqueKey: "short", UniqueFor: time.Nanosecond})
	assert.Equal(t, []any{time.Microsecond, time.Microsecond}, []any{short.Timeout, short.UniqueFor})

	_, err := client.Enqueue(t.Context(), welcome{"Ada"}, &jq.EnqueueOptions{Delay: -time.Second, RunAt: jqtest.Epoch})
	require.ErrorContains(t, err, "delay and run_at exclude each other")
	_, err = client.Enqueue(t.Context(), welcome{"Ada"}, &jq.EnqueueOptions{Delay: 11 * 365 * 24 * time.Hour})
	require.ErrorContains(t, err, "delay must be 0 to 87600h0m0s")
	_, err = s.Enqueue(t.Context(), jq.EnqueueRequest{Jobs: []jq.NewJob{{Queue: "q", Kind: "k", Payload: []byte("1"), Delay: -1}}})
	require.ErrorContains(t, err, "delay must be 0 to 87600h0m0s", "the store takes durations as they are")
}

// RequeueAll adds an age to the filter, which must hide neither that it is empty nor that it is invalid.
func TestRequeueAllTookAnEmptyFilter(t *testing.T) {
	s := jqtest.NewStore(t)
	client := jq.NewClient(&ticking{Store: s}, nil)
	id := enqueued(t, s, client, welcome{"Ada"}, nil).ID
	require.NoError(t, client.Cancel(t.Context(), id))
	for field, filter := range map[string]jq.Filter{
		"filter":       {},
		"finished_for": {States: []jq.State{jq.Cancelled}, FinishedFor: -time.Second},
	} {
		_, err := client.RequeueAll(t.Context(), filter)
		var invalid *jq.InvalidError
		require.ErrorAs(t, err, &invalid, field)
		assert.Equal(t, field, invalid.Field)
	}
	n, err := client.RequeueAll(t.Context(), jq.Filter{States: []jq.State{jq.Cancelled}})
	require.NoError(t, err)
	assert.Equal(t, 1, n, "what a filter matches is requeued all the same")
}

// A ticking store is a store whose time passes with each look at it, as real time does.
type ticking struct{ *jqtest.Store }

func (s *ticking) Count(ctx context.Context, filter jq.Filter) (jq.Counts, error) {
	s.Advance(time.Second)
	return s.Store.Count(ctx, filter)
}

func TestPayloadsAreKept(t *testing.T) {
	s := jqtest.NewStore(t)
	client := jq.NewClient(s, nil)
	assert.JSONEq(t, `{"Name":"Ada"}`, string(enqueued(t, s, client, &welcome{"Ada"}, nil).Payload))

	raw := enqueued(t, s, client, jq.Raw{Name: "other", Document: json.RawMessage(" { \"a\" : 1e400 }\n")}, nil)
	assert.Equal(t, []string{"other", " { \"a\" : 1e400 }\n"}, []string{raw.Kind, string(raw.Payload)}, "byte for byte")

	byPointer := enqueued(t, s, client, &jq.Raw{Name: "other", Document: json.RawMessage(`[1]`)}, nil)
	assert.Equal(t, []string{"other", "[1]"}, []string{byPointer.Kind, string(byPointer.Payload)})

	_, err := client.Enqueue(t.Context(), jq.Raw{Name: "other", Document: json.RawMessage("{")}, nil)
	var invalid *jq.InvalidError
	require.ErrorAs(t, err, &invalid)
	assert.Equal(t, "payload", invalid.Field)
	_, err = client.Enqueue(t.Context(), unspeakable{}, nil)
	assert.EqualError(t, err, `jq: invalid: item 0: payload of kind "unspeakable" is not JSON: json: unsupported type: chan int`)
}

type unspeakable struct{ C chan int }

func (unspeakable) Kind() string { return "unspeakable" }

func TestUniqueAndRequestKeysAreAnswered(t *testing.T) {
	s := jqtest.NewStore(t)
	client := jq.NewClient(s, nil)
	enqueue := func(o jq.EnqueueOptions) jq.Enqueued {
		t.Helper()
		added, err := client.Enqueue(t.Context(), welcome{"Ada"}, &o)
		require.NoError(t, err)
		return added
	}
	first := enqueue(jq.EnqueueOptions{UniqueKey: "ada"})
	assert.Equal(t, jq.Enqueued{ID: first.ID, State: jq.Ready, Duplicate: true}, enqueue(jq.EnqueueOptions{UniqueKey: "ada", Queue: "other"}))
	again := enqueue(jq.EnqueueOptions{RequestKey: "r"})
	assert.Equal(t, again, enqueue(jq.EnqueueOptions{RequestKey: "r"}))
	_, err := client.Enqueue(t.Context(), welcome{"Grace"}, &jq.EnqueueOptions{RequestKey: "r"})
	require.ErrorIs(t, err, jq.ErrInvalid)
	jqtest.RequireEnqueued(t, s, jqtest.Want{Times: 2})
}

func TestManyAreAddedAllOrNone(t *testing.T) {
	s := jqtest.NewStore(t)
	client := jq.NewClient(s, nil)
	added, err := client.EnqueueMany(t.Context(), []jq.Item{{Payload: welcome{"Ada"}}, {Payload: report{1}, Options: &jq.EnqueueOptions{Queue: "here"}}}, &jq.EnqueueManyOptions{RequestKey: "r"})
	require.NoError(t, err)
	assert.Equal(t, []jq.Enqueued{{ID: 1, State: jq.Ready}, {ID: 2, State: jq.Ready}}, added)
	jqtest.RequireEnqueued(t, s, jqtest.Want{Payload: report{1}, Queue: "here", Times: 1})

	for name, bad := range map[string]struct {
		item jq.Item
		text string
	}{
		"refused by the store": {jq.Item{Payload: welcome{"x"}, Options: &jq.EnqueueOptions{Priority: new(10)}}, "jq: invalid: item 1: priority must be -9 to 9"},
		"nil":                  {jq.Item{}, "jq: invalid: item 1: payload must not be nil: it names the kind of the job"},
		"a pointer to nothing": {jq.Item{Payload: (*welcome)(nil)}, "jq: invalid: item 1: payload must not be nil"},
		"a key of its own":     {jq.Item{Payload: welcome{"x"}, Options: &jq.EnqueueOptions{RequestKey: "r"}}, "jq: invalid: item 1: request_key belongs to the call: set it in EnqueueManyOptions"},
		"no JSON":              {jq.Item{Payload: unspeakable{}}, "jq: invalid: item 1: payload of kind \"unspeakable\" is not JSON"},
	} {
		_, err := client.EnqueueMany(t.Context(), []jq.Item{{Payload: welcome{"fine"}}, bad.item}, nil)
		require.ErrorContains(t, err, bad.text, name)
	}
	jqtest.RefuteEnqueued(t, s, jqtest.Want{Payload: welcome{"fine"}})
}

func TestEnqueueMiddlewareStandsAround(t *testing.T) {
	s := jqtest.NewStore(t)
	var order []string
	named := func(name string) jq.EnqueueMiddleware {
		return func(next jq.EnqueueFunc) jq.EnqueueFunc {
			return func(ctx context.Context, req jq.EnqueueRequest) ([]jq.Enqueued, error) {
				order = append(order, name)
				return next(ctx, req)
			}
		}
	}
	refuse := func(next jq.EnqueueFunc) jq.EnqueueFunc {
		return func(ctx context.Context, req jq.EnqueueRequest) ([]jq.Enqueued, error) {
			if req.Jobs[0].Kind == "report" {
				return nil, errors.New("not today")
			}
			return next(ctx, req)
		}
	}
	client := jq.NewClient(s, &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{named("outer"), named("inner"), refuse}})
	_, err := client.Enqueue(t.Context(), welcome{"Ada"}, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"outer", "inner"}, order)
	_, err = client.EnqueueMany(t.Context(), []jq.Item{{Payload: report{1}}}, nil)
	require.EqualError(t, err, "not today")
	jqtest.RequireEnqueued(t, s, jqtest.Want{Times: 1})
}

func TestEnqueueStandsAndFallsWithTheTransaction(t *testing.T) {
	s := jqtest.NewStore(t)
	client := jq.NewClient(s, nil)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = client.EnqueueTx(t.Context(), tx, welcome{"Ada"}, nil)
	require.NoError(t, err)
	_, err = client.EnqueueManyTx(t.Context(), tx, []jq.Item{{Payload: welcome{"Grace"}}}, nil)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	jqtest.RequireEnqueued(t, s, jqtest.Want{Times: 2})

	tx, err = s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = client.EnqueueTx(t.Context(), tx, welcome{"Edsger"}, nil)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	jqtest.RefuteEnqueued(t, s, jqtest.Want{Payload: welcome{"Edsger"}})
}

// A middleware that keeps an answer to itself is an error, and no panic somewhere else.
func TestEnqueueMiddlewareAnswersForEachJob(t *testing.T) {
	swallow := func(jq.EnqueueFunc) jq.EnqueueFunc {
		return func(context.Context, jq.EnqueueRequest) ([]jq.Enqueued, error) { return nil, nil }
	}
	client := jq.NewClient(jqtest.NewStore(t), &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{swallow}})
	_, err := client.Enqueue(t.Context(), welcome{"Ada"}, nil)
	require.ErrorContains(t, err, "jq: a middleware returned 0 answers for 1 jobs; it must answer for each")
	_, err = client.EnqueueMany(t.Context(), []jq.Item{{Payload: welcome{"Ada"}}}, nil)
	require.ErrorContains(t, err, "returned 0 answers")
}

// What can not work is refused when it is made.
func TestClientsAndServersNeedAStore(t *testing.T) {
	assert.PanicsWithValue(t, "jq: a client needs a store: open one first", func() { jq.NewClient(nil, nil) })
	assert.PanicsWithValue(t, "jq: ClientOptions.Middleware: a middleware is nil", func() {
		jq.NewClient(jqtest.NewStore(t), &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{nil}})
	})
	var h jq.Handlers
	_, err := jq.NewServer(nil, &h, nil)
	require.EqualError(t, err, "jq: a server needs a store: open one first")
	for _, none := range []*jq.Handlers{nil, &h} {
		_, err = jq.NewServer(jqtest.NewStore(t), none, nil)
		require.EqualError(t, err, "jq: a server without handlers would run nothing: register some first")
	}
	h.Otherwise(func(context.Context, *jq.Run) error { return nil })
	_, err = jq.NewServer(jqtest.NewStore(t), &h, &jq.ServerOptions{Lease: jq.LeaseOptions{Duration: time.Second, Heartbeat: 2 * time.Second}})
	option, ok := errors.AsType[*jq.OptionError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, "Lease.Heartbeat", option.Field)
}

// core is a store with no ability beyond the contract's.
type core struct{ jq.Store }

func TestMissingAbilitiesAreSaid(t *testing.T) {
	client := jq.NewClient(core{jqtest.NewStore(t)}, nil)
	_, txErr := client.EnqueueTx(t.Context(), nil, welcome{}, nil)
	_, manyErr := client.EnqueueManyTx(t.Context(), nil, nil, nil)
	_, queuesErr := client.Queues(t.Context())
	_, policyErr := client.Policy(t.Context(), "q")
	_, setPolicyErr := client.SetPolicy(t.Context(), "q", jq.Policy{})
	_, declareErr := client.DeclarePolicy(t.Context(), "q", jq.Policy{})
	_, workersErr := client.Workers(t.Context())
	for what, err := range map[string]error{
		"write in a caller's transaction": errors.Join(txErr, manyErr),
		"pause queues":                    errors.Join(client.Pause(t.Context(), "q"), client.Resume(t.Context(), "q")),
		"list queues":                     queuesErr,
		"keep policies of queues":         errors.Join(policyErr, setPolicyErr, declareErr),
		"list workers":                    workersErr,
	} {
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "jq: this store cannot "+what)
	}
}

func TestEveryWorkerIsListed(t *testing.T) {
	s := jqtest.NewStore(t)
	for i := range 1001 {
		require.NoError(t, s.Beat(t.Context(), jq.Worker{Name: fmt.Sprintf("w%04d", i), StaleAfter: time.Hour}))
	}
	workers, err := jq.NewClient(s, nil).Workers(t.Context())
	require.NoError(t, err)
	require.Len(t, workers, 1001)
	assert.Equal(t, "w1000", workers[1000].Name)
}

func TestOneJobIsLookedAfter(t *testing.T) {
	s := jqtest.NewStore(t)
	client := jq.NewClient(s, nil)
	id := enqueued(t, s, client, welcome{"Ada"}, nil).ID

	require.ErrorIs(t, client.Requeue(t.Context(), id), jq.ErrState)
	require.ErrorIs(t, client.Delete(t.Context(), id), jq.ErrState)
	require.NoError(t, client.Cancel(t.Context(), id))
	j, err := client.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, jq.Cancelled, j.State)
	require.ErrorIs(t, client.Reschedule(t.Context(), id, time.Time{}), jq.ErrState)
	require.NoError(t, client.Requeue(t.Context(), id))
	for _, at := range []time.Time{j.EnqueuedAt.Add(time.Hour), {}} {
		require.NoError(t, client.Reschedule(t.Context(), id, at))
		j, err = client.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, cmp.Or(at, j.EnqueuedAt), j.RunAt)
	}
	require.NoError(t, client.Cancel(t.Context(), id))
	require.NoError(t, client.Delete(t.Context(), id))
	for _, err := range []error{client.Cancel(t.Context(), id), client.Requeue(t.Context(), id), client.Reschedule(t.Context(), id, time.Time{}), client.Delete(t.Context(), id)} {
		require.ErrorIs(t, err, jq.ErrNotFound)
	}

	require.NoError(t, client.Pause(t.Context(), "mail"))
	queues, err := client.Queues(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []jq.Queue{{Name: "mail", Paused: true}}, queues)
	require.NoError(t, client.Resume(t.Context(), "mail"))

	policy, err := client.Policy(t.Context(), "mail")
	require.NoError(t, err)
	policy.RetainDead = jq.KeepForEver
	set, err := client.SetPolicy(t.Context(), "mail", policy)
	require.NoError(t, err)
	assert.Equal(t, jq.Policy{RetainDead: jq.KeepForEver, Version: 1}, set)
	policy.RetainDead = time.Hour
	_, err = client.SetPolicy(t.Context(), "mail", policy)
	require.ErrorIs(t, err, jq.ErrConflict, "it was read before the change")

	declared, err := client.DeclarePolicy(t.Context(), "mail", jq.Policy{MaxInFlight: 3, Owner: "billing", Declared: 1})
	require.NoError(t, err)
	assert.Equal(t, jq.Policy{MaxInFlight: 3, Owner: "billing", Declared: 1, Version: 2}, declared)
	_, err = client.DeclarePolicy(t.Context(), "mail", jq.Policy{Owner: "mail", Declared: 1})
	require.ErrorIs(t, err, jq.ErrConflict, "another program has declared it")
}

// RequeueAll narrows the age by itself, to leave alone what finishes while it is under way, and made the age of its caller nothing.
func TestRequeueAllKeepsToTheAgeThatIsAskedFor(t *testing.T) {
	s := jqtest.NewStore(t)
	client := jq.NewClient(s, nil)
	var ids []int64
	for range 2 {
		added, err := client.Enqueue(t.Context(), welcome{"Ada"}, nil)
		require.NoError(t, err)
		require.NoError(t, client.Cancel(t.Context(), added.ID))
		ids = append(ids, added.ID)
		s.Advance(time.Hour)
	}
	n, err := client.RequeueAll(t.Context(), jq.Filter{States: []jq.State{jq.Cancelled}, FinishedFor: 90 * time.Minute})
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	for i, want := range []jq.State{jq.Ready, jq.Cancelled} {
		job, err := client.Get(t.Context(), ids[i])
		require.NoError(t, err)
		assert.Equal(t, want, job.State, "job %d", ids[i])
	}
}

// R47, R61: all that match are reached, however many, and a job that becomes dead meanwhile is not requeued by the same call.
func TestAllThatMatchAreReached(t *testing.T) {
	s := jqtest.NewStore(t)
	client := jq.NewClient(s, nil)
	const n = 2500
	for i := 0; i < n; i += 500 {
		items := make([]jq.Item, 500)
		for k := range items {
			items[k] = jq.Item{Payload: welcome{"Ada"}, Options: &jq.EnqueueOptions{Tags: []string{"odd", "even"}[k%2 : k%2+1]}}
		}
		_, err := client.EnqueueMany(t.Context(), items, nil)
		require.NoError(t, err)
	}
	odd := jq.Filter{Tag: "odd"}
	later := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	reschedule := func(ctx context.Context, filter jq.Filter) (int, error) {
		return client.RescheduleAll(ctx, filter, later)
	}
	for _, step := range []struct {
		call func(context.Context, jq.Filter) (int, error)
		want int
	}{
		{client.DeleteAll, 0}, {client.RequeueAll, 0}, {reschedule, n / 2}, {reschedule, n / 2}, {client.CancelAll, n / 2}, {reschedule, 0}, {client.CancelAll, 0}, {client.RequeueAll, n / 2}, {client.CancelAll, n / 2},
		{client.DeleteAll, n / 2}, {client.DeleteAll, 0},
	} {
		got, err := step.call(t.Context(), odd)
		require.NoError(t, err)
		require.Equal(t, step.want, got)
	}
	for _, call := range []func(context.Context, jq.Filter) (int, error){client.CancelAll, client.RequeueAll, reschedule, client.DeleteAll} {
		_, err := call(t.Context(), jq.Filter{})
		require.ErrorIs(t, err, jq.ErrInvalid, "an empty filter would mean every job")
	}

	var seen int
	last := int64(n + 1)
	for j, err := range client.Jobs(t.Context(), jq.Filter{Tag: "even"}) {
		require.NoError(t, err)
		require.Less(t, j.ID, last)
		last = j.ID
		seen++
	}
	assert.Equal(t, n/2, seen)
	for _, err := range client.Jobs(t.Context(), jq.Filter{}) {
		require.NoError(t, err)
		break // a page is not read to its end
	}
	require.NoError(t, s.Close())
	for _, err := range client.Jobs(t.Context(), jq.Filter{}) {
		require.ErrorIs(t, err, jq.ErrClosed)
	}
}

// A middleware that adds a job beside that of the transaction, as for an outbox or an audit, adds it outside: whoever counts jobs
// counted it among those that may have been rolled back.
func TestJobAddedBesideATransactionIsInNone(t *testing.T) {
	var client *jq.Client
	var inTx []bool
	noted := func(next jq.EnqueueFunc) jq.EnqueueFunc {
		return func(ctx context.Context, req jq.EnqueueRequest) ([]jq.Enqueued, error) {
			inTx = append(inTx, jq.InTx(ctx))
			if len(inTx) == 1 {
				_, err := client.Enqueue(ctx, welcome{}, nil)
				require.NoError(t, err)
				_, err = client.EnqueueMany(ctx, []jq.Item{{Payload: welcome{}}}, nil)
				require.NoError(t, err)
			}
			return next(ctx, req)
		}
	}
	s := jqtest.NewStore(t)
	client = jq.NewClient(s, &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{noted}})
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = client.EnqueueTx(t.Context(), tx, welcome{}, nil)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	assert.Equal(t, []bool{true, false, false}, inTx)
}

// A middleware may keep the jobs that it has seen: their slice is not used again.
func TestMiddlewareMayKeepTheRequest(t *testing.T) {
	s := jq.NewMemory(nil)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	var seen []jq.EnqueueRequest
	client := jq.NewClient(s, &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{func(next jq.EnqueueFunc) jq.EnqueueFunc {
		return func(ctx context.Context, req jq.EnqueueRequest) ([]jq.Enqueued, error) {
			seen = append(seen, req)
			return next(ctx, req)
		}
	}}})
	for _, name := range []string{"Ada", "Grace"} {
		_, err := client.Enqueue(t.Context(), welcome{name}, nil)
		require.NoError(t, err)
	}
	require.Len(t, seen, 2)
	assert.JSONEq(t, `{"Name":"Ada"}`, string(seen[0].Jobs[0].Payload))
	assert.JSONEq(t, `{"Name":"Grace"}`, string(seen[1].Jobs[0].Payload))
}

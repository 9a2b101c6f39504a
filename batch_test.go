package jq_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/bubble"
)

// batchOf returns a batch of so many jobs with a callback of each sort.
func batchOf(jobs int) *jq.Batch {
	return &jq.Batch{
		Name: "import", Items: slices.Repeat([]jq.Item{{Payload: step{"member"}}}, jobs),
		OnSuccess: &jq.Item{Payload: step{"success"}}, OnEnd: &jq.Item{Payload: step{"end"}, Options: &jq.EnqueueOptions{Queue: "slow"}},
	}
}

// groupsOf returns the groups of the client's store.
func groupsOf(t *testing.T, client *jq.Client) []jq.Group {
	t.Helper()
	var groups []jq.Group
	for g, err := range client.Groups(t.Context(), jq.GroupFilter{}) {
		require.NoError(t, err)
		groups = append(groups, g)
	}
	return groups
}

// TestBatch runs a batch, whose jobs add one more.
func TestBatch(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := jq.NewMemory(nil)
		client := jq.NewClient(store, nil)
		batched, err := client.EnqueueBatch(t.Context(), batchOf(3), nil)
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(batched.Group, "import-"), batched.Group)
		assert.Len(t, batched.Jobs, 3)
		assert.Equal(t, [][]jq.Waiting{
			{{Group: batched.Group, State: jq.InFlight}}, {{Group: batched.Group, Any: true, State: jq.InFlight}}, {},
		}, waitsOf(t, client, []jq.Enqueued{batched.OnSuccess, batched.OnEnd, batched.Jobs[0]}))
		assert.Equal(t, []jq.Group{{Name: batched.Group, GroupStatus: jq.GroupStatus{Live: true}}}, groupsOf(t, client))

		var ran []string
		var handlers jq.Handlers
		jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, s step) error {
			ran = append(ran, s.Name)
			if run.ID != batched.Jobs[0].ID {
				return nil
			}
			_, err := client.Enqueue(ctx, step{"late"}, &jq.EnqueueOptions{Group: run.Group()})
			return err
		})
		server, err := jq.NewServer(store, &handlers, &jq.ServerOptions{Slots: 1, Queues: map[string]jq.QueueOptions{"default": {}, "slow": {}}})
		require.NoError(t, err)
		require.NoError(t, server.Start(t.Context()))
		for _, id := range []int64{batched.OnSuccess.ID, batched.OnEnd.ID} {
			last, err := client.Wait(t.Context(), id)
			require.NoError(t, err)
			assert.Equal(t, jq.Succeeded, last.State)
		}
		require.NoError(t, server.Stop(t.Context()))
		slices.Sort(ran[4:])
		assert.Equal(t, []string{"member", "member", "member", "late", "end", "success"}, ran)
		waited, err := client.WaitedFor(t.Context(), batched.OnEnd.ID)
		require.NoError(t, err)
		assert.Empty(t, waited, "it waited for a group")
		require.NoError(t, store.Close())
	})
}

func TestBatchOfSeveralCalls(t *testing.T) {
	const jobs = 2500
	client, calls := interrupted(t, jq.NewMemory(nil))
	key := &jq.EnqueueManyOptions{RequestKey: "k", Open: []string{"outer"}}
	first, err := client.EnqueueBatch(t.Context(), batchOf(jobs), key)
	require.ErrorIs(t, err, jq.ErrUnavailable)
	assert.True(t, groupsOf(t, client)[0].Open, "until all jobs are in it")
	_, err = client.EnqueueBatch(t.Context(), batchOf(jobs), key)
	require.ErrorIs(t, err, jq.ErrInDoubt)
	batched, err := client.EnqueueBatch(t.Context(), batchOf(jobs), key)
	require.NoError(t, err)
	assert.Equal(t, first.Group, batched.Group)
	assert.Equal(t, []int{1000, 1000, 1000, 1000, 1000, 1000, 502}, *calls)
	assert.Len(t, batched.Jobs, jobs)
	counts, err := client.Count(t.Context(), jq.Filter{Group: batched.Group})
	require.NoError(t, err)
	assert.Equal(t, map[jq.State]int64{jq.Ready: jobs}, counts.Queues[0].Jobs, "each job was added once")
	groups := groupsOf(t, client)
	require.Len(t, groups, 2)
	assert.Equal(t, jq.Group{Name: batched.Group, GroupStatus: jq.GroupStatus{Live: true}}, groups[0])
	again, err := client.EnqueueBatch(t.Context(), batchOf(jobs), key)
	require.NoError(t, err)
	assert.Equal(t, batched, again, "a repeat after all was done")
	require.NoError(t, client.SealGroup(t.Context(), "outer"), "the options of the call open groups as well")
	require.ErrorIs(t, client.SealGroup(t.Context(), "outer"), jq.ErrInvalid)
}

func TestRefusedBatches(t *testing.T) {
	bad := &jq.EnqueueOptions{Priority: new(10)}
	for name, c := range map[string]struct {
		change func(b *jq.Batch)
		want   jq.InvalidError
	}{
		"priority of an item":       {func(b *jq.Batch) { b.Items[1].Options = bad }, jq.InvalidError{Item: 1, Field: "priority"}},
		"priority of OnSuccess":     {func(b *jq.Batch) { b.OnSuccess.Options = bad }, jq.InvalidError{Item: -1, Field: "on_success.priority"}},
		"priority of OnEnd":         {func(b *jq.Batch) { b.OnEnd.Options = bad }, jq.InvalidError{Item: -1, Field: "on_end.priority"}},
		"priority of OnEnd alone":   {func(b *jq.Batch) { b.OnSuccess, b.OnEnd.Options = nil, bad }, jq.InvalidError{Item: -1, Field: "on_end.priority"}},
		"payload without document":  {func(b *jq.Batch) { b.Items[0].Payload = nil }, jq.InvalidError{Item: 0, Field: "payload"}},
		"OnEnd without document":    {func(b *jq.Batch) { b.OnEnd.Payload = nil }, jq.InvalidError{Item: -1, Field: "on_end.payload"}},
		"group of an item":          {func(b *jq.Batch) { b.Items[1].Options = &jq.EnqueueOptions{Group: "g"} }, jq.InvalidError{Item: 1, Field: "group"}},
		"item that waits for one":   {func(b *jq.Batch) { b.Items[1].Options = &jq.EnqueueOptions{After: []jq.Wait{{Item: 0}}} }, jq.InvalidError{Item: 1, Field: "after"}},
		"name that is too long":     {func(b *jq.Batch) { b.Name = strings.Repeat("n", 255) }, jq.InvalidError{Item: -1, Field: "on_success.after"}},
		"more than fit, and no key": {func(b *jq.Batch) { b.Items = slices.Repeat(b.Items, 500) }, jq.InvalidError{Item: -1, Field: "request_key"}},
	} {
		t.Run(name, func(t *testing.T) {
			client := jq.NewClient(jq.NewMemory(nil), nil)
			b := batchOf(2)
			c.change(b)
			_, err := client.EnqueueBatch(t.Context(), b, nil)
			var invalid *jq.InvalidError
			require.ErrorAs(t, err, &invalid)
			assert.Equal(t, c.want, jq.InvalidError{Item: invalid.Item, Field: invalid.Field}, "%v", err)
			counts, err := client.Count(t.Context(), jq.Filter{})
			require.NoError(t, err)
			assert.Empty(t, counts.Queues, "nothing was added")
		})
	}
	client := jq.NewClient(jq.NewMemory(nil), nil)
	late := batchOf(1500)
	late.Items[1400].Options = bad
	_, err := client.EnqueueBatch(t.Context(), late, &jq.EnqueueManyOptions{RequestKey: "k"})
	var invalid *jq.InvalidError
	require.ErrorAs(t, err, &invalid)
	assert.Equal(t, []any{1400, "priority"}, []any{invalid.Item, invalid.Field}, "%v", err)
	none, err := client.EnqueueBatch(t.Context(), new(jq.Batch), nil)
	require.NoError(t, err)
	assert.Empty(t, none.Jobs, "a batch without jobs")
}

func TestBatchInATransaction(t *testing.T) {
	s := jq.NewMemory(nil)
	client := jq.NewClient(s, nil)
	for _, commit := range []bool{false, true} {
		tx, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		batched, err := client.EnqueueBatchTx(t.Context(), tx, batchOf(1500), nil)
		require.NoError(t, err)
		assert.Len(t, batched.Jobs, 1500)
		if !commit {
			require.NoError(t, tx.Rollback())
			assert.Empty(t, groupsOf(t, client), "a rollback leaves nothing, although no key was given")
			continue
		}
		require.NoError(t, tx.Commit())
		assert.Equal(t, []jq.Group{{Name: batched.Group, GroupStatus: jq.GroupStatus{Live: true}}}, groupsOf(t, client))
	}
	_, err := client.EnqueueMany(t.Context(), []jq.Item{{Payload: step{"s"}}}, &jq.EnqueueManyOptions{Open: []string{"g"}})
	require.NoError(t, err)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, client.SealGroupTx(t.Context(), tx, "g"))
	require.NoError(t, tx.Commit())
	require.ErrorIs(t, client.SealGroup(t.Context(), "g"), jq.ErrInvalid)
	_, err = client.EnqueueBatchTx(t.Context(), nil, batchOf(1), nil)
	require.ErrorIs(t, err, jq.ErrInvalid)
	require.ErrorIs(t, client.SealGroupTx(t.Context(), nil, "g"), jq.ErrInvalid)
}

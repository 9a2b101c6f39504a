package kv_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

// least are the limits of an engine that takes no more than it must.
var least = kv.Limits{Keys: kv.MinKeys, Bytes: kv.MinBytes, Value: kv.MinValue}

func TestLimitsOfAnEngine(t *testing.T) {
	for what, limits := range map[string]kv.Limits{
		"128 keys in a commit, and a store needs 50000":         {Keys: 128},
		"1572864 bytes in a commit, and a store needs 25165824": {Bytes: 3 << 19},
		"102400 bytes in a value, and a store needs 2097152":    {Value: 100 << 10},
	} {
		_, err := kv.Open(t.Context(), &odd{Engine: memkv.New().Connect(), limits: limits}, nil)
		assert.EqualError(t, err, "jq: the engine takes "+what+": raise its limit")
	}
}

// The largest calls fit into the least limits.
func TestLargestChangesFit(t *testing.T) {
	if race.Enabled {
		t.Skip("left to the pass without the race detector, since one call at a time has no race")
	}
	e := &odd{Engine: memkv.New().Connect(), limits: least}
	s, clk := open(t, e)
	most := 0
	e.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
		most = max(most, len(c.Guards)+len(c.Puts)+len(c.Deletes))
		return v.Commit(ctx, c)
	}
	long := []byte(`"` + strings.Repeat("x", 8000) + `"`)
	req := contract.EnqueueRequest{RequestKey: "r"}
	for i := range contract.MaxItems {
		req.Jobs = append(req.Jobs, contract.NewJob{
			Queue: "q", Kind: "k", Payload: long, UniqueKey: fmt.Sprint(i), Replace: true, MaxRetries: 9, ExpiresAt: clk.Now().Add(time.Hour),
		})
	}
	_, err := s.Enqueue(t.Context(), req)
	require.NoError(t, err)
	req.RequestKey = "another"
	for i := range req.Jobs {
		req.Jobs[i].Priority = 1
		req.Jobs[i].ExpiresAt = clk.Now().Add(2 * time.Hour)
	}
	_, err = s.Enqueue(t.Context(), req)
	require.NoError(t, err)
	for range 2 {
		jobs, err := s.FetchAndClaim(t.Context(), claimOf("q", contract.MaxItems))
		require.NoError(t, err)
		require.Len(t, jobs, contract.MaxItems)
		var nacks []contract.NAck
		for _, j := range jobs {
			nacks = append(nacks, contract.NAck{Lease: j.Lease(), Form: contract.Release})
		}
		_, err = s.NAck(t.Context(), nacks)
		require.NoError(t, err)
	}
	_, err = s.Cancel(t.Context(), contract.Filter{Queue: "q"}, contract.MaxItems)
	require.NoError(t, err)
	_, err = s.Requeue(t.Context(), contract.Filter{Queue: "q"}, contract.MaxItems)
	require.NoError(t, err)
	_, err = s.Cancel(t.Context(), contract.Filter{Queue: "q"}, contract.MaxItems)
	require.NoError(t, err)
	_, err = s.Delete(t.Context(), contract.Filter{Queue: "q"}, contract.MaxItems)
	require.NoError(t, err)
	assert.Greater(t, most, 9_000, "keys of the largest change")
}

// Each job takes a unique key from one that has expired, and has a document of its own. Nothing has a larger change.
func TestLargestEnqueueFits(t *testing.T) {
	e := &odd{Engine: memkv.New().Connect(), limits: least}
	s, clk := open(t, e)
	var last kv.Change
	e.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
		last = c
		return v.Commit(ctx, c)
	}
	for _, window := range []time.Duration{0, time.Hour} { // a key with a window that has passed is free
		req := contract.EnqueueRequest{RequestKey: clk.Now().String()}
		for i := range contract.MaxItems {
			req.Jobs = append(req.Jobs, contract.NewJob{
				Queue: "q", Kind: "k", Payload: []byte(`"` + strings.Repeat("x", 8000) + `"`),
				UniqueKey: fmt.Sprint(i), UniqueFor: window, ExpiresAt: clk.Now().Add(time.Hour),
			})
		}
		added, err := s.Enqueue(t.Context(), req)
		require.NoError(t, err)
		require.False(t, added[0].Duplicate)
		clk.Add(2 * time.Hour)
	}
	assert.LessOrEqual(t, len(last.Guards), 3_010)
	assert.InDelta(t, 11_005, len(last.Puts)+len(last.Deletes), 5)
}

// Jobs with long histories are deleted at once. What one call can not delete of the histories goes later.
func TestDeleteOfLongHistories(t *testing.T) {
	if race.Enabled {
		t.Skip("left to the pass without the race detector, since one call at a time has no race")
	}
	const jobs, claims = 500, 25
	db := memkv.New()
	s, _ := open(t, &odd{Engine: db.Connect(), limits: least})
	_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: slices.Repeat([]contract.NewJob{plain}, jobs)})
	require.NoError(t, err)
	for range claims {
		claimed, err := s.FetchAndClaim(t.Context(), claimOf("q", jobs))
		require.NoError(t, err)
		var nacks []contract.NAck
		for _, j := range claimed {
			nacks = append(nacks, contract.NAck{Lease: j.Lease(), Form: contract.Release})
		}
		_, err = s.NAck(t.Context(), nacks)
		require.NoError(t, err)
	}
	every := contract.Filter{States: contract.Phases()}
	_, err = s.Cancel(t.Context(), every, jobs)
	require.NoError(t, err)
	deleted, err := s.Delete(t.Context(), every, jobs)
	require.NoError(t, err)
	assert.Len(t, deleted, jobs)
	left := func() int { return keysIn(t, db, "he") }
	require.NotZero(t, left(), "the call deletes all of the histories: the test is about nothing")
	for range 10 {
		_, err := s.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: 1})
		require.NoError(t, err)
	}
	assert.Zero(t, left())
}

// failLong enqueues as many jobs as a call can have, and fails them with the longest errors of one character.
func failLong(t *testing.T, s *kv.Store, one contract.NewJob, character string) {
	t.Helper()
	_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: slices.Repeat([]contract.NewJob{one}, contract.MaxItems)})
	require.NoError(t, err)
	claimed, err := s.FetchAndClaim(t.Context(), claimOf("q", contract.MaxItems))
	require.NoError(t, err)
	require.Len(t, claimed, contract.MaxItems)
	for some := range slices.Chunk(claimed, contract.MaxItems/10) {
		var nacks []contract.NAck
		for _, j := range some {
			nacks = append(nacks, contract.NAck{Lease: j.Lease(), Form: contract.After, Error: strings.Repeat(character, contract.MaxErrorBytes)})
		}
		_, err = s.NAck(t.Context(), nacks)
		require.NoError(t, err)
	}
}

// Jobs with long errors are claimed, though not all of them at once.
func TestClaimOfLongErrors(t *testing.T) {
	if race.Enabled {
		t.Skip("left to the pass without the race detector, since one call at a time has no race")
	}
	s, clk := open(t, &odd{Engine: memkv.New().Connect(), limits: least})
	failLong(t, s, plain, "x")
	clk.Add(time.Hour)
	again, calls := 0, 0
	for ; again < contract.MaxItems && calls < 5; calls++ {
		req := claimOf("q", contract.MaxItems)
		req.RetryQuota = contract.MaxItems
		jobs, err := s.FetchAndClaim(t.Context(), req)
		require.NoError(t, err)
		again += len(jobs)
	}
	assert.Equal(t, contract.MaxItems, again)
	assert.Greater(t, calls, 1, "all of them fit into one change: the test is about nothing")
}

// Jobs with long errors that have expired are settled by one call, though not in one commit.
func TestSettleOfLongErrors(t *testing.T) {
	if race.Enabled {
		t.Skip("left to the pass without the race detector, since one call at a time has no race")
	}
	e := &odd{Engine: memkv.New().Connect(), limits: least}
	s, clk := open(t, e)
	one := plain
	one.ExpiresAt = clk.Now().Add(time.Minute)
	failLong(t, s, one, "<") // which takes six bytes in JSON
	clk.Add(time.Hour)
	commits := 0
	e.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
		commits++
		return v.Commit(ctx, c)
	}
	settled, err := s.Settle(t.Context(), contract.MaxItems)
	require.NoError(t, err)
	assert.Len(t, settled, contract.MaxItems)
	assert.Greater(t, commits, 1, "all of them fit into one change: the test is about nothing")
	counts, err := s.Count(t.Context(), contract.Filter{})
	require.NoError(t, err)
	assert.Equal(t, map[contract.State]int64{contract.Cancelled: contract.MaxItems}, counts.Queues[0].Jobs)
}

// The largest claims by limit key fit into the least limits: all jobs have keys of their own, of which each has a hint, and others that stand have lost their jobs.
func TestLargestClaimsByKeyFit(t *testing.T) {
	if race.Enabled {
		t.Skip("left to the pass without the race detector, since one call at a time has no race")
	}
	for _, policy := range []contract.Policy{{MaxPerKey: 1, Fair: true}, {Ordered: true}} {
		e := &odd{Engine: memkv.New().Connect(), limits: least}
		s, clk := open(t, e)
		setPolicy(t, s, "q", policy)
		most := 0
		e.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
			most = max(most, len(c.Guards)+len(c.Puts)+len(c.Deletes))
			return v.Commit(ctx, c)
		}
		enqueueMany(t, s, 3*contract.MaxItems, func(i int) contract.NewJob { return ofKey("q", fmt.Sprint(i)) })
		for range 3 {
			jobs, err := s.FetchAndClaim(t.Context(), claimOf("q", contract.MaxItems))
			require.NoError(t, err)
			require.Len(t, jobs, contract.MaxItems)
			var nacks []contract.NAck
			for _, j := range jobs {
				nacks = append(nacks, contract.NAck{Lease: j.Lease(), Form: contract.After})
			}
			_, err = s.NAck(t.Context(), nacks)
			require.NoError(t, err)
		}
		_, err := s.FetchAndClaim(t.Context(), claimOf("q", 1)) // all keys stand
		require.NoError(t, err)
		for id := int64(0); id < 3*contract.MaxItems-1; id += contract.MaxItems / 2 {
			_, err = s.Cancel(t.Context(), contract.Filter{Queue: "q", After: id}, contract.MaxItems/2-1)
			require.NoError(t, err)
		}
		clk.Add(time.Minute)
		left, err := s.FetchAndClaim(t.Context(), claimOf("q", contract.MaxItems))
		require.NoError(t, err)
		assert.Len(t, left, 6)
		assert.InDelta(t, 10_000, most, 1_500, "keys of the largest change with %+v", policy)
	}
}

// A change that the engine can not take is refused, and the message says what to do.
func TestChangeThatIsTooLargeIsRefused(t *testing.T) {
	e := &odd{Engine: memkv.New().Connect()}
	s, _ := open(t, e)
	e.limits = kv.Limits{Keys: 20}
	_, err := s.Enqueue(t.Context(), request(10))
	assert.ErrorIs(t, err, contract.ErrUnavailable)
	assert.ErrorContains(t, err, "the engine takes 20 and 0 at once: ask for fewer jobs")
}

// The largest calls with waits and groups fit into the least limits too.
func TestLargestChangesWithWaitsFit(t *testing.T) {
	if race.Enabled {
		t.Skip("left to the pass without the race detector, since one call at a time has no race")
	}
	for ordered, want := range map[bool]int{false: 37_000, true: 42_000} {
		most, sizes := largestWithWaits(t, ordered)
		assert.InDelta(t, want, most, 10, "keys of the largest change: %q", sizes)
	}
}

// largestWithWaits makes the calls, with limit keys in ordered queues or without.
func largestWithWaits(t *testing.T, ordered bool) (most int, sizes []string) {
	t.Helper()
	e := &odd{Engine: memkv.New().Connect(), limits: least}
	s, clk := open(t, e)
	call := ""
	e.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
		if n := len(c.Guards) + len(c.Puts) + len(c.Deletes); n > most {
			most = n
			sizes = append(sizes, fmt.Sprintf("%s: %d guards, %d puts, %d deletes", call, len(c.Guards), len(c.Puts), len(c.Deletes)))
		}
		return v.Commit(ctx, c)
	}
	enqueue := func(what string, n int, job func(i int) contract.NewJob) (ids []int64) {
		call = what
		for begin := 0; begin < n; begin += contract.MaxItems {
			var req contract.EnqueueRequest
			for i := begin; i < min(n, begin+contract.MaxItems); i++ {
				req.Jobs = append(req.Jobs, job(i))
			}
			added, err := s.Enqueue(t.Context(), req)
			require.NoError(t, err, what)
			for _, a := range added {
				ids = append(ids, a.ID)
			}
		}
		return ids
	}
	limitKey := func(int) string { return "" }
	if ordered {
		limitKey = func(i int) string { return fmt.Sprint("k", i) }
		for _, queue := range []string{"b", "c", "d", "e", "f"} {
			setPolicy(t, s, queue, contract.Policy{Ordered: true})
		}
	}
	long := []byte(`"` + strings.Repeat("x", 8000) + `"`)
	heavy := func(queue string, i int) contract.NewJob {
		return contract.NewJob{Queue: queue, Kind: "k", Payload: long, UniqueKey: fmt.Sprint(i), LimitKey: limitKey(i), ExpiresAt: clk.Now().Add(time.Hour)}
	}
	const perJob = contract.MaxCallWaits / contract.MaxItems
	groupOf := func(i int) string { return fmt.Sprint("g", i) }
	awaited := enqueue("Enqueue of jobs in groups", contract.MaxCallWaits, func(i int) contract.NewJob { return inQueue("d", groupOf(i)) })
	enqueue("Enqueue of jobs whose keys others take", contract.MaxItems, func(i int) contract.NewJob { return heavy("b", i) })
	clk.Add(2 * time.Hour)
	enqueue("Enqueue of jobs with waits for jobs", contract.MaxItems, func(i int) contract.NewJob {
		n := heavy("c", i)
		for w := range perJob {
			n.After = append(n.After, contract.Wait{ID: awaited[perJob*i+w]})
		}
		return n
	})
	clk.Add(2 * time.Hour)
	enqueue("Enqueue of jobs with waits for groups", contract.MaxItems, func(i int) contract.NewJob {
		n := heavy("e", i)
		n.Group = "h" + groupOf(i)
		for w := range perJob {
			n.After = append(n.After, contract.Wait{Group: groupOf(perJob*i + w)})
		}
		return n
	})
	for range perJob {
		jobs, err := s.FetchAndClaim(t.Context(), claimOf("d", contract.MaxItems))
		require.NoError(t, err)
		require.Len(t, jobs, contract.MaxItems)
		var acks []contract.Ack
		for _, j := range jobs {
			acks = append(acks, contract.Ack{Lease: j.Lease()})
		}
		call = "Ack of the last jobs of groups"
		_, err = s.Ack(t.Context(), acks)
		require.NoError(t, err)
	}
	call = "Settle"
	_, err := s.Settle(t.Context(), contract.MaxItems)
	require.NoError(t, err)
	clk.Add(2 * time.Hour)
	enqueue("Enqueue of jobs with waits for groups that are over", contract.MaxItems, func(i int) contract.NewJob {
		n := heavy("f", i)
		n.Group = "i" + groupOf(i)
		for w := range perJob {
			n.After = append(n.After, contract.Wait{Group: groupOf(perJob*i + w)})
		}
		return n
	})
	for _, queue := range []string{"e", "d"} {
		call = "Cancel of queue " + queue
		_, err := s.Cancel(t.Context(), contract.Filter{Queue: queue}, contract.MaxItems)
		require.NoError(t, err, call)
		call = "Requeue of queue " + queue
		if queue == "e" {
			_, err = s.Requeue(t.Context(), contract.Filter{Queue: queue}, contract.MaxItems)
			require.NoError(t, err, call)
			_, err = s.Cancel(t.Context(), contract.Filter{Queue: queue}, contract.MaxItems)
			require.NoError(t, err, call)
		}
		call = "Delete of queue " + queue
		_, err = s.Delete(t.Context(), contract.Filter{Queue: queue, States: []contract.State{contract.Cancelled, contract.Succeeded}}, contract.MaxItems)
		require.NoError(t, err, call)
	}
	return most, sizes
}

// Waits of deleted jobs that one call can not delete go later, and meanwhile nobody sees them.
func TestDeleteOfManyWaits(t *testing.T) {
	const waiting, waits = 100, contract.MaxWaits
	db, s, _ := newStore(t)
	_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: slices.Repeat([]contract.NewJob{inQueue("a", "")}, waits-1)})
	require.NoError(t, err)
	first, err := s.List(t.Context(), contract.Filter{}, contract.Page{Limit: waits})
	require.NoError(t, err)
	after := []contract.Wait{{Group: "g"}}
	for _, j := range first.Jobs {
		after = append(after, contract.Wait{ID: j.ID})
	}
	for range 2 {
		_, err = s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: slices.Repeat([]contract.NewJob{inQueue("b", "", after...)}, waiting/2)})
		require.NoError(t, err)
	}
	b := contract.Filter{Queue: "b"}
	_, err = s.Cancel(t.Context(), b, waiting)
	require.NoError(t, err)
	deleted, err := s.Delete(t.Context(), b, waiting)
	require.NoError(t, err)
	assert.Len(t, deleted, waiting)
	left := func() int { return keysIn(t, db, "yne") }
	require.NotZero(t, left(), "the call deletes all of the waits: the test is about nothing")
	found, err := s.List(t.Context(), contract.Filter{WaitsFor: first.Jobs[0].ID}, contract.Page{Limit: 10})
	require.NoError(t, err)
	assert.Empty(t, found.Jobs)
	groups, err := s.Groups(t.Context(), contract.GroupFilter{}, contract.Page{Limit: 10})
	require.NoError(t, err)
	assert.Empty(t, groups.Groups, "groups for which only deleted jobs have waited")
	for range 10 {
		_, err := s.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: 1})
		require.NoError(t, err)
	}
	assert.Zero(t, left())
}

// A Delete of jobs that waited for more groups than a commit has room for leaves waits to later calls.
func TestDeleteOfWaitsForManyGroups(t *testing.T) {
	if race.Enabled {
		t.Skip("left to the pass without the race detector, since one call at a time has no race")
	}
	const jobs, waits = contract.MaxItems, 10
	s, _ := open(t, &odd{Engine: memkv.New().Connect(), limits: least})
	for i := 0; i < jobs; {
		var req contract.EnqueueRequest
		for ; i < jobs && len(req.Jobs) < contract.MaxCallWaits/waits; i++ {
			n := inQueue("a", "")
			for w := range waits {
				n.After = append(n.After, contract.Wait{Group: fmt.Sprint(i, "-", w)})
			}
			req.Jobs = append(req.Jobs, n)
		}
		_, err := s.Enqueue(t.Context(), req)
		require.NoError(t, err)
	}
	a := contract.Filter{Queue: "a"}
	_, err := s.Cancel(t.Context(), a, jobs)
	require.NoError(t, err)
	deleted, err := s.Delete(t.Context(), a, jobs)
	require.NoError(t, err)
	assert.Len(t, deleted, jobs)
	left := func() int {
		groups, err := s.Groups(t.Context(), contract.GroupFilter{}, contract.Page{Limit: 10})
		require.NoError(t, err)
		return len(groups.Groups)
	}
	require.NotZero(t, left(), "the call deletes all of the waits: the test is about nothing")
	for calls := 0; left() > 0; calls++ {
		require.Less(t, calls, 100)
		_, err := s.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: 1})
		require.NoError(t, err)
	}
}

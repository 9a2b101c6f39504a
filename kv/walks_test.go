package kv_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

// A graveyard is an engine that knows which keys were deleted, as one does that walks over them.
type graveyard struct {
	*odd
	dead   map[string]bool
	walked int // dead keys in the ranges that were read
	metas  int // commits of the key that has the marks
}

// Shared is part of kv.Sharer.
func (*graveyard) Shared() {}

func newGraveyard() *graveyard {
	g := &graveyard{dead: map[string]bool{}}
	g.odd = &odd{Engine: memkv.New().Connect(), commit: func(ctx context.Context, v kv.View, c kv.Change) error {
		err := v.Commit(ctx, c)
		if err == nil {
			for _, item := range c.Puts {
				delete(g.dead, string(item.Key))
				if item.Key[0] == 'm' {
					g.metas++
				}
			}
			for _, k := range c.Deletes {
				g.dead[string(k)] = true
			}
		}
		return err
	}, read: func(ctx context.Context, v kv.View, ask []kv.Range) ([][]kv.Item, error) {
		answers, err := v.Read(ctx, ask...)
		for i, r := range ask {
			to := string(r.To)
			if n := len(answers[i]); n > 0 && n == r.Limit {
				to = string(answers[i][n-1].Key)
			}
			for k := range g.dead {
				if k >= string(r.From) && k < to {
					g.walked++
				}
			}
		}
		return answers, err
	}}
	return g
}

func (g *graveyard) walks(call func()) int {
	g.walked = 0
	call()
	return g.walked
}

// However many jobs were done, calls walk over few of their keys: the more calls walk over them, the fewer.
func TestCallsWalkOverFewKeys(t *testing.T) {
	const jobs, most = 1_000, 1_000
	g := newGraveyard()
	s, clk := open(t, g)
	s.Walk(most, time.Second)
	claim := func() { claimed(t, s) }
	recoverLeases := func() {
		_, err := s.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: 10})
		require.NoError(t, err)
	}
	room := func() {
		setPolicy(t, s, "q", contract.Policy{MaxInFlight: 5})
		claim()
		setPolicy(t, s, "q", contract.Policy{})
	}
	for range jobs {
		_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{oneOfQ}})
		require.NoError(t, err)
		found, err := s.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Second})
		require.NoError(t, err)
		_, err = s.Ack(t.Context(), []contract.Ack{{Lease: found[0].Lease()}})
		require.NoError(t, err)
		clk.Add(50 * time.Millisecond)
		recoverLeases()
	}
	assert.Less(t, g.metas, jobs/8)
	clk.Add(time.Minute)
	assert.Less(t, g.walks(claim), 100)
	assert.Less(t, g.walks(recoverLeases), 150, "of which some look at what else has ended")
	assert.Less(t, g.walks(room), 200)
	for range most { // of a queue that has nothing to do
		claim()
		recoverLeases()
	}
	assert.Zero(t, g.walks(claim))
	assert.Zero(t, g.walks(recoverLeases))
	assert.Greater(t, len(g.dead), 2*jobs, "keys that are gone")
	_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{oneOfQ}})
	require.NoError(t, err)
	assert.Less(t, g.walks(func() {
		due, err := s.OldestDue(t.Context())
		require.NoError(t, err)
		require.Len(t, due.Queues, 1)
	}), jobs, "those before the first queue, and none again before its first job")
}

// Every call reads the marks, so there are few of them. The latest ones stay.
func TestMarksOfManyQueues(t *testing.T) {
	db := memkv.New()
	e, counts := counting(db)
	s, clk := open(t, e)
	s.RaiseAlways()
	_, err := s.Enqueue(t.Context(), request(1))
	require.NoError(t, err)
	for i := range 50 {
		clk.Add(time.Second)
		_, err := s.FetchAndClaim(t.Context(), claimOf(fmt.Sprint("many", i), 1))
		require.NoError(t, err)
	}
	counts.take()
	_, err = s.FetchAndClaim(t.Context(), claimOf("q0", 1))
	require.NoError(t, err)
	assert.Equal(t, int64(1), counts.take()[3], "a claim of the first job, whose line gets no mark, because that would be before all others")
	marks := marksIn(t, db)
	assert.Len(t, marks, 32)
	for i := range 32 {
		assert.NotEmpty(t, marks[fmt.Sprint("wmany", 49-i, "\x00f\x09")].At)
	}
}

// There are no marks on an engine that only one store uses, for claims by limit keys, which do not begin at them, and by calls that are refused.
func TestNoMarks(t *testing.T) {
	for name, o := range map[string]struct {
		engine kv.Engine
		policy contract.Policy
		limit  int
		marks  int
	}{
		"several stores": {newGraveyard(), contract.Policy{}, 1, 1},
		"one store":      {&odd{Engine: memkv.New().Connect()}, contract.Policy{}, 1, 0},
		"limit keys":     {newGraveyard(), contract.Policy{Fair: true}, 1, 0},
		"refused":        {newGraveyard(), contract.Policy{}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, clk := open(t, o.engine)
			s.Walk(0, 0)
			setPolicy(t, s, "q", o.policy)
			_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{oneOfQ}})
			require.NoError(t, err)
			require.NoError(t, s.Ping(t.Context())) // so that it knows the line
			clk.Add(time.Second)
			_, err = s.FetchAndClaim(t.Context(), claimOf("q", o.limit))
			require.Equal(t, o.limit == 0, err != nil)
			v, err := o.engine.View(t.Context())
			require.NoError(t, err)
			assert.Len(t, marksOf(t, v), o.marks)
		})
	}
}

// A store that is closed does not ask its engine.
func TestNoMarksAfterClose(t *testing.T) {
	e, counts := counting(memkv.New())
	s, _ := open(t, e)
	s.RaiseAlways()
	_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{oneOfQ}})
	require.NoError(t, err)
	require.NoError(t, s.Ping(t.Context())) // so that it knows the line
	require.NoError(t, s.Close())
	counts.take()
	_, err = s.FetchAndClaim(t.Context(), claimOf("q", 1))
	require.ErrorIs(t, err, contract.ErrClosed)
	assert.Zero(t, counts.take())
}

// With one job for each claim, a mark is raised after 775 jobs, which is when claims have walked over 300,000 keys. It is a second behind the time.
func TestFirstMark(t *testing.T) {
	db := memkv.New()
	s, clk := open(t, db.Connect())
	for i := 1; ; i++ {
		_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{oneOfQ}})
		require.NoError(t, err)
		claimed(t, s)
		clk.Add(10 * time.Millisecond)
		require.Less(t, i, 1000)
		if marks := marksIn(t, db); len(marks) > 0 {
			assert.Equal(t, 776, i)
			at := marks["wq\x00f\x09"].At
			want := clk.Now().Add(-10 * time.Millisecond).Add(-time.Second).UnixMicro()
			assert.Equal(t, want, microsOf(at))
			return
		}
	}
}

// A store is of layout 5 from the first mark on, also after what needs an earlier one: a program that knows of none would put jobs before it. A look that can not raise a mark writes nothing.
func TestFirstMarkChangesTheLayout(t *testing.T) {
	db := memkv.New()
	e, counts := counting(db)
	s, clk := open(t, e)
	s.RaiseAlways()
	_, err := s.Enqueue(t.Context(), request(1))
	require.NoError(t, err)
	assert.Contains(t, metaOf(t, db), `"Layout":2`)
	require.NoError(t, s.Ping(t.Context())) // so that it knows the line
	clk.Add(time.Second)
	for i, commits := range []int64{3, 2, 0, 0} { // the first mark stays before the job that the first claim takes
		counts.take()
		_, err = s.FetchAndClaim(t.Context(), claimOf("q0", 1))
		require.NoError(t, err)
		assert.Equal(t, commits, counts.take()[3], "claim %d", i)
		assert.Contains(t, metaOf(t, db), `"Layout":5`)
	}
	setPolicy(t, s, "q1", contract.Policy{Fair: true})
	assert.Contains(t, metaOf(t, db), `"Layout":5`)
}

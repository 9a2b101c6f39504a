package kv_test

import (
	"bytes"
	"context"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

// walked reports whether a read is part of a walk over the rows of jobs.
func walked(ask []kv.Range) bool { return len(ask) == 1 && ask[0].To != nil && ask[0].From[0] == 'j' }

// walking returns a store with jobs, and calls meanwhile whenever a walk over their rows has read some, with how often it has.
func walking(t *testing.T, jobs int, meanwhile func(other *kv.Store, walk int)) (s *kv.Store, ids []int64) {
	t.Helper()
	db := memkv.New()
	e := &odd{Engine: db.Connect()}
	s, _ = open(t, e)
	other, _ := open(t, db.Connect())
	ids = added(t, s, jobs)
	walks := 0
	e.read = func(ctx context.Context, v kv.View, ask []kv.Range) ([][]kv.Item, error) {
		found, err := v.Read(ctx, ask...)
		if walked(ask) && err == nil && len(found[0]) > 0 {
			walks++
			meanwhile(other, walks)
		}
		return found, err
	}
	return s, ids
}

// added enqueues so many jobs and returns their ids.
func added(t *testing.T, s *kv.Store, jobs int) (ids []int64) {
	t.Helper()
	one := contract.NewJob{Queue: "q", Kind: "k", Payload: []byte(`1`)}
	enqueued, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: slices.Repeat([]contract.NewJob{one}, jobs)})
	require.NoError(t, err)
	for _, e := range enqueued {
		ids = append(ids, e.ID)
	}
	return ids
}

// Whenever a search has found jobs, another process changes one of them. The next try looks at what was found, and does not search again.
func TestBulkCallEndsWhereOthersChangeWhatItFinds(t *testing.T) {
	const jobs, limit = 600, 400
	s, ids := walking(t, jobs, func(other *kv.Store, walk int) {
		_, err := other.Reschedule(t.Context(), contract.Filter{Queue: "q"}, time.Date(2027, 1, 1, 0, 0, walk, 0, time.UTC), 1)
		assert.NoError(t, err)
	})
	outcomes, err := s.Cancel(t.Context(), contract.Filter{Queue: "q"}, limit)
	require.NoError(t, err)
	assertOutcomes(t, ids[:limit], outcomes)
	outcomes, err = s.Cancel(t.Context(), contract.Filter{Queue: "q", After: ids[limit-1]}, limit)
	require.NoError(t, err)
	assertOutcomes(t, ids[limit:], outcomes)
}

// If a job that was found does not match any more, another one behind those takes its place, also if it has come since.
func TestBulkCallFindsMoreForWhatOthersHaveTaken(t *testing.T) {
	const jobs, limit = 300, 299
	var more []int64
	s, ids := walking(t, jobs, func(other *kv.Store, walk int) {
		if walk > 1 {
			return
		}
		claimed, err := other.FetchAndClaim(t.Context(), claimOf("q", 10))
		assert.NoError(t, err)
		for _, j := range claimed {
			_, err := other.Ack(t.Context(), []contract.Ack{{Lease: j.Lease()}})
			assert.NoError(t, err)
		}
		more = added(t, other, 3)
	})
	outcomes, err := s.Cancel(t.Context(), contract.Filter{Queue: "q"}, limit)
	require.NoError(t, err)
	assertOutcomes(t, append(ids[10:], more...), outcomes)
}

func assertOutcomes(t *testing.T, ids []int64, outcomes []contract.Outcome) {
	t.Helper()
	var got []int64
	for _, o := range outcomes {
		assert.Equal(t, contract.StatusOK, o.Status)
		got = append(got, o.ID)
	}
	assert.Equal(t, ids, got)
}

// A walk over many jobs remembers none that it passes over: at each read, no more rows are in memory than those of the reads just before.
func TestWalksRememberNothing(t *testing.T) {
	const jobs, most = 2_000, 600
	e := &odd{Engine: memkv.New().Connect()}
	s, _ := open(t, e)
	added(t, s, jobs/2)
	added(t, s, jobs/2)
	var rows []weak.Pointer[byte]
	read := 0
	e.read = func(ctx context.Context, v kv.View, ask []kv.Range) ([][]kv.Item, error) {
		runtime.GC()
		rows = slices.DeleteFunc(rows, func(row weak.Pointer[byte]) bool { return row.Value() == nil })
		assert.LessOrEqual(t, len(rows), most)
		found, err := v.Read(ctx, ask...)
		for _, items := range found {
			for i := range items {
				if items[i].Key[0] == 'j' {
					items[i].Value = bytes.Clone(items[i].Value)
					read++
					rows = append(rows, weak.Make(&items[i].Value[0]))
				}
			}
		}
		return found, err
	}
	other := contract.Filter{Kind: "another"}
	for what, call := range map[string]func() error{
		"Count":  func() error { _, err := s.Count(t.Context(), contract.Filter{}); return err },
		"List":   func() error { _, err := s.List(t.Context(), other, contract.Page{Limit: 10}); return err },
		"Delete": func() error { _, err := s.Delete(t.Context(), other, 10); return err },
	} {
		read = 0
		require.NoError(t, call(), what)
		assert.Equal(t, jobs, read, what)
	}
}

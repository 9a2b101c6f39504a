package server

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/store"
)

func newRun(base context.Context, job store.Job, timeout time.Duration) *Run {
	return newRuns(base, plainSlab, nil, []store.Job{job}, timeout)[0]
}

// One slow handler keeps the slab of its run in memory, so a slab has few runs and few bytes of documents.
func TestSlabsAreSmall(t *testing.T) {
	small, half, large := store.Job{}, store.Job{Payload: make([]byte, maxSlabBytes/2)}, store.Job{Checkpoint: make([]byte, maxSlabBytes+1)}
	for _, c := range []struct {
		jobs []store.Job
		want []int
	}{
		{make([]store.Job, 2*maxSlabRuns+1), []int{maxSlabRuns, maxSlabRuns, 1}},
		{[]store.Job{small, half, half, half, small}, []int{3, 2}},
		{[]store.Job{large, large, small, small}, []int{1, 1, 2}},
		{nil, nil},
	} {
		var got []int
		runs := newRuns(t.Context(), func(runs []*Run) {
			got = append(got, len(runs))
			plainSlab(runs)
		}, nil, c.jobs, time.Minute)
		assert.Equal(t, c.want, got)
		assert.Len(t, runs, len(c.jobs))
	}
}

func TestRunsCopyTheirJobs(t *testing.T) {
	jobs := []store.Job{{ID: 1, Token: 2, Queue: "q", Kind: "k", Attempts: 3}, {ID: 4, Timeout: time.Hour}}
	runs := newRuns(t.Context(), plainSlab, nil, jobs, time.Minute)
	want := append([]store.Job{}, jobs...)
	clear(jobs)
	for i, r := range runs {
		assert.Equal(t, want[i], *r.Job)
		assert.Equal(t, want[i].Lease(), r.Lease())
	}
	assert.Equal(t, []time.Duration{time.Minute, time.Hour}, []time.Duration{runs[0].timeout, runs[1].timeout})
}

package browser

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// alive serves a store with a past, and runs workers that keep some of its jobs in flight.
func alive(t *testing.T, o options) *site {
	t.Helper()
	if o.store == "" {
		o.store = lived(t)
	}
	s := serve(t, o)
	var handlers jq.Handlers
	handlers.Otherwise(func(ctx context.Context, run *jq.Run) error {
		if run.Kind == "images.resize" {
			if err := run.SaveProgress(ctx, map[string]any{"done": 2, "of": 3}); err != nil {
				return err
			}
		}
		<-ctx.Done() // the job stays in flight until the test ends
		return ctx.Err()
	})
	s.work("images-1", "images", 4, &handlers)
	s.work("mail-1", "mail", 2, &handlers)
	s.work("reports-1", "reports", 4, &handlers)
	eventually(t, "jobs in flight", func() (bool, string) {
		counts, err := s.Count(t.Context(), jq.Filter{States: []jq.State{jq.InFlight}})
		require.NoError(t, err)
		return counts.Total() >= 6, ""
	})
	s.late()
	return s
}

// late is what the dead worker of the past does when it comes back: it acknowledges its job, and is refused.
func (s *site) late() {
	s.t.Helper()
	for job, err := range s.Jobs(s.t.Context(), jq.Filter{Kind: "reports.export"}) {
		require.NoError(s.t, err)
		first := s.job(job.ID).History[0]
		outcomes, err := s.store.Ack(s.t.Context(), []contract.Ack{{Lease: contract.Lease{ID: job.ID, Token: first.Token}}})
		require.NoError(s.t, err)
		require.Equal(s.t, contract.StatusStale, outcomes[0].Status)
	}
}

// The past has what the pages are about.
func TestPast(t *testing.T) {
	t.Parallel()
	s := alive(t, options{})
	jobs := map[string]jq.QueueCount{}
	counts, err := s.Count(t.Context(), jq.Filter{})
	require.NoError(t, err)
	for _, c := range counts.Queues {
		jobs[c.Queue] = c
	}
	assert.ElementsMatch(t, []string{"billing", "images", "mail", "reports"}, slices.Collect(maps.Keys(jobs)))
	assert.Greater(t, counts.Now.Sub(jobs["mail"].OldestDue), mailStops-time.Minute, "mail is behind")
	assert.Greater(t, jobs["mail"].Due, int64(100))
	assert.Greater(t, jobs["billing"].Jobs[jq.Retrying], int64(5), "the gateway failed")
	for _, queue := range []string{"billing", "images", "mail"} {
		assert.Greater(t, jobs[queue].Jobs[jq.Dead], int64(5), queue)
	}
	queues, err := s.Queues(t.Context())
	require.NoError(t, err)
	for _, q := range queues {
		assert.Equal(t, q.Name == "billing", q.Paused, q.Name)
	}
	var export jq.JobDetail
	for job, err := range s.Jobs(t.Context(), jq.Filter{Kind: "reports.export"}) {
		require.NoError(t, err)
		export = s.job(job.ID)
	}
	require.Len(t, export.History, 2)
	assert.Equal(t, "reports-2", export.History[0].Worker, "which died")
	assert.Equal(t, jq.EndExpired, export.History[0].Ending)
	assert.Equal(t, "reports-1", export.History[1].Worker, "which has the job now")
}

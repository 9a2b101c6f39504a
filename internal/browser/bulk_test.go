package browser

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// count returns how many jobs match.
func (s *site) count(f jq.Filter) int64 {
	s.t.Helper()
	counts, err := s.Count(s.t.Context(), f)
	require.NoError(s.t, err)
	return counts.Total()
}

// many enqueues jobs.
func (s *site) many(n int, queue, kind string, tags ...string) {
	s.t.Helper()
	items := make([]jq.Item, n)
	for i := range items {
		items[i] = jq.Item{Payload: jq.Raw{Name: kind, Document: []byte(`{}`)}, Options: &jq.EnqueueOptions{Queue: queue, Tags: tags}}
	}
	_, err := s.EnqueueMany(s.t.Context(), items, nil)
	require.NoError(s.t, err)
}

// An action on all that match says to how many jobs it applies, and changes those that match and no others, also beyond one page and
// one call.
func TestBulkOnAllThatMatch(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	for range 3 {
		s.many(700, "mail", "welcome", "old")
	}
	s.many(5, "mail", "digest", "old")
	s.many(5, "images", "welcome", "old")
	p := open(t, s.url, desk)
	p.visit("/#/jobs?queue=mail&kind=welcome")
	p.shown("Jobs")
	p.shows("All that match:")
	p.click(button("Cancel…"))
	p.find(element{role: "dialog", name: "Cancel: 2,100 jobs?"})
	p.shows("2,100 ready")
	p.shows("with queue mail, with kind welcome")
	p.press(escape)
	p.gone(element{role: "dialog", name: "*"})
	assert.Zero(t, s.count(jq.Filter{States: []jq.State{jq.Cancelled}}), "nobody agreed")
	p.click(button("Cancel…"))
	assert.Equal(t, "2,100 jobs cancelled.", p.agree("Cancel: 2,100 jobs?", "Cancel 2,100 jobs"))
	assert.EqualValues(t, 2100, s.count(jq.Filter{Queue: "mail", Kind: "welcome", States: []jq.State{jq.Cancelled}}))
	assert.EqualValues(t, 10, s.count(jq.Filter{States: []jq.State{jq.Ready}}), "those that do not match")

	p.click(button("Requeue…"))
	p.agree("Requeue: 2,100 jobs?", "Requeue 2,100 jobs")
	assert.EqualValues(t, 2110, s.count(jq.Filter{States: []jq.State{jq.Ready}}))

	p.visit("/#/jobs?state=ready&tag=old&queue=images")
	p.shown("Jobs")
	p.click(button("Cancel…"))
	p.agree("Cancel: 5 jobs?", "Cancel 5 jobs")
	p.visit("/#/jobs?state=cancelled&queue=images")
	p.shown("Jobs")
	p.click(button("Delete…"))
	p.agree("Delete: 5 jobs?", "Delete 5 jobs")
	assert.Zero(t, s.count(jq.Filter{Queue: "images"}))
}

// Run now makes all jobs due that wait for their time, and says so if there are none.
func TestBulkRunNow(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	for range 3 {
		s.add("k", `{}`, &jq.EnqueueOptions{Queue: "q", Delay: time.Hour})
	}
	p := open(t, s.url, desk)
	p.visit("/#/jobs?state=ready&queue=q")
	p.shown("Jobs")
	p.click(button("Run now…"))
	p.agree("Run now: 3 jobs?", "Run now 3 jobs")
	counts, err := s.Count(t.Context(), jq.Filter{Queue: "q"})
	require.NoError(t, err)
	assert.EqualValues(t, 3, counts.Queues[0].Due)
	p.visit("/#/jobs?state=dead&queue=q")
	p.shown("Jobs")
	p.click(button("Requeue…"))
	p.find(element{role: "dialog", name: "Nothing to requeue"})
}

// An action on selected jobs changes these, and no others.
func TestBulkOnSelected(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	s.many(6, "q", "k")
	p := open(t, s.url, desk)
	p.visit("/#/jobs")
	p.shown("Jobs")
	assert.False(t, p.has(button("Cancel…")), "without a selection or a filter nothing can be changed at once")
	p.click(checkbox("Select job 2"))
	p.click(checkbox("Select job 5"))
	p.shows("2 selected:")
	p.click(button("Cancel…"))
	p.agree("Cancel: 2 jobs?", "Cancel 2 jobs")
	for id := int64(1); id <= 6; id++ {
		want := jq.Ready
		if id == 2 || id == 5 {
			want = jq.Cancelled
		}
		assert.Equal(t, want, s.job(id).Phase(), id)
	}
	assert.False(t, p.has(button("Cancel…")), "the selection is over")
	p.click(checkbox("Select all jobs of this page"))
	p.shows("6 selected:")
	p.click(button("Clear the selection"))
	assert.Equal(t, "false", p.value(checkbox("Select job 1"), "checked"))
}

// The failures page groups by what failed, although digits differ, and changes a group as a whole.
func TestFailureGroups(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	s.many(5, "mail", "welcome")
	for n := range 5 {
		s.fail("mail", fmt.Sprintf("no such user: %d", 100+n), contract.Never)
	}
	s.many(2, "mail", "welcome")
	s.fail("mail", "connection refused", contract.Never)
	s.fail("mail", "connection refused", contract.After)
	p := open(t, s.url, desk)
	p.visit("/#/failures")
	p.shown("Failures")
	p.shows("7 jobs that are retrying or dead")
	groups := eval[[]string](p, `[...document.querySelectorAll("main section")].map(s => s.dataset.key ?? s.parentElement.dataset.key)`)
	require.Len(t, groups, 2, "%q", groups)
	box := fmt.Sprintf("[data-key=%q]", groups[0])
	assert.Contains(t, groups[0], "no such user")
	p.click(button("Requeue…").of(box))
	p.agree("Requeue: 5 jobs?", "Requeue 5 jobs")
	assert.EqualValues(t, 5, s.count(jq.Filter{States: []jq.State{jq.Ready}}))
	p.shows("2 jobs that are retrying or dead")
	p.click(button("Run now…"))
	p.agree("Run now: 1 job?", "Run now 1 job")
	counts, err := s.Count(t.Context(), jq.Filter{States: []jq.State{jq.Retrying}})
	require.NoError(t, err)
	assert.EqualValues(t, 1, counts.Queues[0].Due)
	p.click(button("Cancel…"))
	p.agree("Cancel: 1 job?", "Cancel 1 job")
	p.click(button("Delete…"))
	p.agree("Delete: 1 job?", "Delete 1 job")
	p.shows("Nothing is retrying or dead.")
	assert.Zero(t, s.count(jq.Filter{States: []jq.State{jq.Dead, jq.Retrying}}))
}

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

// fail claims the next job of the queue and gives it up: for good, or until it is tried again in an hour.
func (s *site) fail(queue, why string, form contract.Form) {
	s.t.Helper()
	jobs, err := s.store.FetchAndClaim(s.t.Context(), contract.ClaimRequest{Queue: queue, Limit: 1, Worker: "w", TTL: time.Minute})
	require.NoError(s.t, err)
	require.Len(s.t, jobs, 1)
	nack := contract.NAck{Lease: jobs[0].Lease(), Form: form, Error: why}
	if form == contract.After {
		nack.Delay = time.Hour
	}
	require.NoError(s.t, ended(s.store.NAck(s.t.Context(), []contract.NAck{nack})))
}

// agree agrees to the question of the open dialog, and returns what the page says when it is done.
func (p *tab) agree(question, label string) string {
	p.t.Helper()
	p.find(element{role: "dialog", name: question})
	p.click(button(label).of("dialog"))
	p.gone(element{role: "dialog", name: "*"})
	var said string
	eventually(p.t, "what the page says", func() (bool, string) {
		said = eval[string](p, `document.querySelector(".note span")?.textContent ?? ""`)
		return said != "", p.text()
	})
	return said
}

func TestEnqueue(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	p := open(t, s.url, desk)
	p.visit("/")
	p.shown("Overview")
	p.click(link("Enqueue"))
	p.shown("Enqueue a job")
	p.write(textbox("Kind*"), "mail.welcome")
	p.write(element{role: "combobox", name: "Queue*"}, "mail")
	p.write(textbox("Payload*"), `{"n": 12345678901234567890}`)
	p.write(element{role: "spinbutton", name: "Retries*"}, "7")
	p.write(element{role: "spinbutton", name: "Priority*"}, "3")
	p.write(textbox("Tags*"), "a, b")
	p.write(textbox("Unique key*"), "once")
	p.write(textbox("Limit key*"), "customer-7")
	p.click(button("Enqueue"))
	p.shown("Job 1")
	job := s.job(1)
	assert.Equal(t, "mail", job.Queue)
	assert.Equal(t, "mail.welcome", job.Kind)
	assert.Equal(t, `{"n": 12345678901234567890}`, string(job.Payload), "no digit is lost")
	assert.Equal(t, 7, job.MaxRetries)
	assert.Equal(t, 3, job.Priority)
	assert.Equal(t, []string{"a", "b"}, job.Tags)
	assert.Equal(t, "once", job.UniqueKey)
	assert.Equal(t, "customer-7", job.LimitKey())
	p.shows("once")
	p.click(link("customer-7"))
	p.shown("Jobs")
	p.shows("mail.welcome")
}

// What the server or the page refuses is said beside the form, and nothing that was typed is lost.
func TestEnqueueRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	p := open(t, s.url, desk)
	p.allow(422, "/v1/jobs")
	p.allow(400, "/v1/jobs")
	p.visit("/#/enqueue")
	p.shown("Enqueue a job")
	p.write(textbox("Kind*"), "k")
	p.write(textbox("Payload*"), `{"a": `)
	p.click(button("Enqueue"))
	p.shows("The payload is not JSON")
	p.write(textbox("Payload*"), `{"a": 1}`)
	p.write(element{role: "spinbutton", name: "Priority*"}, "55")
	p.click(button("Enqueue"))
	p.shows("priority")
	assert.Equal(t, `{"a": 1}`, p.value(textbox("Payload*"), "value"))
	counts, err := s.Count(t.Context(), jq.Filter{})
	require.NoError(t, err)
	assert.Zero(t, counts.Total())
	p.write(element{role: "spinbutton", name: "Priority*"}, "5")
	p.click(button("Enqueue"))
	p.shown("Job 1")
}

// Each action on one job says what it will do, does it when somebody agrees, and nothing before.
func TestActionsOnOneJob(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	p := open(t, s.url, desk)
	hour := &jq.EnqueueOptions{Queue: "later", Delay: time.Hour}

	t.Run("cancel", func(t *testing.T) {
		p, id := p.during(t), s.add("k", `{}`, hour)
		p.visit(fmt.Sprintf("/#/jobs/%d", id))
		p.click(button("Cancel"))
		p.find(element{role: "dialog", name: fmt.Sprintf("Cancel job %d?", id)})
		p.press(escape)
		p.gone(element{role: "dialog", name: "*"})
		assert.Equal(t, jq.Ready, s.job(id).Phase(), "nobody agreed")
		p.click(button("Cancel"))
		p.agree(fmt.Sprintf("Cancel job %d?", id), fmt.Sprintf("Cancel job %d", id))
		s.becomes(id, jq.Cancelled)
		p.shows("It was cancelled")
	})
	t.Run("run now", func(t *testing.T) {
		p, id := p.during(t), s.add("k", `{}`, hour)
		p.visit(fmt.Sprintf("/#/jobs/%d", id))
		p.click(button("Run now"))
		p.agree(fmt.Sprintf("Run job %d now?", id), "Run now")
		assert.Less(t, time.Until(s.job(id).RunAt), time.Duration(0))
		p.shows("It has been due for")
	})
	t.Run("reschedule", func(t *testing.T) {
		p, id := p.during(t), s.add("k", `{}`, hour)
		p.visit(fmt.Sprintf("/#/jobs/%d", id))
		p.click(button("Reschedule…"))
		p.find(element{role: "dialog", name: fmt.Sprintf("Reschedule job %d", id)})
		eval[string](p, `(() => { const i = document.querySelector("dialog input"); i.value = "2031-02-03T04:05:06"; return i.value; })()`)
		p.agree(fmt.Sprintf("Reschedule job %d", id), "Reschedule")
		assert.Equal(t, time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC), s.job(id).RunAt.UTC())
	})
	t.Run("requeue and delete", func(t *testing.T) {
		p, id := p.during(t), s.add("k", `{}`, &jq.EnqueueOptions{Queue: "q"})
		s.fail("q", "it broke\nat line 7", contract.Never)
		p.visit(fmt.Sprintf("/#/jobs/%d", id))
		p.shows("it broke")
		p.click(button("Requeue"))
		p.agree(fmt.Sprintf("Requeue job %d?", id), "Requeue")
		s.becomes(id, jq.Ready)
		p.gone(button("Requeue"))
		s.fail("q", "it broke again", contract.Never)
		p.shows("it broke again")
		p.click(button("Delete"))
		p.agree(fmt.Sprintf("Delete job %d?", id), "Delete")
		_, err := s.Get(t.Context(), id)
		require.ErrorIs(t, err, jq.ErrNotFound)
		p.shown("Jobs")
	})
	t.Run("too late", func(t *testing.T) {
		p, id := p.during(t), s.add("k", `{}`, hour)
		p.allow(409, "/v1/jobs/")
		p.visit(fmt.Sprintf("/#/jobs/%d", id))
		p.click(button("Run now"))
		p.find(element{role: "dialog", name: "*"})
		require.NoError(t, s.Cancel(t.Context(), id))
		p.click(button("Run now").of("dialog"))
		p.shows("not possible in the job's state")
		p.press(escape)
	})
}

// The page of a job that waits for others says for which, and what holds it up, and follows what becomes of them.
func TestJobThatWaits(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	first, second := s.add("a", `{}`, &jq.EnqueueOptions{Queue: "q"}), s.add("b", `{}`, &jq.EnqueueOptions{Queue: "later", Delay: time.Hour})
	id := s.add("c", `{}`, &jq.EnqueueOptions{Queue: "c", After: []jq.Wait{{ID: first}, {ID: second, Any: true}}})
	p := open(t, s.url, desk)
	p.visit("/#/jobs?state=blocked")
	p.click(link(fmt.Sprint(id)))
	p.shown(fmt.Sprintf("Job %d", id))
	p.shows("It waits for 2 other jobs.")
	p.shows(fmt.Sprintf("Job %d ready until it has succeeded", first))
	p.shows(fmt.Sprintf("Job %d ready until it has ended", second))
	p.find(button("Cancel"))
	assert.False(t, p.has(button("Run now")))
	assert.False(t, p.has(button("Reschedule…")))

	s.fail("q", "it broke", contract.Never)
	p.shows(fmt.Sprintf("Job %d is dead, so this job stays blocked until somebody requeues job %d and it succeeds.", first, first))
	p.shows("It will not go on by itself: see below.")
	require.NoError(t, s.Cancel(t.Context(), second))
	p.shows(fmt.Sprintf("Job %d met until it has ended", second))
	p.shows("It waits for 1 other job.")
	p.click(link(fmt.Sprintf("Job %d", first)).of("ul.plain"))
	p.shown(fmt.Sprintf("Job %d", first))
	p.click(button("Requeue"))
	p.agree(fmt.Sprintf("Requeue job %d?", first), "Requeue")
	jobs, err := s.store.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "q", Limit: 1, Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	p.visit(fmt.Sprintf("/#/jobs/%d", id))
	p.shows(fmt.Sprintf("Job %d in flight until it has succeeded", first))
	require.NoError(t, ended(s.store.Ack(t.Context(), []contract.Ack{{Lease: jobs[0].Lease()}})))
	p.shows("It has been due for")
	p.shows(fmt.Sprintf("Job %d met until it has succeeded", first))
	p.find(button("Run now"))
}

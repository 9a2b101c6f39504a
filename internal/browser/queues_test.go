package browser

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/sqlite"
)

func (s *site) mailIsPaused() bool {
	s.t.Helper()
	queues, err := s.Queues(s.t.Context())
	require.NoError(s.t, err)
	for _, q := range queues {
		if q.Name == "mail" {
			return q.Paused
		}
	}
	return false
}

// A queue is paused and resumed on its page, in the list of queues, and on the first page, which says what waits because of it.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	s.add("k", `{}`, &jq.EnqueueOptions{Queue: "mail"})
	p := open(t, s.url, desk)
	p.visit("/#/queues/mail")
	p.shown("mail")
	p.click(button("Pause"))
	p.agree("Pause queue mail?", "Pause")
	assert.True(t, s.mailIsPaused())
	p.find(button("Resume"))
	p.shows("it is paused")

	p.click(link("Overview"))
	p.shown("Overview")
	p.shows("mail is paused: its oldest due job has waited")
	p.click(button("Resume mail"))
	p.agree("Resume queue mail?", "Resume")
	assert.False(t, s.mailIsPaused())

	p.click(link("Queues"))
	p.shown("Queues")
	p.click(button("Pause queue mail"))
	p.agree("Pause queue mail?", "Pause")
	assert.True(t, s.mailIsPaused())
	p.click(button("Resume queue mail"))
	p.agree("Resume queue mail?", "Resume")
	assert.False(t, s.mailIsPaused())
}

// The retentions of a queue are changed together. What the server refuses is said, and a change by somebody else in between is not lost.
func TestPolicy(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	s.add("k", `{}`, &jq.EnqueueOptions{Queue: "mail"})
	p := open(t, s.url, desk)
	p.allow(422, "/v1/queues/mail/policy")
	p.allow(400, "/v1/queues/mail/policy")
	p.allow(409, "/v1/queues/mail/policy")
	p.visit("/#/queues/mail")
	p.shown("mail")
	p.shows("24 hours, the default")
	p.click(button("Change…"))
	p.find(element{role: "dialog", name: "Policy of queue mail"})
	p.write(textbox("Jobs in flight at once*"), "10001")
	p.click(button("Save"))
	p.shows("max_in_flight")
	p.write(textbox("Jobs in flight at once*"), "12")
	p.write(textbox("Jobs in flight for each limit key*"), "1001")
	p.click(button("Save"))
	p.shows("max_per_key")
	p.write(textbox("Jobs in flight for each limit key*"), "3")
	assert.Equal(t, "false", p.value(checkbox("Limit keys take turns*"), "checked"))
	p.click(checkbox("Limit keys take turns*"))
	assert.Equal(t, "false", p.value(checkbox("Jobs of a limit key run in order*"), "checked"))
	p.click(checkbox("Jobs of a limit key run in order*"))
	p.write(textbox("Rate of claims*"), "100 a minute")
	p.click(button("Save"))
	p.shows("such as 100/1m.")
	p.write(textbox("Rate of claims*"), "100/25h")
	p.click(button("Save"))
	p.shows("rate.per")
	p.write(textbox("Rate of claims*"), "100/1m")
	p.write(textbox("Keep succeeded jobs*"), "1s")
	p.click(button("Save"))
	p.shows("retain_succeeded")
	p.write(textbox("Keep succeeded jobs*"), "48h")
	p.write(textbox("Keep cancelled jobs*"), "keep")
	p.agree("Policy of queue mail", "Save")
	policy, err := s.Policy(t.Context(), "mail")
	require.NoError(t, err)
	assert.Equal(t, 48*time.Hour, policy.RetainSucceeded)
	assert.Equal(t, jq.KeepForEver, policy.RetainCancelled)
	assert.Zero(t, policy.RetainDead)
	assert.Equal(t, 12, policy.MaxInFlight)
	assert.Equal(t, 3, policy.MaxPerKey)
	assert.True(t, policy.Fair)
	assert.True(t, policy.Ordered)
	assert.Equal(t, jq.Rate{N: 100, Per: time.Minute}, policy.Rate)
	p.shows("48h")
	p.shows("In flight at once")
	p.shows("In flight for each limit key")
	p.shows("Limit keys take turns")
	p.shows("Jobs of a limit key run in order")
	p.shows("100 jobs in 1 min")

	p.click(button("Change…"))
	p.find(element{role: "dialog", name: "Policy of queue mail"})
	assert.Equal(t, "true", p.value(checkbox("Limit keys take turns*"), "checked"))
	assert.Equal(t, "true", p.value(checkbox("Jobs of a limit key run in order*"), "checked"))
	policy.RetainDead = 100 * time.Hour
	policy, err = s.SetPolicy(t.Context(), "mail", policy)
	require.NoError(t, err)
	p.write(textbox("Keep succeeded jobs*"), "72h")
	p.click(button("Save"))
	p.shows("version")
	p.press(escape)
	after, err := s.Policy(t.Context(), "mail")
	require.NoError(t, err)
	assert.Equal(t, policy, after)
}

// The page says which program has declared the policy. A change on the page does not take the policy from it.
func TestDeclaredPolicy(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	s.add("k", `{}`, &jq.EnqueueOptions{Queue: "mail"})
	declared, err := s.DeclarePolicy(t.Context(), "mail", jq.Policy{MaxInFlight: 5, Owner: "<b>billing</b>", Declared: 3})
	require.NoError(t, err)
	p := open(t, s.url, desk)
	p.visit("/#/queues/mail")
	p.shown("mail")
	p.shows("Declared by <b>billing</b>, version 3; a change here stays until it declares a higher version.")
	p.click(button("Change…"))
	p.write(textbox("Jobs in flight at once*"), "50")
	p.agree("Policy of queue mail", "Save")
	policy, err := s.Policy(t.Context(), "mail")
	require.NoError(t, err)
	declared.MaxInFlight, declared.Version = 50, 2
	assert.Equal(t, declared, policy)
	p.shows("version 3; a change here stays")
	again, err := s.DeclarePolicy(t.Context(), "mail", jq.Policy{MaxInFlight: 5, Owner: "<b>billing</b>", Declared: 3})
	require.NoError(t, err)
	assert.Equal(t, policy, again, "the program starts anew")

	policy.Owner, policy.Declared = "", 0
	_, err = s.SetPolicy(t.Context(), "mail", policy)
	require.NoError(t, err)
	p.visit("/#/")
	p.shown("Overview")
	p.visit("/#/queues/mail")
	p.shown("mail")
	p.shows("In flight at once")
	assert.NotContains(t, p.text(), "Declared by")
}

// Nobody counts the jobs that wait for a key or a rate, so the page names the limits that may be the reason.
func TestQueueIsBehindItsLimits(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "jobs.db")
	past := clock.NewMock()
	past.Set(time.Now().Add(-10 * time.Minute))
	before, err := sqlite.Open(t.Context(), file, &sqlite.Options{Clock: past, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	_, err = jq.NewClient(before, nil).Enqueue(t.Context(), jq.Raw{Name: "k", Document: []byte(`{}`)}, &jq.EnqueueOptions{Queue: "mail"})
	require.NoError(t, err)
	require.NoError(t, before.Close())
	s := serve(t, options{store: "sqlite:" + file})
	require.NoError(t, s.store.Beat(t.Context(), jq.Worker{Name: "w", Queues: []string{"mail"}, Slots: 8, Running: 1, StaleAfter: time.Hour}))
	p := open(t, s.url, desk)
	for _, one := range []struct {
		policy jq.Policy
		says   string
	}{
		{jq.Policy{}, "its workers have free slots (1 of 8 busy) but do not keep up."},
		{jq.Policy{Rate: jq.Rate{N: 1, Per: 90 * time.Second}}, "(1 of 8 busy): its policy, 1 job in 1 min 30 s claimed at most, may hold jobs back."},
		{jq.Policy{MaxPerKey: 2, Rate: jq.Rate{N: 100, Per: time.Second}}, "2 jobs in flight for each limit key and 100 jobs in 1 s claimed at most, may hold jobs back."},
	} {
		set, err := s.Policy(t.Context(), "mail")
		require.NoError(t, err)
		one.policy.Version = set.Version
		_, err = s.SetPolicy(t.Context(), "mail", one.policy)
		require.NoError(t, err)
		p.visit("/#/queues/mail")
		p.shows(one.says)
	}
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	_, err := s.PutSchedule(t.Context(), jq.Schedule{
		Name: "nightly", Cron: "0 2 * * *", Timezone: "Europe/Berlin", Job: jq.NewJob{Queue: "reports", Kind: "nightly", Payload: []byte(`{"of":"yesterday"}`)},
	})
	require.NoError(t, err)
	get := func() jq.Schedule {
		schedule, err := s.Schedule(t.Context(), "nightly")
		require.NoError(t, err)
		return schedule
	}
	p := open(t, s.url, desk)
	p.visit("/#/schedules")
	p.shown("Schedules")
	p.shows("0 2 * * *")
	p.click(link("nightly").of("table"))
	p.shown("nightly")
	p.shows("Europe/Berlin")
	assert.Len(t, eval[[]string](p, `[...document.querySelectorAll("ol.plain li")].map(l => l.textContent)`), 5, "the next times")
	p.click(button("Run now"))
	p.agree("Run now: schedule nightly?", "Run now")
	assert.EqualValues(t, 1, s.count(jq.Filter{Queue: "reports", Kind: "nightly"}))
	p.click(button("Pause"))
	p.agree("Pause: schedule nightly?", "Pause")
	assert.True(t, get().Paused)
	p.shows("It is paused.")
	p.click(button("Resume"))
	p.agree("Resume: schedule nightly?", "Resume")
	assert.False(t, get().Paused)
	p.click(button("Skip to the next time"))
	p.agree("Skip to the next time: schedule nightly?", "Skip to the next time")
	assert.False(t, get().NextAt.IsZero())
	p.click(button("Delete"))
	p.agree("Delete: schedule nightly?", "Delete")
	_, err = s.Schedule(t.Context(), "nightly")
	require.ErrorIs(t, err, jq.ErrNotFound)
	p.shown("Schedules")
	p.shows("No schedule is set.")
}

package browser

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// sessionless are the answers that a page gets before somebody has signed in. The browser reports them as errors.
func (p *tab) sessionless() *tab {
	p.allow(http.StatusUnauthorized, "/v1/")
	return p
}

// signIn signs in with the token, from the page that asks for it.
func (p *tab) signIn(secret string) {
	p.t.Helper()
	p.find(element{role: "heading", name: "jq"})
	p.write(element{role: "textbox", name: "Token*"}, secret)
	p.click(button("Sign in"))
	p.gone(button("Sign in"))
}

// enter opens a page as the bearer of a token.
func (s *site) enter(name, path string) *tab {
	s.t.Helper()
	p := open(s.t, s.url, desk).sessionless()
	p.visit(path)
	p.signIn(s.token[name])
	return p
}

// Somebody signs in with a token, which the page does not keep, and signs out. A wrong token is refused.
func TestSession(t *testing.T) {
	t.Parallel()
	s := serve(t, options{tokens: true})
	s.add("k", `{}`, nil)
	p := open(t, s.url, desk).sessionless()
	p.visit("/#/jobs?queue=default")
	p.find(button("Sign in"))
	p.accessible()
	p.fits()
	assert.NotContains(t, p.text(), "default", "nothing is shown before")
	p.write(element{role: "textbox", name: "Token*"}, "jq_wrong")
	p.click(button("Sign in"))
	p.shows("The server does not know this token.")
	p.signIn(s.token["ada"])
	p.shown("Jobs")
	p.find(link("1"))
	assert.Equal(t, "#/jobs?queue=default", eval[string](p, `location.hash`), "the link that was asked for")
	kept := eval[string](p, `JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])`)
	assert.NotContains(t, kept, s.token["ada"])
	assert.NotContains(t, kept, "jq_session", "scripts cannot read the session")
	p.visit("/#/queues")
	p.shown("Queues") // the session goes on

	p.click(button("Signed in as ada: sign out"))
	p.find(element{role: "dialog", name: "Signed in as ada"})
	p.click(button("Sign out").of("dialog"))
	p.find(button("Sign in"))
	assert.Equal(t, 401, eval[int](p, `fetch("v1/jobs").then(r => r.status)`), "the session has ended")
	p.visit("/#/jobs")
	p.find(button("Sign in"))
}

// A session that ends while the page is open asks for the token again, and goes on where it was.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	s := serve(t, options{tokens: true})
	p := s.enter("ada", "/#/queues")
	p.shown("Queues")
	assert.Equal(t, 204, eval[int](p, `fetch("v1/session").then(r => r.json()).then(s => fetch("v1/session", {method: "DELETE", headers: {"X-Csrf-Token": s.csrf_token}})).then(r => r.status)`))
	p.signIn(s.token["ada"])
	p.shown("Queues")
}

// changing are the names of buttons that change something.
var changing = []string{"Requeue", "Run", "Cancel", "Delete", "Reschedule", "Pause ", "Resume", "Change…", "Skip to the next", "Enqueue"}

// nothingToChange checks that the page offers no action and no selection.
func (p *tab) nothingToChange() {
	p.t.Helper()
	for _, role := range []string{"button", "link"} {
		for _, name := range p.names(role) {
			for _, begin := range changing {
				assert.False(p.t, strings.HasPrefix(name, begin) || name == "Pause", "the page offers %q", name)
			}
		}
	}
	for _, name := range p.names("checkbox") {
		assert.Fail(p.t, "the page offers a selection", name)
	}
}

// A viewer sees every page, no payload, no lease token, and no button that the server would refuse.
func TestViewer(t *testing.T) {
	t.Parallel()
	s := alive(t, options{tokens: true})
	tab := s.enter("vera", "/")
	for _, v := range views(s) {
		if v.name == "enqueue" || v.name == "unknown" {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			p := tab.during(t)
			p.see(v)
			p.nothingToChange()
			text := p.text()
			for _, secret := range []string{`"to":`, `"template"`, `"row": 410000`, `"message_id"`} {
				assert.NotContains(t, text, secret, "a document")
			}
			if strings.HasPrefix(v.name, "job-") {
				assert.Contains(t, text, "hidden from this token")
			}
		})
	}
	tab.visit("/#/enqueue")
	tab.shows("This token may not enqueue jobs.")
}

// A producer sees the form for new jobs, and nothing else.
func TestProducer(t *testing.T) {
	t.Parallel()
	s := serve(t, options{tokens: true})
	p := s.enter("paul", "/#/jobs")
	p.shown("Enqueue a job")
	p.write(textbox("Kind*"), "k")
	p.click(button("Enqueue"))
	p.shows("Job 1 is enqueued in default.")
	p.shown("Enqueue a job")
	assert.Equal(t, jq.Ready, s.job(1).Phase())
	assert.False(t, p.has(link("Jobs")))
}

// The token of a worker reads nothing, and the page says so.
func TestWorkerToken(t *testing.T) {
	t.Parallel()
	s := serve(t, options{tokens: true})
	p := s.enter("walter", "/#/jobs")
	p.shows("This token may not read jobs.")
	p.accessible()
}

// An operator of some queues sees and changes these alone.
func TestLimitedOperator(t *testing.T) {
	t.Parallel()
	s := alive(t, options{tokens: true})
	tab := s.enter("mia", "/")
	for _, v := range []view{
		{"overview", "/", "Overview"}, {"jobs", "/#/jobs", "Jobs"}, {"failures", "/#/failures", "Failures"}, {"queues", "/#/queues", "Queues"},
		{"schedules", "/#/schedules", "Schedules"}, {"workers", "/#/workers", "Workers"}, {"queue", "/#/queues/mail", "mail"},
	} {
		t.Run(v.name, func(t *testing.T) {
			p := tab.during(t)
			p.see(v)
			p.shows("mail")
			text := p.text()
			for _, foreign := range []string{"billing", "images", "reports", "nightly", "rollup"} {
				assert.NotContains(t, text, foreign)
			}
		})
	}
	p := tab
	p.visit("/#/queues")
	p.shown("Queues")
	p.click(button("Pause queue mail"))
	p.agree("Pause queue mail?", "Pause")
	assert.True(t, s.mailIsPaused())
	p.allow(404, "/v1/jobs/")
	foreign := int64(0)
	for job, err := range s.Jobs(t.Context(), jq.Filter{Queue: "images"}) {
		require.NoError(t, err)
		foreign = job.ID
		break
	}
	p.visit("/#/jobs?state=ready&queue=images")
	p.shows("No job matches.")
	assert.NotZero(t, foreign)
}

// What a job brings along is shown as text, wherever it stands, and runs nowhere.
func TestMarkupIsText(t *testing.T) {
	t.Parallel()
	const evil = `<img src=x onerror=alert(1)><script>alert(1)</script>`
	s := serve(t, options{})
	text := `{"html":"` + evil + `"}`
	s.add(evil, text, &jq.EnqueueOptions{Queue: evil, Tags: []string{evil}, UniqueKey: evil})
	require.NoError(t, s.store.Beat(t.Context(), jq.Worker{Name: evil, Host: evil, Queues: []string{evil}, Slots: 1, StaleAfter: time.Minute}))
	jobs, err := s.store.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: evil, Limit: 1, Worker: evil, TTL: time.Minute})
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	document := []byte(text)
	require.NoError(t, ended(s.store.Save(t.Context(), []contract.Save{{Lease: jobs[0].Lease(), Seq: 1, Checkpoint: document, Progress: document}})))
	require.NoError(t, ended(s.store.NAck(t.Context(), []contract.NAck{{Lease: jobs[0].Lease(), Form: contract.Never, Error: evil + "\n" + evil}})))
	_, err = s.PutSchedule(t.Context(), jq.Schedule{Name: evil, Cron: "@every 1h", Job: jq.NewJob{Queue: evil, Kind: evil, Payload: document}})
	require.NoError(t, err)
	id := s.add(evil, text, &jq.EnqueueOptions{Queue: evil})
	_, err = s.store.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: evil, Limit: 1, Worker: evil, TTL: time.Minute})
	require.NoError(t, err)
	require.Equal(t, jq.InFlight, s.job(id).Phase())

	p := open(t, s.url, desk)
	name := strings.NewReplacer("%", "%25", "<", "%3C", ">", "%3E", "=", "%3D", " ", "%20", "/", "%2F", "(", "%28", ")", "%29").Replace(evil)
	for path, heading := range map[string]string{
		"/": "Overview", "/#/jobs": "Jobs", "/#/jobs/1": "Job 1", "/#/jobs/2": "Job 2", "/#/failures": "Failures", "/#/queues": "Queues", "/#/queues/" + name: evil,
		"/#/schedules": "Schedules", "/#/schedules/" + name: evil, "/#/workers": "Workers", "/#/workers/" + name: evil, "/#/jobs?tag=" + name: "Jobs",
	} {
		p.visit(path)
		p.shown(heading)
		p.shows(evil)
		assert.Zero(t, eval[int](p, `document.querySelectorAll("main img, main script, main [onerror]").length`), path)
	}
	p.visit("/#/jobs?queue=" + name)
	p.shown("Jobs")
	p.click(checkbox("Select job 1"))
	p.click(button("Requeue…"))
	p.find(element{role: "dialog", name: "Requeue: 1 job?"})
	p.press(escape)
	p.visit("/#/jobs/1")
	p.shown("Job 1")
	p.click(button("Requeue"))
	p.agree("Requeue job 1?", "Requeue")
}

// Long documents are folded, and any writing is shown as it is.
func TestDocuments(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	s.add("k", `{"greeting":"Grüße, 世界 👋 مرحبا","n":12345678901234567890}`, nil)
	s.add("k", `{"long":"`+strings.Repeat("x", 900_000)+`"}`, nil)
	for _, l := range []look{desk, phone} {
		p := open(t, s.url, l)
		p.visit("/#/jobs/1")
		p.shown("Job 1")
		p.shows("Grüße, 世界 👋 مرحبا")
		p.shows("12345678901234567890")
		p.fits()
		p.visit("/#/jobs/2")
		p.shown("Job 2")
		p.shows("characters")
		assert.NotContains(t, p.text(), "xxxxxxxxxx", "it is folded")
		p.fits()
		assert.Less(t, eval[int](p, `document.documentElement.scrollHeight`), 4000)
		p.click(element{role: "DisclosureTriangle", name: "*", in: "main"})
		p.shows("xxxxxxxxxx")
		p.fits()
	}
}

// A document that is nested very deeply breaks no page: neither that of its job, nor one that lists schedules.
func TestDeepDocuments(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	for _, depth := range []int{60, 3000, 9000} {
		s.add("k", strings.Repeat("[", depth)+strings.Repeat("]", depth), nil)
	}
	payload := []byte(strings.Repeat("[", 9000) + strings.Repeat("]", 9000))
	_, err := s.PutSchedule(t.Context(), jq.Schedule{Name: "deep", Cron: "@every 1h", Job: jq.NewJob{Queue: "q", Kind: "k", Payload: payload}})
	require.NoError(t, err)
	p := open(t, s.url, desk)
	for path, heading := range map[string]string{
		"/": "Overview", "/#/schedules": "Schedules", "/#/schedules/deep": "deep", "/#/jobs/1": "Job 1", "/#/jobs/2": "Job 2", "/#/jobs/3": "Job 3",
	} {
		p.visit(path)
		p.shown(heading)
		assert.NotContains(t, p.text(), "not JSON", path)
		assert.NotContains(t, p.text(), "Loading", path)
	}
	p.visit("/#/jobs/1")
	p.shown("Job 1")
	p.shows(strings.Repeat("[", 60) + strings.Repeat("]", 60))
	p.visit("/#/jobs/3")
	p.shown("Job 3")
	p.shows("Payload")
}

// Somebody who signs in again in another tab replaces the session of all tabs. The first change in an old tab is refused, with the name
// that counts now, and the next one works.
func TestSignInInAnotherTab(t *testing.T) {
	t.Parallel()
	s := serve(t, options{tokens: true})
	s.add("k", `{}`, &jq.EnqueueOptions{Queue: "mail"})
	p := s.enter("ada", "/#/queues/mail")
	p.allow(http.StatusForbidden, "/v1/")
	p.shown("mail")
	assert.Equal(t, http.StatusNoContent, eval[int](p, `fetch("v1/session", {method: "POST", body: JSON.stringify({token: `+quoted(s.token["ada"])+
		`}), headers: {"Content-Type": "application/json"}}).then(r => r.status)`))
	p.click(button("Pause"))
	p.click(button("Pause").of("dialog"))
	p.shows("this browser is signed in as ada now")
	assert.False(t, s.mailIsPaused())
	p.agree("Pause queue mail?", "Pause")
	assert.True(t, s.mailIsPaused())
}

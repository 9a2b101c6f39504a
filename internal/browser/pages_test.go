package browser

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/figures"
)

// looks are the ways in which every page is looked at.
var looks = []look{desk, night, phone, bed}

// A view is one page of the dashboard.
type view struct {
	name, path, heading string
}

// views lists every page. The site must be alive.
func views(s *site) []view {
	s.t.Helper()
	one := func(f jq.Filter) int64 {
		for job, err := range s.Jobs(s.t.Context(), f) {
			require.NoError(s.t, err)
			return job.ID
		}
		require.FailNow(s.t, "no job matches", "%+v", f)
		return 0
	}
	job := func(name string, f jq.Filter) view {
		id := one(f)
		return view{name, fmt.Sprintf("/#/jobs/%d", id), fmt.Sprintf("Job %d", id)}
	}
	return []view{
		{"overview", "/", "Overview"},
		{"overview-day", "/#/?over=day", "Overview"},
		{"jobs", "/#/jobs", "Jobs"},
		{"jobs-dead", "/#/jobs?state=dead&queue=images", "Jobs"},
		{"jobs-none", "/#/jobs?tag=nothing", "Jobs"},
		job("job-recovered", jq.Filter{Kind: "reports.export"}),
		job("job-dead", jq.Filter{Kind: "billing.refund", States: []jq.State{jq.Dead}}),
		job("job-retrying", jq.Filter{States: []jq.State{jq.Retrying}}),
		{"jobs-blocked", "/#/jobs?state=blocked", "Jobs"},
		job("job-blocked", jq.Filter{States: []jq.State{jq.Blocked}}),
		job("job-succeeded", jq.Filter{Kind: "mail.receipt", States: []jq.State{jq.Succeeded}}),
		{"failures", "/#/failures", "Failures"},
		{"queues", "/#/queues", "Queues"},
		{"queue", "/#/queues/mail", "mail"},
		{"queue-paused", "/#/queues/billing", "billing"},
		{"schedules", "/#/schedules", "Schedules"},
		{"schedule", "/#/schedules/nightly", "nightly"},
		{"workers", "/#/workers", "Workers"},
		{"worker", "/#/workers/images-1", "images-1"},
		{"worker-silent", "/#/workers/reports-2", "reports-2"},
		{"enqueue", "/#/enqueue", "Enqueue a job"},
		{"unknown", "/#/nowhere", "Not found"},
	}
}

// see loads the page and waits until it shows its data.
func (p *tab) see(v view) {
	p.t.Helper()
	p.visit(v.path)
	p.shown(v.heading)
}

// shown waits until the page with that heading shows its data.
func (p *tab) shown(heading string) {
	p.t.Helper()
	eventually(p.t, "the page "+heading, func() (bool, string) {
		ready := eval[bool](p, fmt.Sprintf(`document.querySelector("main h1")?.textContent === %q && !document.querySelector(".loading")`, heading))
		return ready, "the page shows:\n" + p.text()
	})
}

// Every page keeps the rules of WCAG 2.1 AA, in both colour schemes, at a desk and on a phone, where nothing scrolls sideways.
func TestPagesAreAccessible(t *testing.T) {
	t.Parallel()
	s := alive(t, options{})
	figures.Print(t, "%d pages in %d looks by the rules of axe-core", len(views(s)), len(looks))
	for _, l := range looks {
		t.Run(l.String(), func(t *testing.T) {
			t.Parallel()
			tab := open(t, s.url, l)
			for _, v := range views(s) {
				t.Run(v.name, func(t *testing.T) {
					p := tab.during(t)
					p.see(v)
					p.accessible()
					p.fits()
				})
			}
		})
	}
}

// So does each dialog, and what is there for a moment only.
func TestDialogsAreAccessible(t *testing.T) {
	t.Parallel()
	s := alive(t, options{})
	for _, l := range looks {
		t.Run(l.String(), func(t *testing.T) {
			t.Parallel()
			p := open(t, s.url, l)
			dialog := func(path, heading string, open element) {
				t.Helper()
				p.visit(path)
				p.shown(heading)
				p.click(open)
				p.find(element{role: "dialog", name: "*"})
				p.accessible()
				p.fits()
				p.press(escape)
				p.gone(element{role: "dialog", name: "*"})
			}
			dialog("/", "Overview", button("Keys and help"))
			dialog("/#/queues/mail", "mail", button("Pause"))
			dialog("/#/queues/mail", "mail", button("Change…"))
			dialog("/#/jobs?state=dead", "Jobs", button("Requeue…"))
			dialog("/#/schedules/nightly", "nightly", button("Run now"))
			p.visit("/#/jobs?state=ready&queue=mail")
			p.shown("Jobs")
			p.click(checkbox("Select all jobs of this page"))
			p.shows("50 selected:")
			p.accessible()
			p.fits()
			dialog("/#/jobs?state=ready&queue=mail", "Jobs", button("Cancel…"))
			p.visit("/#/enqueue")
			p.shown("Enqueue a job")
			p.write(textbox("Payload*"), "{")
			p.write(textbox("Kind*"), "k")
			p.click(button("Enqueue"))
			p.shows("The payload is not JSON")
			p.accessible()
			p.fits()
		})
	}
}

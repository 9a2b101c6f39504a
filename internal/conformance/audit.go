package conformance

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/seed-ed332417/jq/internal/store"
)

// audit checks what must hold of every store at every time, whatever the case was about. A store that the case has closed
// is past auditing.
func (c *C) audit() {
	counts, err := c.Store.Count(c.Ctx, store.Filter{})
	if errors.Is(err, store.ErrClosed) {
		return
	}
	counted, holders := map[string]int64{}, map[string]int64{}
	for _, j := range c.All() {
		holds := !j.Terminal()
		if j.UniqueFor > 0 {
			holds = j.EnqueuedAt.Add(j.UniqueFor).After(counts.Now)
		}
		if j.UniqueKey != "" && holds {
			if other := holders[j.UniqueKey]; other != 0 {
				c.Errorf("audit: jobs %d and %d both hold the unique key %q", j.ID, other, j.UniqueKey)
			}
			holders[j.UniqueKey] = j.ID
		}
		counted[j.Queue+" "+string(j.Phase())]++
		for _, broken := range brokenInvariants(c.Get(j.ID)) {
			c.Errorf("audit: job %d: %s\n%+v", j.ID, broken, j)
		}
	}
	c.Equal(c.countOf(store.Filter{}), counted, "audit: Count against List")
}

// brokenInvariants lists what is impossible about a job.
func brokenInvariants(d store.JobDetail) []string {
	var broken []string
	must := func(ok bool, format string, args ...any) {
		if !ok {
			broken = append(broken, fmt.Sprintf(format, args...))
		}
	}
	phase := d.Phase()
	must((phase == store.InFlight) == !d.LeaseExpiresAt.IsZero(), "a lease's end is set in flight and only then")
	must((phase == store.Retrying) == !d.RetryAt.IsZero(), "RetryAt is set while retrying and only then")
	must(d.Terminal() == !d.FinishedAt.IsZero(), "FinishedAt is set in terminal states and only then")
	must(len(d.Result) == 0 || phase == store.Succeeded, "only a succeeded job has a result")
	must(d.Error == "" || phase != store.Succeeded, "a succeeded job has no error")
	must(d.Token >= int64(d.Attempts), "token %d is below attempts %d", d.Token, d.Attempts)
	must(d.Attempts >= d.Retries, "attempts %d are below retries %d", d.Attempts, d.Retries)
	must(d.Retries <= d.MaxRetries+1, "retries %d are more than one above the maximum %d", d.Retries, d.MaxRetries)
	must(phase == store.Dead || phase == store.Cancelled || d.Retries <= d.MaxRetries, "retries are beyond the maximum and the job is %s", phase)
	must(utf8.ValidString(d.Error) && len(d.Error) <= store.MaxErrorBytes, "the error is valid and within its limit")
	for name, t := range map[string]time.Time{
		"RunAt": d.RunAt, "RetryAt": d.RetryAt, "LeaseExpiresAt": d.LeaseExpiresAt, "ClaimedAt": d.ClaimedAt,
		"EnqueuedAt": d.EnqueuedAt, "FinishedAt": d.FinishedAt,
	} {
		must(t.Location() == time.UTC, "%s is not in UTC", name)
		must(t.Equal(t.Truncate(store.Resolution)), "%s is finer than a microsecond", name)
	}
	must(len(d.History) <= store.MaxAttemptsKept, "%d attempts are kept, more than %d", len(d.History), store.MaxAttemptsKept)
	must(d.State != store.InFlight || len(d.History) > 0, "a job in flight has an attempt")
	var latest store.Attempt
	for i, a := range d.History {
		running := a.Ending == store.NotEnded
		must(a.Token > latest.Token, "the tokens in the history grow")
		must(a.Token <= d.Token, "no token in the history is above that of the job")
		must(running == a.EndedAt.IsZero(), "an attempt has an end if and only if it has an ending")
		must(running == (i == len(d.History)-1 && d.State == store.InFlight), "an attempt runs if and only if it is the last of a job in flight")
		latest = a
	}
	must(d.ClaimedAt.Equal(latest.StartedAt), "ClaimedAt is when the latest attempt started")
	return broken
}

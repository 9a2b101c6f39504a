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
	if c.closed(err) {
		return
	}
	c.OK(err, "audit: Count")
	jobs := c.All()
	counted := map[string]int64{}
	for i, j := range jobs {
		if i > 0 && j.ID >= jobs[i-1].ID {
			c.Errorf("audit: List is not by falling id: %d after %d", j.ID, jobs[i-1].ID)
		}
		counted[j.Queue+" "+string(j.Phase())]++
		for _, broken := range brokenInvariants(c.Get(j.ID)) {
			c.Errorf("audit: job %d: %s\n%+v", j.ID, broken, j)
		}
	}
	for _, q := range counts.Queues {
		for phase, n := range q.Jobs {
			key := q.Queue + " " + string(phase)
			c.Equal(n, counted[key], "audit: Count of %s against List", key)
			delete(counted, key)
		}
	}
	c.Equal(counted, map[string]int64{}, "audit: phases that List has and Count has not")
	c.auditUnique(jobs, counts.Now)
}

func (c *C) closed(err error) bool {
	return err != nil && errors.Is(err, store.ErrClosed)
}

// auditUnique checks that no two jobs hold a key.
func (c *C) auditUnique(jobs []store.Job, now time.Time) {
	holders := map[string]int64{}
	for _, j := range jobs {
		if j.UniqueKey == "" || !holdsKey(j, now) {
			continue
		}
		if other, taken := holders[j.UniqueKey]; taken {
			c.Errorf("audit: jobs %d and %d both hold the unique key %q", j.ID, other, j.UniqueKey)
		}
		holders[j.UniqueKey] = j.ID
	}
}

func holdsKey(j store.Job, now time.Time) bool {
	if j.UniqueFor > 0 {
		return j.EnqueuedAt.Add(j.UniqueFor).After(now)
	}
	return !j.Terminal()
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
	return append(broken, brokenHistory(d)...)
}

func brokenHistory(d store.JobDetail) []string {
	var broken []string
	if len(d.History) > store.MaxAttemptsKept {
		broken = append(broken, fmt.Sprintf("%d attempts are kept, more than %d", len(d.History), store.MaxAttemptsKept))
	}
	for i, a := range d.History {
		last := i == len(d.History)-1
		if i > 0 && a.Token <= d.History[i-1].Token {
			broken = append(broken, "tokens in the history do not grow")
		}
		if a.Token > d.Token {
			broken = append(broken, "the history has a token that the job never had")
		}
		if running := a.Ending == store.NotEnded; running != a.EndedAt.IsZero() {
			broken = append(broken, "an attempt has an end if and only if it has an ending")
		} else if running != (last && d.State == store.InFlight) {
			broken = append(broken, "an attempt runs if and only if it is the last of a job in flight")
		}
	}
	var claimedAt time.Time
	if n := len(d.History); n > 0 {
		claimedAt = d.History[n-1].StartedAt
	}
	if !d.ClaimedAt.Equal(claimedAt) {
		broken = append(broken, "ClaimedAt is not when the latest attempt started")
	}
	if d.State == store.InFlight && len(d.History) == 0 {
		broken = append(broken, "a job in flight has no attempt")
	}
	return broken
}

package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// The limits of the call that groups failed jobs: how many jobs it looks at, and on a page. Only one page with its documents is
// in memory at a time.
const (
	maxFailures  = 1000
	failuresPage = 100
)

type (
	failuresAnswer struct {
		Now      wire.Time       `json:"now"`
		LookedAt int             `json:"looked_at"`
		More     bool            `json:"more"`
		Groups   []*failureGroup `json:"groups"`
	}
	failureGroup struct {
		failureKey
		Example  string    `json:"example"`
		Jobs     int       `json:"jobs"`
		Dead     int       `json:"dead"`
		Retrying int       `json:"retrying"`
		Newest   failure   `json:"newest"`
		Oldest   failure   `json:"oldest"`
		IDs      []wire.ID `json:"ids"`
	}
	failureKey struct {
		Error string `json:"error"`
		Queue string `json:"queue"`
		Kind  string `json:"kind"`
	}
	failure struct {
		ID wire.ID   `json:"id"`
		At wire.Time `json:"at"`
	}
)

// failures answers the newest failed jobs, grouped by what failed.
func (a *API) failures(w *exchange, r *http.Request) error {
	filter, last, err := failuresQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	return a.show(w, r, func(ctx context.Context) (any, error) {
		if err := w.expect(&w.own.listed, failuresPage); err != nil {
			return nil, err
		}
		now, err := store.Now(ctx, a.as(ctx))
		if err != nil {
			return nil, err
		}
		g := grouping{by: map[failureKey]*failureGroup{}, patterns: map[string]string{}}
		if last > 0 {
			g.since = now.Add(-last)
		}
		answer := failuresAnswer{Now: wire.Time{Time: now}}
		for page := (store.Page{Limit: failuresPage}); answer.LookedAt < maxFailures; {
			found, err := a.as(ctx).List(ctx, filter, page)
			if err == nil {
				err = w.holding(found.Jobs, g.add)
			}
			if err != nil {
				return nil, err
			}
			answer.LookedAt += len(found.Jobs)
			page.Cursor, page.Limit = found.Next, min(failuresPage, maxFailures-answer.LookedAt)
			if answer.More = found.Next != ""; !answer.More {
				break
			}
		}
		answer.Groups = g.sorted()
		return answer, nil
	})
}

// holding reserves memory for the documents of a page while do reads its jobs.
func (x *exchange) holding(jobs []store.Job, do func(*store.Job)) error {
	before, weight := x.taken, 0
	for i := range jobs {
		weight += jobs[i].Weight()
	}
	if err := x.take(int64(weight) * asAnswer); err != nil {
		return err
	}
	for i := range jobs {
		do(&jobs[i])
	}
	x.give(x.taken - before)
	return nil
}

// failuresQuery reads the filter, and how long ago the latest failure of a job may be.
func failuresQuery(raw string) (store.Filter, time.Duration, error) {
	f, text := store.Filter{}, ""
	if err := parameters(raw, map[string]*string{"queue": &f.Queue, "kind": &f.Kind, "last": &text}, &f.States, nil); err != nil {
		return f, 0, err
	}
	for _, state := range f.States {
		if state != store.Dead && state != store.Retrying {
			return f, 0, refuse("state", "must be dead or retrying")
		}
	}
	if len(f.States) == 0 {
		f.States = []store.State{store.Dead, store.Retrying}
	}
	if text == "" {
		return f, 0, nil
	}
	last, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return f, 0, refuse("last", `must be a duration such as "30s"`)
	case last <= 0:
		return f, 0, refuse("last", "must be more than 0")
	}
	return f, last, nil
}

// A grouping gathers failed jobs, from the newest to the oldest by id.
type grouping struct {
	since    time.Time // leaves out jobs that failed before; zero for none
	by       map[failureKey]*failureGroup
	patterns map[string]string // of the lines that were seen: most of them repeat
}

func (g *grouping) add(j *store.Job) {
	at := failedAt(j)
	if at.Before(g.since) {
		return
	}
	line := firstLine(j.Error)
	pattern, known := g.patterns[line]
	if !known {
		pattern = errorPattern(line)
		g.patterns[line] = pattern
	}
	key, one := failureKey{pattern, j.Queue, j.Kind}, failure{wire.ID(j.ID), wire.Time{Time: at}}
	group := g.by[key]
	if group == nil {
		group = &failureGroup{failureKey: key, Example: line, Newest: one, Oldest: one}
		g.by[key] = group
	}
	group.Jobs++
	if store.PhaseOf(j) == store.Dead {
		group.Dead++
	} else {
		group.Retrying++
	}
	group.IDs = append(group.IDs, one.ID)
	if at.After(group.Newest.At.Time) {
		group.Newest = one
	}
	if !at.After(group.Oldest.At.Time) {
		group.Oldest = one
	}
}

// failedAt returns when a dead job ended. The row of a retrying job does not have the time of its failure, so it returns when
// its latest run began.
func failedAt(j *store.Job) time.Time {
	if !j.FinishedAt.IsZero() {
		return j.FinishedAt
	}
	return j.ClaimedAt
}

// sorted returns the groups, the largest first, and of those of one size the newest.
func (g *grouping) sorted() []*failureGroup {
	groups := make([]*failureGroup, 0, len(g.by))
	for _, group := range g.by {
		groups = append(groups, group)
	}
	slices.SortFunc(groups, func(a, b *failureGroup) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), b.Newest.At.Compare(a.Newest.At.Time), cmp.Compare(b.Newest.ID, a.Newest.ID))
	})
	return groups
}

// maxErrorLine is how much of the first line of an error is looked at and shown, in bytes.
const maxErrorLine = 300

// firstLine returns the first line of an error that is not blank, without white space around it, and cut if it is long.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line = strings.TrimSpace(line)
	if len(line) <= maxErrorLine {
		return line
	}
	end := maxErrorLine
	for !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end] + "…"
}

// The parts of an error that differ from job to job. A single quote in a word is an apostrophe.
var (
	quotedText = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`|\\B'[^']*'\\B")
	uuids      = regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)
	hexNumbers = regexp.MustCompile(`(?i)\b(?:0x[0-9a-f]+|[0-9a-f]{6,})\b`)
	numbers    = regexp.MustCompile(`[0-9]+(?:[.,:/-][0-9]+)*`)
)

// errorPattern returns what the errors of one cause have in common: the line with placeholders for quoted text, UUIDs,
// hexadecimal ids and numbers. Dates, times, versions and addresses are single numbers.
func errorPattern(line string) string {
	line = quotedText.ReplaceAllString(line, "<text>")
	line = uuids.ReplaceAllString(line, "<uuid>")
	line = hexNumbers.ReplaceAllStringFunc(line, func(word string) string {
		if !strings.ContainsAny(word, "0123456789") || strings.Trim(word, "0123456789") == "" {
			return word // a word such as "facade", or a number
		}
		return "<hex>"
	})
	return numbers.ReplaceAllString(line, "<n>")
}

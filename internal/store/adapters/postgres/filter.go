package postgres

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// A where is a condition that grows.
type where struct {
	terms []string
	args  []any
}

// and adds a term, in which $? stands for the argument.
func (w *where) and(term string, arg any) {
	w.terms = append(w.terms, strings.ReplaceAll(term, `$?`, w.arg(arg)))
}

// arg adds an argument and returns its name in the statement.
func (w *where) arg(arg any) string {
	w.args = append(w.args, arg)
	return `$` + strconv.Itoa(len(w.args))
}

func (w *where) text() string {
	if len(w.terms) == 0 {
		return ""
	}
	return `
		WHERE ` + strings.Join(w.terms, `
			AND `)
}

// chosen turns the filter into a condition on jobs.
func chosen(f store.Filter, now time.Time) *where {
	w := &where{}
	w.choose(f, now)
	return w
}

// also returns the filter as further terms of a condition in the same statement.
func (w *where) also(f store.Filter, now time.Time) string {
	inner := &where{args: w.args}
	inner.choose(f, now)
	w.args = inner.args
	var text strings.Builder
	for _, term := range inner.terms {
		text.WriteString(` AND ` + term)
	}
	return text.String()
}

// choose adds the conditions of the filter.
func (w *where) choose(f store.Filter, now time.Time) {
	if len(f.IDs) > 0 {
		w.and(`id = ANY ($?::bigint[])`, arrayOf(f.IDs))
	}
	if f.After != 0 {
		w.and(`id > $?`, f.After)
	}
	if f.Queue != "" {
		w.and(`queue = $?`, f.Queue)
	}
	if ranges := sqlkit.Ranges(f.Queues); len(ranges) > 0 {
		w.terms = append(w.terms, w.inQueues(`queue`, ranges))
	}
	if f.Kind != "" {
		w.and(`kind = $?`, f.Kind)
	}
	if f.Tag != "" {
		w.and(`tags::jsonb ? $?::text`, f.Tag)
	}
	if f.Worker != "" {
		w.and(`worker = $?`, f.Worker)
	}
	if f.UniqueKey != "" {
		w.and(`unique_key = $? AND unique_key <> ''`, f.UniqueKey)
	}
	if f.Group != "" {
		w.and(`group_name = ANY (ARRAY[$?::text]) AND group_name IS NOT NULL`, f.Group)
	}
	if f.LimitKey != "" {
		w.and(`limit_key = $?`, f.LimitKey)
	}
	if len(f.States) > 0 {
		w.terms = append(w.terms, inStates(f.States))
	}
	if f.FinishedFor != 0 {
		w.and(`finished_at <= $?`, now.Add(-f.FinishedFor.Truncate(store.Resolution)))
	}
	if f.WaitsFor != 0 {
		w.and(`id = ANY (ARRAY(SELECT job_id FROM {schema}.waits WHERE on_id = $? AND job_id > `+w.arg(f.After)+`))`, f.WaitsFor)
	}
	if f.WaitsForGroup != "" {
		w.and(`id = ANY (ARRAY(SELECT job_id FROM {schema}.waits WHERE on_group = $? AND job_id > `+w.arg(f.After)+`))`, f.WaitsForGroup)
	}
	if f.Unneeded {
		w.terms = append(w.terms, isUnneeded)
	}
}

// isUnneeded is the condition that no job that has not ended waits or has waited for the job or its group. The first part is a count, so
// that the planner keeps it as a question about each job that matches the rest, and does not read the jobs in another order. Many jobs may
// be in one group, so the second part finds the groups that are needed, once.
const isUnneeded = `(
				SELECT count(*)
				FROM (
					SELECT
					FROM {schema}.waits
					JOIN {schema}.jobs AS waiting ON waiting.id = waits.job_id
					WHERE waits.on_id = jobs.id AND waiting.finished_at IS NULL
					LIMIT 1
				) AS needs
			) = 0
			AND (group_name IS NULL OR group_name NOT IN (
				SELECT waits.on_group
				FROM {schema}.waits
				JOIN {schema}.jobs AS waiting ON waiting.id = waits.job_id
				WHERE waits.on_group IS NOT NULL AND waiting.finished_at IS NULL))`

// inQueues returns the condition that a queue lies in one of the ranges. An index on queues can serve each term.
func (w *where) inQueues(queue string, ranges []sqlkit.Range) string {
	var names, terms []string
	for _, r := range ranges {
		if r.Low == r.High {
			names = append(names, r.Low)
		} else {
			terms = append(terms, queue+` >= `+w.arg(r.Low)+` AND `+queue+` <= `+w.arg(r.High))
		}
	}
	if len(names) > 0 {
		terms = append(terms, queue+` = ANY (`+w.arg(arrayOfTexts(names))+`::text[])`)
	}
	return `(` + strings.Join(terms, ` OR `) + `)`
}

// A stateTerm is the condition for a state or one of its phases, written as in the indexes. Only a job in flight has a lease.
type stateTerm struct {
	state store.State
	term  string
}

var stateTerms = []stateTerm{
	{store.Blocked, isBlocked},
	{store.Ready, `unleased_state = 'ready' AND lease_expires_at IS NULL`},
	{store.InFlight, `lease_expires_at IS NOT NULL`},
	{store.Succeeded, `unleased_state = 'succeeded' AND finished_at IS NOT NULL`},
	{store.Cancelled, `unleased_state = 'cancelled' AND finished_at IS NOT NULL`},
	{store.Failed, `unleased_state = 'failed' AND lease_expires_at IS NULL`},
	{store.Retrying, `unleased_state = 'failed' AND retry_at IS NOT NULL AND lease_expires_at IS NULL`},
	{store.Dead, `unleased_state = 'failed' AND retry_at IS NULL`},
}

// inStates returns the condition that a job is in one of the states.
func inStates(states []store.State) string {
	var terms []string
	for _, s := range stateTerms {
		if slices.Contains(states, s.state) {
			terms = append(terms, s.term)
		}
	}
	return `(` + strings.Join(terms, ` OR `) + `)`
}

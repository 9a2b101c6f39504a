package sqlite

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A where is the text after FROM: the table, its index, and the conditions.
//
// Jobs are read in the order of their ids, so by default SQLite walks them in that order until there are enough. SQLite has no
// statistics here and would sort everything that an index offers, so only the few indexes that are worth it are named.
type where struct {
	index string // empty for the primary key
	runs  string // the group by whose runs the jobs are read, and by the primary key in each
	terms []string
	args  []any
}

func (w *where) and(term string, args ...any) {
	w.terms = append(w.terms, term)
	w.args = append(w.args, args...)
}

func (w *where) text() string {
	text := `jobs NOT INDEXED`
	switch {
	case w.runs != "":
		text = `group_runs CROSS JOIN jobs NOT INDEXED`
	case w.index != "":
		text = `jobs INDEXED BY ` + w.index
	}
	if len(w.terms) == 0 {
		return text
	}
	return text + `
		WHERE ` + strings.Join(w.terms, `
			AND `)
}

// order is that of the ids. The jobs of a run come before those of the next one, so nothing has to be sorted.
func (w *where) order(direction string) string {
	if w.runs != "" {
		return `first_id ` + direction + `, id ` + direction
	}
	return `id ` + direction
}

// andBetween adds the condition that the id lies between two others.
func (w *where) andBetween(after, before int64) {
	if w.runs != "" { // in each run, SQLite keeps to one bound on either side
		w.and(`first_id >= coalesce((SELECT max(first_id) FROM group_runs WHERE name = ? AND first_id <= ?), 0)`, w.runs, after)
		w.and(`last_id > ? AND first_id < ? AND id BETWEEN max(first_id, ?) AND min(last_id, ?)`, after, before, after+1, before-1)
		return
	}
	if after != 0 {
		w.and(`id > ?`, after)
	}
	if before != unbounded {
		w.and(`id < ?`, before)
	}
}

// unbounded is greater than every id.
const unbounded = math.MaxInt64

// chosen turns the filter into conditions on jobs, which have smaller ids than before.
func chosen(f store.Filter, before int64, now time.Time) *where {
	w := &where{}
	named := len(f.IDs) > 0 || f.WaitsFor != 0 || f.WaitsForGroup != ""
	if f.Group != "" {
		w.andGroup(f.Group, !named && f.UniqueKey == "")
	}
	if len(f.IDs) > 0 {
		w.and(`id IN (SELECT value FROM json_each(?))`, list(f.IDs))
	}
	w.andBetween(f.After, before)
	if f.Queue != "" {
		w.and(`queue = ?`, f.Queue)
	}
	if len(f.Queues) > 0 {
		w.and(`EXISTS (
			SELECT 1
			FROM json_each(?)
			WHERE value = queue OR substr(value, -1) = '*' AND substr(queue, 1, length(value) - 1) = substr(value, 1, length(value) - 1))`,
			list(f.Queues))
	}
	if f.Kind != "" {
		w.and(`kind = ?`, f.Kind)
	}
	if f.Tag != "" {
		w.and(`EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)`, f.Tag)
	}
	if f.Worker != "" {
		w.and(`worker = ?`, f.Worker)
	}
	if f.LimitKey != "" {
		w.and(`limit_key = ?`, f.LimitKey)
	}
	w.andStates(f.States)
	if f.UniqueKey != "" {
		w.and(`unique_key = ? AND unique_key <> ''`, f.UniqueKey)
		w.index = `jobs_unique_key`
	}
	if f.FinishedFor != 0 {
		w.andFinished(f, now)
	}
	if f.WaitsFor != 0 {
		w.and(`id IN (SELECT job_id FROM waits INDEXED BY waits_on WHERE on_id = ? AND job_id > ?)`, f.WaitsFor, f.After)
	}
	if f.WaitsForGroup != "" {
		w.and(`id IN (SELECT job_id FROM waits INDEXED BY waits_on_group WHERE on_group = ? AND job_id > ?)`, f.WaitsForGroup, f.After)
	}
	if f.Unneeded {
		w.and(isUnneeded)
	}
	if named {
		w.index = ``
	}
	return w
}

// andGroup adds the condition that the job is in the group.
func (w *where) andGroup(name string, byRuns bool) {
	if byRuns {
		w.runs = name
		w.and(`name = ?`, name)
		return
	}
	w.and(`group_name = ?`, name)
}

// isUnneeded is the condition that no job that has not ended waits or has waited for the job or its group.
const isUnneeded = `NOT EXISTS (
			SELECT 1
			FROM waits INDEXED BY waits_on
			JOIN jobs AS waiting ON waiting.id = waits.job_id
			WHERE waits.on_id = jobs.id AND waiting.finished_at IS NULL)
			AND (group_name IS NULL OR group_name NOT IN (
			SELECT on_group
			FROM waits INDEXED BY waits_on_group
			JOIN jobs AS waiting ON waiting.id = waits.job_id
			WHERE on_group IS NOT NULL AND waiting.finished_at IS NULL))`

// The conditions of the states, written as in the indexes.
var stateTerms = map[store.State]string{
	store.Blocked:   `state = 'blocked'`,
	store.Ready:     `state = 'ready'`,
	store.InFlight:  `state = 'in_flight'`,
	store.Succeeded: `state = 'succeeded'`,
	store.Cancelled: `state = 'cancelled'`,
	store.Failed:    `state = 'failed'`,
	store.Retrying:  `state = 'failed' AND retry_at IS NOT NULL`,
	store.Dead:      `state = 'failed' AND retry_at IS NULL`,
}

// The indexes of the states that few jobs are in.
var stateIndexes = map[store.State]string{
	store.Blocked:  `jobs_blocked_ids`,
	store.InFlight: `jobs_leased`,
	store.Retrying: `jobs_retrying`,
	store.Dead:     `jobs_dead`,
}

func (w *where) andStates(states []store.State) {
	if len(states) == 0 {
		return
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(states)))
	terms := make([]string, len(distinct))
	for i, s := range distinct {
		terms[i] = stateTerms[s]
	}
	w.and(`(` + strings.Join(terms, ` OR `) + `)`)
	if len(distinct) == 1 {
		w.index = stateIndexes[distinct[0]]
	}
}

// andFinished adds the condition that a job finished so long ago. The index begins with queue and state, so both are listed.
func (w *where) andFinished(f store.Filter, now time.Time) {
	terminal := []store.State{store.Succeeded, store.Failed, store.Cancelled}
	if len(f.States) > 0 {
		terminal = slices.DeleteFunc(terminal, func(s store.State) bool {
			return !slices.Contains(f.States, s) && (s != store.Failed || !slices.Contains(f.States, store.Dead))
		})
	}
	if f.Queue == "" && f.UniqueKey == "" {
		w.and(`queue IN (` + finishedQueues + `)`)
	}
	w.and(`state IN (SELECT value FROM json_each(?))`, list(terminal))
	w.and(`finished_at IS NOT NULL AND finished_at <= ?`, now.Add(-f.FinishedFor.Truncate(store.Resolution)).UnixMicro())
	if w.index != `jobs_unique_key` {
		w.index = `jobs_finished`
	}
}

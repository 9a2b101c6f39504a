package postgres

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// A search looks for the first jobs of a filter, in ascending or descending order of ids.
//
// Any number of other jobs may come before them, so a search walks along all ids only for a short while. Every phase has an
// index from each queue to its jobs by id. The search takes the first jobs of each queue and phase that the filter allows, and
// then the first ones of these. So its time grows with the number of queues, not of jobs.
//
// A range is queried as queue = ANY (ARRAY[name]) in the order queue, id. With a plain queue = name, the primary key would have
// the right order too, and statistics from a small or empty table could lead the planner to use it.
type search struct {
	filter        store.Filter
	can           condition
	now           time.Time
	phases        []store.State   // in which a job can match
	leases        cursor.Position // no visible row of the table leases is due earlier
	after, before int64           // the ids in between
	falling       bool
	limit         int
}

// A condition selects the jobs that an operation can change.
type condition string

const (
	ifAny      condition = ``
	ifLive     condition = `finished_at IS NULL`
	ifWaiting  condition = `finished_at IS NULL AND lease_expires_at IS NULL AND unleased_state <> 'blocked'`
	ifTerminal condition = `finished_at IS NOT NULL`
)

// find returns a search for the jobs that match the filter and the condition, in ascending order of ids.
func (t *txn) find(f store.Filter, limit int, can condition, leases cursor.Position) *search {
	q := &search{filter: f, can: can, now: t.now, leases: leases, after: f.After, before: math.MaxInt64, limit: limit}
	for _, phase := range store.Phases {
		state := stateOf(phase)
		asked := len(f.States) == 0 || slices.Contains(f.States, phase) || slices.Contains(f.States, state)
		possible := can == ifAny || can == ifTerminal
		if state == store.Blocked || state == store.Ready || state == store.InFlight || phase == store.Retrying {
			possible = can != ifTerminal && f.FinishedFor == 0 && (can != ifWaiting || state != store.InFlight && state != store.Blocked)
		}
		if asked && possible {
			q.phases = append(q.phases, phase)
		}
	}
	return q
}

// stateOf returns the state of a phase.
func stateOf(phase store.State) store.State {
	if phase == store.Retrying || phase == store.Dead {
		return store.Failed
	}
	return phase
}

// firstJobs returns the first jobs among the ids that a query finds, as many as there is room for. The server sends at most one
// job more than fits.
func (t *txn) firstJobs(q *search, ids func(*where) string, room *sqlkit.Room) ([]*store.Record, error) {
	w := &where{}
	return sqlkit.Fitting(t.each, room, `
		SELECT`+withDocuments.columns+`
		FROM (
			SELECT *, sum(`+weightOf(`jobs`)+`) OVER (`+q.order(`id`)+` ROWS UNBOUNDED PRECEDING) - (`+weightOf(`jobs`)+`) AS before
			FROM (
				SELECT *
				FROM {schema}.jobs
				WHERE id = ANY (ARRAY(`+ids(w)+`))
				`+q.order(`id`)+`
				LIMIT `+w.arg(q.limit)+`
			) AS jobs
		) AS jobs
		WHERE before <= `+strconv.Itoa(store.MaxAnswerBytes)+`
		`+q.order(`id`),
		w.args...)
}

// lock locks the first jobs, in the order of their ids. If one of them changed before it was locked, lock searches again.
func (t *txn) lock(q *search) ([]*store.Record, error) {
	for {
		ids, err := t.firstIDs(q)
		if err != nil || len(ids) == 0 {
			return nil, err
		}
		w := chosen(q.filter, q.now)
		w.and(`id = ANY ($?::bigint[])`, arrayOf(ids))
		found, err := t.records(`
			SELECT`+columns+`,`+presentEpoch+`
			FROM {schema}.jobs`+w.text()+q.possible()+`
			ORDER BY id
			FOR UPDATE`,
			w.args...)
		if err != nil || len(found) == len(ids) {
			return found, err
		}
	}
}

func (t *txn) firstIDs(q *search) ([]int64, error) {
	w := &where{}
	return sqlkit.Values[int64](t.each, `
		SELECT id
		FROM (`+q.ids(w)+`) AS found
		`+q.order(`id`)+`
		LIMIT `+w.arg(q.limit),
		w.args...)
}

// possible returns the search's condition as a further term.
func (q *search) possible() string {
	if q.can == ifAny {
		return ``
	}
	return ` AND ` + string(q.can)
}

// only reports whether jobs of no other phase can match.
func (q *search) only(phase store.State) bool { return len(q.phases) == 1 && q.phases[0] == phase }

// everywhere reports whether jobs of every queue and phase can match, so that no index is better than the primary key.
func (q *search) everywhere() bool {
	return q.filter.Queue == "" && q.filter.Group == "" && len(sqlkit.Ranges(q.filter.Queues)) == 0 && !q.named() && len(q.phases) == len(store.Phases)
}

// named reports whether the filter names its jobs by id, by unique key or by what they wait for, so that an index leads to them directly.
func (q *search) named() bool {
	return len(q.filter.IDs) > 0 || q.filter.UniqueKey != "" || q.filter.WaitsFor != 0 || q.filter.WaitsForGroup != ""
}

// near returns a query for ids close to the beginning of the search, or for all ids if the primary key is the best index.
func (q *search) near(w *where) string {
	window := ``
	if !q.everywhere() {
		window = `LIMIT ` + w.arg(10*q.limit)
	}
	return `
		SELECT id
		FROM (
			SELECT *
			FROM {schema}.jobs
			WHERE ` + q.between(w) + `
			` + q.order(`id`) + `
			` + window + `
		) AS jobs
		WHERE TRUE` + w.also(q.filter, q.now) + `
		` + q.order(`id`) + `
		LIMIT ` + w.arg(q.limit)
}

// ids returns a query for ids that include the first ones.
func (q *search) ids(w *where) string {
	switch {
	case len(q.phases) == 0:
		return `SELECT id FROM {schema}.jobs WHERE FALSE`
	case q.named():
		return `SELECT id FROM {schema}.jobs WHERE ` + q.between(w) + w.also(q.filter, q.now) + q.possible() + ` OFFSET 0` // OFFSET 0 keeps the planner from using the order by id
	case q.everywhere():
		return q.near(w)
	case q.filter.Group != "" && !q.only(store.InFlight):
		return q.grouped(w)
	case q.filter.FinishedFor != 0:
		return q.old(w)
	default:
		return q.ranges(w)
	}
}

// grouped goes through the runs of ids of a group. They do not overlap, so the first jobs are in the first runs, and nothing is sorted. It uses the
// index jobs_group_dead instead if only dead jobs can match.
func (q *search) grouped(w *where) string {
	if q.only(store.Dead) {
		return `
		SELECT id
		FROM {schema}.jobs
		WHERE ` + isDead + ` AND ` + q.between(w) + w.also(q.filter, q.now) + `
		` + q.order(`group_name`, `id`) + `
		LIMIT ` + w.arg(q.limit)
	}
	group, after, before := w.arg(q.filter.Group), w.arg(q.after), w.arg(q.before)
	return `
		SELECT jobs.id
		FROM {schema}.group_runs
		CROSS JOIN LATERAL (
			SELECT id
			FROM {schema}.jobs
			WHERE id >= group_runs.first_id AND id <= group_runs.last_id AND ` + q.between(w) + w.also(q.filter, q.now) + q.possible() + `
			` + q.order(`id`) + `
			LIMIT ` + w.arg(q.limit) + `
		) AS jobs
		WHERE group_runs.name = ` + group + `::text AND group_runs.first_id < ` + before + `
			AND group_runs.first_id >= coalesce((
				SELECT max(first_id)
				FROM {schema}.group_runs
				WHERE name = ` + group + `::text AND first_id <= ` + after + `
			), 0)
		` + q.order(`group_runs.first_id`) + `
		LIMIT ` + w.arg(q.limit)
}

// ranges uses the indexes of the phases.
func (q *search) ranges(w *where) string {
	var ranges []string
	var states []string
	for _, phase := range q.phases {
		switch phase {
		case store.Blocked:
			ranges = append(ranges, q.live(w, blockedQueues, isBlocked))
		case store.Ready:
			ranges = append(ranges, q.live(w, readyQueues, lanes[cursor.Fresh].waits()))
		case store.Retrying:
			ranges = append(ranges, q.live(w, retryingQueues, lanes[cursor.Retries].waits()))
		case store.InFlight:
			ranges = append(ranges, q.leased(w))
		default:
			states = append(states, string(stateOf(phase)))
		}
	}
	if len(states) > 0 {
		ranges = append(ranges, q.finished(w, arrayOfTexts(states), ``))
	}
	return strings.Join(ranges, `
		UNION ALL`)
}

// live uses the index jobs_blocked_by_id, jobs_ready_by_id or jobs_retrying_by_id.
func (q *search) live(w *where, queues, waits string) string {
	return `
		SELECT first.id
		FROM ` + q.names(w, queues) + `
		CROSS JOIN LATERAL (
			SELECT id
			FROM {schema}.jobs
			WHERE ` + waits + ` AND queue = ANY (ARRAY[names.name])
				AND ` + q.between(w) + q.rest(w) + `
			` + q.order(`queue`, `id`) + `
			LIMIT ` + w.arg(q.limit) + `
		) AS first`
}

// finished uses the index jobs_finished_by_id.
func (q *search) finished(w *where, states *array, more string) string {
	return `
		SELECT first.id
		FROM ` + q.names(w, finishedQueues) + `
		CROSS JOIN unnest(` + w.arg(states) + `::text[]) AS states (name)
		CROSS JOIN LATERAL (
			SELECT id
			FROM {schema}.jobs
			WHERE finished_at IS NOT NULL AND queue = ANY (ARRAY[names.name]) AND unleased_state = states.name
				AND ` + q.between(w) + more + q.rest(w) + `
			` + q.order(`queue`, `id`) + `
			LIMIT ` + w.arg(q.limit) + `
		) AS first`
}

// leased reads all jobs in flight: these are few, but not in the order of their ids.
func (q *search) leased(w *where) string {
	return `
		SELECT id
		FROM (
			SELECT id
			FROM {schema}.jobs
			WHERE lease_expires_at IS NOT NULL AND id = ANY (ARRAY(
					SELECT unnest(ids)
					FROM {schema}.leases
					WHERE (due_at, id) >= (` + w.arg(placeText(q.leases)) + `::text::timestamptz, ` + w.arg(q.leases.ID) + `)))
				` + w.also(store.Filter{Queue: q.filter.Queue, Queues: q.filter.Queues}, q.now) + q.rest(w) + `
			OFFSET 0
		) AS leased
		WHERE ` + q.between(w)
}

// fewOld is the largest number of old finished jobs that are sorted by id.
const fewOld = 5000

// old uses the index jobs_finished, which shows at once if no job, or few, are old enough. If there are more, a walk by id
// finds them soon, since jobs that finished long ago have lower ids than those that finished lately.
func (q *search) old(w *where) string {
	var list []string
	for _, phase := range q.phases {
		list = append(list, string(stateOf(phase)))
	}
	states, few := arrayOfTexts(list), strconv.Itoa(fewOld)
	age := ` AND finished_at <= ` + w.arg(q.now.Add(-q.filter.FinishedFor.Truncate(store.Resolution)))
	return `
		WITH old AS MATERIALIZED (
			SELECT first.id
			FROM ` + q.names(w, finishedQueues) + `
			CROSS JOIN unnest(` + w.arg(states) + `::text[]) AS states (name)
			CROSS JOIN LATERAL (
				SELECT id
				FROM {schema}.jobs
				WHERE finished_at IS NOT NULL AND queue = names.name AND unleased_state = states.name` + age + `
					AND ` + q.between(w) + q.rest(w) + `
				ORDER BY finished_at
				LIMIT ` + few + ` + 1
			) AS first
			LIMIT ` + few + ` + 1
		)
		SELECT id FROM old WHERE (SELECT count(*) FROM old) <= ` + few + `
		UNION ALL
		SELECT id FROM (` + q.finished(w, states, age) + `
		) AS more WHERE (SELECT count(*) FROM old) > ` + few
}

// names returns the table of the queues to search.
func (q *search) names(w *where, queues string) string {
	names := `(` + queues + `) AS names (name)`
	if q.filter.Queue != "" {
		names = `(VALUES (` + w.arg(q.filter.Queue) + `::text)) AS names (name)`
	}
	ranges := sqlkit.Ranges(q.filter.Queues)
	if len(ranges) == 0 {
		return names
	}
	return `(SELECT name FROM ` + names + ` WHERE ` + w.inQueues(`name`, ranges) + `) AS names`
}

// between returns the condition that an id lies in the searched range. If the filter names its jobs, no index must serve it.
func (q *search) between(w *where) string {
	id := `id`
	if q.named() {
		id = `id + 0`
	}
	return id + ` > ` + w.arg(q.after) + ` AND ` + id + ` < ` + w.arg(q.before)
}

// rest returns the conditions that no index serves.
func (q *search) rest(w *where) string {
	f := q.filter
	return w.also(store.Filter{Kind: f.Kind, Tag: f.Tag, Worker: f.Worker, Group: f.Group, LimitKey: f.LimitKey, Unneeded: f.Unneeded}, q.now)
}

func (q *search) order(columns ...string) string {
	direction := ``
	if q.falling {
		direction = ` DESC`
	}
	return `ORDER BY ` + strings.Join(columns, direction+`, `) + direction
}

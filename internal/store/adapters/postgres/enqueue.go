package postgres

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Enqueue is part of the contract.
func (s *Store) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	invalid := req.Check()
	if invalid == nil && batchable(req) {
		switch refused, err := s.someOrdered(ctx, store.Prioritized(req.Jobs)); {
		case err != nil:
			return nil, err
		case !refused:
			return s.enqueueBatched(ctx, req.Jobs)
		}
	}
	return write(ctx, s, invalid, func(t *txn) ([]store.Enqueued, error) { return t.enqueue(req) })
}

// someOrdered reports whether one of the queues may be ordered. If there are any, it asks, by a single statement.
func (s *Store) someOrdered(ctx context.Context, queues []string) (bool, error) {
	if len(queues) == 0 {
		return false, nil
	}
	_, ordered, err := s.exist(ctx, existOrdered, arrayOfTexts(queues))
	return ordered != 0, err
}

var existOrdered = existing(`{schema}.policies WHERE name = ANY ($4::text[]) AND ordered`)

// enqueue adds the jobs. If the request key is known, it returns the first answer.
func (t *txn) enqueue(req store.EnqueueRequest) ([]store.Enqueued, error) {
	return sqlkit.Once(req, t.add, t.remembered, t.remember)
}

// remembered returns the first request with the key. It locks the key, so that a concurrent request with the same key waits.
func (t *txn) remembered(key string) (first sqlkit.Request, known bool, err error) {
	var fingerprint, answer sql.NullString
	var createdAt time.Time
	err = t.each(func(rows *sql.Rows) error { return rows.Scan(&fingerprint, &answer, &createdAt) }, `
		INSERT INTO {schema}.request_keys (request_key, created_at)
		VALUES ($1, $2)
		ON CONFLICT (request_key) DO UPDATE
		SET request_key = excluded.request_key
		RETURNING fingerprint, answer, created_at`,
		key, t.now)
	known = fingerprint.Valid && createdAt.After(t.now.Add(-store.RequestKeyLife))
	return sqlkit.Request{Fingerprint: fingerprint.String, Answer: answer.String}, known, err
}

// remember stores the request and deletes a few that are too old.
func (t *txn) remember(key string, r sqlkit.Request) error {
	_, err := t.exec(`
		UPDATE {schema}.request_keys
		SET fingerprint = $2,
			answer = $3,
			created_at = $4
		WHERE request_key = $1`,
		key, r.Fingerprint, r.Answer, t.now)
	if err != nil {
		return err
	}
	_, err = t.exec(`
		DELETE FROM {schema}.request_keys
		WHERE request_key = ANY (ARRAY(
			SELECT request_key
			FROM {schema}.request_keys
			WHERE created_at <= $1
			ORDER BY created_at
			LIMIT 10
			FOR UPDATE SKIP LOCKED))`,
		t.now.Add(-store.RequestKeyLife))
	return err
}

// add opens the groups of the request, and inserts the jobs that are not duplicates.
func (t *txn) add(req store.EnqueueRequest) ([]store.Enqueued, error) {
	if err := t.openGroups(req.Open); err != nil {
		return nil, err
	}
	ordered, err := t.orderedAmong(store.Prioritized(req.Jobs))
	if err != nil {
		return nil, err
	}
	return t.addJobs(req.Jobs, ordered)
}

// orderedAmong returns those of the queues that are ordered.
func (t *txn) orderedAmong(queues []string) ([]string, error) {
	if len(queues) == 0 {
		return nil, nil
	}
	return sqlkit.Values[string](t.each, `
		SELECT name
		FROM {schema}.policies
		WHERE name = ANY ($1::text[]) AND ordered`,
		arrayOfTexts(queues))
}

// addJobs refuses jobs that have a priority and a limit key in one of the ordered queues.
func (t *txn) addJobs(jobs []store.NewJob, ordered []string) ([]store.Enqueued, error) {
	if !slices.ContainsFunc(jobs, waitsForOthers) { // otherwise an item before may wait for a job that does not exist
		if err := store.CheckNew(jobs, t.now, nil, ordered); err != nil {
			return nil, err
		}
	}
	var keys []string
	for _, n := range jobs {
		if n.UniqueKey != "" {
			keys = append(keys, n.UniqueKey)
		}
	}
	holders, err := t.holders(keys)
	if err != nil {
		return nil, err
	}
	locked, dropped, err := t.lockHolders(jobs, holders)
	if err != nil {
		return nil, err
	}
	w, err := t.waiting(jobs, ordered, holders, dropped)
	if err != nil {
		return nil, err
	}
	answers := make([]store.Enqueued, len(jobs))
	rows := make([]*store.Job, len(jobs)) // of each job its own, or that of the one before it that holds its key
	fresh := make([]store.Job, 0, len(jobs))
	taken := map[string]*store.Job{}
	for i, n := range jobs {
		w.reached(n.UniqueKey)
		if h := holders[n.UniqueKey]; h.id != 0 { // a job without a key has no holder
			answers[i] = store.Enqueued{ID: h.id, State: h.state, Duplicate: true}
			continue
		}
		if rows[i] = taken[n.UniqueKey]; rows[i] != nil {
			answers[i] = store.Enqueued{ID: rows[i].ID, Duplicate: true}
			continue
		}
		fresh = append(fresh, n.Row(0, t.now))
		rows[i] = &fresh[len(fresh)-1]
		if w != nil {
			w.begin(rows[i], n, answers, t)
			answers[i].ID = rows[i].ID
		}
		if holdsKey(rows[i]) {
			taken[n.UniqueKey] = rows[i]
		}
	}
	if err := t.insert(fresh, w); err != nil {
		return nil, err
	}
	for i, row := range rows {
		if row != nil {
			answers[i].ID, answers[i].State = row.ID, row.State
		}
	}
	if err := t.replace(jobs, answers, holders, locked); err != nil {
		return nil, err
	}
	return answers, t.hold(fresh)
}

// holdsKey reports whether a new job holds a unique key. One that is cancelled at once does not, except for a window.
func holdsKey(j *store.Job) bool {
	return j.UniqueKey != "" && (j.UniqueFor > 0 || j.State != store.Cancelled)
}

// replace changes the holders of keys that jobs with Replace need: those that were locked, and new jobs of the same call. The due
// times are never before the transaction's now, so every mark stays exact. No change has an effect on the other answers, so this
// may come after them.
func (t *txn) replace(
	jobs []store.NewJob, answers []store.Enqueued, before map[string]holder, locked map[int64]*store.Record,
) error {
	if !slices.ContainsFunc(jobs, func(n store.NewJob) bool { return n.Replace }) {
		return nil
	}
	var added []int64
	for i, n := range jobs {
		if n.Replace && answers[i].Duplicate && before[n.UniqueKey].id == 0 {
			added = append(added, answers[i].ID)
		}
	}
	if len(added) > 0 {
		records, err := t.byID(added)
		if err != nil {
			return err
		}
		maps.Copy(locked, sqlkit.Keyed(records))
	}
	changed := sqlkit.Replace(jobs, answers, locked, t.now)
	for _, e := range changed {
		t.woken.AddFor(e.Job, t.now)
	}
	return t.update(withReplaced, changed)
}

// A holder is the job that holds a unique key.
type holder struct {
	id      int64
	state   store.State // empty if the job is gone
	window  bool        // it holds the key whatever becomes of it
	expired bool        // it must be cancelled before another job takes the key
}

// holders locks the keys, in order, until the transaction ends, and returns their present holders.
func (t *txn) holders(keys []string) (map[string]holder, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	keys = distinct(keys)
	found, jobs := map[string]holder{}, map[int64]string{}
	err := t.each(func(rows *sql.Rows) error {
		var key string
		var id sql.NullInt64
		var window time.Time
		if err := rows.Scan(&key, &id, (*sqlkit.Time)(&window)); err != nil || !id.Valid {
			return err
		}
		switch {
		case window.IsZero():
			jobs[id.Int64] = key
		case window.After(t.now):
			jobs[id.Int64] = key
			found[key] = holder{id: id.Int64, window: true}
		}
		return nil
	}, `
		INSERT INTO {schema}.unique_keys (unique_key)
		SELECT unique_key
		FROM unnest($1::text[]) WITH ORDINALITY AS wanted (unique_key, place)
		ORDER BY place
		ON CONFLICT (unique_key) DO UPDATE
		SET unique_key = excluded.unique_key
		RETURNING unique_key, job_id, until`,
		arrayOfTexts(keys))
	if err != nil || len(jobs) == 0 {
		return found, err
	}
	ids := make([]int64, 0, len(jobs))
	for id := range jobs {
		ids = append(ids, id)
	}
	err = t.each(func(rows *sql.Rows) error {
		var h holder
		var live bool
		err := rows.Scan(&h.id, &h.state, &live, &h.expired)
		h.window = found[jobs[h.id]].window
		h.expired = h.expired && !h.window
		if live || h.window {
			found[jobs[h.id]] = h
		}
		return err
	}, `
		SELECT id, `+presentState+`, finished_at IS NULL, finished_at IS NULL AND lease_expires_at IS NULL AND coalesce(expires_at <= $2, FALSE)
		FROM {schema}.jobs
		WHERE id = ANY ($1::bigint[])`,
		arrayOf(ids), t.now)
	return found, err
}

// expired locks the jobs among the holders that had expired when they were read. It drops holders that others have cancelled and
// deleted since.
func (t *txn) expired(holders map[string]holder) ([]*store.Record, error) {
	var ids []int64
	for _, h := range holders {
		if h.expired {
			ids = append(ids, h.id)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	found, err := t.byID(ids)
	kept := sqlkit.Keyed(found)
	maps.DeleteFunc(holders, func(_ string, h holder) bool { return h.expired && kept[h.id] == nil })
	return found, err
}

// lockHolders locks the holders that have expired, and those that wait and that a job with Replace may change. It cancels the
// expired ones, which it returns as they were before, by their keys, and corrects the holders for what has become of them since they
// were read.
func (t *txn) lockHolders(
	jobs []store.NewJob, holders map[string]holder,
) (locked map[int64]*store.Record, dropped drops, err error) {
	locked, dropped = map[int64]*store.Record{}, drops{jobs: map[string]store.Job{}}
	if len(holders) == 0 {
		return locked, dropped, nil
	}
	wanted := map[string]bool{}
	for _, n := range jobs {
		h := holders[n.UniqueKey]
		if h.expired || n.Replace && (h.state == store.Ready || h.state == store.Failed || h.state == store.Blocked) {
			wanted[n.UniqueKey] = true
		}
	}
	if len(wanted) == 0 {
		return locked, dropped, nil
	}
	var ids []int64
	for key := range wanted {
		ids = append(ids, holders[key].id)
	}
	records, err := t.byID(ids)
	if err != nil {
		return nil, dropped, err
	}
	locked = sqlkit.Keyed(records)
	var c cancelling
	for key := range wanted {
		h := holders[key]
		e := locked[h.id]
		switch {
		case e != nil && (h.window || !store.ExpiredOf(&e.Job, t.now) && !e.Terminal()):
			h.state = e.State
			holders[key] = h
		case h.window:
			holders[key] = holder{id: h.id, window: true}
		default:
			if delete(holders, key); e != nil && !e.Terminal() {
				dropped.jobs[key] = e.Job
				c.apply(t, e)
			}
		}
	}
	if dropped.groups, err = t.statuses(dropped.inGroups()); err != nil {
		return nil, dropped, err
	}
	return locked, dropped, c.end(t, nil)
}

// drops are the jobs that a call cancels because they have expired and it needs their keys. For the items before the one that does, they and their
// groups are as before.
type drops struct {
	jobs   map[string]store.Job // by their keys
	groups map[string]store.GroupStatus
}

// inGroups returns the groups of the jobs.
func (d drops) inGroups() []string {
	var names []string
	for _, j := range d.jobs {
		if name := j.Group(); name != "" {
			names = append(names, name)
		}
	}
	return distinct(names)
}

// hold gives the locked keys to the jobs, and deletes a few windows that have ended.
func (t *txn) hold(jobs []store.Job) error {
	keys, ids, untils := newArray(ofTexts, 0), newArray(ofNumbers, 0), newArray(ofTimes, 0)
	windows := false
	for i, j := range jobs {
		if !holdsKey(&jobs[i]) {
			continue
		}
		keys.string(j.UniqueKey)
		ids.int(j.ID)
		if j.UniqueFor == 0 {
			untils.null()
			continue
		}
		untils.stamp(t.now.Add(j.UniqueFor))
		windows = true
	}
	if keys.empty() {
		return nil
	}
	_, err := t.exec(`
		UPDATE {schema}.unique_keys
		SET job_id = taken.job_id,
			until = taken.until
		FROM unnest($1::text[], $2::bigint[], $3::timestamptz[]) AS taken (unique_key, job_id, until)
		WHERE unique_keys.unique_key = ANY (ARRAY[taken.unique_key])`,
		keys, ids, untils)
	if err != nil || !windows {
		return err
	}
	_, err = t.exec(`
		DELETE FROM {schema}.unique_keys
		WHERE unique_key = ANY (ARRAY(
			SELECT unique_key
			FROM {schema}.unique_keys
			WHERE until <= $1
			ORDER BY until
			LIMIT 10
			FOR UPDATE SKIP LOCKED))`,
		t.now)
	return err
}

package sqlite

import (
	"context"
	"database/sql"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Enqueue is part of the contract.
func (s *Store) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	return write(ctx, s, req.Check(), weigh(req), func(t *txn) ([]store.Enqueued, error) { return t.enqueue(req) })
}

func weigh(req store.EnqueueRequest) load {
	l := load{items: len(req.Jobs)}
	for _, n := range req.Jobs {
		l.bytes += len(n.Payload)
		l.items += len(n.After)
	}
	return l
}

// enqueue adds the jobs. If the request key is known, it returns the first answer.
func (t *txn) enqueue(req store.EnqueueRequest) ([]store.Enqueued, error) {
	return sqlkit.Once(req, t.add, t.remembered, t.remember)
}

// remembered returns the first request with the key.
func (t *txn) remembered(key string) (first sqlkit.Request, known bool, err error) {
	err = t.each(func(rows *sql.Rows) error {
		known = true
		return rows.Scan(&first.Fingerprint, &first.Answer)
	}, `
		SELECT fingerprint, answer
		FROM request_keys
		WHERE request_key = ? AND created_at > ?`,
		key, t.now.Add(-store.RequestKeyLife).UnixMicro())
	return first, known, err
}

// remember stores the request and deletes a few that are too old.
func (t *txn) remember(key string, r sqlkit.Request) error {
	_, err := t.exec(`
		DELETE FROM request_keys
		WHERE request_key IN (
			SELECT request_key
			FROM request_keys
			WHERE created_at <= ?
			ORDER BY created_at
			LIMIT 10)`,
		t.now.Add(-store.RequestKeyLife).UnixMicro())
	if err != nil {
		return err
	}
	_, err = t.exec(`
		INSERT OR REPLACE INTO request_keys (request_key, fingerprint, answer, created_at)
		VALUES (?, ?, ?, ?)`,
		key, r.Fingerprint, r.Answer, t.now.UnixMicro())
	return err
}

// add opens the groups of the request, and inserts the jobs that are not duplicates.
func (t *txn) add(req store.EnqueueRequest) ([]store.Enqueued, error) {
	for _, name := range req.Open {
		if err := t.open(name); err != nil {
			return nil, err
		}
	}
	return t.addJobs(req.Jobs)
}

func (t *txn) addJobs(jobs []store.NewJob) ([]store.Enqueued, error) {
	ordered, err := t.orderedOf(store.Prioritized(jobs))
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(jobs, func(n store.NewJob) bool { return len(n.After) > 0 }) {
		return t.addWaiting(jobs, ordered)
	}
	if err := store.CheckNew(jobs, t.now, nil, ordered); err != nil { // none waits for a job that must exist
		return nil, err
	}
	return t.addReady(jobs)
}

// addReady adds jobs as if they waited for no others.
func (t *txn) addReady(jobs []store.NewJob) ([]store.Enqueued, error) {
	holders, err := t.holders(jobs)
	if err != nil {
		return nil, err
	}
	rows := make([]*store.Job, 0, len(jobs))
	mine := make([]*store.Job, len(jobs)) // the row of each item, or of the new job that holds its key
	answers := make([]store.Enqueued, len(jobs))
	for i, n := range jobs {
		if h, held := holders[n.UniqueKey]; held {
			mine[i] = h.row
			answers[i] = store.Enqueued{ID: h.id, State: h.state, Duplicate: true}
			continue
		}
		row := n.Row(0, t.now)
		rows, mine[i] = append(rows, &row), &row
		if row.UniqueKey != "" {
			holders[row.UniqueKey] = holder{row: &row}
		}
	}
	if err := t.insert(rows); err != nil {
		return nil, err
	}
	if err := t.addRuns(rows); err != nil {
		return nil, err
	}
	if err := t.enter(rows...); err != nil {
		return nil, err
	}
	for i, row := range mine {
		if row != nil {
			answers[i].ID, answers[i].State = row.ID, row.State
			if len(jobs[i].After) == 0 {
				t.woken.AddFor(*row, t.now)
			}
		}
	}
	return answers, t.replace(jobs, answers)
}

// replace changes the holders of keys that jobs with Replace need. No change of one has an effect on the other answers, so this
// may come last.
func (t *txn) replace(jobs []store.NewJob, answers []store.Enqueued) error {
	var ids []int64
	for i, n := range jobs {
		if n.Replace && answers[i].Duplicate {
			ids = append(ids, answers[i].ID)
		}
	}
	holders, err := t.byID(ids)
	if err != nil {
		return err
	}
	for _, e := range sqlkit.Replace(jobs, answers, holders, t.now) {
		t.woken.AddFor(e.Job, t.now)
		if _, err := t.exec(replaceQuery, append(values(nil, replaced, e), e.ID)...); err != nil {
			return err
		}
	}
	return nil
}

// A holder is the job that holds a unique key.
type holder struct {
	id    int64
	state store.State // empty if the job is gone
	row   *store.Job  // a job of the same call: it has no id before it is inserted
}

// holders returns the holders of the jobs' unique keys. A key with a window is held until the window ends, even if the job is
// gone; any other key while its job is live.
func (t *txn) holders(jobs []store.NewJob) (map[string]holder, error) {
	var keys []string
	for _, n := range jobs {
		if n.UniqueKey != "" {
			keys = append(keys, n.UniqueKey)
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	return t.holdersOf(keys)
}

// holdersOf returns the holders of the keys. It cancels those that have expired, unless they have a window.
func (t *txn) holdersOf(keys []string) (map[string]holder, error) {
	found := map[string]holder{}
	var expired []int64
	err := t.each(func(rows *sql.Rows) error {
		var key string
		var h holder
		var late bool
		err := rows.Scan(&key, &h.id, &h.state, &late)
		if late {
			expired = append(expired, h.id)
			return err
		}
		found[key] = h
		return err
	}, `
		SELECT unique_key, id, state, state <> 'in_flight' AND coalesce(expires_at <= ?2, FALSE)
		FROM jobs
		WHERE unique_key IN (SELECT value FROM json_each(?1))
			AND unique_key <> '' AND unique_for = 0 AND finished_at IS NULL
		UNION ALL
		SELECT unique_windows.unique_key, unique_windows.job_id, coalesce(jobs.state, ''), FALSE
		FROM unique_windows
		LEFT JOIN jobs ON jobs.id = unique_windows.job_id
		WHERE unique_windows.unique_key IN (SELECT value FROM json_each(?1))
			AND unique_windows.until > ?2`,
		list(keys), t.now.UnixMicro())
	if err != nil || len(expired) == 0 {
		return found, err
	}
	jobs, err := t.byID(expired)
	if err != nil {
		return nil, err
	}
	for _, e := range jobs {
		if _, err := t.cancel(e); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// openWindows stores the keys of the jobs that have a unique window and deletes a few windows that have ended.
func (t *txn) openWindows(jobs []*store.Job) error {
	for _, j := range jobs {
		if j.UniqueFor == 0 {
			continue
		}
		_, err := t.exec(`
			DELETE FROM unique_windows
			WHERE unique_key IN (
				SELECT unique_key
				FROM unique_windows
				WHERE until <= ?
				ORDER BY until
				LIMIT 2)`,
			t.now.UnixMicro())
		if err != nil {
			return err
		}
		_, err = t.exec(`
			INSERT OR REPLACE INTO unique_windows (unique_key, job_id, until)
			VALUES (?, ?, ?)`,
			j.UniqueKey, j.ID, t.now.Add(j.UniqueFor).UnixMicro())
		if err != nil {
			return err
		}
	}
	return nil
}

package sqlite

import (
	"database/sql"

	"github.com/seed-ed332417/jq/internal/store/bykey"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// The table ordered has the live jobs of each key, so that a claim finds the first one by id without walking over those that have ended.

// isLive is the condition of jobs that have not ended, isInOrder that of those that have a place in an ordered queue, and isOrdered that of jobs whose
// queue is ordered.
const (
	isLive    = `({job}.state IN ('blocked', 'ready', 'in_flight') OR {job}.state = 'failed' AND {job}.retry_at IS NOT NULL)`
	isInOrder = `{job}.limit_key <> '' AND ` + isLive
	isOrdered = `EXISTS (SELECT 1 FROM policies WHERE name = {job}.queue AND ordered)`
)

// orderedTriggers keep the table, whoever changes a job. They exist as long as a queue is ordered. A change that only claims a job, or ends its lease so that it
// waits again, changes nothing here.
var orderedTriggers = map[string]string{
	`ordered_added`: `
		AFTER INSERT ON jobs
		WHEN ` + ofRow(`NEW`, isInOrder) + ` AND ` + ofRow(`NEW`, isOrdered) + `
		BEGIN` + enterOrder + `
		END`,
	`ordered_joined`: `
		AFTER UPDATE OF id, state, retry_at, queue, limit_key ON jobs
		WHEN ` + ofRow(`NEW`, isInOrder) + ` AND NOT (` + ofRow(`OLD`, isLive) + ` AND ` + sameKey + `) AND ` + ofRow(`NEW`, isOrdered) + `
		BEGIN` + enterOrder + `
		END`,
	`ordered_left`: `
		AFTER UPDATE OF id, state, retry_at, queue, limit_key ON jobs
		WHEN ` + ofRow(`OLD`, isInOrder) + ` AND NOT (` + ofRow(`NEW`, isLive) + ` AND ` + sameKey + `)
		BEGIN` + leaveOrder + `
		END`,
	`ordered_gone`: `
		AFTER DELETE ON jobs
		WHEN ` + ofRow(`OLD`, isInOrder) + `
		BEGIN` + leaveOrder + `
		END`,
	`ordered_deleted`: `
		AFTER DELETE ON ordered
		BEGIN
			INSERT OR IGNORE INTO hints (queue, limit_key, lane, priority, due_at)
			VALUES (OLD.queue, OLD.limit_key, 2, 0, 0);
		END`,
}

const (
	sameKey    = `(OLD.id, OLD.queue, OLD.limit_key) IS (NEW.id, NEW.queue, NEW.limit_key)`
	enterOrder = `
			INSERT OR IGNORE INTO ordered (queue, limit_key, job_id)
			VALUES (NEW.queue, NEW.limit_key, NEW.id);`
	leaveOrder = `
			DELETE FROM ordered
			WHERE queue = OLD.queue AND limit_key = OLD.limit_key AND job_id = OLD.id;`
)

// putInOrder fills the table with the jobs of a queue that has become ordered.
func (t *txn) putInOrder(queue string) error {
	for _, from := range []string{
		`jobs_ready_by_key WHERE state = 'ready' AND limit_key IS NOT NULL`,
		`jobs_retrying_by_key WHERE state = 'failed' AND retry_at IS NOT NULL AND limit_key IS NOT NULL`,
		`jobs_in_flight_by_key WHERE state = 'in_flight'`,
		`jobs_blocked WHERE state = 'blocked'`,
	} {
		_, err := t.exec(`
			INSERT INTO ordered (queue, limit_key, job_id)
			SELECT queue, limit_key, id
			FROM jobs INDEXED BY `+from+` AND queue = ? AND limit_key <> ''`,
			queue)
		if err != nil {
			return err
		}
	}
	return nil
}

// headQuery is for the first live job of a key, if that waits. It passes over rows of jobs that are not what the table says.
var headQuery = `
		SELECT due_at, id, priority, weight, ifnull(expires_at <= ?3, FALSE)
		FROM (
			SELECT id, state, iif(state = 'ready', run_at, retry_at) AS due_at, priority, expires_at, ` + weight + ` AS weight
			FROM ordered
			CROSS JOIN jobs NOT INDEXED ON id = job_id
			WHERE ordered.queue = ?1 AND ordered.limit_key = ?2
				AND jobs.queue = ordered.queue AND jobs.limit_key = ordered.limit_key AND ` + ofRow(`jobs`, isLive) + `
			ORDER BY job_id
			LIMIT 1)
		WHERE state IN ('ready', 'failed')`

// readHead reads the first job of a line of an ordered queue.
func (t *txn) readHead(queue string, l *bykey.Line) error {
	return t.each(func(rows *sql.Rows) error {
		var w bykey.Waiting
		err := rows.Scan(&w.At, &w.ID, &w.Priority, &w.Weight, &w.Expired)
		l.ReadHead(w)
		return err
	}, headQuery, queue, l.Key, t.now.UnixMicro())
}

// orderedOf returns those of the queues that are ordered.
func (t *txn) orderedOf(queues []string) ([]string, error) {
	if len(queues) == 0 {
		return nil, nil
	}
	return sqlkit.Values[string](t.each, `
		SELECT name
		FROM policies
		WHERE name IN (SELECT value FROM json_each(?)) AND ordered`,
		list(queues))
}

package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// writtenAt is the time of the latest known event of a waiting job.
const writtenAt = `
	CASE WHEN state = 'failed' OR ending IN ('snoozed', 'released') THEN ended_at ELSE enqueued_at END`

const waits = `(state = 'ready' OR state = 'failed' AND retry_at IS NOT NULL)`

// Repair is part of store.Repairer.
func (s *Store) Repair(ctx context.Context) (moved int, err error) {
	return sqlkit.Repair(func(after int64) (sqlkit.Repaired, error) {
		return write(ctx, s, nil, load{items: store.MaxItems}, func(t *txn) (sqlkit.Repaired, error) { return t.repair(after) })
	})
}

func (t *txn) repair(after int64) (part sqlkit.Repaired, err error) {
	part.Last, part.More, err = t.lastOf(after)
	if err != nil || !part.More {
		return part, err
	}
	part.Moved, err = t.exec(`
		UPDATE jobs
		SET run_at = iif(state = 'ready', run_at - (`+writtenAt+` - ?4), run_at),
			retry_at = retry_at - (`+writtenAt+` - ?4),
			enqueued_at = min(enqueued_at, ?4),
			ended_at = min(ended_at, ?4)
		WHERE id > ?1 AND id <= ?2 AND `+waits+` AND`+writtenAt+` > ?3`,
		after, part.Last, t.now.Add(store.MaxSetBack).UnixMicro(), t.now.UnixMicro())
	return part, err
}

// lookAtClock looks for jobs that Repair would move. It reads all jobs, so no time limit holds for it.
func (s *Store) lookAtClock(ctx context.Context, _ alarming) ([]store.Finding, error) {
	now := s.now.get()
	var ahead struct {
		Jobs   int
		Latest sql.NullInt64
	}
	err := s.callers.GetContext(ctx, &ahead, `
		SELECT count(*) AS jobs, max(`+writtenAt+`) AS latest
		FROM jobs
		WHERE `+waits+` AND`+writtenAt+` > ?`,
		now.Add(store.MaxSetBack).UnixMicro())
	if err != nil || ahead.Jobs == 0 {
		return nil, err
	}
	return []store.Finding{store.WrittenAhead(ahead.Jobs, time.UnixMicro(ahead.Latest.Int64).Sub(now))}, nil
}

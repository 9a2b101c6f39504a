package postgres

import (
	"fmt"

	"github.com/seed-ed332417/jq/internal/store/bykey"
)

// What claims write of the keys that they have locked.

// writeKeys writes the rows, which the transaction has locked.
func (t *txn) writeKeys(queue string, rows []bykey.Row) error {
	if len(rows) == 0 {
		return nil
	}
	_, err := t.exec(writeKeysQuery, keyArgs([]any{queue}, rows)...)
	return err
}

var writeKeysQuery = `
		WITH gone AS (` + deleteKeys(`$1`, 2) + `
		)` + updateKeys(`$1`, 3)

// keysOfLease is [writeKeysQuery] as a part of the statement that gives leases.
func keysOfLease(queue string, n int) string {
	return `,
		gone_keys AS (` + deleteKeys(queue, n) + `
		),
		written_keys AS (` + updateKeys(queue, n+1) + `
		)`
}

// keyArgs appends the arguments of deleteKeys and updateKeys.
func keyArgs(args []any, rows []bykey.Row) []any {
	var gone, names, states []string
	var firsts [6]*array
	for i := range firsts {
		firsts[i] = newArray(ofNumbers, len(rows)*numberBytes)
	}
	times := newArray(ofTimes, len(rows)*numberBytes)
	for _, r := range rows {
		if r.State == "" {
			gone = append(gone, r.Name)
			continue
		}
		names, states = append(names, r.Name), append(states, r.State)
		for i, place := range []*bykey.Place{r.Fresh, r.Retry} {
			of := firsts[3*i : 3*i+3]
			if place == nil {
				of[0].null()
				of[1].null()
				of[2].null()
				continue
			}
			of[0].int(int64(place.Level))
			of[1].int(place.At)
			of[2].int(place.ID)
		}
		times.stamp(r.LookAt)
	}
	return append(args, arrayOfTexts(gone), arrayOfTexts(names), arrayOfTexts(states),
		firsts[0], firsts[1], firsts[2], firsts[3], firsts[4], firsts[5], times)
}

func deleteKeys(queue string, n int) string {
	return fmt.Sprintf(`
			DELETE FROM {schema}.keys
			WHERE queue = %s AND limit_key = ANY ($%d::text[])`, queue, n)
}

// updateKeys returns the statement that writes rows of keys, with the arguments from a number on. Like lookAtQuery, it looks for each row by itself: after
// a burst of new keys, the planner knows of few, and would compare each with all.
func updateKeys(queue string, n int) string {
	return fmt.Sprintf(`
		UPDATE {schema}.keys
		SET state = new.state,
			fresh_level = new.fresh_level,
			fresh_at = new.fresh_at,
			fresh_id = new.fresh_id,
			retry_level = new.retry_level,
			retry_at = new.retry_at,
			retry_id = new.retry_id,
			look_at = new.look_at
		FROM unnest($%[2]d::text[], $%[3]d::text[], $%[4]d::bigint[], $%[5]d::bigint[], $%[6]d::bigint[], $%[7]d::bigint[], $%[8]d::bigint[], $%[9]d::bigint[],
				$%[10]d::timestamptz[])
			AS new (limit_key, state, fresh_level, fresh_at, fresh_id, retry_level, retry_at, retry_id, look_at)
		CROSS JOIN LATERAL (
			SELECT known.ctid
			FROM {schema}.keys AS known
			WHERE known.queue = %[1]s AND known.limit_key = new.limit_key
			LIMIT 1
		) AS known
		WHERE keys.ctid = known.ctid`, queue, n, n+1, n+2, n+3, n+4, n+5, n+6, n+7, n+8)
}

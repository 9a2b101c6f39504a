package postgres

import (
	"cmp"
	"database/sql"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

// A noted is an end of a job, or the name of a group in which something has changed.
type noted struct {
	store.End
	group string
	live  int // how many more jobs of the group are live
}

// noteEnds adds rows to the table ends, in their order, and one for each group. It spoils some of the groups.
func (t *txn) noteEnds(ends []noted, spoiled ...string) error {
	if len(ends) == 0 {
		return nil
	}
	if err := t.spoil(spoiled); err != nil {
		return err
	}
	more := map[string]int{}
	for _, e := range ends {
		more[e.group] += e.live
	}
	ids, tokens, as, groups, live := newArray(ofNumbers, 0), newArray(ofNumbers, 0), newArray(ofTexts, 0), newArray(ofTexts, 0), newArray(ofNumbers, 0)
	here := map[string]bool{}
	for _, e := range ends {
		switch {
		case e.group == "":
			t.heard = true
		case here[e.group]:
			continue
		default:
			here[e.group] = true
			t.left = append(t.left, e.group)
			if slices.Contains(spoiled, e.group) {
				e.As = spoils
			}
		}
		ids.int(e.ID)
		tokens.int(e.Token)
		as.string(string(e.As))
		groups.string(e.group)
		live.int(int64(more[e.group]))
	}
	return t.each(func(rows *sql.Rows) error {
		var number int64
		err := rows.Scan(&number)
		t.leftFrom = first(t.leftFrom, number)
		return err
	}, `
		INSERT INTO {schema}.ends (job_id, token, ended_as, group_name, live)
		SELECT job_id, token, ended_as, nullif(group_name, ''), live
		FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bigint[]) WITH ORDINALITY
			AS ended (job_id, token, ended_as, group_name, live, place)
		ORDER BY place
		RETURNING number`,
		ids, tokens, as, groups, live)
}

// first returns the lower of two numbers of rows, of which the first may be missing.
func first(one, another int64) int64 { return min(cmp.Or(one, another), another) }

// noteEndsOf notes what has changed with the jobs for those that wait for them or their groups.
func (t *txn) noteEndsOf(jobs []*store.Record) error {
	var ends []noted
	var spoiled []string
	for _, r := range jobs {
		more := t.more(r, !r.Terminal())
		e, ended := store.EndOf(&r.Job)
		if !ended {
			if more != 0 {
				ends = append(ends, noted{group: r.Group(), live: more})
			}
			continue
		}
		if r.Links&store.LinkAwaited != 0 {
			ends = append(ends, noted{End: e})
		}
		if name := r.Group(); name != "" {
			ends = append(ends, noted{group: name, live: more})
		}
		if name := store.SpoilsOf(&r.Job, false); name != "" {
			spoiled = append(spoiled, name)
		}
	}
	return t.noteEnds(ends, spoiled...)
}

// more returns how many more jobs of its group are live because of what has become of a job.
func (t *txn) more(r *store.Record, live bool) int {
	switch {
	case r.Group() == "" || t.live[r.ID] == live:
		return 0
	case live:
		t.live[r.ID] = true
		return 1
	default:
		t.live[r.ID] = false
		return -1
	}
}

// noteGone notes the ends of jobs that are deleted, and remembers those that had not succeeded for who has just begun to wait.
func (t *txn) noteGone(jobs []*store.Record) error {
	var ends []noted
	var spoiled []string
	ids, tokens := newArray(ofNumbers, 0), newArray(ofNumbers, 0)
	for _, r := range jobs {
		if e, gone := store.GoneOf(&r.Job); gone {
			if r.Links&store.LinkAwaited != 0 {
				ends = append(ends, noted{End: e})
			}
			if name := r.Group(); name != "" {
				spoiled = append(spoiled, name)
				ends = append(ends, noted{group: name})
			}
		}
		if r.State != store.Succeeded {
			ids.int(r.ID)
			tokens.int(r.Token)
		}
	}
	if ids.empty() {
		return nil
	}
	_, err := t.exec(`
		INSERT INTO {schema}.gone (job_id, token, deleted_at)
		SELECT job_id, token, $3
		FROM unnest($1::bigint[], $2::bigint[]) AS gone (job_id, token)
		ON CONFLICT (job_id) DO UPDATE
		SET token = excluded.token,
			deleted_at = excluded.deleted_at`,
		ids, tokens, t.now)
	if err != nil {
		return err
	}
	return t.noteEnds(ends, spoiled...)
}

// forgetGone forgets some deletions that everybody has seen who began to wait before them.
func (t *txn) forgetGone() error {
	_, err := t.exec(`
		DELETE FROM {schema}.gone
		WHERE job_id = ANY (ARRAY(
				SELECT job_id
				FROM {schema}.gone
				WHERE deleted_at <= $1
				ORDER BY deleted_at
				LIMIT $2
				FOR UPDATE SKIP LOCKED))
			AND NOT EXISTS (SELECT 1 FROM {schema}.looks)`,
		t.now.Add(-keepGone), mostForgotten)
	return err
}

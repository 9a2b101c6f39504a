package sqlite

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// addWaiting adds jobs of which some wait for others. What becomes of one of these depends on those before it. The ordered
// queues are those of [store.CheckNew].
func (t *txn) addWaiting(jobs []store.NewJob, ordered []string) ([]store.Enqueued, error) {
	var ids []int64
	for _, n := range jobs {
		for _, w := range n.After {
			ids = append(ids, w.ID)
		}
	}
	other, err := t.others(ids)
	if err != nil {
		return nil, err
	}
	if err := store.CheckNew(jobs, t.now, func(id int64) bool { return other(id) != nil }, ordered); err != nil {
		return nil, err
	}
	for _, trigger := range triggers {
		if _, err := t.exec(trigger); err != nil {
			return nil, err
		}
	}
	var awaited []string
	t.groups.expected, awaited = sqlkit.Expected(jobs)
	answers := make([]store.Enqueued, 0, len(jobs))
	for begin, end := 0, 0; begin < len(jobs); begin = end {
		for end = begin + 1; end < len(jobs) && len(jobs[end-1].After) == 0 && len(jobs[end].After) == 0; end++ {
		}
		added, err := t.addReady(jobs[begin:end])
		if err != nil {
			return nil, err
		}
		answers = append(answers, added...)
		if n := jobs[begin]; len(n.After) > 0 && !added[0].Duplicate {
			waits := n.KeptWaits(func(item int) int64 { return answers[item].ID })
			if answers[begin].State, err = t.await(n.Row(added[0].ID, t.now), waits); err != nil {
				return nil, err
			}
		}
	}
	t.groups = groups{}
	for _, name := range awaited { // only now is it known which jobs are duplicates, or cancelled
		if err := t.noteGroup(name); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// The triggers note the ends of jobs that others wait for, whoever ends these: also a process that opened the file before it knew of
// waits. An update with a trigger takes a fifth longer. So they are created with the first wait, and that of updates is for those that write the
// column result: all that may end a job for which others wait, in every version, but not the first statement of an Ack. The trigger that is
// dropped here was for all updates that end jobs.
var triggers = [...]string{`
		DROP TRIGGER IF EXISTS jobs_ended`, `
		CREATE TRIGGER IF NOT EXISTS jobs_finished AFTER UPDATE OF result ON jobs
		WHEN NEW.links & 1 AND OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL
		BEGIN
			INSERT INTO ends (job_id, token, ended_as)
			VALUES (NEW.id, NEW.token, iif(NEW.state = 'failed', 'dead', NEW.state));
		END`, `
		CREATE TRIGGER IF NOT EXISTS jobs_deleted AFTER DELETE ON jobs
		WHEN OLD.links & 1 AND OLD.state = 'failed' AND OLD.retry_at IS NULL
		BEGIN
			INSERT INTO ends (job_id, token, ended_as)
			VALUES (OLD.id, OLD.token, 'gone');
		END`,
}

// others returns a function that returns jobs by their ids, as far as their ends are concerned, or nil.
func (t *txn) others(ids []int64) (func(id int64) *store.Job, error) {
	records, err := t.records(`
		SELECT id, state, retry_at, token
		FROM jobs
		WHERE id IN (SELECT value FROM json_each(?))`,
		list(ids))
	jobs := sqlkit.Keyed(records)
	return func(id int64) *store.Job {
		if e := jobs[id]; e != nil {
			return &e.Job
		}
		return nil
	}, err
}

// awaitsOf returns what there is to know of the jobs and groups that the waits are for.
func (t *txn) awaitsOf(waits []store.KeptWait) (store.Awaits, error) {
	other, err := t.others(awaited(waits))
	if err != nil {
		return store.Awaits{}, err
	}
	return store.Awaits{Job: other, Group: t.group}, t.lookAt(waits)
}

// awaited returns the ids of the jobs that the waits are for.
func awaited(waits []store.KeptWait) []int64 {
	ids := make([]int64, len(waits))
	for i, w := range waits {
		ids[i] = w.On
	}
	return ids
}

// await makes a job that was just added wait, and returns its state.
func (t *txn) await(j store.Job, waits []store.KeptWait) (store.State, error) {
	on, err := t.awaitsOf(waits)
	if err != nil {
		return "", err
	}
	j.Begin(waits, on, t.now)
	t.woken.AddFor(j, t.now)
	_, err = t.exec(`
		UPDATE jobs
		SET state = ?, finished_at = ?, error = ?, links = 2
		WHERE id = ?`,
		j.State, micros(j.FinishedAt), j.Error, j.ID)
	if err != nil {
		return "", err
	}
	if j.Terminal() {
		if err := t.noteLeft(&store.Record{Job: j}, false); err != nil {
			return "", err
		}
	}
	if err := t.insertWaits(j.ID, waits); err != nil {
		return "", err
	}
	return j.State, t.markAwaited(waits)
}

func (t *txn) insertWaits(id int64, waits []store.KeptWait) error {
	rows := make([][5]any, len(waits))
	for i, w := range waits {
		rows[i] = [5]any{w.On, number(w.Any), number(w.Met), w.From, w.Group}
	}
	text, _ := json.Marshal(rows) // numbers and valid strings: cannot fail
	_, err := t.exec(`
		INSERT OR REPLACE INTO waits (job_id, number, on_id, any_end, met, from_token, on_group)
		SELECT ?, key, value ->> 0, value ->> 1, value ->> 2, value ->> 3, nullif(value ->> 4, '')
		FROM json_each(?)`,
		id, string(text))
	return err
}

func number(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

func (t *txn) markAwaited(waits []store.KeptWait) error {
	_, err := t.exec(`
		UPDATE jobs
		SET links = links | 1
		WHERE id IN (SELECT value FROM json_each(?)) AND links & 1 = 0`,
		list(awaited(waits)))
	return err
}

// waitsOf returns the waits of jobs, by the ids of these.
func (t *txn) waitsOf(ids ...int64) (map[int64][]store.KeptWait, error) {
	return sqlkit.Waits(t.each, `
		SELECT job_id, on_id, coalesce(on_group, ''), any_end, met, from_token
		FROM waits
		WHERE job_id IN (SELECT value FROM json_each(?))
		ORDER BY job_id, number`,
		list(ids))
}

// shown returns what Get shows of the waits of a job.
func (t *txn) shown(id int64) ([]store.Waiting, error) {
	waits, err := t.waitsOf(id)
	if err != nil {
		return nil, err
	}
	on, err := t.awaitsOf(waits[id])
	if err != nil {
		return nil, err
	}
	return store.WaitsOf(waits[id], on), nil
}

// noteEnd is for a job that was updated and may have ended: if others wait for it, triggers have noted that, and the call is to tell them.
func (t *txn) noteEnd(e *store.Record, lived bool) error {
	if !lived || !e.Terminal() {
		return nil
	}
	return t.noteLeft(e, false)
}

// noteLeft is for a job that has ended or was deleted.
func (t *txn) noteLeft(e *store.Record, deleted bool) error {
	t.heard = t.heard || e.Links&store.LinkAwaited != 0
	if e.Group() == "" {
		return nil
	}
	if store.SpoilsOf(&e.Job, deleted) != "" {
		if err := t.spoil(e.Group()); err != nil {
			return err
		}
	}
	if !deleted {
		if _, err := t.leave(e.Group(), 1); err != nil {
			return err
		}
	}
	return t.noteGroup(e.Group())
}

// follow does what follows from the ends that a call has noted: it tells so many jobs at most, or a few more, and returns whether there may be
// others to tell.
func (t *txn) follow(most int) (left bool, err error) {
	if err := t.forgetSmaller(); err != nil || !t.heard {
		return false, err
	}
	_, _, left, err = t.hear(most, most)
	return left, err
}

// An end is one that the jobs up to an id have been told of. If it has a group, something has changed in that.
type end struct {
	store.End
	group        string
	number, upTo int64
}

// hear tells at most so many jobs of ends, or a few more, until it has changed a number of them, and returns these, how many it told, and whether
// there may be others to tell.
func (t *txn) hear(limit, most int) (changed []*store.Record, told int, left bool, err error) {
	for told < most && len(changed) < limit {
		var next *end
		err := t.each(func(rows *sql.Rows) error {
			next = &end{}
			return rows.Scan(&next.number, &next.ID, &next.group, &next.Token, &next.As, &next.upTo)
		}, `
			SELECT number, job_id, coalesce(group_name, ''), token, ended_as, up_to
			FROM ends
			ORDER BY number
			LIMIT 1`)
		if err != nil || next == nil {
			return changed, told, false, err
		}
		some, heard, err := t.tell(*next, limit-len(changed))
		if err != nil {
			return nil, 0, false, err
		}
		told += max(heard, 1)
		changed = append(changed, some...)
	}
	return changed, told, true, nil
}

// tell tells the next jobs of an end, and returns how many these are, and those that it has changed, at most so many.
func (t *txn) tell(e end, limit int) (changed []*store.Record, heard int, err error) {
	most := min(toldAtOnce, max(limit, settledAtOnce))
	ids, err := t.concerned(e, most)
	if err != nil {
		return nil, 0, err
	}
	jobs, err := t.byID(ids)
	if err != nil {
		return nil, 0, err
	}
	waits, err := t.waitsOf(ids...)
	if err != nil {
		return nil, 0, err
	}
	from, met := e.upTo, []int64(nil)
	for _, id := range ids {
		if len(changed) == limit {
			break
		}
		e.upTo = id
		r := jobs[id]
		if r == nil { // somebody has deleted it by hand, where foreign keys are off
			continue
		}
		did, err := t.hears(r, waits[id], e)
		if err != nil {
			return nil, 0, err
		}
		if !did {
			continue
		}
		changed = append(changed, r)
		if r.State == store.Ready {
			met = append(met, id)
		}
	}
	if err := t.markMet(e, from); err != nil {
		return nil, 0, err
	}
	if err := t.markGroupsMet(met); err != nil {
		return nil, 0, err
	}
	if len(ids) < most && (len(ids) == 0 || e.upTo == ids[len(ids)-1]) {
		_, err = t.exec(`
			DELETE FROM ends
			WHERE number = ?`,
			e.number)
		return changed, len(ids), err
	}
	_, err = t.exec(`
		UPDATE ends
		SET up_to = ?
		WHERE number = ?`,
		e.upTo, e.number)
	return changed, len(ids), err
}

// hears tells a job of an end, and returns whether that has changed it.
func (t *txn) hears(r *store.Record, waits []store.KeptWait, e end) (changed bool, err error) {
	on := store.Awaits{Group: t.group}
	if err := t.lookAt(waits); err != nil {
		return false, err
	}
	before := r.State
	if e.group != "" {
		r.HearGroup(e.group, waits, on, t.now)
	} else {
		r.Hear(waits, e.End, on, t.now)
	}
	if r.State == before {
		return false, nil
	}
	t.woken.AddFor(r.Job, t.now)
	return true, t.updateEnd(r, true)
}

// concerned returns the ids of the next jobs for which the end means something, so many at most.
func (t *txn) concerned(e end, most int) ([]int64, error) {
	if e.group != "" {
		return t.concernedBy(e, most)
	}
	return sqlkit.Values[int64](t.each, `
		SELECT DISTINCT job_id
		FROM waits INDEXED BY waits_unmet
		WHERE on_id = ?1 AND met = 0 AND job_id > ?2 AND from_token <= ?3 AND (any_end = 1 OR ?4 <> 'dead')
		ORDER BY job_id
		LIMIT ?5`,
		e.ID, e.upTo, e.Token, e.As, most)
}

// markMet marks the waits that the end has met, of jobs above an id up to the latest that was told: those of which Record.Hear says so.
func (t *txn) markMet(e end, above int64) error {
	if e.group != "" {
		return nil
	}
	_, err := t.exec(`
		UPDATE waits
		SET met = 1
		WHERE on_id = ? AND met = 0 AND job_id > ? AND job_id <= ? AND from_token <= ? AND (any_end = 1 OR ? = 'succeeded')`,
		e.ID, above, e.upTo, e.Token, e.As)
	return err
}

// blockAgain blocks jobs that were requeued and wait for others, by rising id. It first tells at most so many jobs of ends: what was before must not
// count afterwards.
func (t *txn) blockAgain(waiting []*store.Record, outcomes []store.Outcome, most int) error {
	if len(waiting) > 0 {
		if _, _, left, err := t.hear(most, most); err != nil {
			return err
		} else if left {
			return errManyEnds
		}
	}
	slices.SortFunc(waiting, func(a, b *store.Record) int { return cmp.Compare(a.ID, b.ID) })
	for _, e := range waiting {
		found, err := t.waitsOf(e.ID)
		if err != nil {
			return err
		}
		waits := found[e.ID]
		on, err := t.awaitsOf(waits)
		if err != nil {
			return err
		}
		if store.LookAgain(waits, on) {
			e.State = store.Blocked
			if err := t.update(e); err != nil {
				return err
			}
		}
		if err := t.insertWaits(e.ID, waits); err != nil {
			return err
		}
		for i, o := range outcomes {
			if o.ID == e.ID && o.Status == store.StatusOK {
				outcomes[i] = store.OutcomeOf(e.Job, o.Status)
			}
		}
	}
	return nil
}

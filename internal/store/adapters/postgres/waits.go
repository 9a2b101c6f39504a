package postgres

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Waits.
//
// A job that others wait for has a flag in its row, which is never taken back. Whoever ends such a job adds a row to the table ends in
// the same transaction, and tells those that wait after the commit: see follow.go. A job that nobody waits for costs nothing more.
//
// Whoever sets the flag must read the job under a lock: an end that is not committed yet would be missed otherwise, since it saw no
// flag. Enqueue and Requeue lock the jobs that they can lock at once. For the others they add the waiting job to the table looks, and
// Settle sets the flags and looks how the jobs are. A caller's transaction may last long, so it locks none of them.

// others are jobs that a transaction has locked, if nobody else had, or only read.
type others struct {
	found  map[int64]*store.Record
	locked map[int64]bool
}

func (o others) job(id int64) *store.Job {
	if e := o.found[id]; e != nil {
		return &e.Job
	}
	return nil
}

// holds reports whether no end of the job can be missed: it is locked or has the flag.
func (o others) holds(id int64) bool {
	e := o.found[id]
	return o.locked[id] || e != nil && e.Links&store.LinkAwaited != 0
}

const otherColumns = `
	id, queue, ` + presentState + ` AS state, run_at, CASE WHEN lease_expires_at IS NULL THEN retry_at END AS retry_at, expires_at, token, links`

// read reads jobs.
func (t *txn) read(ids []int64) (others, error) {
	found, err := t.records(`
		SELECT`+otherColumns+`
		FROM {schema}.jobs
		WHERE id = ANY ($1::bigint[])`,
		arrayOf(ids))
	return others{found: sqlkit.Keyed(found)}, err
}

// lockOthers locks the jobs that others wait for and that nobody else has locked, and reads the rest.
func (t *txn) lockOthers(ids []int64) (others, error) { return t.lockFree(otherColumns, ids) }

// lockFree locks the jobs that nobody else has locked, in the order of their ids, and reads [otherColumns] of the rest. A claim may find
// a job locked that it would have taken, so the commit wakes its queue.
func (t *txn) lockFree(columns string, ids []int64) (others, error) {
	if len(ids) == 0 {
		return others{}, nil
	}
	records, err := t.records(`
		SELECT`+columns+`
		FROM {schema}.jobs
		WHERE id = ANY ($1::bigint[])
		ORDER BY id
		FOR UPDATE SKIP LOCKED`,
		arrayOf(ids))
	if err != nil {
		return others{}, err
	}
	o := others{sqlkit.Keyed(records), map[int64]bool{}}
	for _, e := range records {
		t.woken.AddFor(e.Job, t.now)
	}
	var left []int64
	for _, id := range ids {
		if o.locked[id] = o.found[id] != nil; !o.locked[id] {
			left = append(left, id)
		}
	}
	if len(left) == 0 {
		return o, nil
	}
	rest, err := t.read(left)
	maps.Copy(o.found, rest.found)
	return o, err
}

// flag sets the flag of those among the jobs that are locked and do not have it.
func (t *txn) flag(ids []int64, o others) error {
	unflagged := newArray(ofNumbers, 0)
	for _, id := range ids {
		if o.locked[id] && o.found[id].Links&store.LinkAwaited == 0 {
			unflagged.int(id)
		}
	}
	if unflagged.empty() {
		return nil
	}
	_, err := t.exec(`
		UPDATE {schema}.jobs
		SET links = links | 1
		WHERE id = ANY ($1::bigint[])`,
		unflagged)
	return err
}

// A waiting has the jobs of a call that wait for others. It is nil if none does.
type waiting struct {
	groups   map[string]store.GroupStatus // that jobs wait for
	expected map[string]bool              // groups in which jobs of the call will be
	others   others
	dropped  drops
	expired  map[int64]store.Job // those of the dropped jobs that are needed by this item, or by a later one
	ids      []int64             // of the jobs that are added
	added    map[int64]*store.Job
	waits    map[int64][]store.KeptWait
	links    map[int64]store.Links // of added jobs
}

// waiting reads what jobs wait for, and refuses them if some of that does not exist. It must come after everything for which the
// transaction may have to wait.
func (t *txn) waiting(jobs []store.NewJob, ordered []string, holders map[string]holder, dropped drops) (*waiting, error) {
	if !slices.ContainsFunc(jobs, waitsForOthers) {
		return nil, nil
	}
	var ids []int64
	for _, n := range jobs {
		for _, w := range n.After {
			switch {
			case w.Group != "":
			case w.ID != 0:
				ids = append(ids, w.ID)
			case holders[jobs[w.Item].UniqueKey].id != 0:
				ids = append(ids, holders[jobs[w.Item].UniqueKey].id)
			}
		}
	}
	w := &waiting{
		expired: map[int64]store.Job{}, dropped: dropped,
		added: map[int64]*store.Job{}, waits: map[int64][]store.KeptWait{}, links: map[int64]store.Links{},
	}
	for _, j := range dropped.jobs {
		w.expired[j.ID] = j
	}
	lock := t.lockOthers
	if t.conn == nil {
		lock = t.read
	}
	var err error
	if w.others, err = lock(distinct(ids)); err != nil {
		return nil, err
	}
	for _, h := range holders {
		if h.id != 0 && !h.window && slices.Contains(ids, h.id) && w.others.found[h.id] == nil {
			return nil, errHolderGone
		}
	}
	if err := store.CheckNew(jobs, t.now, func(id int64) bool { return w.others.found[id] != nil }, ordered); err != nil {
		return nil, err
	}
	if err := w.lookAtGroups(jobs, t); err != nil {
		return nil, err
	}
	w.ids, err = t.drawIDs(len(jobs))
	return w, err
}

// drawIDs draws ids for jobs. The statement also locks no job, and with that the table before it draws: otherwise Fence would not wait for
// the transaction, and ids of the old epoch would be committed after it.
func (t *txn) drawIDs(n int) ([]int64, error) {
	return sqlkit.Values[int64](t.each, `
		WITH locked AS MATERIALIZED (
			SELECT
			FROM {schema}.jobs
			WHERE id = 0
			FOR UPDATE
		)
		SELECT nextval(pg_get_serial_sequence($1, 'id'))
		FROM generate_series(1, $2)
		WHERE NOT EXISTS (SELECT FROM locked)`,
		t.s.schema+`.jobs`, n)
}

func waitsForOthers(n store.NewJob) bool { return len(n.After) > 0 }

func (w *waiting) lookAtGroups(jobs []store.NewJob, t *txn) (err error) {
	var names []string
	for _, n := range jobs {
		for _, one := range n.After {
			if one.Group != "" {
				names = append(names, one.Group)
			}
		}
	}
	w.expected, _ = sqlkit.Expected(jobs)
	if w.groups, err = t.statuses(distinct(names)); w.groups == nil {
		w.groups = map[string]store.GroupStatus{}
	}
	return err
}

func (w *waiting) group(name string) store.GroupStatus {
	g := w.groups[name]
	g.Live = g.Live || w.expected[name]
	if before, dropped := w.dropped.groups[name]; dropped {
		for _, j := range w.expired {
			g.Live = g.Live || j.Group() == name
		}
		g.Spoiled = before.Spoiled
	}
	return g
}

// spoil notes that a group is spoiled for the items that follow.
func (w *waiting) spoil(name string) {
	for _, known := range []map[string]store.GroupStatus{w.groups, w.dropped.groups} {
		if is, waited := known[name]; waited {
			is.Spoiled = true
			known[name] = is
		}
	}
}

// distinct returns the values in order, each of them once.
func distinct[T cmp.Ordered](values []T) []T {
	return slices.Compact(slices.Sorted(slices.Values(values)))
}

func (w *waiting) job(id int64) *store.Job {
	if j, before := w.expired[id]; before {
		return &j
	}
	if j := w.added[id]; j != nil {
		return j
	}
	return w.others.job(id)
}

// reached says that the items before have begun, and that the next one has the key.
func (w *waiting) reached(key string) {
	if w == nil {
		return
	}
	if j, dropped := w.dropped.jobs[key]; dropped {
		delete(w.expired, j.ID)
		w.spoil(j.Group())
	}
}

// begin gives an item that becomes a job its id and its state. The answers have the ids of the items before it.
func (w *waiting) begin(j *store.Job, n store.NewJob, answers []store.Enqueued, t *txn) {
	j.ID, w.ids = w.ids[0], w.ids[1:]
	w.added[j.ID] = j
	if len(n.After) == 0 {
		return
	}
	waits := n.KeptWaits(func(item int) int64 { return answers[item].ID })
	j.Begin(waits, store.Awaits{Job: w.job, Group: w.group}, t.now)
	if name := store.SpoilsOf(j, false); name != "" {
		w.spoil(name)
	}
	w.waits[j.ID] = waits
	w.links[j.ID] |= store.LinkWaits
	for _, one := range waits {
		if w.added[one.On] != nil {
			w.links[one.On] |= store.LinkAwaited
		}
	}
}

// keep writes the waits of the jobs that were added.
func (w *waiting) keep(t *txn) error {
	values := newWaitArrays()
	ids := slices.Sorted(maps.Keys(w.waits))
	for _, id := range ids {
		values.add(id, w.waits[id])
	}
	_, err := t.exec(`
		INSERT INTO {schema}.waits (job_id, number, on_id, any_end, met, from_token, on_group)
		SELECT job_id, number, on_id, any_end <> 0, met <> 0, from_token, nullif(on_group, '')
		FROM `+waitArrays,
		values...)
	if err != nil {
		return err
	}
	if err := w.noteEnded(t); err != nil {
		return err
	}
	return t.watch(ids, w.waits, w.others, func(id int64) bool { return w.added[id] != nil })
}

// noteEnded notes the ends of the expired jobs for which items before have begun to wait, and of the jobs that were added as cancelled.
func (w *waiting) noteEnded(t *txn) error {
	var ends []noted
	awaited := awaitedBy(w.waits)
	for _, j := range w.dropped.jobs {
		if _, found := slices.BinarySearch(awaited, j.ID); found {
			e, _ := store.EndOf(w.others.job(j.ID))
			ends = append(ends, noted{End: e})
		}
	}
	var spoiled []string
	for _, id := range slices.Sorted(maps.Keys(w.added)) {
		if name := store.SpoilsOf(w.added[id], false); name != "" {
			spoiled = append(spoiled, name)
			ends = append(ends, noted{group: name})
		}
	}
	return t.noteEnds(ends, spoiled...)
}

// watch makes sure that no end is missed for which jobs wait: it sets flags, and asks for looks. Some of the jobs that they wait for are
// this transaction's own.
func (t *txn) watch(ids []int64, waits map[int64][]store.KeptWait, o others, own func(id int64) bool) error {
	var flags []int64
	looks := newArray(ofNumbers, 0)
	for _, id := range ids {
		held := true
		for _, w := range waits[id] {
			if w.Met || w.Group == "" && own(w.On) {
				continue
			}
			if w.Group != "" { // see groups.go
				held = false
				continue
			}
			flags = append(flags, w.On)
			held = held && (o.locked[w.On] || o.job(w.On) == nil && w.From == math.MaxInt64)
		}
		if !held {
			looks.int(id)
		}
	}
	t.heard = t.heard || !looks.empty()
	return cmp.Or(t.flag(distinct(flags), o), t.lookLater(looks))
}

// lookLater asks for looks at jobs that wait.
func (t *txn) lookLater(ids *array) error {
	if ids.empty() {
		return nil
	}
	_, err := t.exec(`
		INSERT INTO {schema}.looks (job_id)
		SELECT unnest($1::bigint[])`,
		ids)
	return err
}

// waitArrays are the arguments that newWaitArrays makes, as a table.
const waitArrays = `unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[])
			AS kept (job_id, number, on_id, any_end, met, from_token, on_group)`

// waitOf lets an UPDATE of waits find those that a table names by job and number. The jobs must be locked, so that the rows stay where they are.
func waitOf(table string) string {
	return `
		CROSS JOIN LATERAL (
			SELECT ctid AS place
			FROM {schema}.waits
			WHERE job_id = ANY (ARRAY[` + table + `.job_id]) AND number = ` + table + `.number
			ORDER BY job_id
			LIMIT 1
		) AS found
		WHERE waits.ctid = found.place`
}

type waitValues []any

func newWaitArrays() waitValues {
	v := make(waitValues, 7)
	for i := range v {
		v[i] = newArray(ofNumbers, 0)
	}
	v[6] = newArray(ofTexts, 0)
	return v
}

func (v waitValues) add(id int64, waits []store.KeptWait) {
	number := map[bool]int64{true: 1}
	for i, w := range waits {
		for at, n := range [...]int64{id, int64(i), w.On, number[w.Any], number[w.Met], w.From} {
			v[at].(*array).int(n)
		}
		v[6].(*array).string(w.Group)
	}
}

// waitsOf returns the waits of jobs, by the ids of these.
func (t *txn) waitsOf(ids ...int64) (map[int64][]store.KeptWait, error) {
	return sqlkit.Waits(t.each, `
		SELECT job_id, on_id, coalesce(on_group, ''), any_end, met, from_token
		FROM {schema}.waits
		WHERE job_id = ANY ($1::bigint[])
		ORDER BY job_id, number`,
		arrayOf(ids))
}

// awaitedBy returns the ids of the jobs that the waits are for.
func awaitedBy(waits map[int64][]store.KeptWait) []int64 {
	var ids []int64
	for _, some := range waits {
		for _, w := range some {
			if w.Group == "" {
				ids = append(ids, w.On)
			}
		}
	}
	return distinct(ids)
}

// waitsShown returns what Get shows of the waits of a job.
func (t *txn) waitsShown(id int64) ([]store.Waiting, error) {
	waits, err := t.waitsOf(id)
	if err != nil {
		return nil, err
	}
	on, _, err := t.awaits(waits, t.read)
	return store.WaitsOf(waits[id], on), err
}

// awaits returns what there is to know of the jobs and groups that the waits are for.
func (t *txn) awaits(waits map[int64][]store.KeptWait, read func([]int64) (others, error)) (store.Awaits, others, error) {
	o, err := read(awaitedBy(waits))
	if err != nil {
		return store.Awaits{}, o, err
	}
	groups, err := t.statuses(groupsIn(waits))
	return store.Awaits{Job: o.job, Group: func(name string) store.GroupStatus { return groups[name] }}, o, err
}

// blockAgain blocks jobs that were requeued and wait for others, by rising id.
func (t *txn) blockAgain(requeued []*store.Record, outcomes []store.Outcome) error {
	if len(requeued) == 0 {
		return nil
	}
	for did := (step{more: true}); did.more; { // what was before must not count afterwards
		var err error
		if did, err = t.step(math.MaxInt, did.next, t.s.options.LockTimeout); err != nil {
			return err
		}
	}
	ids := make([]int64, len(requeued))
	for i, e := range requeued {
		ids[i] = e.ID
	}
	waits, err := t.waitsOf(ids...)
	if err != nil {
		return err
	}
	on, o, err := t.awaits(waits, t.lockOthers)
	if err != nil {
		return err
	}
	slices.SortFunc(requeued, func(a, b *store.Record) int { return cmp.Compare(a.ID, b.ID) })
	var blocked []int64
	values := newWaitArrays()
	for _, e := range requeued {
		if store.LookAgain(waits[e.ID], on) {
			e.State = store.Blocked
			blocked = append(blocked, e.ID)
		}
		values.add(e.ID, waits[e.ID])
		for i, was := range outcomes {
			if was.ID == e.ID && was.Status == store.StatusOK {
				outcomes[i] = store.OutcomeOf(e.Job, was.Status)
			}
		}
	}
	_, err = t.exec(`
		WITH blocked AS (
			UPDATE {schema}.jobs
			SET unleased_state = 'blocked'
			WHERE id = ANY ($8::bigint[])
		)
		UPDATE {schema}.waits
		SET met = kept.met <> 0,
			from_token = kept.from_token
		FROM `+waitArrays+waitOf(`kept`),
		append(values, arrayOf(blocked))...)
	if err != nil {
		return err
	}
	return t.watch(blocked, waits, o, func(int64) bool { return false })
}

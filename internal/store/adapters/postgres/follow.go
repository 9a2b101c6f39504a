package postgres

import (
	"context"
	"database/sql"
	"math"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// What follows from the ends of jobs.
//
// One transaction at a time does it, in steps: an advisory lock excludes the others. It locks jobs only if nobody else has, so it waits
// for no other transaction and takes part in no deadlock. What it leaves for that reason stays in the tables looks and ends.

const (
	mostTold  = 1000           // how many jobs each part of a step tells, or a few more
	readAhead = 100            // how many looks or ends a step reads at a time
	keepGone  = 24 * time.Hour // how long deletions are remembered: longer than any transaction lasts

	mostForgotten = 10_000                 // deletions, by one Settle
	longestFollow = 500 * time.Millisecond // how long a call that has taken effect waits for another step: mostly that takes a tenth
)

// reached says how far steps have got.
type reached struct {
	look int64 // ids of jobs that were looked at are not larger
	end  int64 // numbers of ends that were told are smaller,
	only int64 // or the same, with a smaller id of the one job to tell
}

// A step is what one transaction has done.
type step struct {
	changed []*store.Record
	next    reached
	more    bool // the step has ended because it was long enough
}

// follow does what follows from the ends that a call has noted, or a part of it. The call has taken effect, whatever becomes of this. If it
// leaves something for another reason than a lock, it says so to those who settle.
func (s *Store) follow(ctx context.Context) {
	wait, cancel := context.WithTimeout(ctx, longestFollow)
	done, next := s.nextStep(wait)
	defer done()
	cancel()
	if !next {
		s.tellLeft()
		return
	}
	did, err := once(ctx, s, s.with.write, func(t *txn) (step, error) { return t.step(store.SettledByCall, reached{}, longestFollow) })
	if err != nil || did.more || len(did.changed) >= store.SettledByCall {
		s.tellLeft()
	}
}

// tellLeft says to those who settle that something is left.
func (s *Store) tellLeft() {
	s.hub.Tell(store.Wakeup{Settle: true})
	s.limiter.put([]store.Wakeup{{Settle: true}})
}

// nextStep waits until no other call of this store does a step, or the context ends. It reports whether that is so, and returns what ends it.
// Calls that waited in the database would each keep a connection meanwhile.
func (s *Store) nextStep(ctx context.Context) (done func(), is bool) {
	select {
	case s.stepping <- struct{}{}:
		return func() { <-s.stepping }, true
	case <-ctx.Done():
		return func() {}, false
	}
}

// followInBackground does what follows from what a caller has committed. Each store that listens is told, and mostly another one has
// been quicker.
func (s *Store) followInBackground() {
	if s.toFollow.Add(1) > 1 {
		return
	}
	s.background(func(ctx context.Context) {
		for left := true; left; {
			told := s.toFollow.Load()
			if _, bits, err := s.exist(ctx, existToSettle); err == nil && bits&toFollowUp != 0 {
				s.follow(ctx)
			}
			left = !s.toFollow.CompareAndSwap(told, 0)
		}
	})
}

// step changes at most limit jobs. It waits at most that long until another step has ended.
func (t *txn) step(limit int, from reached, wait time.Duration) (step, error) {
	did := step{next: from}
	if _, err := t.exec(`
		SELECT set_config('lock_timeout', $2, TRUE), pg_advisory_xact_lock(hashtextextended('jq follow ' || $1, 0))`,
		t.s.options.Schema, millis(wait)); err != nil {
		return did, err
	}
	// Looks that have to be repeated must not keep ends waiting, and what was looked at may have ended jobs.
	for _, part := range []func(did *step, limit int) (n int, err error){t.tell, t.look, t.tell} {
		for told, left := 0, true; left && len(did.changed) < limit; {
			if told >= mostTold {
				did.more = true
				break
			}
			n, err := part(&did, limit-len(did.changed))
			if err != nil {
				return did, err
			}
			told, left = told+n, n > 0
		}
	}
	t.heard, t.left = false, nil // the ends that the step has noted are told
	return did, nil
}

// look takes the next jobs from the table looks, sets the flags of those that they wait for, and tells them how these have ended. It
// returns how many jobs it took.
func (t *txn) look(did *step, limit int) (n int, err error) {
	ids, err := sqlkit.Values[int64](t.each, `
		SELECT DISTINCT job_id
		FROM {schema}.looks
		WHERE job_id > $1
		ORDER BY job_id
		LIMIT $2`,
		did.next.look, min(limit, readAhead))
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	did.next.look = ids[len(ids)-1]
	h, err := t.hearing(ids)
	if err != nil {
		return 0, err
	}
	awaited := awaitedBy(h.waits)
	o, err := t.lockOthers(awaited)
	if err != nil {
		return 0, err
	}
	if err := t.flag(awaited, o); err != nil {
		return 0, err
	}
	present, err := t.present(awaited, o)
	if err != nil {
		return 0, err
	}
	var done []int64
	for _, id := range ids {
		if !h.locked[id] {
			if h.found[id] == nil { // the job was deleted
				done = append(done, id)
			}
			continue
		}
		all := true
		for _, w := range slices.Clone(h.waits[id]) {
			if w.Group != "" {
				continue
			}
			e, known := present[w.On]
			all = all && (known || w.Met)
			if e != nil {
				h.hear(id, *e, t.now)
			}
		}
		h.hearGroup(id, "", t.now) // once is enough: what changes in its groups later finds the job
		if all {
			done = append(done, id)
		}
	}
	if err := h.write(did); err != nil {
		return 0, err
	}
	_, err = t.exec(`
		DELETE FROM {schema}.looks
		WHERE job_id = ANY ($1::bigint[])`,
		arrayOf(done))
	return len(ids), err
}

// present returns how jobs that are waited for have ended, or nil for each one that has not. It leaves out jobs of which an end can be
// missed.
func (t *txn) present(ids []int64, o others) (map[int64]*store.End, error) {
	present := map[int64]*store.End{}
	var missing []int64
	for _, id := range ids {
		switch {
		case o.found[id] == nil:
			missing = append(missing, id)
			present[id] = &store.End{ID: id, Token: math.MaxInt64 - 1, As: store.Succeeded} // unless it is among those below
		case o.holds(id):
			present[id] = nil
			if e, ended := store.EndOf(o.job(id)); ended {
				present[id] = &e
			}
		}
	}
	if len(missing) == 0 {
		return present, nil
	}
	return present, t.each(func(rows *sql.Rows) error {
		e := &store.End{As: store.Gone}
		err := rows.Scan(&e.ID, &e.Token)
		present[e.ID] = e
		return err
	}, `
		SELECT job_id, token
		FROM {schema}.gone
		WHERE job_id = ANY ($1::bigint[])`,
		arrayOf(missing))
}

// An endRow is a row of the table ends.
type endRow struct {
	store.End
	group  string // in which something has changed, or empty
	number int64
	upTo   int64 // jobs up to this id have been told
	only   int64 // the one job to tell, or 0
}

// tell tells jobs of the next ends. It returns how many jobs and ends these are.
func (t *txn) tell(did *step, limit int) (n int, err error) {
	ends, err := t.ends(did.next)
	if err != nil || len(ends) == 0 {
		return 0, err
	}
	another := func(e endRow) bool { return (e.group == "") != (ends[0].group == "") }
	if at := slices.IndexFunc(ends, another); at >= 0 {
		ends = ends[:at]
	}
	if ends[0].group != "" {
		return t.tellGroups(did, limit, ends)
	}
	most := atMost(limit)
	told, err := t.concerned(ends, most)
	if err != nil {
		return 0, err
	}
	h, err := t.hearing(distinct(slices.Concat(told...)))
	if err != nil {
		return 0, err
	}
	var done, locked []endRow
	var partly *endRow
	for i, e := range ends {
		kept := false
		for _, id := range told[i] {
			if len(h.changed) == limit {
				break
			}
			n++
			switch {
			case h.locked[id]:
				h.hear(id, e.End, t.now)
			case h.found[id] == nil: // the job was deleted
			case e.only != 0:
				kept = true
				continue
			default:
				locked = append(locked, endRow{End: e.End, number: e.number, only: id})
			}
			e.upTo = id
		}
		if n >= most || len(h.changed) == limit {
			partly = &e
			did.next.end, did.next.only = e.number, e.only
			break
		}
		n++
		did.next.end, did.next.only = e.number, e.only+1
		if !kept {
			done = append(done, e)
		}
	}
	if err := h.write(did); err != nil {
		return 0, err
	}
	return n, t.told(done, partly, locked)
}

// atMost is how many jobs to read if so many may change: some more if these are few, because what others are told may change none of them.
func atMost(limit int) int { return min(mostTold, max(limit, readAhead)) }

// ends returns the next rows of the table ends.
func (t *txn) ends(from reached) (ends []endRow, err error) {
	err = t.each(func(rows *sql.Rows) error {
		var e endRow
		err := rows.Scan(&e.number, &e.ID, &e.Token, &e.As, &e.upTo, &e.only, &e.group)
		ends = append(ends, e)
		return err
	}, `
		SELECT number, job_id, token, ended_as, up_to, only_id, coalesce(group_name, '')
		FROM {schema}.ends
		WHERE (number, only_id) >= ($1, $2)
		ORDER BY number, only_id
		LIMIT $3`,
		from.end, from.only, readAhead)
	return ends, err
}

// concerned returns for each end the next jobs for which it means something: for the first ends, until these are so many.
func (t *txn) concerned(ends []endRow, most int) ([][]int64, error) {
	on, tokens, as := newArray(ofNumbers, 0), newArray(ofNumbers, 0), newArray(ofTexts, 0)
	after, last := newArray(ofNumbers, 0), newArray(ofNumbers, 0)
	for _, e := range ends {
		on.int(e.ID)
		tokens.int(e.Token)
		as.string(string(e.As))
		if e.only != 0 {
			after.int(e.only - 1)
			last.int(e.only)
			continue
		}
		after.int(e.upTo)
		last.int(math.MaxInt64)
	}
	told := make([][]int64, len(ends))
	return told, t.each(func(rows *sql.Rows) error {
		var i int
		var id int64
		err := rows.Scan(&i, &id)
		told[i-1] = append(told[i-1], id)
		return err
	}, `
		SELECT ended.place, concerned.job_id
		FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[]) WITH ORDINALITY
			AS ended (on_id, token, ended_as, after_id, last_id, place)
		CROSS JOIN LATERAL (
			SELECT DISTINCT job_id
			FROM {schema}.waits
			WHERE NOT met AND on_id = ended.on_id AND job_id > ended.after_id AND job_id <= ended.last_id
				AND from_token <= ended.token AND (any_end OR ended.ended_as <> 'dead')
			ORDER BY job_id
			LIMIT $6
		) AS concerned
		ORDER BY ended.place, concerned.job_id
		LIMIT $6`,
		on, tokens, as, after, last, most)
}

// told writes how far ends have been told. An end for a job that is locked stays for this job alone, in its place among the others.
func (t *txn) told(done []endRow, partly *endRow, locked []endRow) error {
	numbers, only := newArray(ofNumbers, 0), newArray(ofNumbers, 0)
	for _, e := range done {
		numbers.int(e.number)
		only.int(e.only)
	}
	_, err := t.exec(`
		DELETE FROM {schema}.ends
		USING unnest($1::bigint[], $2::bigint[]) AS told (number, only_id)
		WHERE ends.number = ANY (ARRAY[told.number]) AND ends.only_id = told.only_id`,
		numbers, only)
	if err != nil {
		return err
	}
	if partly != nil {
		if _, err := t.exec(`
			UPDATE {schema}.ends
			SET up_to = $3
			WHERE number = $1 AND only_id = $2`,
			partly.number, partly.only, partly.upTo); err != nil {
			return err
		}
	}
	if len(locked) == 0 {
		return nil
	}
	return t.keepEnds(locked)
}

// keepEnds adds rows to the table ends for jobs that were locked.
func (t *txn) keepEnds(locked []endRow) error {
	numbers, only, ids, tokens, as := newArray(ofNumbers, 0), newArray(ofNumbers, 0), newArray(ofNumbers, 0), newArray(ofNumbers, 0), newArray(ofTexts, 0)
	for _, e := range locked {
		numbers.int(e.number)
		only.int(e.only)
		ids.int(e.ID)
		tokens.int(e.Token)
		as.string(string(e.As))
	}
	_, err := t.exec(`
		INSERT INTO {schema}.ends (number, only_id, job_id, token, ended_as)
		SELECT number, only_id, job_id, token, ended_as
		FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[]) AS kept (number, only_id, job_id, token, ended_as)`,
		numbers, only, ids, tokens, as)
	return err
}

// A hearing has jobs that are told of ends, with their waits. It changes those that nobody else has locked.
type hearing struct {
	others
	t       *txn
	waits   map[int64][]store.KeptWait   // of the jobs that are locked
	groups  map[string]store.GroupStatus // that these wait for
	met     []store.Lease                // waits that were met, as job and number
	changed []*store.Record
}

func (t *txn) hearing(ids []int64) (*hearing, error) {
	o, err := t.lockFree(columns+`,`+presentEpoch, ids)
	if err != nil {
		return nil, err
	}
	waits, err := t.waitsOf(slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return !o.locked[id] })...)
	if err != nil {
		return nil, err
	}
	groups, err := t.statuses(groupsIn(waits))
	return &hearing{others: o, t: t, waits: waits, groups: groups}, err
}

func (h *hearing) hear(id int64, e store.End, now time.Time) {
	h.change(id, func(r *store.Record, waits []store.KeptWait, on store.Awaits) { r.Hear(waits, e, on, now) })
}

// hearGroup tells a job that something has changed in a group, or may have in any.
func (h *hearing) hearGroup(id int64, group string, now time.Time) {
	h.change(id, func(r *store.Record, waits []store.KeptWait, on store.Awaits) { r.HearGroup(group, waits, on, now) })
}

func (h *hearing) change(id int64, tell func(*store.Record, []store.KeptWait, store.Awaits)) {
	r, waits := h.found[id], h.waits[id]
	before, state := slices.Clone(waits), r.State
	tell(r, waits, store.Awaits{Group: func(name string) store.GroupStatus { return h.groups[name] }})
	for i, w := range waits {
		if w.Met && !before[i].Met {
			h.met = append(h.met, store.Lease{ID: id, Token: int64(i)})
		}
	}
	if r.State != state {
		h.changed = append(h.changed, r)
	}
}

// write writes what the jobs have heard.
func (h *hearing) write(did *step) error {
	for _, e := range h.changed {
		h.t.woken.AddFor(e.Job, h.t.now)
		if e.Terminal() {
			h.t.unheld(e.Job)
		}
	}
	did.changed = append(did.changed, h.changed...)
	if err := h.t.update(withoutDocuments, h.changed); err != nil || len(h.met) == 0 {
		return err
	}
	ids, numbers := leases(h.met)
	_, err := h.t.exec(`
		UPDATE {schema}.waits
		SET met = TRUE
		FROM unnest($1::bigint[], $2::bigint[]) AS heard (job_id, number)`+waitOf(`heard`),
		ids, numbers)
	return err
}

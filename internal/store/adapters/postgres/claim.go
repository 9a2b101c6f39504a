package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/bykey"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// FetchAndClaim is part of the contract. If it is in doubt, it releases the jobs in the background, unless the answer of a single
// statement was lost, which names them: then the leases expire.
func (s *Store) FetchAndClaim(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
	defer s.checkInBackground()
	invalid := store.CheckLease(req.Check(), req.TTL, s.options.MaxLease)
	c := s.newClaim(req)
	jobs, done, err := c.single(ctx, invalid)
	vain := c.vain
	if !done && err == nil {
		jobs, err = c.inTurn(ctx, invalid)
	}
	if vain && c.some && err == nil && len(jobs) < req.Limit {
		s.hub.Tell(store.Wakeup{Queue: req.Queue}) // another claim may have skipped what this one had locked, and this one what that one had
	}
	switch {
	case err == nil:
		if c.wait > 0 && len(jobs) == c.limit {
			s.hub.TellLater(cmp.Or(s.options.Clock, clock.New()), c.wait, req.Queue)
		}
		if !c.policy.ByKey() {
			c.short = len(jobs) < c.limit
		}
		if c.plan.Done(c.short); c.locked {
			s.cursors.Tell(req.Queue)
		}
		if c.uncounted && !s.limits.counts(req.Queue) {
			s.countLater(req.Queue, s.count)
		}
		if (c.unknown || c.backlog) && !s.limits.counts(keysOf(req.Queue, c.known)) {
			s.countLater(req.Queue, s.knowKeys)
		}
	case len(c.leases) > 0:
		c.plan.Failed()
		if errors.Is(err, store.ErrInDoubt) {
			s.background(func(ctx context.Context) { s.release(ctx, &c) })
		}
	}
	return jobs, err
}

// inTurn claims in a transaction, when it is the claim's turn if the queue is limited.
func (c *claim) inTurn(ctx context.Context, invalid error) ([]store.Job, error) {
	done := c.turn
	if done == nil {
		var err error
		if done, err = c.s.limits.of(c.Queue).inTurn(ctx); err != nil {
			return nil, err
		}
	}
	defer done()
	return write(ctx, c.s, invalid, c.run)
}

// release gives back the jobs that a claim in doubt may have taken. If it fails, the leases expire.
func (s *Store) release(ctx context.Context, c *claim) {
	_, _ = once(ctx, s, s.with.write, c.undo)
}

// A claim is one running claim.
type claim struct {
	store.ClaimRequest
	s      *Store
	plan   *cursor.Plan
	limit  int           // how many jobs it takes at most: its Limit, or less where the queue is limited
	quota  int           // of these, retries
	at     time.Time     // the now of its leases
	leases []store.Lease // the leases that it gives

	limited   bool          // the policy of the queue has a limit
	policy    store.Policy  // its limits, once the claim has read them
	log       claimLog      // the claims before, if there is a rate
	wait      time.Duration // after which there is room again, if the claim takes all that the rate lets it take
	hinted    bool          // there are hints for its keys
	merges    bool          // the claim may read them
	firstHint int64         // no hint has a smaller number
	short     bool          // it has found, and taken, fewer jobs without a key than it might have
	locked    bool          // it has locked jobs without a key that it did not take, and others may have skipped them
	admitted  bool          // the claim has read the limits
	counts    bool          // the queue has MaxInFlight, and the claim has locked it
	slot      int64         // the number of its first slot
	uncounted bool          // jobs that were in flight before the queue was limited do not count yet
	unknown   bool          // not all keys of the queue are known for certain
	known     int           // how many times all keys were looked for: see know
	backlog   bool          // there are more hints than it has read
	vain      bool          // it was the first one that tried in vain to take jobs across keys
	some      bool          // some key had room, or a hint
	turn      func()        // ends the turn that it has already
	seen      int64         // how often leases had ended: see sqlkit.Held
	keys      []bykey.Row   // what to write of the keys that it has locked
}

func (s *Store) newClaim(req store.ClaimRequest) claim {
	return claim{ClaimRequest: req, s: s, plan: s.cursors.Plan(req.Queue), limit: req.Limit, quota: req.RetryQuota, limited: s.limits.has(req.Queue)}
}

// run takes due jobs. If it finds fewer than it was asked for, it looks from the marks and takes again from there. The second
// take includes the jobs of the first, whose rows this transaction has locked.
func (c *claim) run(t *txn) ([]store.Job, error) {
	*c = c.s.newClaim(c.ClaimRequest)
	c.plan.Open(t.horizon, false)
	if c.limited {
		if some, err := c.admit(t); !some || err != nil {
			return nil, err
		}
	}
	if c.policy.ByKey() {
		return c.claimByKey(t)
	}
	for looks := c.plan.MustLook(); ; looks = true {
		if looks {
			if err := t.each(c.saw, firstsAt(1), c.marks()...); err != nil {
				return nil, err
			}
			c.plan.Looked(t.now)
		}
		if c.limited && !c.admitted {
			if some, err := c.admit(t); !some || err != nil {
				return nil, err
			}
			if c.policy.ByKey() {
				return c.claimByKey(t)
			}
		}
		chosen, err := c.take(t)
		if err != nil {
			return nil, err
		}
		if looks || len(chosen) == c.limit {
			return c.lease(t, chosen)
		}
	}
}

// take chooses the jobs. Each lane may use the room that the other one leaves.
func (c *claim) take(t *txn) ([]*store.Record, error) {
	retries, fresh, err := c.due(t, c.quota, c.limit)
	if err != nil {
		return nil, err
	}
	if room := c.limit - len(fresh); len(retries) == c.quota && room > len(retries) && !c.plan.Empty(cursor.Retries) {
		if retries, _, err = c.due(t, room, 0); err != nil {
			return nil, err
		}
	}
	return append(retries, fresh...), nil
}

// due locks the first due jobs: retries up to the quota, then fresh ones up to the limit for both. In each lane, a level is one
// range of its index in which the due jobs come first, so a claim never walks over jobs that are not due.
func (c *claim) due(t *txn, quota, limit int) (retries, fresh []*store.Record, err error) {
	if c.plan.Empty(cursor.Retries) && c.plan.Empty(cursor.Fresh) {
		return nil, nil, nil
	}
	weigh := max(quota, limit) > few
	found, err := c.find(t, quota, limit, weigh)
	if err == nil && !weigh && tooHeavy(found) {
		found, err = c.find(t, quota, limit, true) // of the same jobs, which this transaction has locked
	}
	inOrderOfClaims(found)
	for _, e := range found {
		if laneOf(e) == cursor.Retries {
			retries = append(retries, e)
		} else {
			fresh = append(fresh, e)
		}
	}
	return retries, fresh, err
}

// inOrderOfClaims sorts jobs of a lane.
func inOrderOfClaims(list []*store.Record) {
	slices.SortFunc(list, func(a, b *store.Record) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Next().Compare(b.Next()), cmp.Compare(a.ID, b.ID))
	})
}

// few is how many jobs a claim reads before weighing them. Weighing them in the server would slow down small claims.
const few = 16

// tooHeavy reports whether the jobs of either lane may exceed the limit on the size of an answer.
func tooHeavy(found []*store.Record) bool {
	room := sqlkit.NewRoom()
	return slices.ContainsFunc(found, func(e *store.Record) bool { return !room.Take(e) })
}

// The columns that a claim must read: a third fewer, without those that it sets or that a waiting job implies. Times are sent in
// their binary format, which neither side must format or parse.
var (
	claimed      = sqlkit.All.For(sqlkit.Claimed)
	claimColumns = ` ` + waitedAs.Replace(claimedOf(`jobs`))
)

func claimedOf(row string) string {
	var e store.Record
	all := make([]string, len(claimed))
	for i, c := range claimed {
		if all[i] = row + `.` + c.Name; kindOf(c.Field(&e)) == ofTimes {
			all[i] = `timestamptz_send(` + all[i] + `) AS ` + c.Name
		}
	}
	return strings.Join(all, `, `)
}

// A lane is an index of waiting jobs, and of those that waited there before they were claimed. Each queue and priority is one
// range in it.
type lane struct{ indexed, due string }

// lanes are the conditions of the indexes, and the times by which these are ordered.
var lanes = [cursor.Lanes]lane{
	cursor.Retries: {`jobs.unleased_state = 'failed' AND jobs.retry_at IS NOT NULL`, `jobs.retry_at`},
	cursor.Fresh:   {`jobs.unleased_state = 'ready'`, `jobs.run_at`},
}

// sql fills the lane's conditions and time into a text about jobs.
func (l lane) sql(text string) string {
	return strings.NewReplacer(`{indexed}`, l.indexed, `{waits}`, l.waits(), `{due}`, l.due).Replace(text)
}

// waits is the condition of the jobs that wait in the lane.
func (l lane) waits() string { return l.indexed + ` AND jobs.lease_expires_at IS NULL` }

// findOf returns the query that locks due jobs of both lanes, in no particular order.
func findOf(weigh, withoutKeys bool) string {
	condition, fits := ``, `heaped`
	if withoutKeys { // and the first one that does not fit, which ends the lane for jobs with keys too
		condition, fits = ` AND jobs.limit_key IS NULL`, `heaped - (`+weightOf(`jobs`)+`)`
	}
	find := func(of cursor.Lane, places, limit, room string) string {
		return lightEnough(weigh, fits, lanes[of].sql(`
			SELECT`+claimColumns+`
			FROM `+places+`
			CROSS JOIN LATERAL (
				SELECT *
				FROM {schema}.jobs
				WHERE {waits} AND jobs.queue = $1 AND jobs.priority = place.priority
					AND ({due}, jobs.id) >= (place.due_at, place.id) AND {due} <= $2
					AND (jobs.expires_at IS NULL OR jobs.expires_at > $2)`+condition+`
				ORDER BY {due}, jobs.id
				LIMIT `+limit+`
				FOR UPDATE SKIP LOCKED
			) AS jobs
			WHERE NOT EXISTS (SELECT 1 FROM {schema}.queues WHERE name = $1 AND (paused OR `+isLimited+` AND NOT $11))
			LIMIT `+room))
	}
	return `
		WITH retries AS MATERIALIZED (` + find(cursor.Retries, placesAt(3), `$9`, `$9`) + `
		),
		fresh AS MATERIALIZED (` + find(cursor.Fresh, placesAt(6), `$10`, `greatest($10 - (SELECT count(*) FROM retries), 0)`) + `
		)
		SELECT ` + claimed.Names() + `,` + presentEpoch + ` FROM retries
		UNION ALL
		SELECT ` + claimed.Names() + `,` + presentEpoch + ` FROM fresh`
}

// isLimited is the condition that the policy of a queue has a limit, isByKey that claims find jobs by their keys, and isCounted that they need slots or
// keys.
const (
	isLimited = `(coalesce(max_in_flight, max_per_key, rate_n) IS NOT NULL OR fair)`
	isCounted = `(coalesce(max_in_flight, max_per_key) IS NOT NULL OR fair)`
	isByKey   = `(max_per_key IS NOT NULL OR fair)`
)

// A findKind says how a query finds jobs: with their weights, or those without a key alone.
type findKind struct{ weigh, withoutKeys bool }

var findQuery = map[findKind]string{
	{}: findOf(false, false), {weigh: true}: findOf(true, false), {weigh: true, withoutKeys: true}: findOf(true, true),
}

// find locks due jobs of both lanes, in no particular order.
func (c *claim) find(t *txn, quota, limit int, weigh bool) ([]*store.Record, error) {
	args := append(make([]any, 0, 11), c.Queue, t.now)
	args = places(args, c.plan.Starts(cursor.Retries))
	args = places(args, c.plan.Starts(cursor.Fresh))
	return t.records(findQuery[findKind{weigh, c.policy.ByKey()}], append(args, quota, limit, c.limited)...)
}

// lightEnough limits a query to its first rows whose documents together fit into one answer: fits is the size that must, of which heaped is the size of the
// documents up to the row. The server knows the length of a large document without reading it.
func lightEnough(weigh bool, fits, query string) string {
	if !weigh {
		return query
	}
	return `
			SELECT *
			FROM (SELECT *, sum(` + weightOf(`jobs`) + `) OVER (ROWS UNBOUNDED PRECEDING) AS heaped FROM (` + query + `
			) AS jobs) AS jobs
			WHERE ` + fits + ` <= ` + strconv.Itoa(store.MaxAnswerBytes)
}

// placesAt returns the table of the three arrays that [places] makes, beginning at that argument number.
func placesAt(n int) string {
	return fmt.Sprintf(`unnest($%d::bigint[], $%d::timestamptz[], $%d::bigint[]) AS place (priority, due_at, id)`, n, n+1, n+2)
}

// places appends positions by priority, as arguments of a statement.
func places(args []any, all iter.Seq2[int, cursor.Position]) []any {
	const room = cursor.Levels * numberBytes
	priorities, times, ids := newArray(ofNumbers, room), newArray(ofTimes, room), newArray(ofNumbers, room)
	for priority, from := range all {
		priorities.int(int64(priority))
		times.place(from)
		ids.int(from.ID)
	}
	return append(args, priorities, times, ids)
}

// marks returns the queue and the marks, as arguments of [firstsAt].
func (c *claim) marks() []any { return c.from(c.plan.Marks) }

// from returns the queue, the marks of retries, and where to begin among fresh jobs.
func (c *claim) from(begin func(cursor.Lane) iter.Seq2[int, cursor.Position]) []any {
	args := places(append(make([]any, 0, 13), c.Queue), c.plan.Marks(cursor.Retries))
	return places(args, begin(cursor.Fresh))
}

// saw scans a row of [firstsAt].
func (c *claim) saw(rows *sql.Rows) error {
	var lane cursor.Lane
	var priority int
	var first cursor.Position
	err := rows.Scan(&lane, &priority, (*sqlkit.Time)(&first.At), &first.ID)
	c.sawFirst(lane, priority, first)
	return err
}

func (c *claim) sawFirst(lane cursor.Lane, priority int, first cursor.Position) {
	if lane == cursor.Lanes {
		c.limited = true
		return
	}
	c.plan.Saw(lane, priority, first)
}

// firstsAt returns the query for the first claimable job of each level from the mark on, due or not, even if an open transaction
// holds it, and a row for the lane after the last one if the queue is limited. Its arguments begin at that number.
func firstsAt(n int) string {
	queue := `$` + strconv.Itoa(n)
	return firstsOf(cursor.Retries, n+1, queue, ``) + `
	UNION ALL` + firstsOf(cursor.Fresh, n+4, queue, ``) + fmt.Sprintf(`
	UNION ALL
	SELECT %d, 0, to_timestamp(0), 0
	FROM {schema}.queues
	WHERE name = %s AND `+isLimited, cursor.Lanes, queue)
}

// firstsOf returns the query for the first claimable jobs of a lane from marks on.
func firstsOf(lane cursor.Lane, marks int, queue, more string) string {
	return fmt.Sprintf(`
	SELECT %d AS lane, place.priority, first.due_at, first.id
	FROM `, lane) + placesAt(marks) + lanes[lane].sql(strings.NewReplacer(`{more}`, more, `{queue}`, queue).Replace(firstOfPlace))
}

const firstOfPlace = `
	CROSS JOIN LATERAL (
		SELECT {due} AS due_at, jobs.id
		FROM {schema}.jobs
		WHERE {waits} AND jobs.queue = {queue} AND jobs.priority = place.priority
			AND ({due}, jobs.id) >= (place.due_at, place.id){more}
		ORDER BY {due}, jobs.id
		LIMIT 1
	) AS first`

// lease gives the worker a lease on each job. It changes no column that an index names.
func (c *claim) lease(t *txn, chosen []*store.Record) ([]store.Job, error) {
	if len(chosen) == 0 {
		return nil, nil
	}
	if err := t.moveAttempts(chosen); err != nil {
		return nil, err
	}
	c.at = t.now
	jobs := make([]store.Job, len(chosen))
	ids, leases := make([]int64, len(chosen)), make([]leased, len(chosen))
	for i, e := range chosen {
		if !c.policy.ByKey() || e.LimitKey() == "" {
			c.plan.Took(laneOf(e), e.Priority, cursor.Position{At: e.Next(), ID: e.ID})
		}
		e.Queue = c.Queue
		e.Claim(c.ClaimRequest, t.now)
		jobs[i], ids[i], leases[i] = e.Job, e.ID, leased{e.ID, t.now.Add(min(e.LeaseFor, firstDue))}
		c.leases = append(c.leases, e.Lease())
	}
	due, members := leaseRows(leases)
	args := []any{
		arrayOf(ids), jobs[0].LeaseExpiresAt, c.Worker, t.now, store.Floor(chosen[0].Epoch), chosen[0].LeaseFor.Microseconds(), due, members,
	}
	kind := leaseKind{slots: c.counts, claims: c.policy.Rate.N > 0, keys: len(c.keys) > 0}
	if kind != (leaseKind{}) {
		args = append(args, c.Queue)
	}
	if kind.slots {
		args = append(args, c.slot)
	}
	if kind.claims {
		args = append(args, c.log.next, c.log.latest.Add(-c.policy.Rate.Per), t.now.Add(-c.policy.Rate.Per))
	}
	if kind.keys {
		args = keyArgs(args, c.keys)
	}
	_, err := t.exec(leaseQuery[kind], args...)
	return jobs, err
}

// A leaseKind says what the statement that gives leases also writes: slots if the queue has MaxInFlight, the claim if it has a rate, and keys if claims find
// jobs by key.
type leaseKind struct{ slots, claims, keys bool }

var leaseQuery = leaseQueries()

func leaseQueries() map[leaseKind]string {
	all := map[leaseKind]string{}
	for i := range 8 {
		kind := leaseKind{slots: i&1 > 0, claims: i&2 > 0, keys: i&4 > 0}
		more, n := ``, 10
		if kind.slots {
			more += slotsOfLeases
			n++
		}
		if kind.claims {
			more += noteClaim(`$9`, jobsOfLeases, n)
			n += 3
		}
		if kind.keys {
			more += keysOfLease(`$9`, n)
		}
		all[kind] = leaseWith(more)
	}
	return all
}

const jobsOfLeases = `cardinality($1::bigint[])`

var slotsOfLeases = `,
		slots AS (` + addSlots(`$9`, `$1`, `$10`) + `
		)`

func leaseWith(more string) string {
	return `
		WITH noted AS (` + noteLeases(7) + `
		)` + more + `
		UPDATE {schema}.jobs` + giveLeases(`$2`, `$6`, `$3`, `$4`, `$5::bigint`) + `
		WHERE id = ANY ($1::bigint[])`
}

// giveLeases returns what an UPDATE sets to give leases.
func giveLeases(until, length, worker, now, floor string) string {
	return strings.NewReplacer(`{until}`, until, `{length}`, length, `{worker}`, worker, `{now}`, now, `{floor}`, floor).Replace(`
		SET token = greatest(jobs.token, {floor}) + 1,
			attempts = jobs.attempts + 1,
			lease_expires_at = {until},
			lease_for = {length},
			worker = {worker},
			checkpoint_seq = 0,
			progress_seq = 0,
			finished_by = '',
			claim_token = greatest(jobs.token, {floor}) + 1,
			claimed_at = {now},
			ended_at = NULL,
			ending = '',
			reason = ''`)
}

// laneOf returns the lane in which the job waits.
func laneOf(e *store.Record) cursor.Lane {
	if e.State == store.Failed {
		return cursor.Retries
	}
	return cursor.Fresh
}

// undo releases only the leases that this claim has given. If the claim was not applied, the next claim gives leases with the
// same tokens, but at another time or to another worker.
func (c *claim) undo(t *txn) ([]store.Outcome, error) {
	jobs, err := t.byLease(withoutDocuments, c.leases)
	if err != nil {
		return nil, err
	}
	var nacks []store.NAck
	for _, l := range c.leases {
		if e := jobs[l.ID]; e != nil && e.Lease() == l && e.ClaimedAt.Equal(c.at) && e.Worker == c.Worker {
			nacks = append(nacks, store.NAck{Lease: l, Form: store.Release})
		}
	}
	return t.nack(nacks)
}

package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
)

// A crowd is jobs of one sort. Their times lie so far from now as these intervals say, each a microsecond behind the one before.
type crowd struct {
	queue, key                  string
	state                       store.State
	priority                    int
	due, retry, lease, finished any
}

const (
	longAgo = "-2 days"
	lately  = "-12 hours"
	soon    = "1 day"
)

// sought are the jobs that calls look for.
func sought(queue string) []crowd {
	return []crowd{
		{queue: queue, state: store.Blocked, due: longAgo},
		{queue: queue, state: store.Ready, due: longAgo},
		{queue: queue, state: store.Failed, due: longAgo, retry: soon},
		{queue: queue, state: store.Failed, due: longAgo, retry: soon, key: "key"},
		{queue: queue, state: store.Failed, due: longAgo, finished: longAgo},
		{queue: queue, state: store.Succeeded, due: longAgo, finished: longAgo},
		{queue: queue, state: store.Cancelled, due: longAgo, finished: longAgo},
		{queue: queue, state: store.InFlight, due: longAgo, lease: longAgo},
		{queue: queue, state: store.InFlight, due: longAgo, lease: soon},
	}
}

// add inserts n jobs in one statement.
func (c crowd) add(t *testing.T, s *Store, n int) {
	t.Helper()
	unleased := string(c.state)
	if c.state == store.InFlight {
		unleased = string(store.Ready)
	}
	_, err := s.callers.ExecContext(t.Context(), s.sql(`
		WITH added AS (
		INSERT INTO {schema}.jobs (
			queue, unleased_state, kind, priority, run_at, retry_at, lease_expires_at, finished_at,
			rules, unique_key, unique_for, enqueued_at, trace, payload)
		SELECT $1, $2, 'k', $3, now() + $4::interval + step, now() + $5::interval + step, now() + $6::interval + step, now() + $7::interval + step,
			'3 1000000 60000000 0 0', $9, 0, now() - interval '3 days', '', '{"user":12345,"text":"hello there"}'
		FROM (SELECT n * interval '1 microsecond' AS step FROM generate_series(1, $8::integer) AS n) AS steps
		RETURNING id, lease_expires_at)
		INSERT INTO {schema}.leases (due_at, ids)
		SELECT min(lease_expires_at), array_agg(id ORDER BY id)
		FROM added
		WHERE lease_expires_at IS NOT NULL
		GROUP BY id / 200`),
		c.queue, unleased, c.priority, c.due, c.retry, c.lease, c.finished, n, c.key)
	require.NoError(t, err)
}

// crowded is a store with n jobs of each sort, whose statistics are older than they. Each sort lies behind others, whichever
// end of the ids a call begins at.
func crowded(t *testing.T, n int) (*Store, *meter) {
	t.Helper()
	s := openStore(t, Options{Timeout: time.Minute})
	run := func(text string) {
		_, err := s.callers.ExecContext(t.Context(), s.sql(text))
		require.NoError(t, err)
	}
	run(`ALTER TABLE {schema}.jobs SET (autovacuum_enabled = off)`)
	for _, queue := range []string{"q", "small"} {
		for _, c := range sought(queue) {
			c.add(t, s, 1500)
		}
	}
	run(`ANALYZE {schema}.jobs`)
	var indexes []struct{ Drop, Create string }
	require.NoError(t, s.callers.SelectContext(t.Context(), &indexes, `
		SELECT format('DROP INDEX %I.%I', schemaname, indexname) AS drop, indexdef AS create
		FROM pg_indexes
		WHERE schemaname = $1 AND tablename = 'jobs' AND indexname <> 'jobs_pkey'`,
		s.options.Schema))
	for _, index := range indexes { // which are built faster when all jobs are there
		run(index.Drop)
	}
	crowd{queue: "q", state: store.Ready, due: "-1 day"}.add(t, s, n)
	crowd{queue: "q", state: store.Succeeded, due: "-1 day", finished: lately}.add(t, s, n/2)
	crowd{queue: "q", state: store.Ready, priority: store.MaxPriority, due: soon}.add(t, s, n)
	crowd{queue: "q", state: store.Cancelled, due: "-1 day", finished: lately}.add(t, s, n/2)
	for _, index := range indexes {
		run(index.Create)
	}
	return s, metered(t, s)
}

// A measured call of the store is about a hundred jobs.
type measured struct {
	group, name string
	call        func(ctx context.Context, s *Store) (jobs int, err error)
}

func measuredCalls() []measured {
	claim := func(queue string) func(context.Context, *Store) (int, error) {
		return func(ctx context.Context, s *Store) (int, error) {
			jobs, err := s.FetchAndClaim(ctx, store.ClaimRequest{Queue: queue, Limit: 100, RetryQuota: 20, Worker: "w", TTL: time.Hour})
			return len(jobs), err
		}
	}
	recovery := func(ctx context.Context, s *Store) (int, error) {
		done, err := s.RecoverExpiredLeases(ctx, store.RecoverRequest{Limit: 100})
		return len(done), err
	}
	fromHead := func(call func(context.Context, *Store) (int, error)) func(context.Context, *Store) (int, error) {
		return func(ctx context.Context, s *Store) (int, error) {
			s.cursors.Forget()
			return call(ctx, s)
		}
	}
	calls := []measured{
		{"A claim", "", claim("q")},
		{"A claim", "from the head", fromHead(claim("q"))},
		{"A claim", "in a small queue", claim("small")},
		{"A recovery", "", recovery},
		{"A recovery", "from the head", fromHead(recovery)},
	}
	states := func(states ...store.State) []store.State { return states }
	bulk := func(group, name string, do func(*Store, context.Context, store.Filter, int) ([]store.Outcome, error), f store.Filter) {
		calls = append(calls, measured{group, name, func(ctx context.Context, s *Store) (int, error) {
			done, err := do(s, ctx, f, 100)
			return len(done), err
		}})
	}
	const day = 24 * time.Hour
	bulk("A prune", "of what succeeded", (*Store).Delete, store.Filter{States: states(store.Succeeded), FinishedFor: day})
	bulk("A prune", "of a small queue", (*Store).Delete, store.Filter{Queue: "small", FinishedFor: day})
	bulk("A prune", "of what is dead", (*Store).Delete, store.Filter{States: states(store.Dead), FinishedFor: day})
	bulk("A prune", "of half a crowd", (*Store).Delete, store.Filter{States: states(store.Cancelled), FinishedFor: time.Hour})
	bulk("A requeue or cancel", "of what is dead", (*Store).Requeue, store.Filter{States: states(store.Dead)})
	bulk("A requeue or cancel", "of what is retrying", (*Store).Cancel, store.Filter{States: states(store.Retrying)})
	bulk("A requeue or cancel", "of a unique key", (*Store).Cancel, store.Filter{UniqueKey: "key"})
	bulk("A requeue or cancel", "of a small queue", (*Store).Cancel, store.Filter{Queue: "small", Kind: "k"})
	tomorrow := func(s *Store, ctx context.Context, f store.Filter, limit int) ([]store.Outcome, error) {
		return s.Reschedule(ctx, f, time.Now().Add(day), limit)
	}
	bulk("A reschedule", "of a small queue", tomorrow, store.Filter{Queue: "small"})
	bulk("A reschedule", "of what is retrying", tomorrow, store.Filter{States: states(store.Retrying)})
	list := func(name string, f store.Filter) {
		calls = append(calls, measured{"A page", name, func(ctx context.Context, s *Store) (int, error) {
			page, err := s.List(ctx, f, store.Page{Limit: 100})
			return len(page.Jobs), err
		}})
	}
	list("of everything", store.Filter{})
	list("of a queue", store.Filter{Queue: "q"})
	list("of a small queue", store.Filter{Queue: "small"})
	list("of a unique key", store.Filter{UniqueKey: "key"})
	for _, phase := range store.Phases {
		list("of what is "+string(phase), store.Filter{States: states(phase)})
		list("of what is "+string(phase)+" in a small queue", store.Filter{Queue: "small", States: states(phase)})
	}
	return calls
}

// What a call costs must not grow with jobs that it has nothing to do with, nor with how many more of its own wait, whatever
// the server believes to know of the table.
func TestCostDoesNotGrowWithTheCrowd(t *testing.T) {
	if race.Enabled {
		t.Skip("millions of jobs are left to the pass without the race detector")
	}
	const many = 1_000_000
	little, small := crowded(t, many/20)
	large, big := crowded(t, many)
	most := map[string][2]cost{}
	for _, known := range []struct{ what, how string }{
		{"the statistics are old", `SELECT`},
		{"there are no statistics", `DELETE FROM pg_statistic WHERE starelid = '{schema}.jobs'::regclass`},
		{"the statistics are new", `ANALYZE {schema}.jobs`},
	} {
		for _, s := range []*Store{little, large} {
			_, err := s.callers.ExecContext(t.Context(), s.sql(known.how))
			require.NoError(t, err)
		}
		for _, c := range measuredCalls() {
			what := fmt.Sprintf("%s %s, when %s", c.group, c.name, known.what)
			of := func(m *meter, s *Store) cost {
				return m.of(func() error {
					jobs, err := c.call(t.Context(), s)
					assert.Equal(t, 100, jobs, what)
					return err
				})
			}
			a, b := of(small, little), of(big, large)
			assert.LessOrEqual(t, b.rows, a.rows+a.rows/4+50, "rows visited: %s: more than among a twentieth of the jobs", what)
			assert.LessOrEqual(t, b.pages, a.pages+a.pages/2+50, "pages visited: %s: more than among a twentieth of the jobs", what)
			t.Logf("%s: %v; among a twentieth of the jobs: %v", what, b, a)
			most[c.group] = [2]cost{most[c.group][0].or(a), most[c.group][1].or(b)}
		}
	}
	for group, costs := range most {
		figures.Print(t, "%s of 100 visits at most %v among %d jobs of each sort, %v among %d", group, costs[1], many, costs[0], many/20)
	}
	few, lots := small.of(oldestDue(t, little)), big.of(oldestDue(t, large))
	assert.LessOrEqual(t, lots.pages, few.pages+few.pages/2+50, "pages visited by OldestDue")
	figures.Print(t, "OldestDue visits %v among %d jobs of each sort, %v among %d", lots, many, few, many/20)
	passTheDead(t, large, big, 100)
}

func oldestDue(t *testing.T, s *Store) func() error {
	return func() error {
		due, err := s.OldestDue(t.Context())
		assert.Len(t, due.Queues, 2)
		return err
	}
}

// What a claim or an ack costs must not grow with the jobs that were claimed before. Without the race detector it is tried
// among the crowd as well, and for longer.
func TestCostDoesNotGrowWithTheDead(t *testing.T) {
	s := openStore(t, Options{})
	passTheDead(t, s, metered(t, s), 15)
}

// passTheDead claims and acks jobs, a thousand at a time, while another session holds a snapshot open, so that what they
// leave behind in the indexes stays.
func passTheDead(t *testing.T, s *Store, m *meter, rounds int) {
	t.Helper()
	release := holdSnapshot(t, s)
	defer release()
	life := func() (claim, ack cost) {
		var jobs []store.Job
		claim = m.of(func() (err error) {
			jobs, err = s.FetchAndClaim(t.Context(), claimOf(100))
			assert.Len(t, jobs, 100)
			return err
		})
		ack = m.of(func() error {
			_, err := s.Ack(t.Context(), acksOf(jobs))
			return err
		})
		return claim, ack
	}
	enqueue(t, s, 1000)
	life()
	claim, ack := life()
	for range rounds {
		enqueue(t, s, 1000)
		_, err := s.Ack(t.Context(), acksOf(claimN(t, s, 1000)))
		require.NoError(t, err)
	}
	for range 2 { // looks that move the marks, which another one would find where they are
		s.cursors.Change("q", s.cursors.Get("q"), func(kept *cursor.Queue) { kept.Looked = time.Time{} })
		claimN(t, s, 10)
	}
	lateClaim, lateAck := life()
	s.cursors.Forget()
	head, _ := life()
	figures.Print(t, "A claim of 100 visits %d pages at first, %d after %d jobs under a held snapshot, and %d from the head; an ack %d and %d",
		claim.pages, lateClaim.pages, 1000*rounds, head.pages, ack.pages, lateAck.pages)
	assert.LessOrEqual(t, lateClaim.pages, claim.pages+claim.pages/4+50, "pages visited by a claim, against those before the jobs")
	assert.LessOrEqual(t, lateAck.pages, ack.pages+ack.pages/4+50, "pages visited by an ack, against those before the jobs")
	assert.Greater(t, head.pages, lateClaim.pages+20*rounds, "what is dead was kept by the snapshot, so that the head is far away")
}

// No statement on leases looks at others, whatever is known of the table.
func TestLeasesAreFoundByIndex(t *testing.T) {
	s := openStore(t, Options{})
	enqueue(t, s, 2000)
	held := claimN(t, s, 1000)
	crowd{queue: "q", state: store.InFlight, due: longAgo, lease: longAgo}.add(t, s, 20_000)
	// The first recovery looks through all leases for those of a clock that was ahead, as one does every 30 seconds.
	_, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 1})
	require.NoError(t, err)
	m := metered(t, s)
	for i, analyzed := range []bool{false, true} {
		if analyzed {
			_, err := s.db.Exec(s.sql(`ANALYZE {schema}.jobs`))
			require.NoError(t, err)
		}
		for what, call := range map[string]func() error{
			"Ack of one": func() error {
				_, err := s.Ack(t.Context(), []store.Ack{{Lease: held[2*i].Lease()}})
				return err
			},
			"NAck of one": func() error {
				_, err := s.NAck(t.Context(), []store.NAck{{Lease: held[2*i+1].Lease(), Form: store.Release}})
				return err
			},
		} {
			assert.Less(t, m.of(call).pages, 40, "pages visited by an %s, analyzed: %v", what, analyzed)
		}
		recovery := m.of(func() error {
			done, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 100})
			assert.Len(t, done, 100)
			return err
		})
		assert.Less(t, recovery.rows, 250+2*jobsInRow, "rows visited by a recovery of 100 out of 20,000, analyzed: %v", analyzed)
	}
}

// However many jobs the order of a queue has, it can be lifted, and replaced by another limit: what is left of it stops no claim.
func TestOrderOfManyJobsIsLifted(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	limitTo(t, s, store.Policy{Ordered: true})
	knowing(t, s)
	_, err := s.callers.ExecContext(t.Context(), s.sql(`
		INSERT INTO {schema}.ordered (queue, limit_key, job_id)
		SELECT 'q', n % 1000, n + 1000000
		FROM generate_series(1, 300000) AS n`))
	require.NoError(t, err)
	ids := append(enqueue(t, s, 3), enqueueKeyed(t, s, 3, "a")...)
	before := number(t, s, `SELECT count(*) FROM {schema}.ordered`)
	limitTo(t, s, store.Policy{})
	assert.Equal(t, before-10*orderedAtOnce, number(t, s, `SELECT count(*) FROM {schema}.ordered`), "rows that are left to later calls")
	limitTo(t, s, store.Policy{MaxPerKey: 2})
	var found []int64
	eventually(t, "the jobs are claimed", func() bool {
		jobs := claimN(t, s, 10)
		found = append(found, jobIDs(jobs)...)
		_, err := s.Ack(t.Context(), acksOf(jobs))
		require.NoError(t, err)
		return len(found) == len(ids)
	})
	assert.ElementsMatch(t, ids, found)
}

// holdSnapshot keeps a snapshot open beside the store until it is told otherwise.
func holdSnapshot(t *testing.T, s *Store) (release func()) {
	t.Helper()
	tx, err := s.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	var n int
	require.NoError(t, tx.QueryRow(`SELECT count(*) FROM pg_class`).Scan(&n))
	return func() { _ = tx.Rollback() }
}

package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

func enqueue(t *testing.T, w store.Writer, n int) []int64 {
	t.Helper()
	var ids []int64
	for n > 0 {
		answers, err := w.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(min(n, store.MaxItems))})
		require.NoError(t, err)
		for _, a := range answers {
			ids = append(ids, a.ID)
		}
		n -= len(answers)
	}
	return ids
}

func claimN(t *testing.T, s *Store, limit int) []store.Job {
	t.Helper()
	jobs, err := s.FetchAndClaim(t.Context(), claimOf(limit))
	require.NoError(t, err)
	return jobs
}

func claimOf(limit int) store.ClaimRequest {
	return store.ClaimRequest{Queue: "q", Limit: limit, Worker: "w", TTL: time.Minute}
}

// bound is how long a committed, claimable job may stay hidden (R15).
const bound = time.Second

// claimedWithin claims one job after another, none of them short of jobs, until it has the one wanted.
func claimedWithin(t *testing.T, s *Store, want int64) time.Duration {
	t.Helper()
	began := time.Now()
	for time.Since(began) < 5*bound {
		if jobs := claimN(t, s, 1); jobs[0].ID == want {
			return time.Since(began)
		}
	}
	require.Fail(t, "the job stayed hidden")
	return 0
}

// TestLateCommitIsFound commits a job when the cursor has long gone on past its place.
func TestLateCommitIsFound(t *testing.T) {
	s := openStore(t, Options{})
	enqueue(t, s, 10_000)
	claimN(t, s, 10)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	late := enqueue(t, s.InTx(tx), 1)[0]
	enqueue(t, s, 10_000)
	claimN(t, s, 1000) // they overlap the transaction, and pass its job by
	for began := time.Now(); time.Since(began) < stuckFor+100*time.Millisecond || s.trails.get("q").fresh.cursor[levelOf(0)].id <= late; {
		claimN(t, s, 500)
		enqueue(t, s, 500)
	}
	require.NoError(t, tx.Commit())
	took := claimedWithin(t, s, late)
	t.Logf("found after %v", took)
	assert.Less(t, took, bound)
}

// TestRolledBackClaimIsFound lets another session hold jobs, as a claim does, and give them back when the cursor is past them.
func TestRolledBackClaimIsFound(t *testing.T) {
	s := openStore(t, Options{})
	ids := enqueue(t, s, 10_000)
	claimN(t, s, 1)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), s.sql(`UPDATE {schema}.jobs SET state = 'in_flight' WHERE id = $1`), ids[1])
	require.NoError(t, err)
	held := time.Now()
	for looks := 0; looks < 2 || s.trails.get("q").fresh.cursor[levelOf(0)].id <= ids[1]; { // the marks move on meanwhile
		before := s.trails.get("q").looked
		for _, j := range claimN(t, s, 200) {
			require.NotEqual(t, ids[1], j.ID)
		}
		enqueue(t, s, 200)
		if looked := s.trails.get("q").looked; looked.After(before) && looked.After(held) {
			looks++
		}
	}
	require.NoError(t, tx.Rollback())
	took := claimedWithin(t, s, ids[1])
	t.Logf("found after %v", took)
	assert.Less(t, took, bound)
}

// TestClockSetBack: places are forgotten, and nothing stays hidden behind them.
func TestClockSetBack(t *testing.T) {
	h := &horizon{}
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	_, _, back := h.note(noon, 10, 10, time.Now())
	assert.False(t, back)
	past, _, _ := h.note(noon.Add(time.Second), 11, 12, time.Now())
	assert.Equal(t, noon, past)
	_, _, back = h.note(noon, 12, 12, time.Now())
	assert.True(t, back, "a second back, asked after the later answer")
	past, _, back = h.note(noon, 12, 12, time.Now().Add(-time.Hour))
	assert.False(t, back)
	assert.True(t, past.IsZero(), "what was known before is forgotten")
}

// TestHorizonWaitsForWriters: a moment is past only when every transaction that was open then has ended.
func TestHorizonWaitsForWriters(t *testing.T) {
	h := &horizon{}
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range int64(1000) { // an open transaction with number 5 keeps xmin there
		past, _, _ := h.note(noon.Add(time.Duration(i)*time.Millisecond), 5, 10+i, time.Now())
		assert.True(t, past.IsZero())
	}
	assert.LessOrEqual(t, len(h.pairs), mostPairs+1)
	past, stuck, _ := h.note(noon.Add(time.Second), 1010, 1010, time.Now())
	assert.False(t, stuck)
	assert.False(t, past.After(noon.Add(time.Second)))
	assert.True(t, past.After(noon.Add(900*time.Millisecond)), "past: %v", past)
}

// TestClaimVisitsFewPages counts the pages that a claim of ten touches, beside what must not matter: jobs waiting, scheduled
// for later at the highest priority, finished, and taken since a snapshot that somebody holds open.
func TestClaimVisitsFewPages(t *testing.T) {
	s := openStore(t, Options{})
	hold := holdSnapshot(t, s)
	enqueue(t, s, 1000)
	claimN(t, s, 10)
	few := claimPages(t, s)

	later := benchJobs(1000)
	for i := range later {
		later[i].Priority, later[i].Delay = store.MaxPriority, time.Hour
	}
	for range 10 {
		_, err := s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: later})
		require.NoError(t, err)
	}
	enqueue(t, s, 20_000)
	for range 15 {
		_, err := s.Ack(t.Context(), acksOf(claimN(t, s, 1000)))
		require.NoError(t, err)
	}
	for range 2 { // looks that move the marks, which another one would find where they are
		s.trails.change("q", s.trails.get("q"), func(kept *trail) { kept.looked = time.Time{} })
		claimN(t, s, 10)
	}
	many := claimPages(t, s)
	s.forget()
	head := claimPages(t, s)
	t.Logf("pages touched by a claim of ten: %d at first; %d beside 10,000 scheduled, 6,000 waiting and 15,000 taken; %d from the head", few, many, head)
	assert.Less(t, many, 2*few+100)
	assert.Greater(t, head, 2*many, "the snapshot keeps the dead entries, so the head is far away")
	hold()

	_, err := s.db.Exec(s.sql(`ANALYZE {schema}.jobs`))
	require.NoError(t, err)
	claimN(t, s, 10)
	assert.Less(t, claimPages(t, s), 2*few+100, "after ANALYZE")
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

// claimPages is how many pages a claim of ten touches. It is rolled back.
func claimPages(t *testing.T, s *Store) int {
	t.Helper()
	tn, err := s.begin(t.Context(), s.with.claim)
	require.NoError(t, err)
	defer tn.end()
	e := &explainer{t: t, Conn: tn.conn}
	tn.tx = e
	c := claim{ClaimRequest: claimOf(10), trail: s.trails.get("q")}
	jobs, err := c.run(tn)
	require.NoError(t, err)
	require.Len(t, jobs, 10)
	return e.pages
}

// An explainer counts the pages that queries touch, by running them once more.
type explainer struct {
	t *testing.T
	*sqlx.Conn
	pages int
}

var buffers = regexp.MustCompile(`shared hit=(\d+)(?: read=(\d+))?`)

func (e *explainer) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := e.Conn.QueryContext(ctx, `EXPLAIN (ANALYZE, BUFFERS) `+query, args...)
	require.NoError(e.t, err)
	counted := false
	for rows.Next() {
		var line string
		require.NoError(e.t, rows.Scan(&line))
		if found := buffers.FindStringSubmatch(line); found != nil && !counted {
			counted = true // the first line sums up the others
			for _, n := range found[1:] {
				number, _ := strconv.Atoi(n)
				e.pages += number
			}
		}
	}
	require.NoError(e.t, rows.Err())
	require.NoError(e.t, rows.Close())
	return e.Conn.QueryContext(ctx, query, args...)
}

// TestPlansGoByIndex: no statement of a claim, a finish or a recovery reads the table through.
func TestPlansGoByIndex(t *testing.T) {
	s := openStore(t, Options{})
	enqueue(t, s, 2000)
	held := claimN(t, s, 1000)
	pages := func(run func(t *txn) error) int {
		tn, err := s.begin(t.Context(), s.with.write)
		require.NoError(t, err)
		defer tn.end()
		e := &explainer{t: t, Conn: tn.conn}
		tn.tx = e
		require.NoError(t, run(tn))
		return e.pages
	}
	one := []store.NAck{{Lease: held[0].Lease(), Form: store.Release}}
	nack := func(t *txn) error { _, err := t.nack(one); return err }
	recovery := func(t *txn) error { _, err := t.recover(store.RecoverRequest{Limit: 10}); return err }
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			_, err := s.db.Exec(s.sql(`ANALYZE {schema}.jobs`))
			require.NoError(t, err)
		}
		what := fmt.Sprintf("analyzed %v", analyzed)
		assert.Less(t, pages(nack), 40, "NAck of one, %s", what)
		assert.Less(t, pages(recovery), 40, "recovery of none, %s", what)
	}
}

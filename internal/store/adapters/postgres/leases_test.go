package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/store"
)

// CheckLeases returns an error if a recovery would miss a lease of the schema: each job in flight must be in a row of the table
// leases that is due no later than its lease expires. Every case of the suite ends with it.
func CheckLeases(ctx context.Context, db *sql.DB, schema string) error {
	var missed []int64
	err := db.QueryRowContext(ctx, strings.ReplaceAll(`
		SELECT array_agg(id)
		FROM {schema}.jobs
		WHERE lease_expires_at IS NOT NULL
			AND NOT EXISTS (SELECT 1 FROM {schema}.leases WHERE jobs.id = ANY (ids) AND due_at <= lease_expires_at)`,
		`{schema}`, pq.QuoteIdentifier(schema))).Scan(pq.Array(&missed))
	if err == nil && len(missed) > 0 {
		err = fmt.Errorf("no row of the table leases is due in time for the jobs %v", missed)
	}
	return err
}

func (s *Store) checkLeases(ctx context.Context) error {
	return CheckLeases(ctx, s.callers.DB, s.options.Schema)
}

// A claim, an extension and a saved progress write no index entry, also while a snapshot keeps every version: the pages have room.
func TestClaimsAreHot(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	ctx := t.Context()
	var named []string
	require.NoError(t, s.callers.SelectContext(ctx, &named, `
		SELECT DISTINCT attname
		FROM pg_index
		JOIN pg_attribute ON attrelid = indrelid AND (attnum = ANY (indkey)
			OR pg_get_expr(indpred, indrelid) ~ ('\m' || attname || '\M') OR pg_get_expr(indexprs, indrelid) ~ ('\m' || attname || '\M'))
		WHERE indrelid = $1::regclass AND attnum > 0`,
		s.schema+`.jobs`))
	require.Contains(t, named, "finished_at", "the predicates are read too")
	for _, changing := range []string{"token", "lease_expires_at", "lease_for", "worker", "claimed_at", "attempts", "progress", "checkpoint"} {
		assert.NotContains(t, named, changing, "an index names the column")
	}

	release := holdSnapshot(t, s)
	defer release()
	const jobs = 3000
	enqueue(t, s, jobs)
	var held []store.Lease
	for range 3 {
		for _, j := range claimN(t, s, jobs/3) {
			held = append(held, j.Lease())
		}
	}
	for range 2 {
		for part := range slices.Chunk(held, store.MaxItems) {
			_, err := s.Extend(ctx, part, time.Hour)
			require.NoError(t, err)
		}
	}
	var updated, hot int
	require.Eventually(t, func() bool {
		_, err := s.callers.Exec(`SELECT pg_stat_force_next_flush()`)
		if err != nil && codeOf(err) != codeNoFunction {
			require.NoError(t, err)
		}
		require.NoError(t, s.callers.QueryRow(`
			SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = $1::regclass`, s.schema+`.jobs`).Scan(&updated, &hot))
		return updated == 3*jobs
	}, time.Minute, 10*time.Millisecond, "the server does not report the updates")
	figures.Print(t, "%d of %d claims and extensions under a held snapshot are HOT", hot, updated)
	assert.Greater(t, hot, jobs*95/100, "HOT updates of %d claims", jobs)
}

// A lease that was extended has a row that is due too early. Recovery goes by the leases, in the order in which they expire, however
// their rows lie, and leaves rows that are right.
func TestRecoveryGoesByTheLeases(t *testing.T) {
	t.Parallel()
	clk := newClock()
	s := openStore(t, Options{Clock: clk})
	ctx := t.Context()
	enqueue(t, s, 500)
	var held []store.Job
	for range 500 { // each has a row of its own
		held = append(held, claimN(t, s, 1)...)
		clk.Add(time.Millisecond)
	}
	for i, j := range held { // the first ones expire last
		_, err := s.Extend(ctx, []store.Lease{j.Lease()}, time.Hour-time.Duration(i)*time.Second)
		require.NoError(t, err)
	}
	require.NoError(t, s.checkLeases(ctx))
	recovered, err := s.RecoverExpiredLeases(ctx, store.RecoverRequest{Limit: 10})
	require.NoError(t, err)
	assert.Empty(t, recovered)

	clk.Add(time.Minute) // past the end that the claims gave
	recovered, err = s.RecoverExpiredLeases(ctx, store.RecoverRequest{Limit: 10})
	require.NoError(t, err)
	assert.Empty(t, recovered)
	require.NoError(t, s.checkLeases(ctx))
	var rows int
	require.NoError(t, s.callers.Get(&rows, s.sql(`SELECT count(*) FROM {schema}.leases WHERE due_at > $1`), clk.Now()))
	require.Equal(t, 3, rows, "rows for leases that expire in more than a minute")

	_, err = s.Extend(ctx, []store.Lease{held[250].Lease()}, time.Second) // shorter
	require.NoError(t, err)
	require.NoError(t, s.checkLeases(ctx))
	clk.Add(time.Second)
	recovered, err = s.RecoverExpiredLeases(ctx, store.RecoverRequest{Limit: 10})
	require.NoError(t, err)
	require.Len(t, recovered, 1)
	assert.Equal(t, held[250].ID, recovered[0].ID)

	clk.Add(2 * time.Hour)
	last := len(held) - 1
	for last >= 0 {
		recovered, err = s.RecoverExpiredLeases(ctx, store.RecoverRequest{Limit: 60})
		require.NoError(t, err)
		require.NotEmpty(t, recovered)
		for _, r := range recovered {
			if held[last].ID == held[250].ID {
				last--
			}
			require.Equal(t, held[last].ID, r.ID)
			last--
		}
		require.NoError(t, s.checkLeases(ctx))
	}
	require.NoError(t, s.callers.Get(&rows, s.sql(`SELECT count(*) FROM {schema}.leases`)))
	assert.Zero(t, rows, "rows are left although no job is in flight")
}

// Jobs that a worker keeps for long share rows, since their leases expire together.
func TestLeasesThatExpireTogetherShareRows(t *testing.T) {
	t.Parallel()
	clk := newClock()
	s := openStore(t, Options{Clock: clk})
	enqueue(t, s, 300)
	var held []store.Lease
	for range 300 {
		held = append(held, claimN(t, s, 1)[0].Lease())
		clk.Add(time.Millisecond)
	}
	_, err := s.Extend(t.Context(), held, time.Hour)
	require.NoError(t, err)
	clk.Add(time.Minute)
	_, err = s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 1})
	require.NoError(t, err)
	var rows int
	require.NoError(t, s.callers.Get(&rows, s.sql(`SELECT count(*) FROM {schema}.leases`)))
	assert.Equal(t, 2, rows)
	require.NoError(t, s.checkLeases(t.Context()))
}

// A row with a job that another transaction has locked stays, and the job is recovered later.
func TestRowsOfLockedJobsStay(t *testing.T) {
	t.Parallel()
	clk := newClock()
	s := openStore(t, Options{Clock: clk})
	ids := enqueue(t, s, 3)
	claimN(t, s, 3)
	clk.Add(time.Hour)
	tx, err := s.callers.BeginTxx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.Exec(s.sql(`SELECT 1 FROM {schema}.jobs WHERE id = $1 FOR UPDATE`), ids[1])
	require.NoError(t, err)
	recovered, err := s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 10})
	require.NoError(t, err)
	assert.Len(t, recovered, 2)
	require.NoError(t, s.checkLeases(t.Context()))
	require.NoError(t, tx.Rollback())
	recovered, err = s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 10})
	require.NoError(t, err)
	require.Len(t, recovered, 1)
	assert.Equal(t, ids[1], recovered[0].ID)
}

// Rows that are due and must stay are more than one transaction reads. A recovery passes them all once, and recovers what lies behind
// them.
func TestRecoveryPassesRowsThatStay(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{Timeout: time.Minute})
	crowd{queue: "q", state: store.InFlight, due: longAgo, lease: "-10 minutes"}.add(t, s, mostLeased+20_000)
	_, err := s.callers.Exec(s.sql(`UPDATE {schema}.leases SET due_at = due_at - interval '1 hour'`))
	require.NoError(t, err)
	crowd{queue: "q", state: store.InFlight, due: longAgo, lease: "-31 minutes"}.add(t, s, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	recovered, err := s.RecoverExpiredLeases(ctx, store.RecoverRequest{Limit: 10, Grace: 30 * time.Minute})
	require.NoError(t, err)
	assert.Len(t, recovered, 3)
}

// A program of an earlier version cannot take jobs that are in flight: its statements name a column that is no more.
func TestEarlierProgramsAreRefused(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	enqueue(t, s, 1)
	claimN(t, s, 1)
	_, err := s.callers.Exec(s.sql(`UPDATE {schema}.jobs SET state = 'in_flight', token = token + 1 WHERE state = 'ready'`))
	assert.ErrorContains(t, err, `column "state" does not exist`)
}

package postgres

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// The rights that deploy/postgres-rights.sql gives are enough for every method of the contract, and no more than that: the owner
// migrates, and the other role can not.
func TestLeastRightsAreEnough(t *testing.T) {
	c := ownServer(t, pgtest.Options{})
	script, err := os.ReadFile("../../../../deploy/postgres-rights.sql")
	require.NoError(t, err)
	super, err := sqlx.ConnectContext(t.Context(), "postgres", c.DSN)
	require.NoError(t, err)
	defer func() { assert.NoError(t, super.Close()) }()
	_, err = super.ExecContext(t.Context(), string(script))
	require.NoError(t, err)
	_, err = super.ExecContext(t.Context(), `ALTER DEFAULT PRIVILEGES FOR ROLE jq_owner REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC`)
	require.NoError(t, err)

	owner, err := Open(t.Context(), c.DSN+" user=jq_owner", nil)
	require.NoError(t, err)
	require.NoError(t, owner.Close())

	s, err := Open(t.Context(), c.DSN+" user=jq_app", &Options{NoMigrate: true})
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	useAll(t, s)
	_, err = s.DB().ExecContext(t.Context(), `SELECT jq.next_slot('q', 1, 200)`)
	require.NoError(t, err)

	_, err = s.DB().ExecContext(t.Context(), `CREATE TABLE jq.more (id bigint)`)
	assert.Equal(t, codeNoRight, codeOf(err), "jq_app makes a table")
	_, err = s.DB().ExecContext(t.Context(), `TRUNCATE jq.jobs`)
	assert.Equal(t, codeNoRight, codeOf(err), "jq_app empties a table")
}

// useAll calls every method of the contract that writes, and those that read what others have not to see.
func useAll(t *testing.T, s *Store) {
	t.Helper()
	ctx := t.Context()
	enqueue := store.EnqueueRequest{RequestKey: "request", Jobs: []store.NewJob{
		{Queue: "q", Kind: "k", Payload: []byte("1")},
		{Queue: "q", Kind: "k", Payload: []byte("2"), UniqueKey: "key", UniqueFor: time.Hour},
		{Queue: "q", Kind: "k", Payload: []byte("3"), MaxRetries: 3},
	}}
	tx, err := s.DB().BeginTxx(ctx, nil)
	require.NoError(t, err)
	_, err = s.InTx(tx).Enqueue(ctx, enqueue)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())

	claim := func() []store.Lease {
		jobs, err := s.FetchAndClaim(ctx, store.ClaimRequest{Queue: "q", Limit: 3, RetryQuota: 1, Worker: "w", TTL: time.Microsecond})
		require.NoError(t, err)
		var leases []store.Lease
		for _, j := range jobs {
			leases = append(leases, j.Lease())
		}
		return leases
	}
	leases := claim()
	require.Len(t, leases, 3)
	ok(t)(s.Save(ctx, []store.Save{{Lease: leases[0], Seq: 1, Checkpoint: []byte("1")}}))
	ok(t)(s.Ack(ctx, []store.Ack{{Lease: leases[0]}}))
	ok(t)(s.NAck(ctx, []store.NAck{{Lease: leases[1], Form: store.Release}}))
	ok(t)(s.Extend(ctx, leases[2:], time.Microsecond))
	recovered, err := s.RecoverExpiredLeases(ctx, store.RecoverRequest{Limit: 10})
	require.NoError(t, err)
	require.Len(t, recovered, 1)
	ok(t)(s.Cancel(ctx, store.Filter{IDs: []int64{leases[2].ID}}, 1))
	ok(t)(s.Requeue(ctx, store.Filter{IDs: []int64{leases[0].ID}}, 1))
	ok(t)(s.Reschedule(ctx, store.Filter{IDs: []int64{leases[1].ID}}, time.Now().Add(time.Hour), 1))
	ok(t)(s.Reschedule(ctx, store.Filter{IDs: []int64{leases[1].ID}}, time.Time{}, 1))
	require.Len(t, claim(), 2, "an attempt moves to the table of attempts")
	ok(t)(s.Delete(ctx, store.Filter{IDs: []int64{leases[2].ID}}, 1))

	for what, err := range map[string]error{
		"pausing": s.SetPaused(ctx, "q", true),
		"beating": s.Beat(ctx, store.Worker{Name: "w", Queues: []string{"q"}, StaleAfter: time.Minute}),
		"fencing": only(s.Fence(ctx, store.FenceRequest{EndLeases: true})),
		"listing": only(s.List(ctx, store.Filter{}, store.Page{Limit: 10})),
		"count":   only(s.Count(ctx, store.Filter{})),
		"queues":  only(s.Queues(ctx)),
		"workers": only(store.AllWorkers(ctx, s)),
		"doctor":  only(s.Examine(ctx)),
		"sweeps":  only(s.check(ctx)),
	} {
		assert.NoError(t, err, what)
	}
	listening, stop := context.WithCancel(ctx)
	defer stop()
	_, err = s.Subscribe(listening, nil)
	require.NoError(t, err)
}

func only[T any](_ T, err error) error { return err }

// ok checks that a call has one outcome, which is ok.
func ok(t *testing.T) func([]store.Outcome, error) {
	t.Helper()
	return func(outcomes []store.Outcome, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Len(t, outcomes, 1)
		require.Equal(t, store.StatusOK, outcomes[0].Status)
	}
}

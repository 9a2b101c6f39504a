package server

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A job that is run without a server ends as its handler says, and a job that it has finished in a transaction only if that is committed.
func TestOnceWritesHowTheJobEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		for name, c := range map[string]struct {
			handler Handler
			phase   store.State
			reason  string
		}{
			"nil":      {func(context.Context, *Run) error { return nil }, store.Succeeded, ""},
			"an error": {func(context.Context, *Run) error { return errors.New("no luck") }, store.Retrying, "no luck"},
			"a wish": {
				func(context.Context, *Run) error { return &Wish{Form: store.Never, Err: errors.New("hopeless")} },
				store.Dead, "hopeless",
			},
			"a wish that the store refuses": {
				func(context.Context, *Run) error {
					return &Wish{Form: store.After, Delay: -1, Err: errors.New("later")}
				},
				store.Retrying, "later\nthis could not be written: ",
			},
			"a result that the store refuses": {
				func(_ context.Context, r *Run) error {
					r.SetResult(bytes.Repeat([]byte("1"), store.MaxDocBytes+1))
					return nil
				},
				store.Dead, "result refused: it must have at most 1048576 bytes",
			},
			"committed": {finishing(w, func(_ context.Context, _ *Run, tx *sql.Tx) error { return tx.Commit() }), store.Succeeded, ""},
			"rolled back": {
				finishing(w, func(_ context.Context, _ *Run, tx *sql.Tx) error { return tx.Rollback() }),
				store.Retrying, "the handler finished the job in a transaction that was not committed",
			},
			"left open": {
				leaving(w, func() error { return nil }),
				store.Retrying, "the handler finished the job in a transaction that was not committed",
			},
			"left open by a panic": {
				leaving(w, func() error { panic("odd") }),
				store.Retrying, "panic: odd\n",
			},
			"rolled back with an error": {
				finishing(w, func(_ context.Context, _ *Run, tx *sql.Tx) error {
					return errors.Join(tx.Rollback(), errors.New("no luck"))
				}),
				store.Retrying, "no luck",
			},
		} {
			id := w.enqueue(1, "once", func(n *store.NewJob) { n.Queue, n.Backoff.Base = "once", time.Hour })[0]
			jobs, err := w.store.FetchAndClaim(w.Context(), store.ClaimRequest{Queue: "once", Limit: 1, Worker: "w", TTL: time.Hour})
			require.NoError(w, err)
			require.Len(w, jobs, 1)
			lookup := func(kind string) (Handler, bool) { return c.handler, kind == "once" }
			began := time.Now()
			outcome, err := Once(w.Context(), w.store, lookup, plainSlab, jobs[0])
			require.NoError(w, err, name)
			assert.Less(w, time.Since(began), time.Second, name)
			j := w.job(id)
			assert.Equal(w, c.phase, j.Phase(), name)
			assert.Equal(w, j.State, outcome.State, name)
			assert.Contains(w, j.Error, c.reason, name)
			assert.Equal(w, c.reason == "", j.Error == "", name)
		}
	})
}

// leaving returns a handler that finishes its job in a transaction, and leaves that open.
func leaving(w *world, rest func() error) Handler {
	return func(ctx context.Context, r *Run) error {
		tx, err := w.store.DB().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		return errors.Join(r.FinishTx(ctx, tx), rest())
	}
}

func TestOnceRunsNoJobWithoutAHandler(t *testing.T) {
	_, err := Once(t.Context(), nil, func(string) (Handler, bool) { return nil, false }, plainSlab, store.Job{Kind: "k"})
	require.EqualError(t, err, `jq: no handler for kind "k"`)
}

// Package longjobs has the code of the guide docs/guides/long-jobs.md.
package longjobs

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/jqtest"
)

// Import is the payload of a job that imports a file of many rows.
type Import struct{ File string }

func (Import) Kind() string { return "import" }

// Defaults lets an import take six hours.
func (Import) Defaults() jq.EnqueueOptions {
	return jq.EnqueueOptions{Queue: "imports", Timeout: 6 * time.Hour}
}

// Position is what an import saves on its way.
type Position struct{ Row, Failed int }

const rows = 10_000

// importer returns the handler. Each call of importRows writes a thousand rows.
func importer(importRows func(ctx context.Context, from int) (failed int, err error)) func(context.Context, *jq.Run, Import) error {
	return func(ctx context.Context, run *jq.Run, _ Import) error {
		var at Position
		if _, err := run.LoadCheckpoint(&at); err != nil { // of an earlier attempt; leaves at as it is if there is none
			return err
		}
		for at.Row < rows {
			failed, err := importRows(ctx, at.Row)
			if err != nil {
				return err // also when ctx has ended
			}
			at = Position{at.Row + 1000, at.Failed + failed}
			if err := run.SaveCheckpoint(ctx, at); err != nil {
				return err // ErrStaleLease: another run may have the job
			}
			if err := run.SaveProgress(ctx, fmt.Sprintf("%d of %d rows", at.Row, rows)); err != nil {
				return err
			}
		}
		return run.SetResult(at)
	}
}

func TestImportGoesOnWhereItStopped(t *testing.T) {
	store := jqtest.NewStore(t)
	client := jq.NewClient(store, nil)
	_, err := client.Enqueue(t.Context(), Import{"users.csv"}, nil)
	require.NoError(t, err)
	var from []int
	var handlers jq.Handlers
	jq.Handle(&handlers, importer(func(_ context.Context, row int) (int, error) {
		if from = append(from, row); len(from) == 4 {
			return 0, errors.New("the disk is full")
		}
		return 1, nil
	}))

	ran := jqtest.Drain(t, store, &handlers, nil)

	assert.Equal(t, []int{0, 1000, 2000, 3000, 3000, 4000, 5000, 6000, 7000, 8000, 9000}, from)
	assert.JSONEq(t, `"3000 of 10000 rows"`, string(ran[0].After.Progress))
	at, err := jq.Result[Position](ran[1].After)
	require.NoError(t, err)
	assert.Equal(t, Position{Row: rows, Failed: 10}, at)
}

// A job that does one part in each run uses up no retries.
func TestPartByPart(t *testing.T) {
	store := jqtest.NewStore(t)
	_, err := jq.NewClient(store, nil).Enqueue(t.Context(), Import{"users.csv"}, &jq.EnqueueOptions{MaxRetries: new(0)})
	require.NoError(t, err)
	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, _ Import) error {
		var at Position
		if _, err := run.LoadCheckpoint(&at); err != nil {
			return err
		}
		if at.Row += 1000; at.Row == rows {
			return run.SetResult(at)
		}
		if err := run.SaveCheckpoint(ctx, at); err != nil {
			return err
		}
		return jq.Snooze(0)
	})
	ran := jqtest.Drain(t, store, &handlers, nil)
	require.Len(t, ran, 10)
	assert.Equal(t, jqtest.Epoch, ran[9].At)
	assert.Equal(t, jq.Succeeded, ran[9].After.State)
}

// The handler learns that it must stop by its context. What it returns then does not matter if the lease was lost or the job cancelled.
func stopping(ctx context.Context) string {
	<-ctx.Done()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, jq.ErrCancelled):
		return "somebody has cancelled the job"
	case errors.Is(cause, jq.ErrTimeout):
		return "the run took longer than its timeout: it has failed"
	case errors.Is(cause, jq.ErrLeaseLost), errors.Is(cause, jq.ErrLeaseUnknown):
		return "the job may be running elsewhere"
	case errors.Is(cause, jq.ErrDrained):
		return "this server stops: return ctx.Err(), and another one goes on"
	default:
		return cause.Error()
	}
}

func TestWhyAHandlerMustStop(t *testing.T) {
	for name, c := range map[string]struct {
		stop func(ctx context.Context, store *jq.MemoryStore, client *jq.Client, server *jq.Server)
		want string
		then jq.State
	}{
		"cancelled": {func(ctx context.Context, _ *jq.MemoryStore, client *jq.Client, _ *jq.Server) {
			_ = client.Cancel(ctx, 1)
		}, "somebody has cancelled the job", jq.Cancelled},
		"timeout": {func(context.Context, *jq.MemoryStore, *jq.Client, *jq.Server) {},
			"the run took longer than its timeout: it has failed", jq.Retrying},
		"stopped": {func(ctx context.Context, _ *jq.MemoryStore, _ *jq.Client, server *jq.Server) { _ = server.Stop(ctx) },
			"this server stops: return ctx.Err(), and another one goes on", jq.Ready},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := jq.NewMemory(nil)
				defer store.Close()
				client := jq.NewClient(store, nil)
				began, said := make(chan bool, 10), make(chan string, 10)
				var handlers jq.Handlers
				jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, _ Import) error {
					if run.Attempts > 1 {
						return jq.Snooze(time.Hour)
					}
					began <- true
					said <- stopping(ctx)
					return ctx.Err()
				})
				server, err := jq.NewServer(store, &handlers, &jq.ServerOptions{Queues: map[string]jq.QueueOptions{"imports": {}}})
				require.NoError(t, err)
				require.NoError(t, server.Start(t.Context()))
				_, err = client.Enqueue(t.Context(), Import{"users.csv"}, nil)
				require.NoError(t, err)
				<-began
				c.stop(t.Context(), store, client, server)
				assert.Equal(t, c.want, <-said)
				synctest.Wait()
				job, err := client.Get(t.Context(), 1)
				require.NoError(t, err)
				assert.Equal(t, c.then, job.Phase())
				require.NoError(t, server.Stop(t.Context()))
			})
		})
	}
}

// Fence refuses a write of a job whose newer run has written before. Call it first in the transaction that writes.
func Fence(ctx context.Context, tx *sql.Tx, lease jq.Lease) error {
	done, err := tx.ExecContext(ctx, `
		INSERT INTO fences (job, token) VALUES ($1, $2)
		ON CONFLICT (job) DO UPDATE SET token = excluded.token WHERE fences.token <= excluded.token`, lease.ID, lease.Token)
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		return cmp.Or(err, errLate)
	}
	return nil
}

var errLate = errors.New("a newer run of this job has written already")

func TestFenceRefusesOlderRuns(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "app.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), `CREATE TABLE fences (job bigint PRIMARY KEY, token bigint NOT NULL)`)
	require.NoError(t, err)
	for _, c := range []struct {
		lease jq.Lease
		want  error
	}{
		{jq.Lease{ID: 1, Token: 1}, nil},
		{jq.Lease{ID: 1, Token: 1}, nil}, // the same run writes again
		{jq.Lease{ID: 1, Token: 3}, nil},
		{jq.Lease{ID: 1, Token: 1}, errLate},
		{jq.Lease{ID: 2, Token: 1}, nil}, // tokens of different jobs say nothing of each other
	} {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		assert.ErrorIs(t, Fence(t.Context(), tx, c.lease), c.want, "%+v", c.lease)
		require.NoError(t, tx.Commit())
	}
}

package jq_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/bubble"
)

// A lobby is a store with a server, in the time of a synctest bubble. Its job has the kind welcome.
type lobby struct {
	*testing.T
	store  *jq.MemoryStore
	client *jq.Client
	id     int64
}

// inLobby runs the test. The handler decides how the job ends.
func inLobby(t *testing.T, handle func(ctx context.Context, run *jq.Run) error, test func(l *lobby)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		l := &lobby{T: t, store: jq.NewMemory(nil)}
		l.client = jq.NewClient(l.store, nil)
		added, err := l.client.Enqueue(t.Context(), welcome{"Ada"}, &jq.EnqueueOptions{MaxRetries: new(0)})
		require.NoError(t, err)
		l.id = added.ID
		var handlers jq.Handlers
		jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, _ welcome) error { return handle(ctx, run) })
		server, err := jq.NewServer(l.store, &handlers, nil)
		require.NoError(t, err)
		require.NoError(t, server.Start(t.Context()))
		test(l)
		require.NoError(t, server.Stop(t.Context()))
		require.NoError(t, l.store.Close())
	})
}

// after handles a job for a part of a second, in which no look falls but the first.
func after(then func(ctx context.Context, run *jq.Run) error) func(ctx context.Context, run *jq.Run) error {
	return func(ctx context.Context, run *jq.Run) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(300 * time.Millisecond):
			return then(ctx, run)
		}
	}
}

func succeed(context.Context, *jq.Run) error { return nil }

// atOnce waits, and checks that it was told: the next look is due after a second.
func (l *lobby) atOnce(want jq.State) jq.JobDetail {
	l.Helper()
	job, err := l.client.Wait(l.Context(), l.id)
	require.NoError(l, err)
	assert.Equal(l, want, job.Phase())
	assert.Less(l, time.Since(job.FinishedAt), time.Millisecond, "the next look would have been up to a second later")
	now, err := l.client.Get(l.Context(), l.id)
	require.NoError(l, err)
	assert.Equal(l, now, job, "as Get returns it")
	return job
}

func TestWaitReturnsAtOnceWhatTheServerHasEnded(t *testing.T) {
	for name, c := range map[string]struct {
		handle func(ctx context.Context, run *jq.Run) error
		want   jq.State
	}{
		"Succeeded": {func(_ context.Context, run *jq.Run) error { return run.SetResult("done") }, jq.Succeeded},
		"Dead":      {func(context.Context, *jq.Run) error { return errors.New("no") }, jq.Dead},
		"Refused":   {func(_ context.Context, run *jq.Run) error { return run.SetResult(make([]byte, 2<<20)) }, jq.Dead},
	} {
		t.Run(name, func(t *testing.T) {
			inLobby(t, after(c.handle), func(l *lobby) {
				job := l.atOnce(c.want)
				if c.want == jq.Succeeded {
					assert.Equal(l, `"done"`, string(job.Result))
				}
			})
		})
	}
}

func TestWaitReturnsAtOnceWhatAHandlersTransactionHasEnded(t *testing.T) {
	var s atomic.Pointer[jq.MemoryStore]
	inLobby(t, after(func(ctx context.Context, run *jq.Run) error {
		tx, err := s.Load().DB().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := run.FinishTx(ctx, tx); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}), func(l *lobby) {
		s.Store(l.store)
		l.atOnce(jq.Succeeded)
	})
}

func TestWaitReturnsAtOnceWhatAClientHasCancelled(t *testing.T) {
	for name, cancel := range map[string]func(l *lobby) error{
		"Cancel": func(l *lobby) error { return l.client.Cancel(l.Context(), l.id) },
		"CancelAll": func(l *lobby) error {
			_, err := jq.NewClient(l.store, nil).CancelAll(l.Context(), jq.Filter{Kind: "welcome"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inLobby(t, after(func(ctx context.Context, _ *jq.Run) error { <-ctx.Done(); return nil }), func(l *lobby) {
				time.AfterFunc(300*time.Millisecond, func() { assert.NoError(l, cancel(l)) })
				l.atOnce(jq.Cancelled)
			})
		})
	}
}

// TestWaitReturnsAtOnceWhenAClientHasDeleted a job whose end nobody here was told of.
func TestWaitReturnsAtOnceWhenAClientHasDeleted(t *testing.T) {
	for name, remove := range map[string]func(l *lobby) error{
		"Delete": func(l *lobby) error { return l.client.Delete(l.Context(), l.id) },
		"DeleteAll": func(l *lobby) error {
			_, err := l.client.DeleteAll(l.Context(), jq.Filter{Kind: "welcome"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inLobby(t, after(func(ctx context.Context, _ *jq.Run) error { <-ctx.Done(); return nil }), func(l *lobby) {
				began := time.Now()
				time.AfterFunc(300*time.Millisecond, func() {
					_, err := l.store.Cancel(l.Context(), jq.Filter{IDs: []int64{l.id}}, 1)
					assert.NoError(l, err)
					assert.NoError(l, remove(l))
				})
				_, err := l.client.Wait(l.Context(), l.id)
				assert.ErrorIs(l, err, jq.ErrNotFound)
				assert.Equal(l, 300*time.Millisecond, time.Since(began))
			})
		})
	}
}

// TestWaitReturnsAtOnceWhatRecoveryHasEnded: the worker of the lease is gone, and no retries are left.
func TestWaitReturnsAtOnceWhatRecoveryHasEnded(t *testing.T) {
	inLobby(t, succeed, func(l *lobby) {
		added, err := l.client.Enqueue(l.Context(), welcome{"Grace"}, &jq.EnqueueOptions{Queue: "elsewhere", MaxRetries: new(0)})
		require.NoError(l, err)
		l.id = added.ID
		_, err = l.store.FetchAndClaim(l.Context(), contract.ClaimRequest{Queue: "elsewhere", Limit: 1, Worker: "gone", TTL: time.Second})
		require.NoError(l, err)
		l.atOnce(jq.Dead)
	})
}

func TestWaitReturnsAtOnceWhatRunJobHasEnded(t *testing.T) {
	inLobby(t, succeed, func(l *lobby) {
		added, err := l.client.Enqueue(l.Context(), welcome{"Grace"}, &jq.EnqueueOptions{Queue: "elsewhere"})
		require.NoError(l, err)
		l.id = added.ID
		jobs, err := l.store.FetchAndClaim(l.Context(), contract.ClaimRequest{Queue: "elsewhere", Limit: 1, Worker: "me", TTL: time.Minute})
		require.NoError(l, err)
		var handlers jq.Handlers
		jq.Handle(&handlers, func(context.Context, *jq.Run, welcome) error { return nil })
		time.AfterFunc(300*time.Millisecond, func() {
			_, err := handlers.RunJob(l.Context(), l.store, jobs[0])
			assert.NoError(l, err)
		})
		l.atOnce(jq.Succeeded)
	})
}

// TestWaitSeesWithinASecondWhatOthersHaveEnded: here by the store itself, past every client and server.
func TestWaitSeesWithinASecondWhatOthersHaveEnded(t *testing.T) {
	inLobby(t, after(func(ctx context.Context, _ *jq.Run) error { <-ctx.Done(); return nil }), func(l *lobby) {
		began := time.Now()
		time.AfterFunc(300*time.Millisecond, func() {
			_, err := l.store.Cancel(l.Context(), jq.Filter{IDs: []int64{l.id}}, 1)
			assert.NoError(l, err)
		})
		job, err := l.client.Wait(l.Context(), l.id)
		require.NoError(l, err)
		assert.Equal(l, jq.Cancelled, job.State)
		assert.Equal(l, time.Second, time.Since(began))
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	inLobby(t, after(succeed), func(l *lobby) {
		ctx, cancel := context.WithTimeout(l.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := l.client.Wait(ctx, l.id)
		assert.ErrorIs(l, err, context.DeadlineExceeded)
	})
}

func TestWaitEndsWithItsStore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := jq.NewMemory(nil)
		client := jq.NewClient(s, nil)
		added, err := client.Enqueue(t.Context(), welcome{"Ada"}, nil)
		require.NoError(t, err)
		time.AfterFunc(time.Minute-time.Millisecond, func() { assert.NoError(t, s.Close()) })
		began := time.Now()
		_, err = client.Wait(t.Context(), added.ID)
		assert.ErrorIs(t, err, jq.ErrClosed)
		assert.Equal(t, time.Minute, time.Since(began))
	})
}

// TestWaitAfterRequeueWaitsForTheNextEnd.
func TestWaitAfterRequeueWaitsForTheNextEnd(t *testing.T) {
	runs := 0
	inLobby(t, after(func(context.Context, *jq.Run) error {
		if runs++; runs == 1 {
			return errors.New("the first time")
		}
		return nil
	}), func(l *lobby) {
		l.atOnce(jq.Dead)
		require.NoError(l, l.client.Requeue(l.Context(), l.id))
		job, err := l.client.Wait(l.Context(), l.id)
		require.NoError(l, err)
		assert.Equal(l, jq.Succeeded, job.State)
	})
}

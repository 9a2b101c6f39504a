package fromasynq

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/redistest"
	"github.com/seed-ed332417/jq/jqtest"
)

// started returns a Redis of this test's own.
func started(t *testing.T) asynq.RedisClientOpt {
	t.Helper()
	return asynq.RedisClientOpt{Addr: redistest.Start(t)}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(stop)
	return ctx
}

// sent receives what a handler sends, within the context.
func sent(ctx context.Context, t *testing.T, mails <-chan string) string {
	t.Helper()
	select {
	case name := <-mails:
		return name
	case <-ctx.Done():
		t.Fatal("no mail was sent")
		return ""
	}
}

// Both libraries work in one process until Asynq has no tasks left.
func TestBothAtOnce(t *testing.T) {
	ctx := within(t)
	redis := started(t)
	mails := make(chan string, 10)
	send := func(_ context.Context, name string) error { mails <- name; return nil }
	old, err := startAsynq(redis, newMux(send))
	require.NoError(t, err)
	t.Cleanup(old.Shutdown)
	store := jq.NewMemory(nil)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	server, err := startJQ(ctx, store, send)
	require.NoError(t, err)

	oldClient := asynq.NewClient(redis)
	t.Cleanup(func() { assert.NoError(t, oldClient.Close()) })
	require.NoError(t, signUpWithAsynq(ctx, oldClient, "Ada"))
	inspector := asynq.NewInspector(redis)
	t.Cleanup(func() { assert.NoError(t, inspector.Close()) })
	_, err = inspector.RunAllScheduledTasks("critical")
	require.NoError(t, err)
	assert.Equal(t, "Ada", sent(ctx, t, mails))

	client := jq.NewClient(store, nil)
	require.NoError(t, signUp(ctx, client, "Grace"))
	require.NoError(t, client.Reschedule(ctx, 1, time.Time{}))
	assert.Equal(t, "Grace", sent(ctx, t, mails))
	require.NoError(t, server.Stop(ctx))
}

func TestMoveTakesWhatWaits(t *testing.T) {
	ctx := within(t)
	redis := started(t)
	old := asynq.NewClient(redis)
	t.Cleanup(func() { assert.NoError(t, old.Close()) })
	inspector := asynq.NewInspector(redis)
	t.Cleanup(func() { assert.NoError(t, inspector.Close()) })
	require.NoError(t, signUpWithAsynq(ctx, old, "Ada")) // in an hour
	for i := range 150 {
		_, err := old.EnqueueContext(ctx, asynq.NewTask("mail:welcome", fmt.Appendf(nil, `{"Name":"%d"}`, i)), asynq.Queue("critical"), asynq.MaxRetry(3))
		require.NoError(t, err)
	}
	store := jq.NewMemory(nil)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	client := jq.NewClient(store, nil)

	moved, err := move(ctx, inspector, client, "critical")
	require.NoError(t, err)
	assert.Equal(t, 151, moved)
	ada := jqtest.RequireEnqueued(t, store, jqtest.Want{Payload: Welcome{"Ada"}, Queue: "critical", Times: 1})[0]
	assert.Equal(t, 5, ada.MaxRetries)
	assert.Equal(t, time.Minute, ada.Timeout)
	assert.WithinDuration(t, time.Now().Add(time.Hour), ada.RunAt, time.Minute)
	jqtest.RequireEnqueued(t, store, jqtest.Want{Queue: "critical", Times: 151})
	info, err := inspector.GetQueueInfo("critical")
	require.NoError(t, err)
	assert.Zero(t, info.Size)

	moved, err = move(ctx, inspector, client, "critical")
	require.NoError(t, err)
	assert.Zero(t, moved)
}

func TestMuxRunsUnchanged(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want []jq.State
	}{
		"succeeds":      {nil, []jq.State{jq.Succeeded}},
		"fails":         {errors.New("no"), []jq.State{jq.Retrying, jq.Succeeded}},
		"skips retries": {fmt.Errorf("no: %w", asynq.SkipRetry), []jq.State{jq.Dead}},
		"revokes":       {asynq.RevokeTask, []jq.State{jq.Succeeded}},
	} {
		t.Run(name, func(t *testing.T) {
			store := jqtest.NewStore(t)
			_, err := jq.NewClient(store, nil).Enqueue(t.Context(), Welcome{"Ada"}, nil)
			require.NoError(t, err)
			answer, saw := c.err, ""
			var handlers jq.Handlers
			handle(&handlers, newMux(func(_ context.Context, name string) error {
				saw = name
				err := answer
				answer = nil
				return err
			}))
			var states []jq.State
			for _, r := range jqtest.Drain(t, store, &handlers, nil) {
				states = append(states, r.After.Phase())
			}
			assert.Equal(t, c.want, states)
			assert.Equal(t, "Ada", saw)
		})
	}
}

package server

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

type nameKey struct{}

func newContext() *runContext {
	base := context.WithValue(context.Background(), nameKey{}, "Ada")
	return &newRun(base, store.Job{ID: 7}, time.Minute).ctx
}

// Whether somebody looks at a run's context before or after it ends, it behaves like one of package context.
func TestRunsContextEndsOnceWithItsFirstCause(t *testing.T) {
	looks := map[string]func(context.Context){
		"nobody": func(context.Context) {},
		"done":   func(ctx context.Context) { _ = ctx.Done() },
		"err":    func(ctx context.Context) { require.NoError(t, ctx.Err()) },
		"cause":  func(ctx context.Context) { require.NoError(t, context.Cause(ctx)) },
		"value":  func(ctx context.Context) { require.Equal(t, "Ada", ctx.Value(nameKey{})) },
	}
	for name, look := range looks {
		t.Run(name, func(t *testing.T) {
			ctx := newContext()
			look(ctx)
			require.NoError(t, ctx.cause())
			ctx.cancel(ErrTimeout)
			ctx.cancel(ErrDrained)
			<-ctx.Done()
			assert.Equal(t, context.Canceled, ctx.Err())
			assert.Equal(t, ErrTimeout, context.Cause(ctx))
			assert.Equal(t, ErrTimeout, ctx.cause())
			assert.Equal(t, "Ada", ctx.Value(nameKey{}))
			assert.EqualValues(t, 7, From(ctx).ID)
			_, limited := ctx.Deadline()
			assert.False(t, limited)
		})
	}
}

// A context derived from a run's context ends with it and for the same cause, and costs no goroutine until then.
func TestChildrenEndWithTheRunsContext(t *testing.T) {
	ctx := newContext()
	early, cancelEarly := context.WithTimeout(context.WithValue(ctx, nameKey{}, "Eve"), time.Hour)
	defer cancelEarly()
	told := make(chan error, 1)
	context.AfterFunc(early, func() { told <- context.Cause(early) })
	assert.NotContains(t, goroutines(), "created by context.")
	assert.EqualValues(t, 7, From(early).ID)
	ctx.cancel(ErrLeaseLost)
	assert.Equal(t, ErrLeaseLost, <-told)
	late, cancelLate := context.WithCancel(ctx)
	defer cancelLate()
	assert.Equal(t, ErrLeaseLost, context.Cause(late))
}

// goroutines returns the stacks of all goroutines. Their number would tell less: those of an earlier test may be just ending.
func goroutines() string {
	stacks := make([]byte, 1<<20)
	return string(stacks[:runtime.Stack(stacks, true)])
}

// A child that ends by itself does not end the run's context.
func TestRunsContextOutlivesItsChildren(t *testing.T) {
	ctx := newContext()
	child, cancel := context.WithCancelCause(ctx)
	cancel(errors.New("enough"))
	<-child.Done()
	require.NoError(t, ctx.Err())
	require.NoError(t, context.Cause(ctx))
}

// Many goroutines may look at the context while it ends, and all see the same.
func TestRunsContextIsForManyGoroutines(t *testing.T) {
	for range 100 {
		ctx, causes := newContext(), make(chan error, 4)
		var all sync.WaitGroup
		for range cap(causes) {
			all.Go(func() {
				<-ctx.Done()
				causes <- context.Cause(ctx)
			})
		}
		all.Go(func() { ctx.cancel(ErrCancelled) })
		all.Go(func() { ctx.cancel(ErrDrained) })
		all.Wait() // other tests count the goroutines
		first := <-causes
		for range cap(causes) - 1 {
			assert.Equal(t, first, <-causes)
		}
		assert.Equal(t, first, ctx.cause())
	}
}

// Printing a context, as test doubles do with their arguments, reads no field that changes.
func TestContextOfAHandlerIsPrintedByItsName(t *testing.T) {
	r := newRun(context.Background(), store.Job{ID: 7}, 0)
	assert.Equal(t, "context.Background.Job(7)", fmt.Sprint(&r.ctx))
}

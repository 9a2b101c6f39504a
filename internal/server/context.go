package server

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A runContext is the context of a handler. It has the values of the server's context, which never ends, and an end of its own. Most
// handlers return without looking at their context, so the context that can end is made when somebody asks for it.
type runContext struct {
	base context.Context
	run  *Run

	mu     sync.Mutex // guards what follows, and the result of the run
	reason error      // why the context has ended, or nil
	made   *ending    // nil until somebody asks for it
}

// An ending is a context that can end.
type ending struct {
	context.Context
	end context.CancelCauseFunc
}

// cancel ends the context. Only the first cause counts.
func (c *runContext) cancel(cause error) {
	c.mu.Lock()
	if c.reason == nil {
		c.reason = cause
	}
	reason, made := c.reason, c.made
	c.mu.Unlock()
	if made != nil {
		made.end(reason)
	}
}

// cause returns why the context has ended, or nil.
func (c *runContext) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// ending returns the context that can end.
func (c *runContext) ending() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil {
		ctx, end := context.WithCancelCause(c.base)
		c.made = &ending{ctx, end}
		if c.reason != nil {
			end(c.reason)
		}
	}
	return c.made.Context
}

// Deadline returns no deadline: the server cancels the context when the timeout ends.
func (c *runContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// String is for code that prints a context. It must not read the fields, which are guarded.
func (c *runContext) String() string { return fmt.Sprintf("%v.Job(%d)", c.base, c.run.ID) }

// Done is closed when the handler must return.
func (c *runContext) Done() <-chan struct{} { return c.ending().Done() }

// Err is not nil when the handler must return.
func (c *runContext) Err() error { return c.ending().Err() }

// Value returns the run for runKey. Other keys go to the context that can end, because package context uses keys of its own to find causes
// and children.
func (c *runContext) Value(key any) any {
	if key == (runKey{}) {
		return c.run
	}
	return c.ending().Value(key)
}

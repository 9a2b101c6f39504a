package server

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A runContext is the context of a handler: that of the server, which has no end, with the run in it and an end of its own.
// A handler that is done in a moment never looks at it, so that the context which can end is made when somebody asks for it.
type runContext struct {
	base context.Context
	run  *Run

	mu     sync.Mutex // guards what follows
	reason error      // of the end, or nil
	made   context.Context
	end    context.CancelCauseFunc // of made
}

// cancel ends the context. Only the first end counts.
func (c *runContext) cancel(cause error) {
	c.mu.Lock()
	if c.reason == nil {
		c.reason = cause
	}
	reason, end := c.reason, c.end
	c.mu.Unlock()
	if end != nil {
		end(reason)
	}
}

// cause is why the context has ended, or nil.
func (c *runContext) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// ending is the context that can end.
func (c *runContext) ending() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil {
		c.made, c.end = context.WithCancelCause(c.base)
		if c.reason != nil {
			c.end(c.reason)
		}
	}
	return c.made
}

// Deadline is none: a timeout ends the context as everything else does.
func (c *runContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// String is for people who print a context: the fields are not theirs to read.
func (c *runContext) String() string { return fmt.Sprintf("%v.Job(%d)", c.base, c.run.ID) }

// Done is closed when the handler has to stop.
func (c *runContext) Done() <-chan struct{} { return c.ending().Done() }

// Err is not nil when the handler has to stop.
func (c *runContext) Err() error { return c.ending().Err() }

// Value finds the run. All other keys go to the context that can end: by one of its own, package context asks why it has ended
// and what is to end with it.
func (c *runContext) Value(key any) any {
	if key == (runKey{}) {
		return c.run
	}
	return c.ending().Value(key)
}

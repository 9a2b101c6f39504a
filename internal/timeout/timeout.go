// Package timeout makes contexts that end after a time of a clock.
package timeout

import (
	"context"
	"time"

	"github.com/benbjohnson/clock"
)

// Of returns a context that ends after the time.
func Of(ctx context.Context, clk clock.Clock, after time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := clk.WithTimeout(ctx, after) //nolint:forbidigo // made safe below
	return settled{ctx}, cancel
}

// A settled is a context of a clock. A mock writes Err without a lock before it closes Done, so that it can only be read afterwards.
type settled struct{ context.Context }

// Err is part of context.Context.
func (s settled) Err() error {
	select {
	case <-s.Done():
		return s.Context.Err()
	default:
		return nil
	}
}

package timeout

import (
	"context"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
)

// The race detector finds that Err is read while another goroutine ends the context.
func TestErrIsReadWhileTheContextEnds(t *testing.T) {
	for range 100 {
		parent, end := context.WithCancel(t.Context())
		ctx, cancel := Of(parent, clock.NewMock(), time.Minute)
		go end()
		for ctx.Err() == nil {
		}
		assert.ErrorIs(t, ctx.Err(), context.Canceled)
		cancel()
	}
}

func TestEndsAfterItsTime(t *testing.T) {
	clk := clock.NewMock()
	ctx, cancel := Of(t.Context(), clk, time.Minute)
	defer cancel()
	clk.Add(time.Minute - 1)
	assert.NoError(t, ctx.Err())
	clk.Add(1)
	<-ctx.Done()
	assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
}

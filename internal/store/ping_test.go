package store

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// counted is a store that can only be counted.
type counted struct {
	Store
	err error
	f   Filter
}

func (c *counted) Count(_ context.Context, f Filter) (Counts, error) {
	c.f = f
	return Counts{}, c.err
}

type pinged struct {
	counted
	Monitor
	pings int
}

func (p *pinged) Ping(context.Context) error {
	p.pings++
	return ErrClosed
}

func TestPingAsksTheMonitorOrCountsNothing(t *testing.T) {
	plain := &counted{}
	require.NoError(t, Ping(t.Context(), plain))
	assert.Equal(t, Filter{IDs: []int64{0}}, plain.f, "of the one job that there can not be")
	plain.err = ErrUnavailable
	require.ErrorIs(t, Ping(t.Context(), plain), ErrUnavailable)
	monitor := &pinged{}
	require.ErrorIs(t, Ping(t.Context(), monitor), ErrClosed)
	assert.Equal(t, 1, monitor.pings)
}

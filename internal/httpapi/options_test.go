package httpapi

import (
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestZeroOptionsMeanTheDefaults that their comments name.
func TestZeroOptionsMeanTheDefaults(t *testing.T) {
	full, err := (*Options)(nil).filled()
	require.NoError(t, err)
	assert.IsType(t, clock.New(), full.Clock)
	assert.NotNil(t, full.Audit)
	assert.Equal(t, Options{
		Logger: slog.Default(), Audit: full.Audit, Clock: full.Clock, Counter: uncounted{}, RetryShare: 0.2, MaxWaiting: 1000, MaxStreams: 1000,
		MaxBytes: 128 << 20, MaxReads: 4, CallTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, PollPause: time.Second, KeepEvents: 10_000,
	}, full)

	limits, err := (*Limits)(nil).filled()
	require.NoError(t, err)
	assert.Equal(t, Limits{
		HeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, MaxConnections: 4096, MaxPerAddress: 2048, Logger: slog.Default(),
	}, limits)
	limits, err = (&Limits{MaxConnections: 1}).filled()
	require.NoError(t, err)
	assert.Equal(t, 1, limits.MaxPerAddress, "half of one connection is none")
}

func TestOptionsThatAreRefused(t *testing.T) {
	for _, o := range []Options{
		{RetryShare: 1.5}, {RetryShare: math.NaN()}, {MaxWaiting: -1}, {MaxStreams: -1}, {MaxReads: -1}, {KeepEvents: -1}, {MaxBytes: -1}, {MaxWaitingJobs: -1},
		{CallTimeout: -1}, {CallTimeout: time.Millisecond - 1}, {WriteTimeout: 1}, {PollPause: -1},
	} {
		_, err := New(nil, &o)
		assert.ErrorContains(t, err, "want", "%+v", o)
	}
	for _, o := range []Options{{RetryShare: 1}, {RetryShare: -1}, {CallTimeout: time.Millisecond}, {WriteTimeout: time.Millisecond}, {PollPause: time.Millisecond}} {
		_, err := o.filled()
		assert.NoError(t, err, "%+v", o)
	}
	for _, l := range []Limits{{HeaderTimeout: -1}, {ReadTimeout: -1}, {WriteTimeout: -1}, {IdleTimeout: -1}, {MaxHeaderBytes: -1}, {MaxConnections: -1}, {MaxPerAddress: -1}} {
		_, err := NewServer(nil, &l, nil)
		assert.ErrorContains(t, err, "want", "%+v", l)
		_, err = Limit(nil, &l)
		assert.Error(t, err)
	}
}

package main

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The grace is given to what runs the programs, which would have its own default, and the server waits longer than that.
func TestGraceReachesProgramsAndServer(t *testing.T) {
	w := &workFlags{exec: "true", lease: time.Minute, timeout: time.Minute, drain: time.Second, grace: 40 * time.Second, snooze: time.Second}
	o, err := w.options()
	require.NoError(t, err)
	assert.Equal(t, 45*time.Second, o.AbandonAfter)
	_, err = w.handler(&app{}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)

	w.grace = -time.Second // which options refuses before, and is seen by nobody else but the programs
	_, err = w.handler(&app{}, slog.New(slog.DiscardHandler))
	assert.ErrorContains(t, err, "Grace")
}

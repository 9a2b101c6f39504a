package main

import (
	"log/slog"
	"strings"
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

// A worker behind a server that is older, or has retention of its own, deleted by the defaults what was to be kept there.
func TestWorkLeavesDeletionToTheServer(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"":                                     time.Minute,
		"--server http://s":                    -time.Minute,
		"--server http://s --retain-every 1h":  time.Hour,
		"--server http://s --retain-every -1s": -time.Second,
		"--retain-every 2h":                    2 * time.Hour,
	} {
		a := &app{std: quiet(nil, nil), flagged: map[string]bool{}, sources: map[string]string{}}
		cmd := commandBelow(a.root(), "work")
		require.NoError(t, cmd.ParseFlags(strings.Fields(text)))
		require.NoError(t, a.settle(cmd))
		every, err := cmd.Flags().GetDuration("retain-every")
		require.NoError(t, err)
		assert.Equal(t, want, a.fitRetention(cmd, every), text)
	}
}

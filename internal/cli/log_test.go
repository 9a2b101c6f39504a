package cli

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The flags, the environment and the command's usual level decide what is logged, in this order.
func TestLogLevelAndFormat(t *testing.T) {
	for _, c := range []struct {
		args  string
		env   map[string]string
		level slog.Level
		json  bool
	}{
		{level: slog.LevelWarn},
		{args: "--log-level debug", level: slog.LevelDebug},
		{args: "--log-level error --log-format text", env: map[string]string{"JQ_LOG_LEVEL": "info", "JQ_LOG_FORMAT": "json"}, level: slog.LevelError},
		{env: map[string]string{"JQ_LOG_LEVEL": "info", "JQ_LOG_FORMAT": "json"}, level: slog.LevelInfo, json: true},
		{env: map[string]string{"JQ_LOG_LEVEL": "", "JQ_LOG_FORMAT": ""}, level: slog.LevelWarn},
	} {
		var stderr bytes.Buffer
		std := quiet(nil, &stderr)
		std.env = func(name string) (string, bool) { value, isSet := c.env[name]; return value, isSet }
		a := &app{std: std, flagged: map[string]bool{}, sources: map[string]string{}}
		cmd := commandBelow(a.root(), "dev")
		require.NoError(t, cmd.ParseFlags(strings.Fields(c.args)))
		require.NoError(t, a.applyDefaults(cmd))
		log := a.logger(slog.LevelWarn)
		for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			assert.Equal(t, level >= c.level, log.Enabled(context.Background(), level), "%v: %v", c, level)
		}
		log.Error("oops")
		assert.Equal(t, c.json, strings.HasPrefix(stderr.String(), "{"), "%v: %s", c, stderr.String())
	}
}

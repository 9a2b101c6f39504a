package cli

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// logFlags are the flags of all commands that log.
type logFlags struct {
	level  choice
	format choice
}

// A choice is the value of a flag that takes one of a few words. It is empty if the flag is not set.
type choice struct {
	value string
	of    []string
}

// String implements pflag.Value.
func (c *choice) String() string { return c.value }

// Type returns the name of the value in help.
func (c *choice) Type() string { return "WORD" }

// Set parses the value.
func (c *choice) Set(text string) error {
	if slices.Contains(c.of, text) {
		c.value = text
		return nil
	}
	return fmt.Errorf("want %s or %s", strings.Join(c.of[:len(c.of)-1], ", "), c.of[len(c.of)-1])
}

// logging adds the flags to the root command.
func (a *app) logging(root *cobra.Command) {
	a.log = logFlags{level: choice{of: []string{"debug", "info", "warn", "error"}}, format: choice{value: "text", of: []string{"text", "json"}}}
	flags := root.PersistentFlags()
	flags.Var(&a.log.level, "log-level", "`LEVEL` of the least severe lines to log: debug, info, warn or error (default info; dev: warn)")
	fromEnvironment(flags, "log-level", "JQ_LOG_LEVEL")
	flags.Var(&a.log.format, "log-format", "`FORMAT` of the log, which goes to standard error: text or json")
	fromEnvironment(flags, "log-format", "JQ_LOG_FORMAT")
	for name, c := range map[string]*choice{"log-level": &a.log.level, "log-format": &a.log.format} {
		complete := cobra.FixedCompletions(c.of, cobra.ShellCompDirectiveNoFileComp)
		if err := root.RegisterFlagCompletionFunc(name, complete); err != nil {
			panic(err) // the flag exists
		}
	}
}

// logger returns a logger that writes to standard error. The level is usual, unless the user sets one.
func (a *app) logger(usual slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: usual}
	if level := a.log.level.value; level != "" {
		options.Level = map[string]slog.Level{
			"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
		}[level]
	}
	if a.log.format.value == "json" {
		return slog.New(slog.NewJSONHandler(a.std.err, options))
	}
	return slog.New(slog.NewTextHandler(a.std.err, options))
}

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files with what the commands print now")

// What each call prints is compared as a whole; no golden file means that nothing is printed.
func TestCommandsPrintWhatTheyShould(t *testing.T) {
	cases := []struct {
		name   string
		args   []string
		code   int
		stdout string // the golden file
		stderr string // the golden file
	}{
		{"NoCommandIsMisuse", []string{"jq"}, exitUsage, "", "usage"},
		{"HelpGoesToStdout", []string{"jq", "help"}, exitOK, "usage", ""},
		{"HelpIsAFlagToo", []string{"jq", "--help"}, exitOK, "usage", ""},
		{"HelpShowsTheNameItWasCalledBy", []string{"/usr/local/bin/jobq", "help"}, exitOK, "usage_jobq", ""},
		{"UnknownCommandIsMisuse", []string{"jq", "explode"}, exitUsage, "", "unknown_command"},
		{"DemoTellsItsStory", []string{"jq", "demo", "--fast"}, exitOK, "demo", ""},
		{"DemoIsTheSameUnderAnotherName", []string{"/usr/local/bin/jobq", "demo", "--fast"}, exitOK, "demo", ""},
		{"DemoPausesForPeopleOnly", []string{"jq", "demo"}, exitOK, "demo", ""},
		{"DemoHelps", []string{"jq", "demo", "--help"}, exitOK, "demo_help", ""},
		{"UnknownFlagIsMisuse", []string{"jq", "demo", "--slow"}, exitUsage, "", "unknown_flag"},
		{"ExtraArgumentIsMisuse", []string{"jq", "demo", "again"}, exitUsage, "", "extra_argument"},
	}
	for _, k := range cases {
		t.Run(k.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), k.args, streams{out: &stdout, err: &stderr})
			assert.Equal(t, k.code, code, "the exit code of %q; stderr:\n%s", k.args, stderr.String())
			golden(t, k.stdout, stdout.String())
			golden(t, k.stderr, stderr.String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if name == "" {
		assert.Empty(t, got)
		return
	}
	path := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "make the golden file with: go test ./cmd/jq -update")
	assert.Equal(t, string(want), got, "%s; if the change is meant: go test ./cmd/jq -update", path)
}

// What the README shows is what the reader will see.
func TestREADMEShowsTheDemo(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	story, err := os.ReadFile("testdata/demo.golden")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(readme), "\n$ make run\n")
	require.True(t, found, "README.md has a block that begins with $ make run")
	block, _, found := strings.Cut(rest, "```\n")
	require.True(t, found, "the block ends")
	assert.Equal(t, string(story), block, "the block in README.md, against testdata/demo.golden")
}

func TestInterruptedCommandFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitFailed, run(ctx, []string{"jq", "demo", "--fast"}, streams{out: &stdout, err: &stderr}))
	assert.Contains(t, stderr.String(), context.Canceled.Error())
}

// fullDisk takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestOutputThatIsLostIsAFailure(t *testing.T) {
	for _, verb := range []string{"demo", "version"} {
		var stderr bytes.Buffer
		code := run(t.Context(), []string{"jq", verb}, streams{out: fullDisk{}, err: &stderr})
		assert.Equal(t, exitFailed, code, verb)
		assert.Contains(t, stderr.String(), "no space left on device", verb)
	}
}

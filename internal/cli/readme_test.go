//go:build unix

package cli

import (
	"bytes"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
)

// TestREADMEShowsWhatTheServerAnswers runs the commands of the README for programs in other languages.
func TestREADMEShowsWhatTheServerAnswers(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(readme), "\n## In any language\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	assert.Len(t, stepsOf(t, section), 11)
	play(t, section)
}

// TestREADMEShowsMakeRun starts the command of make run, kills it and starts it again. The second run finds the data, and the
// commands that it suggests work.
func TestREADMEShowsMakeRun(t *testing.T) {
	w := newSandbox(t)
	dev := []string{"dev", "--store", "sqlite:jq.db", "--addr", "127.0.0.1:0"}
	first := w.start("ran job ", dev...)
	url := regexp.MustCompile(`http://127.0.0.1:\d+`).FindString(first.said)
	require.NotEmpty(t, url, first.said)
	shown := strings.NewReplacer(url, "http://127.0.0.1:7070", "  live jobs", "  .cache/jobq jobs", "sqlite:jq.db", "sqlite:.cache/jq.db")
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	assert.Contains(t, string(readme), "\n$ make run\n"+shown.Replace(first.said+"ran job "+first.ready)+"\n```\n")
	require.NoError(t, first.Process.Kill())

	second := w.start("ran job 2", dev...)
	assert.Contains(t, second.said, "\nfound 1 job from earlier runs\n")
	url = regexp.MustCompile(`http://127.0.0.1:\d+`).FindString(second.said)
	call := regexp.MustCompile(`curl --json '(.*)' (\S+)`).FindStringSubmatch(second.said)
	require.Len(t, call, 3, second.said)
	answer, err := http.Post(call[2], "application/json", strings.NewReader(call[1]))
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	assert.Equal(t, http.StatusCreated, answer.StatusCode)
	result := func() bool {
		return strings.Contains(w.run("jobs", "show", "3", "--server", url), "\nresult:\n  {\"name\":\"you\"}\n")
	}
	require.Eventually(t, result, time.Minute, 20*time.Millisecond, "the worker runs job 3, with its payload as the result")
	shownCommands := regexp.MustCompile(`  live (jobs .*)`).FindAllStringSubmatch(second.said, -1)
	assert.Len(t, shownCommands, 2)
	for _, args := range shownCommands {
		assert.Contains(t, w.run(strings.Fields(args[1])...), "hello", args[1])
	}
	w.end(second)
	assert.NotContains(t, w.stats("--store", "sqlite:jq.db"), jq.Ready, "the worker stops before the server")
}

func TestDevListensOnlyOnThisMachine(t *testing.T) {
	for _, addr := range []string{":7070", "192.0.2.1:7070", "unix:jq.sock", "7070"} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitUsage, run(t.Context(), []string{"jobq", "dev", "--addr", addr}, quiet(&stdout, &stderr)))
		assert.Contains(t, stderr.String(), "use serve for other addresses")
	}
}

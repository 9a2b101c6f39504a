//go:build unix

package cli

import (
	"bytes"
	"io"
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

// A step is a command in a console block of the README, and its output there.
type step struct{ command, prints string }

// stepsOf returns the steps in a section of the README.
func stepsOf(t *testing.T, section string) []step {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(text), "\n## "+section+"\n")
	require.True(t, found, section)
	after, _, _ = strings.Cut(after, "\n## ")
	var steps []step
	for i, part := range strings.Split(after, "```") {
		block, console := strings.CutPrefix(part, "console\n")
		if i%2 == 0 || !console {
			continue
		}
		for line := range strings.Lines(block) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				steps = append(steps, step{command: strings.TrimSpace(command)})
			} else {
				steps[len(steps)-1].prints += line
			}
		}
	}
	return steps
}

// volatileText is output that differs between runs.
var volatileText = []struct{ what, as string }{
	{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`, "2026-01-02T03:04:05Z"},
	{`"lease_remaining":"(29\.\d+|30)s"`, `"lease_remaining":"29.9s"`},
}

func normalized(text string) string {
	for _, p := range volatileText {
		text = regexp.MustCompile(p.what).ReplaceAllString(text, p.as)
	}
	return text
}

var curl = regexp.MustCompile(`^curl --json '(.*)' localhost:7070(\S+)$`)

// TestREADMEShowsWhatTheServerAnswers runs the commands of the README, on a free port instead of 7070.
func TestREADMEShowsWhatTheServerAnswers(t *testing.T) {
	w := newSandbox(t)
	var url string
	seen := 0
	for _, s := range stepsOf(t, "In any language") {
		words := strings.Fields(strings.ReplaceAll(s.command, "'", ""))
		call := curl.FindStringSubmatch(s.command)
		switch {
		case s.command == "go build -o jobq ./cmd/jobq":
			assert.Empty(t, s.prints)
			continue
		case s.command == "./jobq serve":
			p := w.start("serving on ", "serve", "--addr", "127.0.0.1:0")
			url, _, _ = strings.Cut(p.ready, ";")
			assert.Equal(t, "created the store sqlite:jq.db\nserving on http://127.0.0.1:7070; press Ctrl-C to stop\n", s.prints)
		case words[0] == "./jobq" && words[1] == "work":
			p := w.start("working on", words[1:]...)
			assert.Equal(t, s.prints, "working on"+p.ready+"\n")
			require.Eventually(t, func() bool { return w.stats()[jq.Succeeded] == 1 }, time.Minute, 20*time.Millisecond)
			w.end(p)
		case words[0] == "./jobq":
			assert.Equal(t, s.prints, normalized(w.run(words[1:]...)), s.command)
		case call != nil:
			answer, err := http.Post(url+call[2], "application/json", strings.NewReader(call[1]))
			require.NoError(t, err)
			body, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			assert.Equal(t, s.prints, normalized(string(body)), s.command)
		default:
			t.Errorf("no test knows how to run %q", s.command)
		}
		seen++
	}
	assert.Equal(t, 10, seen, "steps of the README")
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

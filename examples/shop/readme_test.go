package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A step is a command in a console block of the README, and its output there.
type step struct{ command, prints string }

func steps(t *testing.T) (all []step) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, block := range strings.Split(string(text), "```console\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for line := range strings.Lines(block) {
			if command, found := strings.CutPrefix(line, "$ "); found {
				all = append(all, step{command: strings.TrimSpace(command)})
			} else {
				all[len(all)-1].prints += line
			}
		}
	}
	return all
}

var curl = regexp.MustCompile(`^curl (?:--json '(.*)' )?localhost:8080(\S+)(?: \| grep \^(\w+))?$`)

// TestTheReadmeShowsWhatTheShopAnswers runs the commands of the README, on a free port. What a job changes comes a moment later, so it asks
// again until it gets the answer.
func TestTheReadmeShowsWhatTheShopAnswers(t *testing.T) {
	t.Parallel()
	all := steps(t)
	require.Len(t, all, 9, "steps of the README")
	require.Equal(t, "go run ./examples/shop", all[0].command)
	p := start(t, "-database", filepath.Join(t.TempDir(), "shop.db"))
	assert.Equal(t, all[0].prints, strings.Replace(p.said, p.url, "http://127.0.0.1:8080", 1))
	for _, s := range all[1:] {
		call := curl.FindStringSubmatch(s.command)
		require.NotNil(t, call, "no test knows how to run %q", s.command)
		if document := call[1]; document != "" {
			assert.Equal(t, s.prints, asked(t, http.MethodPost, p.url+call[2], document), s.command)
			continue
		}
		said := ""
		ok := assert.Eventually(t, func() bool {
			said = grep(asked(t, http.MethodGet, p.url+call[2], ""), call[3])
			return said == s.prints
		}, time.Minute, 10*time.Millisecond, s.command)
		if !ok {
			require.Equal(t, s.prints, said, s.command)
		}
	}
	p.end(t)
}

func asked(t *testing.T, method, url, document string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(document))
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return string(body)
}

// grep returns the lines that begin with the word.
func grep(text, word string) (found string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, word) {
			found += line
		}
	}
	return found
}

// Each file of the shop is in the table of the README, and so its reader finds it.
func TestTheReadmeNamesEachFile(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		if file != "readme_test.go" && file != "compose_test.go" {
			assert.Contains(t, string(readme), "]("+file+") |")
		}
	}
}

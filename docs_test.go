package jq_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pages returns the text of each page in Markdown, by its path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	return filesEndingIn(t, ".md")
}

func filesEndingIn(t *testing.T, suffix string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case strings.HasSuffix(name, suffix):
			text, err := os.ReadFile(name)
			files[filepath.ToSlash(name)] = string(text)
			return err
		}
		return nil
	})
	require.NoError(t, err)
	return files
}

// A test of internal/outside runs the code of this page.
const receiversPage = "docs/guides/webhooks.md"

// A guide shows Go code that compiles and runs: a part of a file of Go.
func TestGuidesShowCodeThatIsTested(t *testing.T) {
	t.Parallel()
	code := filesEndingIn(t, ".go")
	blocks := 0
	for page, text := range pages(t) {
		if !strings.HasPrefix(page, "docs/guides/") || page == receiversPage {
			continue
		}
		for _, part := range strings.Split(text, "```go\n")[1:] {
			block, _, found := strings.Cut(part, "```\n")
			require.True(t, found, "%s: a block does not end", page)
			blocks++
			assert.True(t, standsInOneOf(code, block), "%s shows code that stands in no file of Go. Copy it from a test or an example:\n%s", page, block)
		}
	}
	assert.NotZero(t, blocks)
}

// standsInOneOf tells whether a file has all lines of the block, one after the other, at any indentation.
func standsInOneOf(files map[string]string, block string) bool {
	for indent := ""; len(indent) < 4; indent += "\t" {
		lines := regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(block, indent+"$1")
		for _, text := range files {
			if strings.Contains("\n"+text, "\n"+lines) {
				return true
			}
		}
	}
	return false
}

// Each link of a page leads to a file, and to a heading in it.
func TestPagesLinkToWhatIsThere(t *testing.T) {
	t.Parallel()
	all := pages(t)
	link := regexp.MustCompile(`\]\(([^)\s]*)\)`)
	seen := 0
	for page, text := range all {
		for _, found := range link.FindAllStringSubmatch(withoutCode(text), -1) {
			if strings.Contains(found[1], "://") || strings.HasPrefix(found[1], "mailto:") {
				continue
			}
			name, heading, _ := strings.Cut(found[1], "#")
			target := page
			if name != "" {
				target = path.Join(path.Dir(page), name)
			}
			_, err := os.Stat(filepath.FromSlash(target))
			assert.NoError(t, err, "%s links to %s", page, found[1])
			if heading != "" && strings.HasSuffix(target, ".md") {
				assert.Contains(t, anchors(all[target]), heading, "%s links to %s", page, found[1])
			}
			seen++
		}
	}
	assert.Greater(t, seen, 100)
}

var codeBlock = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")

func withoutCode(text string) string { return codeBlock.ReplaceAllString(text, "") }

// anchors returns what links to the headings of a page end in, as GitHub makes them.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, ""), -1) {
		names[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, heading[1])] = true
	}
	return names
}

// The README names the versions of the peers that are run, as the modules of bench and of the examples have them.
func TestREADMENamesTheVersionsThatAreRun(t *testing.T) {
	t.Parallel()
	readme := pages(t)["README.md"]
	for _, k := range []struct{ file, version, said string }{
		{"bench/go.mod", `riverqueue/river (v\S+)`, "River "},
		{"examples/migrate/go.mod", `riverqueue/river (v\S+)`, "River "},
		{"bench/go.mod", `hibiken/asynq (v\S+)`, "asynq "},
		{"examples/migrate/go.mod", `hibiken/asynq (v\S+)`, "asynq "},
		{"bench/internal/site/npm/package.json", `"pg-boss": "(\S+)"`, "pg-boss "},
	} {
		text, err := os.ReadFile(filepath.FromSlash(k.file))
		require.NoError(t, err)
		found := regexp.MustCompile(k.version).FindSubmatch(text)
		require.NotNil(t, found, k.file)
		assert.Contains(t, readme, k.said+string(found[1]), k.file)
	}
}

// A layer that has run once is named as such, because its figures are those of one run.
func TestLayersThatHaveRunOnceAreNamed(t *testing.T) {
	t.Parallel()
	page := pages(t)["docs/reliability.md"]
	_, said, found := strings.Cut(page, "The layers ")
	require.True(t, found)
	said, _, found = strings.Cut(said, "have run once")
	require.True(t, found)
	once := 0
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]*) \|.*\b1 run,`).FindAllStringSubmatch(page, -1) {
		once++
		named := strings.Contains(said, row[1]) ||
			strings.HasPrefix(row[1], "schedules") && strings.Contains(said, "both layers of schedules") ||
			strings.HasPrefix(row[1], "attack") && strings.Contains(said, "both attacks")
		assert.True(t, named, row[1])
	}
	assert.NotZero(t, once)
}

// What the pages say of jq's speed is what the latest measurement says.
func TestPagesHaveTheFiguresOfTheMeasurement(t *testing.T) {
	all := pages(t)
	row := func(goal string) []string {
		cells := strings.Split(regexp.MustCompile(`(?m)^\| `+regexp.QuoteMeta(goal)+`.*$`).FindString(all["docs/performance.md"]), "|")
		require.Greater(t, len(cells), 5, goal)
		return []string{strings.TrimSpace(cells[4]), strings.TrimPrefix(strings.TrimSpace(cells[5]), "river ")}
	}
	thousands := func(figure string) string {
		n, err := strconv.Atoi(strings.ReplaceAll(figure, ",", ""))
		require.NoError(t, err)
		return strconv.Itoa((n+500)/1000) + ",000"
	}
	median := func(latencies string) string { first, _, _ := strings.Cut(latencies, "/"); return first }
	minute, file, lone := row("P1 | "), row("P6 | SQLite, synced (peers are not): continuous"), row("P5 | ")
	assert.Contains(t, all["README.md"], "jq finished about "+thousands(minute[0])+" jobs a second for a minute on Postgres (River: "+thousands(minute[1])+"), and "+
		thousands(file[0])+" for five seconds on SQLite")
	assert.Contains(t, all["README.md"], "within "+median(lone[1])+" ms, jq's within "+median(lone[0])+".")
	assert.Contains(t, all["docs/guides/scaling.md"], "finished about "+thousands(minute[0])+" jobs a second for a minute")
}

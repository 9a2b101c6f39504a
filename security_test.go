package jq_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// proof is how a page names a test: by its folder and its name.
var proof = regexp.MustCompile("`([a-z0-9/]+)/((?:Test|Fuzz)[A-Za-z0-9]+)`")

// What docs/security.md promises is proved by tests. The parts that promise nothing are named here.
func TestPromisesOfSecurityHaveTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/security.md")
	require.NoError(t, err)
	promises := 0
	for _, part := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(part, "\n")
		if title == "What jq does not protect against" || title == "Settings" {
			continue
		}
		for line := range strings.SplitSeq(body, "\n") {
			if promise(line) {
				promises++
				assert.Regexp(t, proof, line, "%s: a promise names the test that proves it", title)
			}
		}
	}
	assert.Greater(t, promises, 30, "the page is not read as it is written")
}

// The tests that pages name are there.
func TestPagesNameTestsThatExist(t *testing.T) {
	t.Parallel()
	seen := 0
	for page, text := range pages(t) {
		for _, named := range proof.FindAllStringSubmatch(text, -1) {
			assert.True(t, hasTest(t, named[1], named[2]), "%s: there is no test %s in %s", page, named[2], named[1])
			seen++
		}
	}
	assert.Greater(t, seen, 50)
}

// promise says whether the line is an item of a list or a row of a table below its head.
func promise(line string) bool {
	row := strings.HasPrefix(line, "| ") && !strings.HasSuffix(line, "| Test |")
	return row || strings.HasPrefix(line, "- ")
}

func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.FromSlash(folder), "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(text), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}

package jq_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/limits.md shows code that compiles and does what the page says: a part of an example.
func TestPageOfLimitsShowsAnExample(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/limits.md")
	require.NoError(t, err)
	examples, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	_, part, found := strings.Cut(string(page), "### Declare it in code\n")
	require.True(t, found)
	_, part, _ = strings.Cut(part, "```go\n")
	code, _, found := strings.Cut(part, "```\n")
	require.True(t, found)
	assert.Contains(t, string(examples), "\t"+strings.ReplaceAll(strings.TrimSuffix(code, "\n"), "\n", "\n\t")+"\n", "copy the code from ExampleQueueOptions_policy")
}

package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryCommandIsInAGroup: the help has each command once, so a new command must be put into a group.
func TestEveryCommandIsInAGroup(t *testing.T) {
	root := (&app{std: quiet(nil, nil), flagged: map[string]bool{}, sources: map[string]string{}}).root()
	var titles []string
	for _, g := range root.Groups() {
		titles = append(titles, g.ID)
	}
	require.Equal(t, []string{"run", "jobs", "watch", "operate", "prove", "more"}, titles)
	var stdout, stderr bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"jobq", "--help"}, quiet(&stdout, &stderr)), stderr.String())
	for _, c := range root.Commands() {
		assert.Contains(t, titles, c.GroupID, c.Name())
		assert.Equal(t, 1, strings.Count(stdout.String(), "\n  "+c.Name()+" "), c.Name())
	}
}

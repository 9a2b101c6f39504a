//go:build unix

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Who may have a file of secrets is decided by its mode and its owner.
func TestWhoMayHaveASecret(t *testing.T) {
	const self, somebody = 1000, 1001
	for _, one := range []struct {
		mode  fs.FileMode
		owner int
		says  string
	}{
		{0o600, self, ""}, {0o400, self, ""}, {0o700, self, ""}, {0o600, 0, ""},
		{0o440, 0, ""}, {0o640, self, ""}, // as Kubernetes mounts secrets for a group
		{0o644, self, "chmod 600 FILE"}, {0o604, 0, "chmod 600 FILE"}, {0o602, self, "chmod 600 FILE"}, {0o601, self, "chmod 600 FILE"},
		{0o620, self, "chmod 600 FILE"}, {0o660, 0, "chmod 600 FILE"}, {0o777, self, "mode 0777"},
		{0o600, somebody, "FILE belongs to user 1001, who can change it: chown 1000 FILE, and chmod 600 FILE"},
	} {
		err := secretFrom("FILE", one.mode, one.owner, self)
		if one.says == "" {
			assert.NoError(t, err, "%v of %d", one.mode, one.owner)
		} else {
			assert.ErrorContains(t, err, one.says, "%v of %d", one.mode, one.owner)
		}
	}
	require.Error(t, secretFrom("FILE", 0o600, self, 0), "root does not trust users")
}

// A file that has come into the wrong hands keeps what was read before, and mending its mode is a change.
func TestModeThatIsMendedIsAChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	tokenCommand(t, "new", "anna", "--role", "worker", "--file", file)
	flags := serveFlags{tokens: file}
	s, err := flags.secrets()
	require.NoError(t, err)
	l := newLookout(t, s)
	require.NoError(t, os.Chmod(file, 0o644))
	l.look(false)
	l.look(false)
	assert.Contains(t, l.said(), "chmod 600 "+file)
	require.NoError(t, os.Chmod(file, 0o600))
	l.look(false)
	l.look(false)
	assert.Contains(t, l.said(), "tokens=1")
}

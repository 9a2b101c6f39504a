//go:build unix

package cli

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Only the owner can use a server's socket, and every command can call it. The server leaves only the lock file behind. Another
// server cannot use the path while the first one runs, but can after it was killed.
func TestServerOnASocket(t *testing.T) {
	w := newSandbox(t)
	serve := []string{"serve", "--store", "sqlite:jobs.db", "--addr", "unix:jq.sock"}
	first := w.start("serving on ", serve...)
	assert.Equal(t, "unix:jq.sock; press Ctrl-C to stop", first.ready)
	path := filepath.Join(w.folder, "jq.sock")
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.ModeSocket|0o600, info.Mode())
	assert.Equal(t, "added job 1 to queue default\n", w.run("enqueue", "mail", "--server", "unix:jq.sock"))

	second := w.command(serve...)
	said, err := second.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(said), "another server listens on the socket jq.sock: stop it, or choose another path with --addr")
	assert.Contains(t, w.run("stats", "--server", "unix:jq.sock"), "default", "the first server keeps running")

	require.NoError(t, first.Process.Kill())
	_, err = first.Process.Wait()
	require.NoError(t, err)
	_, err = os.Stat(path)
	require.NoError(t, err, "a killed server leaves its socket")
	third := w.start("serving on ", append(serve, "--socket-mode", "0660")...)
	info, err = os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.ModeSocket|0o660, info.Mode())
	assert.Contains(t, w.run("stats", "--server", "unix:jq.sock"), "default")
	w.end(third)
	var left []string
	names, err := os.ReadDir(w.folder)
	require.NoError(t, err)
	for _, name := range names {
		if strings.Contains(name.Name(), "jq") {
			left = append(left, name.Name())
		}
	}
	assert.Equal(t, []string{"jq.sock.lock"}, left)
}

// A server replaces only the socket of a dead server.
func TestSocketReplacesNoOtherFile(t *testing.T) {
	folder := t.TempDir()
	file, foreign := filepath.Join(folder, "file"), filepath.Join(folder, "foreign")
	require.NoError(t, os.WriteFile(file, []byte("precious"), 0o600))
	_, err := listenUnix(file, 0o600)
	require.ErrorContains(t, err, "the path exists and is not a socket: choose another path")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "precious", string(text))

	other, err := net.Listen("unix", foreign)
	require.NoError(t, err)
	_, err = listenUnix(foreign, 0o600)
	require.ErrorContains(t, err, "another server listens on the socket", "a server without a lock file")
	require.NoError(t, other.Close())

	ours, err := listenUnix(foreign, 0o600)
	require.NoError(t, err)
	require.NoError(t, os.Remove(foreign))
	require.NoError(t, os.WriteFile(foreign, nil, 0o600))
	require.NoError(t, ours.Close())
	assert.FileExists(t, foreign, "Close does not remove it either")
	require.NoError(t, ours.Close(), "a second Close")

	_, err = listenUnix(filepath.Join(folder, "missing", "s"), 0o600)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

//go:build unix

package cli

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A server appends a line for each operator call to a file that only its owner can read. After the file was moved, it creates a new
// one.
func TestAuditFile(t *testing.T) {
	w := newSandbox(t)
	path := filepath.Join(w.folder, "audit.jsonl")
	require.NoError(t, os.WriteFile(path, []byte("{}\n"), 0o600))
	secret := strings.TrimSpace(w.run("token", "new", "the operator", "--role", "operator"))
	server := w.start("serving on ", "serve", "--store", "sqlite:jobs.db", "--addr", "127.0.0.1:0", "--tokens", "tokens", "--audit", "audit.jsonl")
	url, _, _ := strings.Cut(server.ready, ";")
	pause := func(queue string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/queues/"+queue+"/pause", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+secret)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 204, resp.StatusCode)
	}
	queues := func(path string) (names []any) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.NotContains(t, string(text), secret)
		for line := range strings.Lines(string(text)) {
			var one map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &one), line)
			names = append(names, one["queue"])
		}
		return names
	}
	pause("one")
	assert.Equal(t, []any{nil, "one"}, queues(path), "existing lines stay")
	require.NoError(t, os.Rename(path, path+".1"))
	pause("two")
	assert.Equal(t, []any{nil, "one", "two"}, queues(path+".1"))
	require.NoError(t, server.Process.Signal(syscall.SIGHUP))
	var paused int
	for end := time.Now().Add(10 * time.Second); ; {
		pause("three")
		paused++
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
			break
		}
		require.True(t, time.Now().Before(end), "the server creates a new file")
	}
	assert.Equal(t, []any{"three"}, queues(path))
	assert.Len(t, queues(path+".1"), 3+paused-1, "no line is lost")
}

// If the audit file cannot be opened, a server does not start. A running server keeps writing to the file it has.
func TestAuditFileCannotBeOpened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	var log bytes.Buffer
	a := &app{std: quiet(&bytes.Buffer{}, &log)}
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Chmod(path, 0o644))
	_, _, err := a.audit(path, a.logger(slog.LevelInfo))
	require.ErrorContains(t, err, "--audit: "+path+" has mode 0644, so other users can read or change it")
	require.NoError(t, os.Chmod(path, 0o640))
	lines, file, err := a.audit(path, a.logger(slog.LevelInfo))
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, 0o666))
	require.ErrorContains(t, file.open(), "has mode 0666")
	lines.Info("kept")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"msg":"kept"`)
	require.NoError(t, file.Close())
	lines.Info("lost")
	assert.Contains(t, log.String(), "could not write to the audit file")

	lines, file, err = a.audit("-", a.logger(slog.LevelInfo))
	require.NoError(t, err)
	lines.Info("to standard error", slog.Int("n", 1))
	assert.Contains(t, log.String(), `"msg":"to standard error","n":1}`)
	require.NoError(t, file.Close())
}

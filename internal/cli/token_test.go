package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/internal/wire"
)

// tokenCommand runs a token command on a file.
func tokenCommand(t *testing.T, args ...string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), append([]string{"jobq", "token"}, args...), quiet(&stdout, &stderr)), "%v: %s", args, stderr.String())
}

// Concurrent commands on one file lose no changes, and leave only the lock file behind.
func TestConcurrentTokenCommands(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "tokens")
	var all sync.WaitGroup
	const n = 20
	for range n {
		all.Go(func() { tokenCommand(t, "new", "anna", "--role", "worker", "--file", file) })
	}
	all.Wait()
	tokens, err := parseTokens(file)
	require.NoError(t, err)
	assert.Equal(t, n, tokens.Len())
	names, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, names, 2)
	assert.Equal(t, "tokens.lock", names[1].Name())
}

// A file behind a symbolic link is replaced in its own folder, and stays readable for its group.
func TestTokenFileKeepsItsPathAndGroup(t *testing.T) {
	folder := t.TempDir()
	file, link := filepath.Join(folder, "real"), filepath.Join(folder, "link")
	require.NoError(t, os.Symlink("real", link))
	for mode, want := range map[os.FileMode]os.FileMode{0o644: 0o640, 0o666: 0o640, 0o600: 0o600, 0o400: 0o600} {
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		require.NoError(t, os.Chmod(file, mode))
		before, err := os.Stat(file)
		require.NoError(t, err)
		tokenCommand(t, "new", "anna", "--role", "worker", "--file", link)
		after, err := os.Stat(file)
		require.NoError(t, err)
		assert.Equal(t, want, after.Mode(), "after %v", mode)
		assert.False(t, os.SameFile(before, after), "the file was replaced atomically")
		assert.NotZero(t, after.Size())
	}
	target, err := os.Readlink(link)
	require.NoError(t, err)
	assert.Equal(t, "real", target)
}

// A rotation creates a token with the same rights, and lets the old ones expire earlier.
func TestRotation(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	token := func(name string, ends time.Duration) httpapi.Token {
		_, made, err := httpapi.NewToken(httpapi.Token{Name: name, Role: httpapi.Worker})
		require.NoError(t, err)
		if ends != 0 {
			made.Expires = wire.Time{Time: now.Add(ends)}
		}
		return made
	}
	before := []httpapi.Token{token("anna", 0), token("berta", 0), token("anna", -time.Hour), token("anna", time.Hour), token("anna", 48*time.Hour)}
	after := append([]httpapi.Token{}, before...)
	r := rotation{name: "anna", now: now, ends: now.Add(24 * time.Hour), given: true}
	secret, made, err := r.renew(after)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(secret, "jq_"))
	assert.True(t, made.SameRights(before[0]))
	assert.NotEqual(t, before[0].Hash, made.Hash)
	assert.Zero(t, made.Expires)
	want := append([]httpapi.Token{}, before...)
	want[0].Expires, want[4].Expires = wire.Time{Time: r.ends}, wire.Time{Time: r.ends}
	assert.Equal(t, want, after)

	r.given = false
	_, _, err = r.renew(before)
	require.ErrorContains(t, err, "give --expires for the new token")
}

func TestExpiry(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	for text, want := range map[string]string{
		"never": "", "90d": "2026-04-02T03:04:05Z", "36h": "2026-01-03T15:04:05Z", "1h30m": "2026-01-02T04:34:05Z",
		"2026-01-02T03:04:06Z": "2026-01-02T03:04:06Z", "2026-01-03T00:00:00+01:00": "2026-01-02T23:00:00Z",
	} {
		got, err := expiry(text, now)
		require.NoError(t, err, text)
		assert.Equal(t, want, moment(got.Time), text)
	}
	for _, text := range []string{"", "0", "0d", "0s", "-1h", "d", "1.5d", "99999999d", "99999d9", "2026-01-02T03:04:05Z", "2026-01-02", "290000000h"} {
		_, err := expiry(text, now)
		require.ErrorContains(t, err, wantExpiry, text)
	}
}

package release

import (
	"archive/zip"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What Windows gets: a zip whose files are those of the commit, whenever and by whomever they were made.
func TestZip(t *testing.T) {
	pack := func(rights fs.FileMode, touched time.Time) []byte {
		out, stage := t.TempDir(), filepath.Join(t.TempDir(), "jobq-v1.2.3-windows-amd64")
		for name, text := range map[string]string{"jobq.exe": "program", "completions/jobq.ps1": "script", "LICENSE": "licence"} {
			file := filepath.Join(stage, name)
			require.NoError(t, write(file, []byte(text)))
			require.NoError(t, os.Chmod(file, rights))
			require.NoError(t, os.Chtimes(file, touched, touched))
		}
		b := &build{Options: Options{Out: out, Version: "v1.2.3"}, at: committed}
		require.NoError(t, b.archive(System{"windows", "amd64"}, stage))
		text, err := os.ReadFile(filepath.Join(out, "jobq-v1.2.3-windows-amd64.zip"))
		require.NoError(t, err)
		return text
	}
	text := pack(0o600, committed.Add(time.Hour))
	assert.Equal(t, text, pack(0o640, committed.Add(time.Minute)))

	file := filepath.Join(t.TempDir(), "a.zip")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	r, err := zip.OpenReader(file)
	require.NoError(t, err)
	defer func() { assert.NoError(t, r.Close()) }()
	type packed struct {
		text string
		mode fs.FileMode
	}
	got := map[string]packed{}
	for _, f := range r.File {
		assert.True(t, committed.Equal(f.Modified), "%s: %v", f.Name, f.Modified)
		opened, err := f.Open()
		require.NoError(t, err)
		text, err := io.ReadAll(opened)
		require.NoError(t, err)
		got[f.Name] = packed{string(text), f.Mode()}
	}
	assert.Equal(t, map[string]packed{
		"jobq-v1.2.3-windows-amd64/jobq.exe":             {"program", 0o755},
		"jobq-v1.2.3-windows-amd64/completions/jobq.ps1": {"script", 0o644},
		"jobq-v1.2.3-windows-amd64/LICENSE":              {"licence", 0o644},
	}, got)
}

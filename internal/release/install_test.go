package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Once the tags are pushed, users get the command, and the modules that the release tags, by go install and go get. Here Go finds the tags in a
// repository on this machine, and all else as always.
func TestTagsCanBeInstalled(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "jq")
	repository(t, folder)
	work := t.TempDir()
	env := []string{
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://" + filepath.ToSlash(folder) + ".insteadOf", "GIT_CONFIG_VALUE_0=https://" + module,
		"GONOPROXY=" + module, "GOSUMDB=off", // the checksums of these tags are known to nobody
		"GOMODCACHE=" + filepath.Join(work, "modules"),
		"GOFLAGS=-modcacherw -trimpath", "GOBIN=" + filepath.Join(work, "bin"), "GOWORK=off", "CGO_ENABLED=0",
	}

	call(t, work, env, "go", "install", module+"/cmd/jobq@"+version)
	said := call(t, work, nil, filepath.Join(work, "bin", "jobq"), "version")
	assert.True(t, strings.HasPrefix(said, "jobq "+version+", go"), said)

	// The commands for stores on etcd and TiKV are those of other modules. Their own tests run them, so they are not built here.
	for _, nested := range installed {
		said = call(t, work, env, "go", "install", "-n", module+"/"+nested+"/cmd/jobq@"+version)
		assert.Empty(t, said)
	}

	program := filepath.Join(work, "program")
	require.NoError(t, os.Mkdir(program, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(program, "main.go"), []byte(`package main

import (
	_ "`+module+`/jqpgx"
)

func main() {}
`), 0o600))
	call(t, program, env, "go", "mod", "init", "example.org/program")
	call(t, program, env, "go", "get", module+"/jqpgx@"+version)
	call(t, program, env, "go", "build", ".")

	// The guide of the first job begins in an empty folder. Its commands get the modules and build its program.
	page, err := os.ReadFile("../../docs/guides/first-job.md")
	require.NoError(t, err)
	first := filepath.Join(work, "first")
	require.NoError(t, os.Mkdir(first, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(first, "main.go"), []byte(block(t, string(page), "go")), 0o600))
	call(t, first, env, "/bin/sh", "-e", "-c", block(t, string(page), "sh"))
	for line := range strings.Lines(block(t, string(page), "console")) {
		if command, is := strings.CutPrefix(line, "$ go "); is {
			call(t, first, env, "/bin/sh", "-c", "go "+command)
		}
	}
	assert.FileExists(t, filepath.Join(first, "firstjob"))

	listed := call(t, program, env, "go", "list", "-m", module, module+"/jqpgx")
	assert.Equal(t, module+" "+version+"\n"+module+"/jqpgx "+version+"\n", listed)
}

// block returns the first block of a page in the language.
func block(t *testing.T, page, language string) string {
	t.Helper()
	_, text, found := strings.Cut(page, "```"+language+"\n")
	require.True(t, found, "the page has a block of %s", language)
	text, _, found = strings.Cut(text, "```\n")
	require.True(t, found)
	return text
}

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
	listed := call(t, program, env, "go", "list", "-m", module, module+"/jqpgx")
	assert.Equal(t, module+" "+version+"\n"+module+"/jqpgx "+version+"\n", listed)
}

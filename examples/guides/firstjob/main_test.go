package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The lines of the page are those of the program. Only the lease, the recovery and the job itself are shorter here.
func TestJobSurvivesAKill(t *testing.T) {
	program, folder := build(t, map[string]string{
		"jq.NewServer(store, &handlers, nil)": "jq.NewServer(store, &handlers, &jq.ServerOptions{" +
			"Lease: jq.LeaseOptions{Duration: 5 * time.Second}, Recovery: jq.RecoveryOptions{Interval: 100 * time.Millisecond}})",
		"10 * time.Second": "2 * time.Second",
	}), t.TempDir()
	page, err := os.ReadFile("../../../docs/guides/first-job.md")
	require.NoError(t, err)

	added, err := command(t, program, folder, "Ada").Output()
	require.NoError(t, err)
	assert.Contains(t, string(page), "$ ./firstjob Ada\n"+string(added))

	first := start(t, program, folder)
	said := first.line(t)
	assert.Contains(t, string(page), "$ ./firstjob\n"+said)
	require.NoError(t, first.cmd.Process.Kill())
	assert.Empty(t, first.rest(), "the job was killed in the middle")
	assert.Error(t, first.cmd.Wait())

	second := start(t, program, folder)
	said = second.line(t) + second.line(t)
	assert.Equal(t, "job 1, attempt 2: welcoming Ada\njob 1, attempt 2: done\n", said)
	assert.Contains(t, string(page), "$ ./firstjob\n"+said)
	require.NoError(t, second.cmd.Process.Signal(os.Interrupt))
	assert.Empty(t, second.rest())
	assert.NoError(t, second.cmd.Wait(), "an interrupted program ends well")
}

func TestPageShowsTheProgram(t *testing.T) {
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	page, err := os.ReadFile("../../../docs/guides/first-job.md")
	require.NoError(t, err)
	assert.Contains(t, string(page), "```go\n"+string(program)+"```\n", "copy the program into the page")
}

// build compiles the program with parts of its text replaced.
func build(t *testing.T, replaced map[string]string) string {
	t.Helper()
	bytes, err := os.ReadFile("main.go")
	require.NoError(t, err)
	text := string(bytes)
	for old, with := range replaced {
		require.Equal(t, 1, strings.Count(text, old), "the program has %q once", old)
		text = strings.Replace(text, old, with, 1)
	}
	folder := t.TempDir()
	source, overlay, program := filepath.Join(folder, "main.go"), filepath.Join(folder, "overlay"), filepath.Join(folder, "firstjob")
	require.NoError(t, os.WriteFile(source, []byte(text), 0o600))
	here, err := filepath.Abs("main.go")
	require.NoError(t, err)
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {here: source}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, replace, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	return program
}

func command(t *testing.T, program, folder string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	return cmd
}

// A process is the program at work.
type process struct {
	cmd *exec.Cmd
	out *bufio.Reader
}

// start starts the program. It is killed if it does not end within a minute.
func start(t *testing.T, program, folder string) *process {
	t.Helper()
	cmd := command(t, program, folder)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { kill.Stop() })
	return &process{cmd, bufio.NewReader(out)}
}

func (p *process) line(t *testing.T) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	require.NoError(t, err, "the program prints a line within a minute")
	return line
}

func (p *process) rest() string {
	rest, _ := io.ReadAll(p.out)
	return string(rest)
}

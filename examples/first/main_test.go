package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
)

const inMemory = "	return jq.NewMemory(nil), nil\n"

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestFirstProgramRunsOnEachStore(t *testing.T) {
	dsn := pgtest.DSN(t)
	file := filepath.Join(t.TempDir(), "jobs.db")
	for store, line := range map[string]string{
		"memory":   inMemory,
		"sqlite":   fmt.Sprintf("	return sqlite.Open(ctx, %q, nil)\n", file),
		"postgres": fmt.Sprintf("	return postgres.Open(ctx, %q, &postgres.Options{Schema: %q})\n", dsn, pgtest.Schema(t, dsn)),
	} {
		t.Run(store, func(t *testing.T) {
			program := build(t, store, line)
			assert.Equal(t, "Welcome, Ada! (job 1, token 1)", firstLine(t, program))
		})
	}
}

func TestReadmeShowsTheProgram(t *testing.T) {
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	assert.Contains(t, string(readme), "```go\n"+string(program)+"```\n", "copy the program into the README")
}

// build compiles the program with another line that opens the store, and the import for it.
func build(t *testing.T, store, line string) string {
	t.Helper()
	text, err := os.ReadFile("main.go")
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), inMemory), "the program has one line that opens the store")
	changed := strings.Replace(string(text), inMemory, line, 1)
	if store != "memory" {
		changed = strings.Replace(changed, "seed-ed332417/jq\"\n", "seed-ed332417/jq\"\n\t\"github.com/seed-ed332417/jq/"+store+"\"\n", 1)
	}
	folder := t.TempDir()
	source, overlay, program := filepath.Join(folder, "main.go"), filepath.Join(folder, "overlay"), filepath.Join(folder, "first")
	require.NoError(t, os.WriteFile(source, []byte(changed), 0o600))
	here, err := filepath.Abs("main.go")
	require.NoError(t, err)
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {here: source}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, replace, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	return program
}

// firstLine runs the program until it has printed a line, interrupts it, and sees it end well.
func firstLine(t *testing.T, program string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan(), "the program printed something")
	line := lines.Text()
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	for lines.Scan() {
		line += "\n" + lines.Text()
	}
	require.NoError(t, cmd.Wait(), "an interrupted program ends well")
	return line
}

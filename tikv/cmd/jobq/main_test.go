package main

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asProgram is the variable that makes this binary run as the program.
const asProgram = "JOBQ_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// patience bounds what a command takes.
const patience = 30 * time.Second

func run(t *testing.T, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = []string{asProgram + "=true"}
	printed, err := cmd.CombinedOutput()
	if err != nil {
		require.NotEmpty(t, printed, "%v: %v", args, err)
	}
	return string(printed)
}

// The program knows the URLs of stores on TiKV. A cluster inside a process cannot be reached by another one, so no command is run on a store here.
func TestProgramKnowsTheURLs(t *testing.T) {
	assert.Contains(t, run(t, "help"), "tikv://HOST:PORT,HOST:PORT/PREFIX")
	assert.Contains(t, run(t, "stats", "--store", "tikv://a/jobs"),
		"not the URL of a store on TiKV: each host must be HOST:PORT of a server of PD, such as a.example:2379; want tikv://HOST:PORT,HOST:PORT/PREFIX")
	assert.Contains(t, run(t, "backup", "--store", "tikv://a:1/jobs", "file"), "br backup txn")
}

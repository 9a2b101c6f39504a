package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/race"
)

var update = flag.Bool("update", false, "update the expected output in testdata/script")

// TestMain makes this binary run as several commands: live and jobq are the program, seed creates a store, and exits runs a program and
// checks its exit code. In scripts, jobq normalizes its output.
func TestMain(m *testing.M) {
	testscript.Main(withPostgres{m}, map[string]func(){
		"jobq":  jobq,
		"live":  func() { Main() },
		"seed":  func() { os.Exit(seed(os.Args[1], os.Args[2:]...)) },
		"exits": func() { os.Exit(exits(os.Args[1], os.Args[2:])) },
	})
}

// inScript is the variable that is set in scripts.
const inScript = "JOBQ_TEST_SCRIPT"

func jobq() {
	if os.Getenv(inScript) == "" {
		Main()
	}
	os.Exit(runNormalized())
}

// withPostgres stops the Postgres server that a test has started.
type withPostgres struct{ *testing.M }

func (m withPostgres) Run() int { return pgtest.Main(m.M) }

// volatile is output that differs between runs. Replaced times keep their width, so that tables stay aligned. Times of 2020 come
// from seed and stay.
var volatile = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`20[3-9]\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|202[1-9]-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "YYYY-MM-DDTHH:MM:SSZ"},
	{regexp.MustCompile(`\([0-9hms.]+ ago\)`), "(AGO)"},
	{regexp.MustCompile(`in [0-9.ms]+s\n`), "in TIME\n"},
	{regexp.MustCompile(`the oldest for \d+s`), "the oldest for TIME"},
}

// runNormalized runs the program and replaces the parts of its output that differ between runs.
func runNormalized() int {
	var stdout, stderr bytes.Buffer
	code := run(context.Background(), os.Args, streams{in: os.Stdin, out: &stdout, err: &stderr, env: os.LookupEnv})
	for text, to := range map[*bytes.Buffer]io.Writer{&stdout: os.Stdout, &stderr: os.Stderr} {
		all := text.String()
		for _, u := range volatile {
			all = u.what.ReplaceAllString(all, u.as)
		}
		fmt.Fprint(to, all)
	}
	return code
}

// exits runs a program and returns 0 if the program exits with the wanted code.
func exits(want string, args []string) int {
	cmd := exec.CommandContext(context.Background(), args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if cmd.ProcessState != nil && strconv.Itoa(cmd.ProcessState.ExitCode()) == want {
		return 0
	}
	fmt.Fprintf(os.Stderr, "want exit code %s: %v\n", want, err)
	return 1
}

// Each script compares whole outputs.
func TestScripts(t *testing.T) {
	if race.Enabled {
		t.Skip("the scripts run two hundred processes, which is too slow with the race detector")
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", UpdateScripts: *update, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("TMPDIR", env.WorkDir+"/.tmp")
			env.Setenv(inScript, "true")
			return nil
		},
	})
}

// The README shows the output of the demo.
func TestREADMEShowsTheDemo(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	var story, stderr bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"jobq", "demo"}, quiet(&story, &stderr)), stderr.String())
	_, rest, found := strings.Cut(string(readme), "\n$ make demo\n")
	require.True(t, found, "README.md has a block that begins with $ make demo")
	block, _, found := strings.Cut(rest, "```\n")
	require.True(t, found, "README.md ends the block")
	assert.Equal(t, story.String(), block, "README.md shows another output than the demo prints")
}

// quiet returns streams without input, environment and terminal.
func quiet(stdout, stderr io.Writer) streams {
	return streams{in: strings.NewReader(""), out: stdout, err: stderr, env: func(string) (string, bool) { return "", false }}
}

func TestInterruptedCommandFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitFailed, run(ctx, []string{"jobq", "demo", "--fast"}, quiet(&stdout, &stderr)))
	assert.Equal(t, "jobq demo: interrupted\n", stderr.String())
}

// fullDisk is a writer that always fails.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestFailedOutputIsAnError(t *testing.T) {
	for _, args := range [][]string{
		{"demo"}, {"version"}, {"help"}, {"stats", "--store", "memory:"}, {"jobs", "ls", "--json", "--store", "memory:"},
		{"enqueue", "mail", "--store", "memory:"},
	} {
		var stderr bytes.Buffer
		code := run(t.Context(), append([]string{"jobq"}, args...), quiet(fullDisk{}, &stderr))
		assert.Equal(t, exitFailed, code, args)
		assert.Contains(t, stderr.String(), "no space left on device", args)
	}
}

//go:build unix

package cli

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
)

// Transcripts.
//
// A transcript is the console blocks of a page: commands after "$ ", each followed by what it prints. A test runs them one after the
// other in an empty folder, as a reader would. Blocks that begin with the name of a file (# nightly.py) are written there first.
//
// Port 7070 stands for a free port, and exampleStore for a new database. Servers, workers and commands that end in & run in the
// background until the page ends: what is shown is the beginning of what they print. Commands that only read are repeated until they
// print what is shown, because a worker may need a moment.

// playedElsewhere lists the guides whose console blocks another test runs.
var playedElsewhere = map[string]string{
	"etcd.md":      "etcd/cmd/jobq/TestGuideShowsWhatCommandsPrint",
	"first-job.md": "examples/guides/firstjob/TestJobSurvivesAKill",
	"flows.md":     "examples/flows/TestPageShowsTheCommands",
}

// exampleStore is the store of pages about Postgres.
const exampleStore = "postgres://jobs@db/jobs"

// A step is a command of a transcript, and what it prints.
type step struct{ command, prints string }

// stepsOf returns the steps of all console blocks in the text.
func stepsOf(t *testing.T, text string) []step {
	t.Helper()
	var steps []step
	for _, part := range strings.Split(text, "```console\n")[1:] {
		block, _, closed := strings.Cut(part, "```")
		require.True(t, closed, "a console block does not end")
		require.True(t, strings.HasPrefix(block, "$ "), "a console block must begin with a command:\n%s", block)
		for line := range strings.Lines(block) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				steps = append(steps, step{command: strings.TrimSpace(command)})
			} else {
				steps[len(steps)-1].prints += line
			}
		}
	}
	return steps
}

// shownFile is a block that begins with the name of a file in a comment.
var shownFile = regexp.MustCompile("(?s)```[a-z]+\n((?:#|//) ([a-z][a-z0-9_-]*\\.[a-z]+)\n.*?)```")

// How a command of a transcript is run.
type manner int

const (
	runOnce       manner = iota + 1
	runUntilShown        // again until it prints what is shown
	runBehind            // in the background
	inShell              // in the shell of every later command
	skipBuild            // not at all: the test's own program stands for it
)

// manners are how the commands of pages are run, by how they begin. The first that fits counts.
var manners = []struct {
	begins string
	manner manner
	needs  string // a program that may be missing
}{
	{"go build -o jobq ./cmd/jobq", skipBuild, ""},
	{"jobq serve", runBehind, ""},
	{"jobq work ", runBehind, ""},
	{"jobq doctor", runUntilShown, ""},
	{"jobq flows ls", runUntilShown, ""},
	{"jobq jobs ls", runUntilShown, ""},
	{"jobq jobs show", runUntilShown, ""},
	{"jobq queues ls", runUntilShown, ""},
	{"jobq schedules ls", runUntilShown, ""},
	{"jobq stats", runUntilShown, ""},
	{"jobq workers", runUntilShown, ""},
	{"jobq ", runOnce, ""},
	{"cat ", runUntilShown, ""},
	{"export ", inShell, ""},
	{"umask ", inShell, ""},
	{"curl localhost", runUntilShown, "curl"},
	{"curl ", runOnce, "curl"},
	{"python3 ", runOnce, "python3"},
	{"node ", runOnce, "node"},
}

var (
	assignments = regexp.MustCompile(`^([A-Z_]+=(\$\([^)]*\)|\S)+ +)+`)
)

// mannerOf returns how to run a command, and the program that it needs. The manner is 0 if no rule knows the command.
func mannerOf(command string) (manner, string) {
	command = assignments.ReplaceAllString(command, "")
	for _, m := range manners {
		switch {
		case !strings.HasPrefix(command+" ", m.begins):
		case strings.HasSuffix(command, " &"):
			return runBehind, m.needs
		default:
			return m.manner, m.needs
		}
	}
	return 0, ""
}

// A transcript is a page that is being played.
type transcript struct {
	*testing.T
	folder  string
	env     []string
	exports string // what the page has exported so far
	port    string
	store   string // the URL of a database, if the page needs one
}

// play runs the commands in the text and compares what they print.
func play(t *testing.T, text string) {
	t.Helper()
	steps := stepsOf(t, text)
	for _, s := range steps {
		how, needs := mannerOf(own(s.command))
		require.NotZero(t, how, "no rule says how to run %q: see manners", s.command)
		if _, err := exec.LookPath(needs); needs != "" && err != nil {
			t.Skipf("%s is not installed: the commands of the page are not run", needs)
		}
	}
	p := newTranscript(t)
	if strings.Contains(text, exampleStore) {
		_, p.store = database(t)
	}
	for _, file := range shownFile.FindAllStringSubmatch(text, -1) {
		require.NoError(t, os.WriteFile(filepath.Join(p.folder, file[2]), []byte(p.real(file[1])), 0o600))
	}
	for _, s := range steps {
		p.step(s)
	}
}

// own is the command with the program of the search path.
func own(command string) string { return strings.TrimPrefix(command, "./") }

func newTranscript(t *testing.T) *transcript {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	bin := t.TempDir()
	require.NoError(t, os.Symlink(self, filepath.Join(bin, "jobq")))                                       // TestMain runs the program under this name
	require.NoError(t, os.WriteFile(filepath.Join(bin, ".curlrc"), []byte("silent\nshow-error\n"), 0o600)) // as on a terminal
	port, err := pgtest.FreePort()
	require.NoError(t, err)
	p := &transcript{T: t, folder: t.TempDir(), port: strconv.Itoa(port)}
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); !strings.HasPrefix(name, "JQ_") && name != "DATABASE_URL" && name != "PATH" {
			p.env = append(p.env, variable)
		}
	}
	p.env = append(p.env, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "CURL_HOME="+bin, "no_proxy=*", "NO_PROXY=*")
	return p
}

func (p *transcript) step(s step) {
	p.Helper()
	command, want := own(s.command), normalized(s.prints)
	switch how, _ := mannerOf(command); how {
	case runOnce:
		assert.Equal(p, want, p.run(command), s.command)
	case runUntilShown:
		got := ""
		eventually(func() bool {
			got = p.run(command)
			return got == want || p.Failed()
		})
		assert.Equal(p, want, got, s.command)
	case runBehind:
		p.serve(strings.TrimSuffix(command, " &"), want)
	case inShell:
		assert.Empty(p, want, s.command)
		p.exports += command + "\n"
	case skipBuild:
		assert.Empty(p, want, s.command)
	}
}

// eventually asks again until the answer is yes, for half a minute at most.
func eventually(yes func() bool) {
	end := time.After(30 * time.Second)
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for !yes() {
		select {
		case <-again.C:
		case <-end:
			return
		}
	}
}

// shell returns the command, in the folder of the page.
func (p *transcript) shell(ctx context.Context, command string) *exec.Cmd {
	if strings.HasPrefix(command, "jobq serve") && !strings.Contains(command, "--addr") {
		command += " --addr 127.0.0.1:7070"
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", p.real(p.exports+command))
	cmd.Dir, cmd.Env = p.folder, p.env
	return cmd
}

// real is the text of the page with the port and the store of this transcript.
func (p *transcript) real(text string) string {
	return strings.NewReplacer("7070", p.port, exampleStore, "'"+p.store+"'").Replace(text)
}

// run returns what a command prints, on both streams as on a terminal.
func (p *transcript) run(command string) string {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
	defer cancel()
	printed, err := p.shell(ctx, command).CombinedOutput()
	if err != nil {
		assert.NotEmpty(p, printed, "%s: %v", command, err)
	}
	return p.shown(string(printed))
}

// shown is the output as the page shows it.
func (p *transcript) shown(text string) string {
	text = strings.ReplaceAll(text, ":"+p.port, ":7070")
	return normalized(regexp.MustCompile(`postgres://\S*`).ReplaceAllString(text, exampleStore))
}

// serve starts a command that runs until the page ends, and waits until it has printed what is shown.
func (p *transcript) serve(command, want string) {
	p.Helper()
	cmd, out := p.shell(context.WithoutCancel(p.Context()), command), &output{} // the cleanup ends it
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = out, out, &syscall.SysProcAttr{Setpgid: true}
	require.NoError(p, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // a signal ends it
	}()
	p.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
		case <-time.After(time.Minute):
			p.Errorf("%s did not end within a minute after SIGTERM. It printed:\n%s", command, out)
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
	})
	got := func() string { return filesLoaded.ReplaceAllString(p.shown(out.String()), "") }
	eventually(func() bool { return strings.HasPrefix(got(), want) })
	printed := got()
	assert.Equal(p, want, printed[:min(len(printed), len(want))], command)
}

// filesLoaded is what a server says, at its start or later, of a file that was written a moment before.
var filesLoaded = regexp.MustCompile(`(?m)^time=.*` + regexp.QuoteMeta(filesRead) + `.*\n`)

// output keeps what a process prints while a test reads it.
type output struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// volatileText is output that differs between runs, as pages and tests show it.
var volatileText = []struct{ what, as string }{
	{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`, "2026-01-02T03:04:05Z"},
	{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?[+-]\d\d:\d\d`, "2026-01-02T04:04:05+01:00"},
	{`"lease_remaining":"([12]?\d(\.\d+)?|30)s"`, `"lease_remaining":"29.9s"`},
	{`the oldest for \d+s`, "the oldest for 3s"},
	{`\(\d+ KiB\)`, "(160 KiB)"},
	{`\bjq_[A-Za-z0-9_-]{43}`, "jq_SECRET"},
	{`(?m)^[0-9a-f]{8}  `, "1a2b3c4d  "},
}

func normalized(text string) string {
	for _, p := range volatileText {
		text = regexp.MustCompile(p.what).ReplaceAllString(text, p.as)
	}
	return text
}

// TestGuidesShowWhatCommandsPrint runs the console blocks of all guides that no other test runs.
func TestGuidesShowWhatCommandsPrint(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/guides/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	elsewhere := 0
	for _, page := range pages {
		name := filepath.Base(page)
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		if test, is := playedElsewhere[name]; is {
			elsewhere++
			assert.True(t, declared(t, test), "%s is to be played by %s, which does not exist", name, test)
			continue
		}
		if !strings.Contains(string(text), "```console\n") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, string(text))
		})
	}
	assert.Len(t, playedElsewhere, elsewhere, "a page in the list does not exist")
}

// declared reports whether the folder declares the test.
func declared(t *testing.T, test string) bool {
	t.Helper()
	folder, name := filepath.Split(test)
	files, err := filepath.Glob("../../" + folder + "*_test.go")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}

func TestMannersOfCommands(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]manner{
		"jobq serve --addr :7070": runBehind, "jobq workers": runUntilShown, "jobq work --exec cat": runBehind, "jobq enqueue a": runOnce,
		"JQ_TOKEN=$(cat t) jobq enqueue a": runOnce, "python3 worker.py &": runBehind, "export JQ_SERVER=unix:a": inShell,
		"rm -r /": 0, "jobqq": 0, "curling": 0,
	} {
		got, _ := mannerOf(command)
		assert.Equal(t, want, got, command)
	}
}

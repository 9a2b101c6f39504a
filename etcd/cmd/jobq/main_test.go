//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-ed332417/jq/etcd/internal/etcdtest"
)

// asProgram is the variable that makes this binary run as the program.
const asProgram = "JOBQ_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	if err := etcdtest.Build(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// patience bounds what a test waits for.
const patience = 30 * time.Second

// A console runs commands in a folder, on a cluster of its own.
type console struct {
	*testing.T
	folder  string
	cluster *etcdtest.Cluster
	env     []string
}

func newConsole(t *testing.T, o etcdtest.Options) *console {
	t.Helper()
	o.NoSync = true
	c, err := etcdtest.Start(t.Context(), t.TempDir(), o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Stop()) })
	self, err := os.Executable()
	require.NoError(t, err)
	bin := t.TempDir()
	require.NoError(t, os.Symlink(self, filepath.Join(bin, "jobq")))
	return &console{T: t, folder: t.TempDir(), cluster: c, env: []string{
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), asProgram + "=true",
	}}
}

// hosts are the addresses of the cluster, as in a URL of a store.
func (c *console) hosts() string {
	return strings.ReplaceAll(strings.Join(c.cluster.Endpoints(), ","), "http://", "")
}

// command returns a command of the shell.
func (c *console) command(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	cmd.Dir, cmd.Env = c.folder, c.env
	cmd.WaitDelay = 5 * time.Second // what the shell has started may hold the pipes
	return cmd
}

// run returns what a command prints, on both streams as on a terminal.
func (c *console) run(line string) string {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	printed, err := c.command(ctx, line).CombinedOutput()
	if err != nil {
		require.NotEmpty(c, printed, "%s: %v", line, err)
	}
	assert.NotContains(c, string(printed), "Secret", "%s prints the password", line)
	return string(printed)
}

// until runs a command again until it prints what is wanted, as show has it.
func (c *console) until(line, want string, show func(string) string) {
	c.Helper()
	deadline, tick := time.After(patience), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	for {
		got := show(c.run(line))
		if got == want {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			require.Equal(c, want, got, line)
			return
		}
	}
}

// A background is a command that runs until the test ends.
type background struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *background) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *background) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// start starts a command, and waits until it has printed what matches.
func (c *console) start(line, printed string) []string {
	c.Helper()
	cmd, out := c.command(context.Background(), "exec "+line), &background{} // the cleanup ends it
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(c, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	c.Cleanup(func() {
		assert.NoError(c, cmd.Process.Signal(syscall.SIGTERM), line)
		select {
		case err := <-ended:
			assert.NoError(c, err, "%s\n%s", line, out)
			assert.NotContains(c, out.String(), "Secret", "%s prints the password", line)
		case <-time.After(patience):
			_ = cmd.Process.Kill() // it may have ended since
			assert.Fail(c, "it did not end after SIGTERM", "%s\n%s\n%v", line, out, <-ended)
		}
	})
	deadline, tick := time.After(patience), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		if found := regexp.MustCompile(printed).FindStringSubmatch(out.String()); found != nil {
			return found
		}
		select {
		case <-tick.C:
		case <-deadline:
			require.Fail(c, "it did not print what it should", "%s: want %q\n%s", line, printed, out)
		}
	}
}

// volatile is output that differs between runs, as the guide shows it.
var volatile = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "2026-01-02T03:04:05Z"},
	{regexp.MustCompile(`(?m)(^|added job )\d{4}\b`), "${1}3072"}, // another one if a member was slow and was asked again
}

func normalized(text string) string {
	for _, v := range volatile {
		text = v.what.ReplaceAllString(text, v.as)
	}
	return text
}

// TestGuideShowsWhatCommandsPrint runs the console block of the guide: commands that end in & stay, and the others are repeated until they print what is shown,
// because a worker may need a moment.
func TestGuideShowsWhatCommandsPrint(t *testing.T) {
	page, err := os.ReadFile("../../../docs/guides/etcd.md")
	require.NoError(t, err)
	blocks := strings.Split(string(page), "```console\n")
	require.Len(t, blocks, 2, "the guide has one console block")
	block, _, _ := strings.Cut(blocks[1], "```")
	steps := strings.Split("\n"+block, "\n$ ")[1:]
	require.NotEmpty(t, steps)
	c := newConsole(t, etcdtest.Options{})
	for _, step := range steps {
		line, want, _ := strings.Cut(step+"\n", "\n")
		if want = strings.TrimRight(want, "\n"); want != "" {
			want += "\n"
		}
		line = strings.ReplaceAll(line, "a:2379,b:2379,c:2379", c.hosts())
		switch setting, isSetting := strings.CutPrefix(line, "export "); {
		case strings.HasPrefix(line, "go install "): // internal/release/TestTagsCanBeInstalled
			assert.Empty(t, want, line)
		case isSetting:
			assert.Empty(t, want, line)
			c.env = append(c.env, setting)
		case strings.HasSuffix(line, " &"):
			c.start(strings.TrimSuffix(line, " &"), "^"+regexp.QuoteMeta(want))
		case strings.HasPrefix(line, "jobq enqueue"):
			require.Equal(t, want, normalized(c.run(line)), line)
		default:
			c.until(line, want, normalized)
		}
	}
}

// The program serves a store on etcd as a user with a password, who has no more than the keys of the store, and nothing that it prints has the password.
func TestUserWithAPassword(t *testing.T) {
	const password = "Secret/of@jobs?"
	c := newConsole(t, etcdtest.Options{})
	ctx, admin := t.Context(), c.cluster.Client()
	for user, word := range map[string]string{"root": "x", "jobs": password} {
		_, err := admin.RoleAdd(ctx, user)
		require.NoError(t, err)
		_, err = admin.UserAdd(ctx, user, word)
		require.NoError(t, err)
		_, err = admin.UserGrantRole(ctx, user, user)
		require.NoError(t, err)
	}
	_, err := admin.RoleGrantPermission(ctx, "jobs", "jobs", clientv3.GetPrefixRangeEnd("jobs"), clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = admin.AuthEnable(ctx)
	require.NoError(t, err)
	shown := "etcd://jobs@" + c.hosts() + "/jobs"
	c.env = append(c.env, "JQ_STORE=etcd://jobs:"+url.PathEscape(password)+"@"+c.hosts()+"/jobs")

	printed := c.run("jobq stats")
	assert.Equal(t, "jobq stats: "+shown+": opening a store: there is no store: name another one, or create it by jobq migrate up\n", printed)
	assert.Equal(t, shown+" is there; a store on etcd has no schema to migrate\n", c.run("jobq migrate up"))
	assert.Contains(t, c.run("jobq help"), `(default "`+shown+`")`)
	assert.Equal(t, "no problems found\n", c.run("jobq doctor"))
	assert.Equal(t, "fenced "+shown+": this is epoch 1\n", c.run("jobq fence"))
	assert.Contains(t, c.run("jobq enqueue mail --queue out"), "added job ")

	at := c.start("jobq serve --addr 127.0.0.1:0", `(http://127\.0\.0\.1:\d+)`)[1]
	c.env = append(c.env, "JQ_STORE=", "JQ_SERVER="+at)
	c.until("jobq stats --json | grep -c '\"queue\":\"out\"'", "1\n", strings.Clone)
	c.start("jobq work --exec cat --queue out=1", "working on")
	c.until("jobq jobs ls --queue out --state succeeded --json | grep -c mail", "1\n", strings.Clone)
	assert.Equal(t, "no problems found\n", c.run("jobq doctor"))
}

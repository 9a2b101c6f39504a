//go:build unix

package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// soon is how long a test waits for anything: long enough for a loaded machine.
const soon = 2 * time.Minute

// prometheus returns the path of a program of Prometheus.
func prometheus(t *testing.T, name string) string {
	t.Helper()
	folder := os.Getenv("JQ_TEST_PROMETHEUS")
	if folder == "" {
		t.Skip("JQ_TEST_PROMETHEUS names no folder with prometheus and promtool: scripts/test-all finds or unpacks them, and runs this test")
	}
	path, err := exec.LookPath(filepath.Join(folder, name))
	require.NoError(t, err, "%s is missing in JQ_TEST_PROMETHEUS: install Prometheus (Debian: prometheus)", name)
	return path
}

// ask runs a command to its end, and returns what it prints.
func ask(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Env, cmd.Stderr = environment(), &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s %s: %s%s", name, strings.Join(args, " "), out, stderr.String())
	return strings.TrimSpace(string(out))
}

// environment is that of the test, without the variables that the commands of jobq read.
func environment() (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "JQ_") && !strings.HasPrefix(v, "DATABASE_URL=") {
			env = append(env, v)
		}
	}
	return env
}

// A process runs until the test ends.
type process struct {
	*testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write keeps what the process prints.
func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(text)
}

func (p *process) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{T: t, cmd: exec.Command(name, args...), done: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = environment(), p, p
	p.cmd.WaitDelay = 10 * time.Second // a grandchild must not keep the test
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s printed:\n%s", strings.Join(p.cmd.Args, " "), p.printed())
		}
	})
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// says waits until the process has printed the expression, and returns its first group.
func (p *process) says(expression string) (found string) {
	p.Helper()
	re := regexp.MustCompile(expression)
	until(p.T, expression+" of "+p.cmd.Path, func() bool {
		select {
		case <-p.done:
			require.Fail(p, "it ended", "%s: %s", p.cmd.Path, p.printed())
		default:
		}
		m := re.FindStringSubmatch(p.printed())
		if m != nil {
			found = m[1]
		}
		return m != nil
	})
	return found
}

// until polls, and fails the test if nothing happens in time.
func until(t *testing.T, what string, happened func() bool) {
	t.Helper()
	deadline := time.Now().Add(soon)
	for !happened() {
		if time.Now().After(deadline) {
			require.Fail(t, "it did not happen in time", what)
		}
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // polls other processes
	}
}

// call makes one request, and returns its status and what it answers.
func call(t *testing.T, method, url, token, body string) (status int, answer any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	got, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = got.Body.Close() }()
	text, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &answer), "%s %s: %s", method, url, text)
	return got.StatusCode, answer
}

// at follows names and indexes into an answer, and returns nil where there is nothing.
func at(answer any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			object, _ := answer.(map[string]any)
			answer = object[step]
		case int:
			list, _ := answer.([]any)
			if step >= len(list) {
				return nil
			}
			answer = list[step]
		}
	}
	return answer
}

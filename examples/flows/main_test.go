package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/remote"
)

// page returns the page about the program.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/guides/flows.md")
	require.NoError(t, err)
	return string(text)
}

// build compiles a program into an empty folder, and returns its path there.
func build(t *testing.T, pkg string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, pkg).CombinedOutput()
	require.NoError(t, err, string(out))
	return program
}

// command returns a command of the program in its folder.
func command(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Stderr = filepath.Dir(program), os.Stderr
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "TMPDIR=" + os.TempDir(), "JQ_NO_CONFIG=1"}
	return cmd
}

func TestPageShowsTheProgram(t *testing.T) {
	text, err := os.ReadFile("main.go")
	require.NoError(t, err)
	assert.Contains(t, page(t), "```go\n"+string(text)+"```\n", "copy the program into docs/guides/flows.md")
	printed, err := command(t, build(t, ".")).Output()
	require.NoError(t, err)
	assert.Contains(t, page(t), "```console\n$ go run ./examples/flows\n"+string(printed)+"```\n")
}

var (
	curl = regexp.MustCompile(`^curl --json '(.*)' localhost:7070(\S+)$`)
	when = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
)

// The commands of the page print what it shows. The server has a free port instead of 7070, and the same file as the commands.
func TestPageShowsTheCommands(t *testing.T) {
	jobq := build(t, "../../cmd/jobq")
	url := serve(t, command(t, jobq, "serve", "--addr", "127.0.0.1:0"))
	blocks := strings.Split(page(t), "```console\n$ ./jobq ")[1:]
	require.Len(t, blocks, 2)
	play := func(block string, commands int) {
		block, _, _ = strings.Cut("$ ./jobq "+block, "```")
		steps := strings.Split(block, "$ ")[1:]
		assert.Len(t, steps, commands)
		for _, step := range steps {
			line, want, _ := strings.Cut(step, "\n")
			var got []byte
			var err error
			if call := curl.FindStringSubmatch(line); call != nil {
				answer, failed := http.Post(url+call[2], "application/json", strings.NewReader(call[1]))
				require.NoError(t, failed)
				got, err = io.ReadAll(answer.Body)
				require.NoError(t, answer.Body.Close())
			} else {
				got, err = command(t, jobq, strings.Fields(line)[1:]...).Output()
			}
			require.NoError(t, err, line)
			assert.Equal(t, want, when.ReplaceAllString(string(got), "2026-01-02T03:04:05Z"), line)
		}
	}
	play(blocks[0], 6)
	scanFrames(t, url)
	play(blocks[1], 1)
}

// scanFrames enqueues a flow of which one frame cannot be decoded, and runs what can run.
func scanFrames(t *testing.T, url string) {
	t.Helper()
	s, err := remote.Open(t.Context(), url, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	scan, frames := []jq.Wait{{Item: 0}}, []jq.Wait{{Group: "frames"}}
	jobs := []jq.NewJob{{Kind: "scan"}}
	for range 3 {
		jobs = append(jobs, jq.NewJob{Kind: "frame", Group: "frames", After: scan})
	}
	jobs = append(jobs, jq.NewJob{Kind: "album", After: frames}, jq.NewJob{Kind: "tidy", After: []jq.Wait{{Group: "frames", Any: true}}})
	for i := range jobs {
		jobs[i].Queue, jobs[i].Payload = "default", []byte(`null`)
	}
	_, err = s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: jobs})
	require.NoError(t, err)
	for {
		jobs, err := s.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "default", Limit: 1, Worker: "w", TTL: time.Minute})
		require.NoError(t, err)
		if len(jobs) == 0 {
			return
		}
		var outcomes []jq.Outcome
		if jobs[0].ID == 9 {
			outcomes, err = s.NAck(t.Context(), []contract.NAck{{Lease: jobs[0].Lease(), Form: contract.Fail, Error: "decode 3.png: unexpected EOF"}})
		} else {
			outcomes, err = s.Ack(t.Context(), []contract.Ack{{Lease: jobs[0].Lease()}})
		}
		require.NoError(t, err)
		require.NoError(t, outcomes[0].Err())
	}
}

// TestProgramsReadResults runs the page's command for a shell as the program of a worker: its output is the result of the job.
func TestProgramsReadResults(t *testing.T) {
	jobq := build(t, "../../cmd/jobq")
	url := serve(t, command(t, jobq, "serve", "--addr", "127.0.0.1:0"))
	ask := func(path, body string) {
		answer, err := http.Post(url+path, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Less(t, answer.StatusCode, 300, string(text))
	}
	ask("/v1/jobs", `{"jobs":[{"kind":"count"},{"kind":"show","queue":"programs","after":[{"item":0}]}]}`)
	ask("/v1/claim", `{"worker":"w"}`)
	ask("/v1/ack", `{"jobs":[{"id":"1","token":"1","result":{"counted":7}}]}`)

	_, script, found := strings.Cut(page(t), "```sh\n")
	require.True(t, found)
	script, _, _ = strings.Cut(script, "```")
	worker := command(t, jobq, "work", "--queue", "programs=1", "--exec", "sh show.sh")
	worker.Env = append(worker.Env, "JQ_SERVER="+url, "no_proxy=*")
	require.NoError(t, os.WriteFile(filepath.Join(worker.Dir, "show.sh"), []byte(script), 0o600))
	require.NoError(t, worker.Start())
	t.Cleanup(func() {
		_ = worker.Process.Kill()
		_ = worker.Wait()
	})
	answer, err := http.Get(url + "/v1/jobs/2?wait=60s")
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	assert.Contains(t, string(text), `"result":{"jobs":[{"id":"1","queue":"default","kind":"count"`)
	assert.Contains(t, string(text), `"result":{"counted":7}`)
}

// serve starts a server and returns its URL. It stops at the end of the test.
func serve(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	cmd.Stderr = nil
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the context may have done so
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if _, url, found := strings.Cut(lines.Text(), "serving on "); found {
			url, _, _ = strings.Cut(url, ";")
			return url
		}
	}
	require.Fail(t, "the server did not say where it listens")
	return ""
}

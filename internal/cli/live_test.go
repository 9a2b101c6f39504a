//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/internal/wire"
	"github.com/seed-ed332417/jq/jqtest"
)

// A sandbox is a folder in which tests run the program as real processes.
type sandbox struct {
	*testing.T
	folder string
	env    []string
	under  []string // a command that runs the program, if set
}

func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	folder := t.TempDir()
	require.NoError(t, os.Symlink(self, filepath.Join(folder, "live"))) // TestMain runs the program under this name
	w := &sandbox{T: t, folder: folder}
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); !strings.HasPrefix(name, "JQ_") && name != "DATABASE_URL" {
			w.env = append(w.env, variable)
		}
	}
	return w
}

func (w *sandbox) command(args ...string) *exec.Cmd {
	line := append(append(append([]string{}, w.under...), filepath.Join(w.folder, "live")), args...)
	cmd := exec.CommandContext(w.Context(), line[0], line[1:]...)
	cmd.Dir, cmd.Env = w.folder, w.env
	return cmd
}

// run runs a command and returns its standard output.
func (w *sandbox) run(args ...string) string {
	w.Helper()
	cmd := w.command(args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(w, err, "%v: %s", args, stderr.String())
	return string(out)
}

// A process runs until end or the cleanup stops it.
type process struct {
	*exec.Cmd
	said  string      // the lines before the ready line
	ready string      // the rest of the ready line
	later chan string // the first lines after the ready line; closed when the process exits
}

// start starts a process and waits for a line that begins with ready.
func (w *sandbox) start(ready string, args ...string) *process {
	w.Helper()
	p := &process{Cmd: w.command(args...), later: make(chan string, 100)}
	said, err := p.StderrPipe()
	require.NoError(w, err)
	require.NoError(w, p.Start())
	lines := bufio.NewScanner(said)
	for p.ready == "" {
		require.True(w, lines.Scan(), "%v ended before it was ready", args)
		if rest, ok := strings.CutPrefix(lines.Text(), ready); ok {
			p.ready = rest
		} else {
			p.said += lines.Text() + "\n"
			w.Logf("%s: %s", args[0], lines.Text())
		}
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(p.later)
		for lines.Scan() {
			select {
			case p.later <- lines.Text():
			default: // nobody reads them
			}
		}
		_, _ = io.Copy(io.Discard, said)
	})
	w.Cleanup(func() {
		_ = p.Process.Kill() // it may have exited
		reading.Wait()
		_ = p.Wait()
	})
	return p
}

// get returns the body at the URL.
func (w *sandbox) get(url string) string {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, url, nil)
	require.NoError(w, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(w, err)
	defer func() { _ = resp.Body.Close() }()
	page, err := io.ReadAll(resp.Body)
	require.NoError(w, err)
	return string(page)
}

// end sends SIGTERM and waits until the process has exited.
func (w *sandbox) end(p *process) {
	w.Helper()
	require.NoError(w, p.Process.Signal(syscall.SIGTERM))
	state, err := p.Process.Wait()
	require.NoError(w, err)
	assert.Equal(w, 0, state.ExitCode(), "exit code of %v after SIGTERM", p.Args)
}

// lines waits until a file has n lines and returns them all. It polls, because other processes write the file.
func (w *sandbox) lines(file string, n int) []string {
	w.Helper()
	var lines []string
	require.Eventually(w, func() bool {
		text, err := os.ReadFile(filepath.Join(w.folder, file))
		lines = strings.Fields(string(text))
		return err == nil && len(lines) >= n
	}, time.Minute, 10*time.Millisecond, "%d lines in %s", n, file)
	return lines
}

// stats counts jobs by phase.
func (w *sandbox) stats(store ...string) map[jq.State]int64 {
	w.Helper()
	var counts jq.Counts
	require.NoError(w, json.Unmarshal([]byte(w.run(append([]string{"stats", "--json"}, store...)...)), &counts))
	require.Len(w, counts.Queues, 1)
	return counts.Queues[0].Jobs
}

// onStores runs the test on SQLite and on Postgres.
func onStores(t *testing.T, test func(w *sandbox, store string)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) { test(newSandbox(t), "sqlite:jobs.db") })
	t.Run("Postgres", func(t *testing.T) {
		_, url := database(t)
		test(newSandbox(t), url)
	})
}

// If a worker is killed during a job, another worker runs the job. Both workers use a server.
func TestJobOfKilledWorkerRunsOnAnother(t *testing.T) {
	onStores(t, func(w *sandbox, store string) {
		server := w.start("serving on ", "serve", "--store", store, "--addr", "127.0.0.1:0", "--recover-every", "50ms")
		url, _, _ := strings.Cut(server.ready, ";")
		assert.Equal(w, "added job 1 to queue default\n", w.run("enqueue", "slow", `{"a":1}`, "--server", url))
		const program = `sh -c 'echo $JQ_LEASE_TOKEN >> runs; until [ -e go ]; do sleep 0.02; done; cat'`
		work := []string{"work", "--server", url, "--exec", program}
		first := w.start("working on", append(work, "--lease", "3s")...)
		assert.Equal(w, []string{"1"}, w.lines("runs", 1))
		require.NoError(w, first.Process.Kill())

		second := w.start("working on", work...)
		assert.Equal(w, []string{"1", "3"}, w.lines("runs", 2), "the recovery used token 2")
		require.NoError(w, os.WriteFile(filepath.Join(w.folder, "go"), nil, 0o600))
		require.Eventually(w, func() bool { return w.stats("--server", url)[jq.Succeeded] == 1 }, time.Minute, 50*time.Millisecond)
		var job wire.JobDetail
		require.NoError(w, json.Unmarshal([]byte(w.run("jobs", "show", "1", "--json", "--server", url)), &job))
		assert.JSONEq(w, `{"a":1}`, string(job.Result))
		assert.Equal(w, 2, job.Attempts)
		require.Len(w, job.History, 2)
		assert.Equal(w, contract.EndExpired, job.History[0].Ending)
		metrics := w.get(url + "/metrics")
		for _, line := range []string{
			`jq_jobs_enqueued_total{kind="slow",queue="default"} 1`, `jq_jobs_claimed_total{queue="default"} 2`,
			`jq_leases_recovered_total{outcome="retrying"} 1`, `jq_jobs_finished_total{kind="slow",outcome="succeeded",queue="default"} 1`,
		} {
			assert.Contains(w, metrics, "\n"+line+"\n")
		}
		w.end(second)
		w.end(server)
	})
}

// A program is told of the server that its worker uses, wherever the worker has its address from.
func TestProgramKnowsTheServerOfItsWorker(t *testing.T) {
	s := jqtest.NewStore(t)
	_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []jq.NewJob{{Queue: "default", Kind: "k", Payload: []byte("{}")}}})
	require.NoError(t, err)
	url, secret := servedWith(t, s, httpapi.Worker)
	w := newSandbox(t)
	worker := w.start("working on", "work", "--server", url, "--token", secret, "--exec", `sh -c 'echo $JQ_SERVER >> runs'`)
	assert.Equal(t, []string{url}, w.lines("runs", 1))
	w.end(worker)
}

// A worker that is stopped releases the jobs that it cannot finish.
func TestStoppedWorkerLeavesNothingInFlight(t *testing.T) {
	onStores(t, func(w *sandbox, store string) {
		const jobs = 100
		var lines bytes.Buffer
		for i := range jobs {
			fmt.Fprintf(&lines, "{\"kind\":\"long\",\"payload\":%d}\n", i)
		}
		require.NoError(w, os.WriteFile(filepath.Join(w.folder, "jobs"), lines.Bytes(), 0o600))
		w.run("enqueue", "--lines", "jobs", "--store", store)
		worker := w.start("working on", "work", "--store", store, "--queue", "default=100", "--drain", "100ms",
			"--exec", `sh -c 'echo x >> runs; exec sleep 600'`)
		w.lines("runs", jobs)
		assert.Equal(w, map[jq.State]int64{jq.InFlight: jobs}, w.stats("--store", store))
		w.end(worker)
		assert.Equal(w, map[jq.State]int64{jq.Ready: jobs}, w.stats("--store", store))
		// A stopped worker was listed as stale for a day, and doctor failed.
		assert.Equal(w, "no workers are running, and none died in the last day\n", w.run("workers", "--store", store))
	})
}

const ending = "stopping; press Ctrl-C again to stop at once"

// The first signal announces that a second one ends the command at once, and the second does.
func TestSecondSignalEndsACommandAtOnce(t *testing.T) {
	w := newSandbox(t)
	w.run("enqueue", "long")
	worker := w.start("working on", "work", "--drain", "10m", "--exec", `sh -c 'echo x >> runs; exec sleep 600'`)
	w.lines("runs", 1)
	require.NoError(w, worker.Process.Signal(syscall.SIGINT))
	require.True(w, said(worker, ending))
	assert.Equal(w, map[jq.State]int64{jq.InFlight: 1}, w.stats(), "the worker waits for the job")
	require.NoError(w, worker.Process.Signal(syscall.SIGTERM))
	state, err := worker.Process.Wait()
	require.NoError(w, err)
	assert.Equal(w, syscall.SIGTERM, state.Sys().(syscall.WaitStatus).Signal())
	assert.Equal(w, map[jq.State]int64{jq.InFlight: 1}, w.stats(), "the worker gave nothing back")
}

func TestServersAnnounceThatASecondSignalEndsThem(t *testing.T) {
	w := newSandbox(t)
	for _, command := range []string{"serve", "dev"} {
		server := w.start("serving on ", command, "--addr", "127.0.0.1:0", "--store", "sqlite:"+command)
		w.end(server)
		assert.True(w, said(server, ending), command)
	}
}

// Every line of a worker's log is JSON if the user asks for it, also those of the store.
func TestLogOfAWorkerAsJSON(t *testing.T) {
	w := newSandbox(t)
	w.run("enqueue", "k", "--max-retries", "0")
	w.env = append(w.env, "JQ_LOG_FORMAT=json")
	worker := w.start("working on", "work", "--exec", "false", "--log-level", "error")
	line := <-worker.later
	var entry struct{ Level, Msg string }
	require.NoError(w, json.Unmarshal([]byte(line), &entry), line)
	assert.Equal(w, "ERROR", entry.Level, line)
	w.end(worker)
}

// said waits until the process prints the line, and reports whether it did before it exited.
func said(p *process, line string) bool {
	late := time.After(time.Minute)
	for {
		select {
		case l, more := <-p.later:
			if l == line || !more {
				return more
			}
		case <-late:
			return false
		}
	}
}

// Several processes may migrate a store at once.
func TestConcurrentMigrations(t *testing.T) {
	onStores(t, func(w *sandbox, store string) {
		said := make([]string, 8)
		var all sync.WaitGroup
		for i := range said {
			all.Go(func() { said[i] = w.run("migrate", "up", "--store", store) })
		}
		all.Wait()
		var schema struct{ Newest int }
		require.NoError(w, json.Unmarshal([]byte(w.run("migrate", "status", "--json", "--store", store)), &schema))
		want := fmt.Sprintf(`^(migrated .* from schema \d+ to %[1]d|.* has schema %[1]d, the newest)\n$`, schema.Newest)
		for _, text := range said { // a process may start between two migrations of another
			assert.Regexp(w, want, text)
		}
	})
}

// TestReadOnlyServe: a store is not made, and one that is there is shown and not changed, until an ordinary server serves it.
func TestReadOnlyServe(t *testing.T) {
	w := newSandbox(t)
	args := []string{"serve", "--store", "sqlite:jobs.db", "--addr", "127.0.0.1:0", "--read-only"}
	out, err := w.command(args...).CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "there is no store at sqlite:jobs.db")
	assert.NoFileExists(t, filepath.Join(w.folder, "jobs.db"))

	w.run("enqueue", "mail", "--store", "sqlite:jobs.db")
	server := w.start("serving read-only on ", args...)
	url, _, _ := strings.Cut(server.ready, ";")
	assert.Contains(t, w.run("jobs", "ls", "--server", url), "mail")
	var f wire.Fail
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/jobs/1/cancel", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&f))
	assert.Equal(t, []any{403, wire.ReadOnly}, []any{resp.StatusCode, f.Type})
	out, err = w.command("jobs", "cancel", "1", "--server", url).CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "this server only reads, nothing was applied: call a server that is not read-only")
	w.end(server)
	assert.Contains(t, w.run("jobs", "show", "1", "--store", "sqlite:jobs.db", "--json"), `"state":"ready"`)
}

// TestAJobRunsAfterTheJobThatItWaitsFor: a worker of another queue makes it ready, and it does not run before.
func TestAJobRunsAfterTheJobThatItWaitsFor(t *testing.T) {
	w := newSandbox(t)
	w.run("enqueue", "extract", "--queue", "first")
	assert.Equal(t, "added job 2 to queue default; it is blocked, because it waits for other jobs\n", w.run("enqueue", "load", "--after", "1"))
	after := w.start("working on", "work", "--queue", "default", "--exec", `sh -c 'echo load >> runs'`)
	first := w.start("working on", "work", "--queue", "first", "--exec", `sh -c 'echo extract >> runs'`)
	assert.Contains(t, w.run("jobs", "show", "2", "--wait", "1m"), "\nwaits for:\n  job 1: met (succeeded)\n")
	assert.Equal(t, []string{"extract", "load"}, w.lines("runs", 2))
	w.end(first)
	w.end(after)

	w.run("enqueue", "extract", "--queue", "first")
	w.run("enqueue", "load", "--after", "3", "--queue", "later")
	first = w.start("working on", "work", "--queue", "first", "--exec", "true")
	w.run("jobs", "show", "3", "--wait", "1m")
	assert.Regexp(t, `^job 4: ready\n(.*\n)*  when +due `, w.run("jobs", "show", "4"))
	w.end(first)
}

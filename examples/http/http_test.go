// Package http_test runs the programs of this folder, in each language that is installed, against a server.
package http_test

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/jqtest"
)

func TestEachLanguageProducesAndWorks(t *testing.T) {
	for _, c := range []struct{ language, client, worker, schedule, flow, batch string }{
		{"python3", "client.py", "worker.py", "schedule.py", "flow.py", "batch.py"},
		{"node", "client.mjs", "worker.mjs", "", "", ""},
	} {
		t.Run(c.language, func(t *testing.T) {
			t.Parallel()
			needs(t, c.language)
			s := jqtest.NewStore(t)
			command := serve(t, s, c.language, func(api http.Handler) http.Handler { return api })
			out, err := command(c.client, "hello", `{"a":[1,"ü"]}`).Output()
			require.NoError(t, err)
			assert.Equal(t, "job 1\n", string(out))

			worker := command(c.worker)
			said, err := worker.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, worker.Start())
			lines := bufio.NewScanner(said)
			require.True(t, lines.Scan(), "the worker says what it did")
			assert.Equal(t, "job 1 ok succeeded", lines.Text())
			job, err := s.Get(t.Context(), 1)
			require.NoError(t, err)
			assert.JSONEq(t, `{"echo":{"a":[1,"ü"]}}`, string(job.Result))

			require.Error(t, command(c.client, "").Run(), "a job without a kind is refused")
			if c.schedule != "" {
				out, err := command(c.schedule, "a/b", "0 0 29 2 *", "hello", `{"a":2}`).Output()
				require.NoError(t, err)
				assert.Equal(t, "would run at 2028-02-28T23:00:00Z\nwould run at 2032-02-28T23:00:00Z\nnext at 2028-02-28T23:00:00Z\njob 2\n", string(out))
				require.True(t, lines.Scan(), "the worker says what it did")
				assert.Equal(t, "job 2 ok succeeded", lines.Text())
				job, err := s.Get(t.Context(), 2)
				require.NoError(t, err)
				assert.JSONEq(t, `{"echo":{"a":2}}`, string(job.Result))
				assert.Equal(t, "a/b", job.Scheduled().Name)
				refused := command(c.schedule, "a/b", "0 0 30 2 *", "hello")
				refused.Stderr = nil
				said, err := refused.CombinedOutput()
				require.Error(t, err)
				assert.Equal(t, "invalid: cron must have a time within five years, and this has none\n", string(said))
			}
			if c.flow != "" {
				out, err := command(c.flow, "a.png", "ü.png").Output()
				require.NoError(t, err)
				assert.Equal(t, "job 3 ready\njob 4 blocked\njob 5 ready\njob 6 blocked\njob 7 blocked\njob 8 blocked\n"+
					"publish had shrink a.png {'echo': 'a.png'}\npublish had shrink ü.png {'echo': 'ü.png'}\n", string(out))
				out, err = command(c.batch, "a.png", "ü.png").Output()
				require.NoError(t, err)
				assert.Equal(t, "job 10 read succeeded\njob 11 album succeeded\n", string(out))
				album, err := s.Get(t.Context(), 11)
				require.NoError(t, err)
				require.Len(t, album.Waits, 1)
				assert.Equal(t, map[jq.State]int64{jq.Succeeded: 2}, counted(t, s, jq.Filter{Group: album.Waits[0].Group}))
				refused := command(append([]string{c.flow}, strings.Fields(strings.Repeat("file ", 65))...)...)
				refused.Stderr = nil
				said, err := refused.CombinedOutput()
				require.Error(t, err)
				assert.Equal(t, "invalid: after must be at most 64 a job\n", string(said))
			}
			require.NoError(t, worker.Process.Kill())
			require.Error(t, worker.Wait())
		})
	}
}

// A server refuses each call once, and loses the answers to two more acks, one of them in the middle.
func TestWorkersRepeatWhatIsNotAnswered(t *testing.T) {
	for language, worker := range workers {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			needs(t, language)
			s := jqtest.NewStore(t)
			var mu sync.Mutex
			calls := map[string]int{}
			worker := serve(t, s, language, func(api http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					calls[r.URL.Path]++
					call := calls[r.URL.Path]
					mu.Unlock()
					ack := r.URL.Path == "/v1/ack"
					switch {
					case call == 1:
						w.Header().Set("Retry-After", "0")
						w.WriteHeader(http.StatusServiceUnavailable)
					case ack && call == 2:
						api.ServeHTTP(httptest.NewRecorder(), r)
						panic(http.ErrAbortHandler)
					case ack && call == 3:
						w.Header().Set("Content-Length", "100")
						_, _ = w.Write([]byte(`{"results":`))
					default:
						api.ServeHTTP(w, r)
					}
				})
			})(worker)
			_, err := s.Enqueue(t.Context(), jq.EnqueueRequest{Jobs: []jq.NewJob{{Queue: "default", Kind: "hello", Payload: []byte(`null`)}}})
			require.NoError(t, err)
			out, err := worker.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, worker.Start())
			lines := bufio.NewScanner(out)
			require.True(t, lines.Scan(), "the worker says what it did")
			assert.Equal(t, "job 1 ok succeeded", lines.Text())
			require.NoError(t, worker.Process.Kill())
			require.Error(t, worker.Wait())
			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, 4, calls["/v1/ack"])
			assert.GreaterOrEqual(t, calls["/v1/claim"], 2)
		})
	}
}

// A server answers no extend for as long as the lease: another worker may run the job by then.
func TestWorkersStopWhenTheyMayHaveLostTheirLease(t *testing.T) {
	for language, file := range workers {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			needs(t, language)
			s := jqtest.NewStore(t)
			var extends atomic.Int32
			command := serve(t, s, language, func(api http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/v1/extend" {
						extends.Add(1)
						w.Header().Set("Retry-After", "0")
						w.WriteHeader(http.StatusServiceUnavailable)
						return
					}
					api.ServeHTTP(w, r)
				})
			})
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			changed := strings.NewReplacer(
				"LEASE = 30", "LEASE = 3", "lease = 30;", "lease = 3;",
				`return {"echo"`, `time.sleep(600); return {"echo"`, "return { echo", "await setTimeout(600_000); return { echo",
			).Replace(string(text))
			folder := t.TempDir()
			for name, text := range map[string]string{file: changed, clients[language]: read(t, clients[language])} {
				require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
			}
			_, err = s.Enqueue(t.Context(), jq.EnqueueRequest{Jobs: []jq.NewJob{{Queue: "default", Kind: "hello", Payload: []byte(`null`)}}})
			require.NoError(t, err)
			out, err := command(filepath.Join(folder, file)).Output()
			require.Error(t, err, "it ends")
			assert.Equal(t, "job 1 was lost: no answer in time\n", string(out))
			assert.NotZero(t, extends.Load())
		})
	}
}

// The guide shows the clients as they are.
func TestTheGuideShowsTheClients(t *testing.T) {
	guide := read(t, "../../docs/guides/other-languages.md")
	assert.Contains(t, guide, "```python\n"+read(t, "client.py")+"```\n")
	assert.Contains(t, guide, "```js\n"+read(t, "client.mjs")+"```\n")
}

// By language.
var (
	workers = map[string]string{"python3": "worker.py", "node": "worker.mjs"}
	clients = map[string]string{"python3": "client.py", "node": "client.mjs"}
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

func needs(t *testing.T, language string) {
	t.Helper()
	if _, err := exec.LookPath(language); err != nil {
		t.Skipf("%s is not installed", language)
	}
}

// serve serves a store, and returns commands that call the server. They end with the test, or after two minutes.
func serve(t *testing.T, s jq.Store, language string, around func(api http.Handler) http.Handler) func(args ...string) *exec.Cmd {
	t.Helper()
	secret, entry, err := httpapi.NewToken(httpapi.Token{Name: "both", Role: httpapi.Operator})
	require.NoError(t, err)
	api, err := httpapi.New(s, &httpapi.Options{Tokens: tokensOf(t, entry)})
	require.NoError(t, err)
	server := httptest.NewServer(around(api))
	t.Cleanup(func() {
		assert.NoError(t, api.Close())
		server.Close()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, language, args...)
		cmd.Env = append(os.Environ(), "JQ_SERVER="+server.URL, "JQ_TOKEN="+secret)
		cmd.Stderr = os.Stderr
		return cmd
	}
}

// Each program fits on one screen.
func TestProgramsAreShort(t *testing.T) {
	for _, file := range []string{"client.py", "worker.py", "schedule.py", "flow.py", "batch.py", "client.mjs", "worker.mjs"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Less(t, bytes.Count(text, []byte("\n")), 60, file)
	}
}

// counted counts the jobs of one queue.
func counted(t *testing.T, s jq.Store, filter jq.Filter) map[jq.State]int64 {
	t.Helper()
	counts, err := s.Count(t.Context(), filter)
	require.NoError(t, err)
	require.Len(t, counts.Queues, 1)
	return counts.Queues[0].Jobs
}

func tokensOf(t *testing.T, entry httpapi.Token) *httpapi.Tokens {
	t.Helper()
	tokens, err := httpapi.ReadTokens(bytes.NewReader(entry.Line()))
	require.NoError(t, err)
	return tokens
}

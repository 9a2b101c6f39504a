// Package http_test runs the producers and workers of this folder, in each language that is installed, against a server.
package http_test

import (
	"bufio"
	"bytes"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/jqtest"
)

func TestEachLanguageProducesAndWorks(t *testing.T) {
	for _, c := range []struct{ language, producer, worker, schedule, flow, batch string }{
		{"python3", "producer.py", "worker.py", "schedule.py", "flow.py", "batch.py"},
		{"node", "producer.mjs", "worker.mjs", "", "", ""},
	} {
		t.Run(c.language, func(t *testing.T) {
			if _, err := exec.LookPath(c.language); err != nil {
				t.Skipf("%s is not installed", c.language)
			}
			s := jqtest.NewStore(t)
			secret, entry, err := httpapi.NewToken(httpapi.Token{Name: "both", Role: httpapi.Operator})
			require.NoError(t, err)
			api, err := httpapi.New(s, &httpapi.Options{Tokens: tokensOf(t, entry)})
			require.NoError(t, err)
			server := httptest.NewServer(api)
			t.Cleanup(func() {
				assert.NoError(t, api.Close())
				server.Close()
			})
			command := func(args ...string) *exec.Cmd {
				cmd := exec.CommandContext(t.Context(), c.language, args...)
				cmd.Env = append(os.Environ(), "JQ_SERVER="+server.URL, "JQ_TOKEN="+secret)
				cmd.Stderr = os.Stderr
				return cmd
			}
			out, err := command(c.producer, "hello", `{"a":[1,"ü"]}`).Output()
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

			require.Error(t, command(c.producer, "").Run(), "a job without a kind is refused")
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
				assert.Equal(t, "cron must have a time within five years, and this has none\n", string(said))
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
				assert.Equal(t, "after must be at most 64 a job\n", string(said))
			}
			require.NoError(t, worker.Process.Kill())
			require.Error(t, worker.Wait())
		})
	}
}

// Each program fits on one screen.
func TestProgramsAreShort(t *testing.T) {
	for _, file := range []string{"producer.py", "worker.py", "schedule.py", "flow.py", "batch.py", "producer.mjs", "worker.mjs"} {
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

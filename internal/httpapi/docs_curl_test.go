package httpapi

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/wire"
)

// run is what stands on the page for a shell.
var run = regexp.MustCompile(`(?s)<pre class="run"><code>(.*?)</code></pre>`)

// shell runs commands of the page on the world's server, and returns what they print.
func (w *world) shell(commands string) string {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-euc", commands)
	cmd.Env = append(os.Environ(), "JQ_SERVER="+w.url, "JQ_TOKEN=", "no_proxy=*")
	out, err := cmd.Output()
	if failed, is := err.(*exec.ExitError); is {
		w.Errorf("%s\n%v: %s", commands, err, failed.Stderr)
	} else {
		require.NoError(w, err)
	}
	return string(out)
}

func needCurl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("the examples of the page are not run: curl is missing")
	}
}

// TestDocsCommandsRun copies each command of the page into a shell, and compares the answer with the page's.
func TestDocsCommandsRun(t *testing.T) {
	needCurl(t)
	_, text := theDocs(t)
	calls := parts(text, regexp.MustCompile(`<article id="([a-z-]+)"`))
	for key, op := range theBook().operations() {
		one := example(key, op)
		if one.path == pathSession || one.operation == "events" || one.operation == "wakeups" {
			continue // which need tokens, or have no end
		}
		t.Run(one.operation, func(t *testing.T) {
			w := newWorld(t, Options{Metrics: always(metricsText)})
			w.prepare(one.operation)
			commands := run.FindAllStringSubmatch(calls[one.operation], -1)
			require.Len(t, commands, 1)
			got := w.shell(commands[0][1])
			want := success(op)
			if want == nil {
				assert.Regexp(t, `^(HTTP/1\.1 [23]|jq_jobs 1|<!DOCTYPE|\{\s+"openapi")`, got, "it shows the status, unless there is an answer")
				return
			}
			documented, err := json.Marshal(want)
			require.NoError(t, err)
			assert.JSONEq(t, string(documented), got)
		})
	}
}

// success is the documented answer of an operation, or nil if that is not JSON.
func success(op map[string]any) any {
	for status, r := range op["responses"].(map[string]any) {
		if content, has := r.(map[string]any)["content"].(map[string]any); has && status < "300" {
			if m, is := content[wire.JSON].(map[string]any); is {
				return m["example"]
			}
		}
	}
	return nil
}

// TestDocsThreeCalls: a job that is enqueued, claimed and finished as the page begins.
func TestDocsThreeCalls(t *testing.T) {
	needCurl(t)
	_, text := theDocs(t)
	start := parts(text, regexp.MustCompile(`<section id="([a-z-]+)"`))["start"]
	commands := run.FindAllStringSubmatch(start, -1)
	require.Len(t, commands, 4)
	require.Equal(t, "export JQ_SERVER=http://127.0.0.1:7070 JQ_TOKEN=", commands[0][1])
	w := newWorld(t, Options{})
	assert.Contains(t, w.shell(commands[1][1]), `"state":"ready"`)
	assert.Contains(t, w.shell(commands[2][1]), `"kind":"hello"`)
	assert.Contains(t, w.shell(commands[3][1]), `"status":"ok","state":"succeeded"`)
}

// TestCurlQuotes: what stands in an example reaches the server through a shell as it is.
func TestCurlQuotes(t *testing.T) {
	needCurl(t)
	op := &operation{Roles: producers}
	op.RequestBody.Content = ordered[media]{{wire.JSON, media{Example: json.RawMessage(`{"jobs":[{"kind":"it's $HOME"}]}`)}}}
	w := newWorld(t, Options{})
	assert.Contains(t, w.shell(curl("POST", "/v1/jobs", op)), `"id":"1"`)
	assert.Contains(t, w.ask("GET", "/v1/jobs/1", "").text, `"kind":"it's $HOME"`)
	assert.False(t, strings.Contains(curl("GET", "/", &operation{}), "Bearer"), "without roles there is no token")
}

//go:build unix

package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A worker with --addr answers as serve does, and has no other calls.
func TestWorkServesItsHealthAndMetrics(t *testing.T) {
	w := newSandbox(t)
	w.run("enqueue", "slow", `{"a":1}`)
	worker := w.start("serving /healthz and /metrics on ", "work", "--addr", "127.0.0.1:0", "--queue", "default=3",
		"--exec", `sh -c 'echo x >> runs; until [ -e go ]; do sleep 0.02; done'`)
	w.lines("runs", 1)
	assert.JSONEq(w, `{"status":"alive"}`, w.get(worker.ready+"/healthz"))
	metrics := w.get(worker.ready + "/metrics")
	for _, line := range []string{
		`jq_worker_slots{state="running"} 1`, `jq_worker_slots{state="idle"} 2`, `jq_jobs_claimed_total{queue="default"} 1`, `jq_store_up 1`,
	} {
		assert.Contains(w, metrics, "\n"+line+"\n")
	}
	for path, want := range map[string]int{"/v1/jobs": http.StatusNotFound, "/readyz": http.StatusNotFound, "/": http.StatusNotFound} {
		resp, err := http.Get(worker.ready + path)
		require.NoError(w, err)
		require.NoError(w, resp.Body.Close())
		assert.Equal(w, want, resp.StatusCode, path)
	}
	req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, worker.ready+"/metrics", nil)
	require.NoError(w, err)
	req.Host = "evil.example"
	resp, err := http.DefaultClient.Do(req)
	require.NoError(w, err)
	require.NoError(w, resp.Body.Close())
	assert.Equal(w, http.StatusMisdirectedRequest, resp.StatusCode, "a web page cannot point its own name at the worker")
	require.NoError(w, os.WriteFile(filepath.Join(w.folder, "go"), nil, 0o600))
	w.end(worker)
}

func TestWorkListensOnThisMachineOnly(t *testing.T) {
	for addr, want := range map[string]string{
		"":               "",
		"127.0.0.1:9090": "",
		"[::1]:0":        "",
		"localhost:9090": "",
		"unix:/tmp/sock": "",
		":9090":          "--addr :9090 lets other machines read the metrics",
		"0.0.0.0:9090":   "--addr 0.0.0.0:9090 lets other machines",
		"9090":           `--addr "9090": want HOST:PORT`,
	} {
		err := (&serveFlags{addr: addr}).checkProbes()
		if want == "" {
			assert.NoError(t, err, addr)
		} else {
			require.ErrorContains(t, err, want)
		}
		if strings.Contains(addr, ":") {
			assert.NoError(t, (&serveFlags{addr: addr, insecure: true}).checkProbes(), addr)
		}
	}
}

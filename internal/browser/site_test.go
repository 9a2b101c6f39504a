package browser

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/remote"
)

// A site is a running jobq serve.
type site struct {
	t     *testing.T
	url   string            // without a slash at the end
	from  string            // the URL of the store that it serves
	token map[string]string // by the name of the token; empty if the server needs none
	store *remote.Store     // an operator's
	*jq.Client
}

// Options of a site.
type options struct {
	store  string // the URL of the store; empty means a new SQLite file
	tokens bool
	flags  []string
}

// The tokens of a site.
var tokens = map[string][]string{
	"ada":    {"--role", "operator"},
	"vera":   {"--role", "viewer"},
	"paul":   {"--role", "producer"},
	"walter": {"--role", "worker"},
	"mia":    {"--role", "operator", "--queue", "mail*"},
}

// serve starts a server on a free port. It ends with the test.
func serve(t *testing.T, o options) *site {
	t.Helper()
	program, err := jobq()
	require.NoError(t, err)
	if o.store == "" {
		o.store = "sqlite:" + filepath.Join(t.TempDir(), "jobs.db")
	}
	s := &site{t: t, from: o.store, token: map[string]string{}}
	args := append([]string{"serve", "--addr", "127.0.0.1:0", "--store", o.store}, o.flags...)
	if o.tokens {
		file := filepath.Join(t.TempDir(), "tokens")
		for name, rights := range tokens {
			out, err := command(t.Context(), t, program, append([]string{"token", "new", name, "--file", file}, rights...)...).Output()
			require.NoError(t, err)
			s.token[name] = strings.TrimSpace(string(out))
		}
		args = append(args, "--tokens", file)
	}
	// The server is to outlive its clients, which end as the test does.
	ctx, interrupt := context.WithCancel(context.WithoutCancel(t.Context()))
	s.url = listening(t, interrupt, command(ctx, t, program, args...))
	s.store, err = remote.Open(t.Context(), s.url, &remote.Options{Token: s.token["ada"], Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.store.Close()) })
	s.Client = jq.NewClient(s.store, nil)
	return s
}

// command returns a command of jobq, without the settings of whoever runs the tests.
func command(ctx context.Context, t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TMPDIR=" + os.TempDir(), "JQ_NO_CONFIG=1"}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = patience
	return cmd
}

// listening starts a server and returns its URL. The server must end without an error, and its log must have no errors.
func listening(t *testing.T, interrupt func(), cmd *exec.Cmd) string {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var said record
	first := make(chan string, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewReader(io.TeeReader(stderr, &said))
		for {
			line, err := lines.ReadString('\n')
			if _, rest, ok := strings.Cut(line, " on http"); ok && strings.HasPrefix(line, "serving") {
				at, _, _ := strings.Cut("http"+rest, ";")
				first <- at
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		interrupt()
		<-ended
		_ = cmd.Wait() // the error of the context
		assert.Truef(t, cmd.ProcessState.Exited(), "the server did not stop when it was told to: %s", said.String())
		assert.NotContains(t, said.String(), "level=ERROR")
		assert.NotContains(t, said.String(), "panic")
	})
	select {
	case at := <-first:
		return at
	case <-ended:
		require.FailNow(t, "the server ended", said.String())
	case <-time.After(patience):
		require.FailNow(t, "the server did not say where it listens", said.String())
	}
	return ""
}

// A record is what a process has written.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *record) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *record) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// add enqueues one job and returns its id.
func (s *site) add(kind, payload string, o *jq.EnqueueOptions) int64 {
	s.t.Helper()
	added, err := s.Enqueue(s.t.Context(), jq.Raw{Name: kind, Document: []byte(payload)}, o)
	require.NoError(s.t, err)
	return added.ID
}

// job returns a job.
func (s *site) job(id int64) jq.JobDetail {
	s.t.Helper()
	job, err := s.Get(s.t.Context(), id)
	require.NoError(s.t, err)
	return job
}

// becomes waits until the job is in the phase.
func (s *site) becomes(id int64, phase jq.State) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("job %d to be %s", id, phase), func() (bool, string) {
		job := s.job(id)
		return job.Phase() == phase, string(job.Phase())
	})
}

// work runs a worker with the handlers until the test ends. It is a client of the server, as workers elsewhere are.
func (s *site) work(name, queue string, slots int, handlers *jq.Handlers) {
	s.t.Helper()
	server, err := jq.NewServer(s.store, handlers, &jq.ServerOptions{
		Name: name, Queues: map[string]jq.QueueOptions{queue: {}}, Slots: slots, Claim: jq.ClaimOptions{PollInterval: 200 * time.Millisecond},
		Lease:    jq.LeaseOptions{Duration: 30 * time.Second, Heartbeat: 3 * time.Second}, // so that its row says soon what it runs
		Shutdown: jq.ShutdownOptions{DrainTimeout: 100 * time.Millisecond}, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(s.t, err)
	require.NoError(s.t, server.Start(context.WithoutCancel(s.t.Context())))
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), patience)
		defer cancel()
		assert.NoError(s.t, server.Stop(ctx))
	})
}

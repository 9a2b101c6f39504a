package sqlite

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-ed332417/jq/internal/store"
)

// childRole tells a process that was started by a test what to do: the same binary is both.
const childRole = "JQ_SQLITE_CHILD"

var roles = map[string]func(path string, in io.Reader, out io.Writer) error{
	"share": share, "write": writeOn, "limited": limited, "open": tryToOpen, "sql": runSQL,
	"hold": holdTurn, "seed": seedAndStay, "restore": restoreInSteps, "backup": backUp, "migrate": dieMigrating,
	"last": lastTwo,
}

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		if err := roles[role](os.Args[1], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// A child is a process that a test has started.
type child struct {
	*exec.Cmd
	in  io.Writer
	out *bufio.Scanner
}

func start(t *testing.T, role, path string) *child {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	return startCommand(t, exec.CommandContext(t.Context(), exe, path), role)
}

func startCommand(t *testing.T, cmd *exec.Cmd, role string) *child {
	t.Helper()
	c := &child{Cmd: cmd}
	c.Env = append(os.Environ(), childRole+"="+role)
	c.Stderr = os.Stderr
	var err error
	c.in, err = c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	c.out = bufio.NewScanner(out)
	require.NoError(t, c.Start())
	return c
}

// openAt opens a store that the test's end closes.
func openAt(t testing.TB, path string, options *Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func newPath(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "jobs.db")
}

func newStore(t testing.TB) *Store {
	t.Helper()
	return openAt(t, newPath(t), nil)
}

func newClock() *clock.Mock {
	clk := clock.NewMock()
	clk.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	return clk
}

// until waits for what another goroutine is about to do.
func until(t testing.TB, what string, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !happened(); runtime.Gosched() {
		require.True(t, time.Now().Before(end), "waited a minute for this: %s", what)
	}
}

func newJob() store.NewJob {
	return store.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{}`), MaxRetries: 3}
}

func newJobs(n int) store.EnqueueRequest {
	req := store.EnqueueRequest{Jobs: make([]store.NewJob, n)}
	for i := range req.Jobs {
		req.Jobs[i] = newJob()
	}
	return req
}

func enqueue(t testing.TB, s *Store, n int) []store.Enqueued {
	t.Helper()
	added, err := s.Enqueue(t.Context(), newJobs(n))
	require.NoError(t, err)
	return added
}

func claimOf(n int) store.ClaimRequest {
	return store.ClaimRequest{Queue: "q", Limit: n, Worker: "w", TTL: time.Minute}
}

func acksOf(jobs []store.Job) []store.Ack {
	acks := make([]store.Ack, len(jobs))
	for i, j := range jobs {
		acks[i] = store.Ack{Lease: j.Lease()}
	}
	return acks
}

// countIn is how many jobs are in the phase.
func countIn(t testing.TB, s *Store, phase store.State) int64 {
	t.Helper()
	counts, err := s.Count(t.Context(), store.Filter{States: []store.State{phase}})
	require.NoError(t, err)
	sum := int64(0)
	for _, q := range counts.Queues {
		sum += q.Jobs[phase]
	}
	return sum
}

// intact checks the file as SQLite can.
func intact(t testing.TB, s *Store) {
	t.Helper()
	var verdict string
	require.NoError(t, s.readers.db.GetContext(t.Context(), &verdict, `PRAGMA integrity_check`))
	require.Equal(t, "ok", verdict)
	var broken int
	require.NoError(t, s.readers.db.GetContext(t.Context(), &broken, `SELECT count(*) FROM pragma_foreign_key_check`))
	require.Zero(t, broken, "broken references")
	checkRuns(t, s)
}

//go:build unix

package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/sqlite"
)

// failing runs a command that must fail, and returns its standard error.
func (w *sandbox) failing(args ...string) string {
	w.Helper()
	cmd := w.command(args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.Error(w, cmd.Run(), "%v", args)
	return stderr.String()
}

// A backup of a running server's store needs only the store's file. A restore needs the server to stop.
func TestBackupOfARunningServer(t *testing.T) {
	w := newSandbox(t)
	server := w.start("serving on ", "serve", "--addr", "127.0.0.1:0")
	url, _, _ := strings.Cut(server.ready, ";")
	for range 3 {
		w.run("enqueue", "a", "--server", url)
	}
	assert.Contains(t, w.run("backup", "copy.db"), "backed up sqlite:jq.db to copy.db")
	w.run("enqueue", "b", "--server", url)
	said := w.failing("restore", "copy.db")
	assert.Regexp(t, `process \d+ \(\S+\) has the store \S+/jq.db open: stop every process that uses it, then restore`, said)
	assert.Equal(t, map[jq.State]int64{jq.Ready: 4}, w.stats("--server", url), "the server keeps running")
	w.end(server)
	assert.Contains(t, w.run("restore", "copy.db"), "restored sqlite:jq.db from copy.db: 3 jobs, epoch 1; workers can start\n")
	assert.Equal(t, map[jq.State]int64{jq.Ready: 3}, w.stats())
}

// Commands that only read do not wait for a process that holds the write lock. enqueue fails and names that process.
func TestReadingCommandsDoNotWaitForLocks(t *testing.T) {
	t.Parallel()
	w := newSandbox(t)
	w.run("enqueue", "a")
	s, err := sqlite.Open(t.Context(), filepath.Join(w.folder, "jq.db"), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	lock := flock.New(filepath.Join(w.folder, "jq.db.lock"))
	held, err := lock.TryLock()
	require.NoError(t, err)
	require.True(t, held)
	defer func() { require.NoError(t, lock.Close()) }()
	tx, err := s.DB().BeginTx(t.Context(), nil) // takes the write lock
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	for _, command := range []string{
		"stats", "workers", "queues ls", "jobs ls", "jobs show 1", "jobs export", "migrate status", "migrate status --json", "backup copy.db",
	} {
		w.run(strings.Fields(command)...)
	}
	assert.Contains(t, w.failing("doctor"), "doctor: 1 finding", "the job has no worker")
	begin := time.Now()
	assert.Contains(t, w.failing("enqueue", "b"), fmt.Sprintf("process %d (", os.Getpid()))
	assert.Less(t, time.Since(begin), 30*time.Second, "enqueue retries while the store is unavailable, but not for long")
}

// The busy timeout of a heartbeat is much shorter than its lease.
func TestBusyTimeoutFitsTheLease(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"":                    5 * time.Second,
		"--lease 3s":          500 * time.Millisecond,
		"--lease 1us":         time.Millisecond,
		"--busy-timeout 2s":   2 * time.Second,
		"--busy-timeout 700h": 700 * time.Hour,
	} {
		a := &app{std: quiet(nil, nil), flagged: map[string]bool{}, sources: map[string]string{}}
		cmd := a.work()
		require.NoError(t, cmd.ParseFlags(strings.Fields(text)))
		lease, err := cmd.Flags().GetDuration("lease")
		require.NoError(t, err)
		a.fitBusyTimeout(cmd, lease)
		assert.Equal(t, want, a.busy, text)
	}
}

// A plain copy of the file of an idle server contains all jobs.
func TestCopyOfIdleServersFileIsComplete(t *testing.T) {
	w := newSandbox(t)
	server := w.start("serving on ", "serve", "--addr", "127.0.0.1:0")
	url, _, _ := strings.Cut(server.ready, ";")
	for range 3 {
		w.run("enqueue", "a", "--server", url)
	}
	require.Eventually(t, func() bool {
		log, err := os.Stat(filepath.Join(w.folder, "jq.db-wal"))
		return err == nil && log.Size() == 0
	}, time.Minute, 10*time.Millisecond, "an idle server truncates its log")
	file, err := os.ReadFile(filepath.Join(w.folder, "jq.db"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(w.folder, "copy.db"), file, 0o600))
	assert.Equal(t, map[jq.State]int64{jq.Ready: 3}, w.stats("--store", "sqlite:copy.db"))
	w.end(server)
}

// An import sends the same request however late it runs. A key whose window has ended is not imported.
func TestImportKeepsRemainingRetriesAndWindow(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	job := jq.Job{
		State: jq.Failed, RunAt: at, RetryAt: at.Add(time.Hour), Retries: 3, MaxRetries: 5, UniqueKey: "u", EnqueuedAt: at.Add(-time.Minute),
	}
	n := unfinishedJob(job, at)
	assert.Equal(t, at.Add(time.Hour), n.RunAt)
	assert.Equal(t, 2, n.MaxRetries, "remaining retries")
	assert.Equal(t, "u", n.UniqueKey)
	assert.Zero(t, n.UniqueFor)

	job.UniqueFor = 3 * time.Minute
	n = unfinishedJob(job, at)
	assert.Equal(t, "u", n.UniqueKey)
	assert.Equal(t, 2*time.Minute, n.UniqueFor, "rest of the window at the export")
	assert.Equal(t, 3*time.Minute, unfinishedJob(job, time.Time{}).UniqueFor, "a line without exported_at")

	job.UniqueFor = time.Minute
	n = unfinishedJob(job, at)
	assert.Empty(t, n.UniqueKey, "two live jobs may share a key whose window has ended")
	assert.Zero(t, n.UniqueFor)
}

// The last call of an import had the request key of the call before it if it had only one line, and was refused.
func TestImportOfOneJobMoreThanABatch(t *testing.T) {
	w := newSandbox(t)
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(w.folder, name), []byte(text), 0o600))
	}
	write("lines", strings.Repeat(`{"kind":"k"}`+"\n", 1001))
	w.run("enqueue", "--lines", "lines")
	write("jobs", w.run("jobs", "export"))
	for range 2 {
		assert.Contains(t, w.run("jobs", "import", "jobs", "--store", "sqlite:other.db"), "added 1001 jobs\n")
	}
	assert.Equal(t, map[jq.State]int64{jq.Ready: 1001}, w.stats("--store", "sqlite:other.db"))
}

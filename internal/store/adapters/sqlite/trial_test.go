package sqlite

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/store"
)

// leftOut ends a test of what this machine can not do, and says so where the figures stand.
func leftOut(t *testing.T, what string, reason error) {
	t.Helper()
	figures.Print(t, "%s left out: %s: %v", t.Name(), what, reason)
	t.SkipNow()
}

// tool runs a program of the system.
func tool(name string, args ...string) error {
	if said, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		line, _, _ := strings.Cut(string(said), "\n")
		return fmt.Errorf("%w: %s", err, line)
	}
	return nil
}

// smallDisk is a disk of the test's own, which only Linux's root may mount. What other users can do stands in
// TestFullDiskIsUnavailableAndPasses and TestFileThatMayNotGrow.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	folder := t.TempDir()
	if err := tool("mount", "-t", "tmpfs", "-o", options, "jq-test", folder); err != nil {
		leftOut(t, "no small disk can be mounted", err)
	}
	t.Cleanup(func() { require.NoError(t, tool("umount", folder)) })
	return folder
}

// ballast takes up the room of the disk but for so many bytes.
func ballast(t *testing.T, disk string, leave int64) (free func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(disk, "ballast"))
	require.NoError(t, err)
	size := int64(0)
	for chunk := make([]byte, 64<<10); err == nil; {
		var n int
		n, err = f.Write(chunk)
		size += int64(n)
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Greater(t, size, leave, "the disk has less room than is to be left")
	require.NoError(t, f.Truncate(size-leave))
	require.NoError(t, f.Close())
	return func() { require.NoError(t, os.Remove(f.Name())) }
}

// A trial is a store on a disk that fills up, with what it answered for.
type trial struct {
	*Store

	mu    sync.Mutex // guards what follows
	known ledger
	doubt int // jobs of calls in doubt
}

// add enqueues jobs with payloads of so many bytes.
func (r *trial) add(t *testing.T, jobs, size int) error {
	t.Helper()
	req := newJobs(jobs)
	for i := range req.Jobs {
		req.Jobs[i].Payload = []byte(`"` + strings.Repeat("x", size) + `"`)
	}
	added, err := r.Enqueue(t.Context(), req)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		refusedFull(t, err)
		if errors.Is(err, store.ErrInDoubt) {
			r.doubt += jobs
		}
	}
	for _, e := range added {
		r.known[e.ID] = store.Job{ID: e.ID, State: store.Ready}
	}
	return err
}

// refusedFull finds one line that says what is wrong.
func refusedFull(t *testing.T, err error) {
	t.Helper()
	assert.True(t, errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrInDoubt), "%v", err)
	assert.ErrorContains(t, err, "the disk is full")
	assert.NotContains(t, err.Error(), "\n")
}

// fill enqueues until nothing fits, neither much nor little, from several sides at once.
func (r *trial) fill(t *testing.T) {
	t.Helper()
	for _, size := range []int{50_000, 1000, 1} {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for calls := 0; r.add(t, 10, size) == nil; calls++ {
					if calls == 1000 {
						t.Error("the disk is never full")
						return
					}
				}
			})
		}
		all.Wait()
	}
}

// claim claims and acks a job.
func (r *trial) claim(t *testing.T) error {
	t.Helper()
	jobs, err := r.FetchAndClaim(t.Context(), claimOf(1))
	if err != nil {
		return err
	}
	require.Len(t, jobs, 1)
	r.known[jobs[0].ID] = jobs[0]
	outcomes, err := r.Ack(t.Context(), acksOf(jobs))
	if err != nil {
		return err
	}
	require.Equal(t, store.StatusOK, outcomes[0].Status)
	r.known[jobs[0].ID] = store.Job{ID: jobs[0].ID, State: store.Succeeded, Token: jobs[0].Token}
	return nil
}

// check finds what was answered for, and no more but what is in doubt.
func (r *trial) check(t *testing.T, s *Store) {
	t.Helper()
	intact(t, s)
	r.known.check(t, s)
	all := int(countIn(t, s, store.Ready) + countIn(t, s, store.InFlight) + countIn(t, s, store.Succeeded))
	assert.GreaterOrEqual(t, all, len(r.known), "jobs")
	assert.LessOrEqual(t, all, len(r.known)+r.doubt, "jobs, with those in doubt")
}

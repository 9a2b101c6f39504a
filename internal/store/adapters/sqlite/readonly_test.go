package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
)

// readOnly finds that the store can not be opened, and one line that says what to do.
func readOnly(t *testing.T, path string) {
	t.Helper()
	line, err := refused(t, path, nil)
	assert.ErrorIs(t, err, store.ErrUnavailable)
	assert.Contains(t, line, path)
	assert.Regexp(t, "read-only, make all of them writable|must be there and writable", line)
}

// opensAgain finds that the store can be opened and has the jobs.
func opensAgain(t *testing.T, path string, jobs int) {
	t.Helper()
	s := openAt(t, path, nil)
	intact(t, s)
	assert.Equal(t, int64(jobs), countIn(t, s, store.Ready))
	enqueue(t, s, 1)
	require.NoError(t, s.Close())
}

// newFile is a store that was closed, with one job.
func newFile(t *testing.T, path string) {
	t.Helper()
	s := openAt(t, path, nil)
	enqueue(t, s, 1)
	require.NoError(t, s.Close())
}

func TestReadOnlyDiskIsRefusedAndPasses(t *testing.T) {
	disk := smallDisk(t, "size=8m")
	path := filepath.Join(disk, "jobs.db")
	newFile(t, path)
	require.NoError(t, tool("mount", "-o", "remount,ro", disk))
	readOnly(t, path)
	readOnly(t, filepath.Join(disk, "new.db"))
	require.NoError(t, tool("mount", "-o", "remount,rw", disk))
	require.NoError(t, os.Remove(path+".lock"))
	require.NoError(t, tool("mount", "-o", "remount,ro", disk))
	readOnly(t, path)
	require.NoError(t, tool("mount", "-o", "remount,rw", disk))
	opensAgain(t, path, 1)
}

// fix keeps everybody from writing to the file, root too and those who have it open.
func fix(t *testing.T, path string) (release func()) {
	t.Helper()
	if err := tool("chattr", "+i", path); err != nil {
		leftOut(t, "no file can be fixed", err)
	}
	fixed := true
	release = func() {
		if fixed {
			require.NoError(t, tool("chattr", "-i", path))
			fixed = false
		}
	}
	t.Cleanup(release) // or the folder can not be removed
	return release
}

func TestFixedFileIsRefusedAndPasses(t *testing.T) {
	for name, of := range map[string]func(path string) string{"File": filepath.Clean, "Folder": filepath.Dir} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			newFile(t, path)
			release := fix(t, of(path))
			readOnly(t, path)
			release()
			opensAgain(t, path, 1)
		})
	}
}

func TestFileFixedWhileOpen(t *testing.T) {
	for suffix, refuses := range map[string]bool{"": false, "-wal": true, "-shm": true, ".lock": false} {
		t.Run("jobs.db"+suffix, func(t *testing.T) {
			if race.Enabled && suffix == "-shm" {
				leftOut(t, "under the race detector", errors.New("the memory that can not be written to is met in its own code, and ends the process"))
			}
			path := newPath(t)
			s := openAt(t, path, nil)
			r := &trial{Store: s, known: ledger{}}
			require.NoError(t, r.add(t, 1, 1))
			release := fix(t, path+suffix)
			for range 3 {
				added, err := s.Enqueue(t.Context(), newJobs(10))
				if !refuses {
					require.NoError(t, err) // into the log
				} else if err != nil {
					assert.NotContains(t, err.Error(), "\n")
					assert.Regexp(t, "the disk is full or failing|read-only, make all of them writable", err.Error())
				}
				for _, e := range added {
					r.known[e.ID] = store.Job{ID: e.ID, State: store.Ready}
				}
				if err != nil {
					r.doubt += 10
				}
				r.known.check(t, s) // readers go on
			}
			assert.Equal(t, refuses, r.doubt > 0, "calls are refused")
			release()
			require.NoError(t, r.add(t, 10, 1), "the same store goes on")
			require.NoError(t, r.claim(t))
			tx := hold(t, s)
			added, err := s.InTx(tx).Enqueue(t.Context(), newJobs(1))
			require.NoError(t, err, "and so do callers' transactions")
			require.NoError(t, tx.Commit())
			r.known[added[0].ID] = store.Job{ID: added[0].ID, State: store.Ready}
			r.check(t, s)
			require.NoError(t, s.Close())
			r.check(t, openAt(t, path, nil))
		})
	}
}

// tryToOpen opens the store and enqueues a job, and says why it can not.
func tryToOpen(path string, _ io.Reader, out io.Writer) error {
	ctx := context.Background()
	s, err := Open(ctx, path, nil)
	if err != nil {
		fmt.Fprintln(out, err)
		return nil
	}
	if _, err := s.Enqueue(ctx, newJobs(1)); err != nil {
		fmt.Fprintln(out, err)
	}
	return s.Close()
}

// An ordinary user is kept from writing by the bits of the files, as root is not.
func TestWithoutLeaveToWrite(t *testing.T) {
	for name, k := range map[string]struct {
		file, folder os.FileMode
		want         string // nothing, where it works
	}{
		"Leave":          {0o666, 0o777, ""},
		"FileReadOnly":   {0o444, 0o777, "the file, one beside it or their folder is read-only, make all of them writable: "},
		"FileUnreadable": {0o000, 0o777, "the file can not be opened, it and its folder must be there and writable: "},
		"FolderReadOnly": {0o666, 0o555, "the file, one beside it or their folder is read-only, make all of them writable: "},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(public(t), "jobs")
			require.NoError(t, os.Mkdir(folder, 0o700))
			path := filepath.Join(folder, "jobs.db")
			newFile(t, path)
			require.NoError(t, os.Remove(path+".lock"))
			require.NoError(t, os.Chmod(path, k.file))
			require.NoError(t, os.Chmod(folder, k.folder))
			c := startAsOther(t, "open", path)
			line := ""
			if c.out.Scan() {
				line = c.out.Text()
			}
			assert.False(t, c.out.Scan(), "one line")
			require.NoError(t, c.Wait())
			if k.want == "" {
				require.Empty(t, line)
			} else {
				require.Contains(t, line, store.ErrUnavailable.Error()+": opening "+path+": "+k.want)
			}
			require.NoError(t, os.Chmod(folder, 0o700))
			for _, suffix := range []string{"", "-wal", "-shm"} { // SQLite gives those beside it the bits of the file
				if err := os.Chmod(path+suffix, 0o600); suffix == "" || !errors.Is(err, fs.ErrNotExist) {
					require.NoError(t, err)
				}
			}
			jobs := 1
			if k.want == "" {
				jobs = 2
			}
			opensAgain(t, path, jobs)
		})
	}
}

// public is a folder that other users can reach.
func public(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(folder), 0o755))
	require.NoError(t, os.Chmod(folder, 0o755))
	return folder
}

// startAsOther starts a child that is nobody if this process is root.
func startAsOther(t *testing.T, role, path string) *child {
	t.Helper()
	if os.Getuid() != 0 {
		return start(t, role, path)
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	content, err := os.ReadFile(exe)
	require.NoError(t, err)
	reachable := filepath.Join(public(t), "test")
	require.NoError(t, os.WriteFile(reachable, content, 0o600))
	require.NoError(t, os.Chmod(reachable, 0o755))
	const nobody = 65534
	cmd := exec.CommandContext(t.Context(), reachable, path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return startCommand(t, cmd, role)
}

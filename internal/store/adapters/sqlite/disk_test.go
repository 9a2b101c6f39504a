package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/store"
)

func TestFullDiskLosesNothing(t *testing.T) {
	for name, k := range map[string]struct {
		size, ballast int
		log           int64 // is at least so long
	}{
		"Log":        {5 << 20, 3 << 20, 1 << 20},       // it fills the disk before it is to be carried into the file
		"Checkpoint": {40 << 20, 20 << 20, 4000 * 4096}, // it is to be carried into the file, for which there is no room
	} {
		t.Run(name, func(t *testing.T) {
			disk := smallDisk(t, fmt.Sprintf("size=%d", k.size))
			path := filepath.Join(disk, "jobs.db")
			r := &trial{Store: openAt(t, path, nil), known: ledger{}}
			extra := filepath.Join(disk, "ballast")
			require.NoError(t, os.WriteFile(extra, make([]byte, k.ballast), 0o600))
			r.fill(t)
			full := len(r.known)
			log, err := os.Stat(path + "-wal")
			require.NoError(t, err)
			assert.Greater(t, log.Size(), k.log, "the log of changes")

			r.check(t, r.Store) // readers go on
			if err := r.claim(t); err != nil {
				refusedFull(t, err)
			}
			r.refusedBackup(t, filepath.Join(disk, "backup.db"))

			require.NoError(t, os.Remove(extra))
			require.NoError(t, r.add(t, 10, 1000), "the same store goes on")
			require.NoError(t, r.claim(t))
			r.check(t, r.Store)
			r.carried(t)
			require.NoError(t, r.Close())
			r.check(t, openAt(t, path, nil))
			figures.Print(t, "a full disk (%s): %d jobs acknowledged before it was full, %d after it was free again, 0 lost", name, full, len(r.known)-full)
		})
	}
}

func TestProcessThatEndedOnAFullDisk(t *testing.T) {
	disk := smallDisk(t, "size=4m")
	path := filepath.Join(disk, "jobs.db")
	free := ballast(t, disk, 1<<20)
	c := start(t, "write", path)
	known := ledger{}
	for c.out.Scan() {
		known.note(t, c.out.Text())
	}
	require.Error(t, c.Wait(), "no call fits any more")
	require.NotEmpty(t, known)
	if s, err := Open(t.Context(), path, nil); err != nil {
		refusedFull(t, err)
	} else {
		known.check(t, s)
		require.NoError(t, s.Close())
	}
	free()
	s := openAt(t, path, nil)
	intact(t, s)
	known.check(t, s)
	enqueue(t, s, 1)
}

// refusedBackup tries a backup for which there is no room.
func (r *trial) refusedBackup(t *testing.T, path string) {
	t.Helper()
	err := r.Backup(t.Context(), path)
	require.ErrorIs(t, err, store.ErrUnavailable)
	refusedFull(t, err)
	left, err := filepath.Glob(path + "*")
	require.NoError(t, err)
	assert.Empty(t, left, "what is no whole backup is taken away")
}

// carried finds that the whole log can be carried into the file.
func (r *trial) carried(t *testing.T) {
	t.Helper()
	var busy, pages, done int
	require.NoError(t, r.callers.QueryRow(`PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &pages, &done))
	assert.Zero(t, busy, "the log is in use")
	assert.Equal(t, pages, done, "pages carried into the file")
}

// Jobs that are there can be worked off: the log is carried into the file when it can not grow, and begins anew.
func TestWorkGoesOnOnAFullDisk(t *testing.T) {
	disk := smallDisk(t, "size=2m")
	r := &trial{Store: openAt(t, filepath.Join(disk, "jobs.db"), nil), known: ledger{}}
	const jobs = 20
	require.NoError(t, r.add(t, jobs, 1))
	require.NoError(t, r.claim(t)) // with all the pages that a claim and an Ack need
	r.carried(t)
	defer ballast(t, disk, 100<<10)()
	held, err := r.FetchAndClaim(t.Context(), claimOf(1))
	require.NoError(t, err)
	const beats = 300 // of two pages or more, which would make up a log longer than the disk
	for range beats {
		outcomes, err := r.Extend(t.Context(), []store.Lease{held[0].Lease()}, time.Minute)
		require.NoError(t, err)
		require.Equal(t, store.StatusOK, outcomes[0].Status)
	}
	for range jobs - 2 {
		require.NoError(t, r.claim(t))
	}
	log, err := os.Stat(r.place.real + "-wal")
	require.NoError(t, err)
	assert.LessOrEqual(t, log.Size(), int64(100<<10), "the log outgrew its room")
	r.check(t, r.Store)
}

// The index of the log grows by 32 KiB when the log has 4,062 pages. By then the commit is in the log, and whoever opens the
// file after a crash would find it: the call is in doubt.
func TestNoRoomForTheIndexOfTheLog(t *testing.T) {
	const page, frame, ends = 4096, 4096 + 24, 4062
	disk := smallDisk(t, "size=64m")
	path := filepath.Join(disk, "jobs.db")
	r := &trial{Store: openAt(t, path, nil), known: ledger{}}
	tx, err := r.readers.db.Beginx() // who reads an old state keeps the log from beginning anew
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	var n int
	require.NoError(t, tx.Get(&n, `SELECT count(*) FROM jobs`))
	logged := func() int64 {
		info, err := os.Stat(path + "-wal")
		require.NoError(t, err)
		return info.Size() / frame
	}
	for logged() < ends-40 {
		require.NoError(t, r.add(t, 1, 50_000))
	}
	free := ballast(t, disk, (ends-logged()+6)*frame/page*page)
	for err = nil; err == nil; {
		err = r.add(t, 1, 1)
	}
	require.ErrorIs(t, err, store.ErrInDoubt)
	r.check(t, r.Store)
	free()
	require.NoError(t, tx.Rollback())
	require.NoError(t, r.add(t, 10, 1000))
	require.NoError(t, r.claim(t))
	r.check(t, r.Store)
	require.NoError(t, r.Close())
	r.check(t, openAt(t, path, nil))
}

func TestDiskWithoutRoomForTheLock(t *testing.T) {
	disk := smallDisk(t, "size=8m,nr_inodes=12")
	path := filepath.Join(disk, "jobs.db")
	s := openAt(t, path, nil)
	enqueue(t, s, 1)
	until(t, "the lock is let go", func() bool { return !s.turn.taken() })
	require.NoError(t, os.Remove(path+".lock"))
	var err error
	for i := 0; err == nil; i++ {
		err = os.WriteFile(filepath.Join(disk, fmt.Sprint("file", i)), nil, 0o600)
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	enqueue(t, s, 1) // under SQLite's own lock
	line, err := refused(t, path, nil)
	assert.ErrorIs(t, err, store.ErrUnavailable)
	assert.Contains(t, line, path+".lock: no space left on device")
	assert.Equal(t, int64(2), countIn(t, s, store.Ready))
}

func TestOpenOnAFullDiskFailsAndPasses(t *testing.T) {
	for leave := int64(0); leave <= 96<<10; leave += 8 << 10 {
		disk := smallDisk(t, "size=1m")
		path := filepath.Join(disk, "jobs.db")
		free := ballast(t, disk, leave)
		line, err := refused(t, path, nil)
		assert.ErrorIs(t, err, store.ErrUnavailable, "%d bytes left", leave)
		assert.Contains(t, line, path)
		assert.Contains(t, line, "the disk is full", "%d bytes left", leave)
		free()
		s := openAt(t, path, nil)
		enqueue(t, s, 1)
		intact(t, s)
	}
}

// limited writes to files that may not grow beyond a size, and then to ones that may. It says what each call was answered.
func limited(path string, _ io.Reader, out io.Writer) error {
	signal.Ignore(syscall.SIGXFSZ) // the write fails instead
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	most := limit.Cur
	limit.Cur = 800_000 // more than the migrations write
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	ctx := context.Background()
	s, err := Open(ctx, path, nil)
	if err != nil {
		return err
	}
	for failed := 0; ; {
		added, err := s.Enqueue(ctx, newJobs(10))
		for _, e := range added {
			fmt.Fprintln(out, store.Ready, e.ID, 0)
		}
		if err != nil {
			fmt.Fprintln(out, err)
			failed++
		}
		if failed == 3 && err != nil {
			limit.Cur = most
			if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
				return err
			}
			continue
		}
		if failed >= 3 {
			return errors.Join(err, s.Close())
		}
	}
}

func TestFileThatMayNotGrow(t *testing.T) {
	path := newPath(t)
	c := start(t, "limited", path)
	r := &trial{known: ledger{}}
	var errs []string
	for c.out.Scan() {
		if strings.HasPrefix(c.out.Text(), "jq:") {
			errs = append(errs, c.out.Text())
		} else {
			r.known.note(t, c.out.Text())
		}
	}
	require.NoError(t, c.Wait())
	require.Len(t, errs, 3)
	for _, line := range errs {
		assert.True(t, strings.HasPrefix(line, store.ErrInDoubt.Error()+": the disk is full or failing: "), line)
		r.doubt += 10
	}
	r.Store = openAt(t, path, nil)
	r.check(t, r.Store)
	assert.Zero(t, countIn(t, r.Store, store.Ready)%10, "jobs of a call in part")
}

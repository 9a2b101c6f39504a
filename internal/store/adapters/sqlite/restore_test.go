package sqlite

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/store"
)

const (
	jobsBackedUp = 5
	jobsSince    = 3
)

// backedUp is a closed store with a backup of an earlier state, at its path + ".backup".
func backedUp(t *testing.T) string {
	t.Helper()
	path := newPath(t)
	s := openAt(t, path, nil)
	enqueue(t, s, jobsBackedUp)
	require.NoError(t, s.Backup(t.Context(), path+".backup"))
	enqueue(t, s, jobsSince)
	require.NoError(t, s.Close())
	return path
}

// isRestored finds the backup's jobs, and that the store was fenced.
func isRestored(t *testing.T, path string) {
	t.Helper()
	s := openAt(t, path, nil)
	intact(t, s)
	assert.Equal(t, int64(jobsBackedUp), countIn(t, s, store.Ready))
	assert.Greater(t, enqueue(t, s, 1)[0].ID, int64(store.FenceStep), "ids go on above the floor")
	jobs, err := s.FetchAndClaim(t.Context(), claimOf(1))
	require.NoError(t, err)
	assert.Greater(t, jobs[0].Token, int64(store.FenceStep), "and tokens")
	require.NoError(t, s.Close())
}

// isAsItWas finds the jobs of before the restore.
func isAsItWas(t *testing.T, path string) {
	t.Helper()
	s := openAt(t, path, nil)
	intact(t, s)
	assert.Equal(t, int64(jobsBackedUp+jobsSince), countIn(t, s, store.Ready))
	require.NoError(t, s.Close())
}

// nothingElse finds no file but these beside the store.
func nothingElse(t *testing.T, path string, files ...string) {
	t.Helper()
	found, err := filepath.Glob(path + "*")
	require.NoError(t, err)
	assert.ElementsMatch(t, append(files, path, path+".lock", path+".backup"), found)
}

// A backup whose jobs take longer to count than a reading may take is restored too.
func TestRestoreCountsWithoutATimeLimit(t *testing.T) {
	s := openAt(t, newPath(t), &Options{ReadTimeout: 50 * time.Millisecond})
	enqueue(t, s, 3)
	defer takeReaders(s)()
	n, err := s.total(t.Context())
	require.NoError(t, err)
	assert.Equal(t, int64(3), n)
}

func TestRestore(t *testing.T) {
	path := backedUp(t)
	require.NoError(t, os.Chmod(path, 0o640))
	done, err := Restore(t.Context(), path, path+".backup")
	require.NoError(t, err)
	assert.Equal(t, int64(jobsBackedUp), done.Jobs)
	assert.Regexp(t, `jobs\.db\.before-restore-\d{8}T\d{6}Z$`, done.Kept)
	nothingElse(t, path, done.Kept)
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode(), "whoever could use the store can use the restored one")
	isRestored(t, path)
	isAsItWas(t, done.Kept)

	again, err := Restore(t.Context(), path, path+".backup")
	require.NoError(t, err)
	assert.Greater(t, again.Epoch, done.Epoch, "pairs that were given between two restores of one backup are not given again")
}

// A store of which nothing is left, or only its log, is restored too.
func TestRestoreOfALostFile(t *testing.T) {
	path := backedUp(t)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Remove(path+".lock"))
	done, err := Restore(t.Context(), path, path+".backup")
	require.NoError(t, err)
	assert.Empty(t, done.Kept)
	nothingElse(t, path)
	isRestored(t, path)

	known := killed(t, path)
	lost := filepath.Join(t.TempDir(), "lost.db")
	require.NoError(t, os.Rename(path, lost))
	done, err = Restore(t.Context(), path, path+".backup")
	require.NoError(t, err)
	isRestored(t, path)
	require.NoError(t, os.Rename(done.Kept+"-wal", lost+"-wal")) // and should the file be found, its log is there
	known.check(t, openAt(t, lost, nil))
}

// What a process that died has left in the log is kept with the old file.
func TestRestoreKeepsTheLogOfTheOldFile(t *testing.T) {
	path := backedUp(t)
	known := killed(t, path)
	done, err := Restore(t.Context(), path, path+".backup")
	require.NoError(t, err)
	isRestored(t, path)
	known.check(t, openAt(t, done.Kept, nil))
}

// A file beside the log of another is put aside, and so is the log, under a name by which SQLite does not mix them up.
func TestRestoreOverAFileBesideAnotherLog(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string) error{
		"Empty":    func(_ *testing.T, path string) error { return os.Truncate(path, 0) },
		"Replaced": func(_ *testing.T, path string) error { return os.Rename(path+".copy", path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := backedUp(t)
			copyFile(t, path+".backup", path+".copy")
			killed(t, path)
			log := content(t, path+"-wal")
			require.NoError(t, spoil(t, path))
			require.NoError(t, os.RemoveAll(path+".copy"))
			spoilt := content(t, path)
			done, err := Restore(t.Context(), path, path+".backup")
			require.NoError(t, err)
			isRestored(t, path)
			assert.Equal(t, sha256.Sum256([]byte(spoilt)), sha256.Sum256([]byte(content(t, done.Kept))), "the file is kept as it was")
			assert.Equal(t, sha256.Sum256([]byte(log)), sha256.Sum256([]byte(content(t, done.Kept+".other-wal"))), "the log is kept as it was")
		})
	}
}

func TestRestoreOverADamagedFile(t *testing.T) {
	path := backedUp(t)
	require.NoError(t, os.WriteFile(path, []byte("no database at all"), 0o600))
	done, err := Restore(t.Context(), path, path+".backup")
	require.NoError(t, err)
	isRestored(t, path)
	assert.Equal(t, "no database at all", content(t, done.Kept))
}

func TestRestoreRefusesWhatIsInUse(t *testing.T) {
	path := backedUp(t)
	c := start(t, "seed", path)
	require.True(t, c.out.Scan())
	inode, err := os.Stat(path)
	require.NoError(t, err)
	_, err = Restore(t.Context(), path, path+".backup")
	require.ErrorIs(t, err, store.ErrUnavailable)
	assert.ErrorContains(t, err, fmt.Sprintf("process %d (%s) has the store %s open: stop every process that uses it, then restore",
		c.Process.Pid, programOf(c.Process.Pid), path))
	now, err := os.Stat(path)
	require.NoError(t, err)
	assert.True(t, os.SameFile(inode, now))
	c.stop(t) // also one that stands still
	_, err = Restore(t.Context(), path, path+".backup")
	require.ErrorContains(t, err, fmt.Sprintf("process %d ", c.Process.Pid))
	c.kill(t)

	s := openAt(t, path, nil)
	_, err = Restore(t.Context(), path, path+".backup")
	require.ErrorContains(t, err, "this process, or one that the system does not name, has the store")
	enqueue(t, s, 1)
	assert.Equal(t, int64(jobsBackedUp+jobsSince+20+1), countIn(t, s, store.Ready), "the store goes on")
	require.NoError(t, s.Close())
	_, err = Restore(t.Context(), path, path+".backup")
	require.NoError(t, err)
	isRestored(t, path)
}

func TestRestoreRefusesWhatIsNoBackup(t *testing.T) {
	path := backedUp(t)
	folder := t.TempDir()
	file := func(name, content string) string {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
		return filepath.Join(folder, name)
	}
	inUse := newPath(t)
	s := openAt(t, inUse, nil)
	enqueue(t, s, 1)
	other := newPath(t)
	c := start(t, "sql", other)
	c.say(t, `CREATE TABLE orders (id INTEGER)`)
	c.kill(t)
	half := content(t, path+".backup")
	for backup, want := range map[string]string{
		filepath.Join(folder, "missing"): "does not exist",
		folder:                           "is empty or not a file",
		file("empty", ""):                "is empty or not a file",
		file("text", "no database"):      "can not be read",
		file("half", half[:len(half)/2]): "malformed",
		path:                             "is the store itself",
		inUse:                            "is a store in use",
		other:                            "does not contain a store of jobs",
	} {
		_, err := Restore(t.Context(), path, backup)
		require.ErrorContains(t, err, want, backup)
		assert.NotContains(t, err.Error(), "\n")
	}
	nothingElse(t, path)
	isAsItWas(t, path)
}

// noParts makes sure that nothing is left of a copy that a restore had begun with.
func noParts(t *testing.T, path string) {
	t.Helper()
	left, err := filepath.Glob(path + restoringPart + "*")
	require.NoError(t, err)
	assert.Empty(t, left)
}

// A large copy that a killed restore had left stayed until somebody restored again.
func TestOpenRemovesWhatAKilledRestoreHasLeft(t *testing.T) {
	path := backedUp(t)
	for _, noMigrate := range []bool{false, true} {
		c := start(t, "restore", path)
		_, err := fmt.Fprintln(c.in, "steps")
		require.NoError(t, err)
		for c.out.Scan() && c.out.Text() != "complete" {
			_, err := fmt.Fprintln(c.in)
			require.NoError(t, err)
		}
		require.NoError(t, openAt(t, path, &Options{NoMigrate: true}).Close())
		assert.FileExists(t, path+restoringPart, "while the restore is under way")
		for _, suffix := range []string{"-wal", "-shm", ".lock"} { // as where it is killed a moment earlier
			require.NoError(t, os.WriteFile(path+restoringPart+suffix, nil, 0o600))
		}
		c.kill(t)
		require.NoError(t, openAt(t, path, &Options{NoMigrate: noMigrate}).Close())
		noParts(t, path)
	}
}

// restoreInSteps restores, and waits for a line before each step, if it is told to.
func restoreInSteps(path string, in io.Reader, out io.Writer) error {
	at, err := checkPath(path)
	if err != nil {
		return err
	}
	lines := bufio.NewReader(in)
	stepwise, err := lines.ReadString('\n')
	if err != nil {
		return err
	}
	r := restorer{path: at.path, real: at.real, backup: path + ".backup", turn: newTurn(at.real, "test"), step: func(next string) {
		if fmt.Fprintln(out, next); stepwise == "steps\n" {
			_, _ = lines.ReadString('\n')
		}
	}}
	_, err = r.run(context.Background())
	return err
}

// D10: a restore that is killed before any of its steps leaves the store as it was or restored, and can be repeated.
func TestKilledRestoreIsWholeOrNothing(t *testing.T) {
	for _, lost := range []bool{false, true} { // the file, of which the log is left
		var steps []string
		for n := 0; n <= len(steps); n++ {
			path := backedUp(t)
			if lost {
				killed(t, path)
				require.NoError(t, os.Remove(path))
			}
			c := start(t, "restore", path)
			_, err := fmt.Fprintln(c.in, "steps")
			require.NoError(t, err)
			said := []string{}
			for len(said) <= n && c.out.Scan() {
				if said = append(said, c.out.Text()); len(said) <= n {
					_, err := fmt.Fprintln(c.in)
					require.NoError(t, err)
				}
			}
			if len(said) <= n { // it has come to its end
				require.NoError(t, c.Wait())
				isRestored(t, path)
				break
			}
			steps = said
			c.kill(t)
			step := steps[n]
			s, err := Open(t.Context(), path, nil)
			switch {
			case err == nil:
				intact(t, s)
				jobs := countIn(t, s, store.Ready)
				require.NoError(t, s.Close())
				noParts(t, path)
				if step == "note" || step == "name" {
					assert.Equal(t, int64(jobsBackedUp), jobs, "killed before %q", step)
				} else {
					assert.Equal(t, int64(jobsBackedUp+jobsSince), jobs, "killed before %q", step)
				}
			case lost:
				assert.Regexp(t, "there is no such file, but|a restore was broken off", err.Error(), "killed before %q", step)
				assert.NotContains(t, []string{"name", "note"}, step)
			default:
				require.NoError(t, err, "killed before %q", step)
			}
			_, err = Restore(t.Context(), path, path+".backup")
			require.NoError(t, err, "again after it was killed before %q", step)
			isRestored(t, path)
		}
		if lost {
			assert.Equal(t, []string{"copy", "fence", "complete", "alone", "put aside -wal", "put aside -shm", "name", "note"}, steps)
		} else {
			assert.Equal(t, []string{"copy", "fence", "complete", "alone", "put aside", "name", "note"}, steps)
		}
	}
}

// D10: the same at any moment between the steps.
func TestRestoreKilledAtAnyMoment(t *testing.T) {
	const kills = 20
	path := backedUp(t)
	restored := 0
	for range kills {
		c := start(t, "restore", path)
		_, err := fmt.Fprintln(c.in, "at once")
		require.NoError(t, err)
		for range 1 + rand.IntN(8) { // steps; the last ones follow each other at once
			if !c.out.Scan() {
				break
			}
		}
		_ = c.Process.Signal(syscall.SIGKILL) // it may have ended
		for c.out.Scan() {
		}
		_ = c.Wait()
		s := openAt(t, path, nil)
		intact(t, s)
		switch jobs := countIn(t, s, store.Ready); jobs {
		case jobsBackedUp:
			restored++
			enqueue(t, s, jobsSince)
		default:
			assert.Equal(t, int64(jobsBackedUp+jobsSince), jobs)
		}
		require.NoError(t, s.Close())
	}
	done, err := Restore(t.Context(), path, path+".backup")
	require.NoError(t, err)
	isRestored(t, path)
	isAsItWas(t, done.Kept)
	figures.Print(t, "%d restores killed at any moment: %d had taken place, none was half done", kills, restored)
	figures.Count(t, "kills", kills)
}

// D10: a backup that was killed leaves no file under the backup's name, and can be repeated.
func TestKilledBackupLeavesNoBackup(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, nil)
	for range 10 {
		enqueue(t, s, 1000)
	}
	require.NoError(t, s.Close())
	backup := path + ".backup"
	whole, err := os.Stat(path)
	require.NoError(t, err)
	broken := 0
	for range 10 {
		c := start(t, "backup", path)
		require.True(t, c.out.Scan(), "the backup begins")
		size := rand.Int64N(whole.Size())
		until(t, "so much is copied", func() bool {
			part, err := os.Stat(backup + ".part")
			done, err2 := os.Stat(backup)
			return err == nil && part.Size() >= size || err2 == nil && done.Size() > 0
		})
		_ = c.Process.Signal(syscall.SIGKILL) // it may have ended
		_ = c.Wait()
		if _, err := os.Stat(backup); err == nil { // it was done
			copied := openAt(t, backup, nil)
			intact(t, copied)
			assert.Equal(t, int64(10_000), countIn(t, copied, store.Ready))
			require.NoError(t, copied.Close())
			require.NoError(t, os.Remove(backup))
			require.NoError(t, os.Remove(backup+".lock"))
		} else {
			broken++
		}
	}
	s = openAt(t, path, nil)
	require.NoError(t, s.Backup(t.Context(), backup))
	assert.NoFileExists(t, backup+".part")
	copied := openAt(t, backup, nil)
	intact(t, copied)
	assert.Equal(t, int64(10_000), countIn(t, copied, store.Ready))
	figures.Print(t, "10 backups killed at any moment: %d had not taken place, none was half done", broken)
	figures.Count(t, "kills", 10)
}

// backUp backs up the store to its path + ".backup".
func backUp(path string, _ io.Reader, out io.Writer) error {
	ctx := context.Background()
	s, err := Open(ctx, path, nil)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "begins")
	if err := s.Backup(ctx, path+".backup"); err != nil {
		return err
	}
	return s.Close()
}

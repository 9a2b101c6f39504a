package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// killed is a process that has written to the store and died, so that its log is left.
func killed(t *testing.T, path string) ledger {
	t.Helper()
	known := ledger{}
	c := start(t, "write", path)
	for len(known) < 50 {
		c.readSome(t, known, 50)
	}
	require.NoError(t, c.Process.Signal(syscall.SIGKILL))
	for c.out.Scan() {
		known.note(t, c.out.Text())
	}
	require.Error(t, c.Wait())
	actual, err := realPath(path)
	require.NoError(t, err)
	require.FileExists(t, actual+"-wal", "the process left its log")
	return known
}

// content is what the file holds. No store of this process has it open: to close a file that SQLite has open gives up its locks.
func content(t *testing.T, path string) string {
	t.Helper()
	bytes, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(bytes)
}

// D4: a store that was opened under the name of a file that had been moved away deleted the log of the moved one.
func TestLogOfAMovedFileIsKept(t *testing.T) {
	path := newPath(t)
	known := killed(t, path)
	moved := filepath.Join(filepath.Dir(path), "kept.db")
	log := content(t, path+"-wal")
	require.NoError(t, os.Rename(path, moved))
	for range 2 {
		line, err := refused(t, path, nil)
		assert.ErrorIs(t, err, store.ErrUnavailable)
		assert.Contains(t, line, "there is no such file, but "+path+"-wal holds changes of it.")
		assert.Contains(t, line, "If you moved the file, move this along with it (mv "+path+"-wal NEW_NAME-wal)")
		assert.Contains(t, line, "If you deleted the file on purpose, delete what it left too (rm "+path+"-wal "+path+"-shm)")
		_, err = SchemaVersion(t.Context(), path)
		assert.ErrorContains(t, err, "there is no such file, but ")
		assert.NoFileExists(t, path)
		assert.Equal(t, log, content(t, path+"-wal"), "the log is as it was")
	}
	require.NoError(t, os.Rename(path+"-wal", moved+"-wal"))
	require.NoError(t, os.Remove(path+"-shm"))
	known.check(t, openAt(t, moved, nil))
	openAt(t, path, nil) // what is left at the old name keeps nobody from making a new store
}

// D4, while the store of the moved file is open.
func TestLogOfAMovedFileInUseIsKept(t *testing.T) {
	path := newPath(t)
	c := start(t, "write", path)
	known := ledger{}
	c.readSome(t, known, 100)
	moved := filepath.Join(filepath.Dir(path), "kept.db")
	require.NoError(t, os.Rename(path, moved))
	line, _ := refused(t, path, nil)
	assert.Contains(t, line, "there is no such file, but ")
	for c.out.Scan() { // it notices that its file is gone, and ends
		known.note(t, c.out.Text())
	}
	require.Error(t, c.Wait())
	if _, err := os.Stat(path + "-wal"); err == nil {
		require.NoError(t, os.Rename(path+"-wal", moved+"-wal"))
	}
	s := openAt(t, moved, nil)
	intact(t, s)
	known.check(t, s)
}

// D4: each of the files that SQLite leaves keeps a new store from being made, of whatever size.
func TestEveryFileThatIsLeftIsHeeded(t *testing.T) {
	for _, suffix := range besides {
		path := newPath(t)
		require.NoError(t, os.WriteFile(path+suffix, nil, 0o600))
		line, _ := refused(t, path, nil)
		assert.Contains(t, line, "(rm "+path+suffix+")")
		assert.NoFileExists(t, path)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		line, _ = refused(t, path, nil)
		assert.Contains(t, line, "was replaced", "an empty file has no log")
		require.NoError(t, os.Remove(path+suffix))
		openAt(t, path, nil)
	}
}

// The index of a log that is gone has nothing in it that could be lost, and the message says so.
func TestIndexWithoutALogHoldsNothing(t *testing.T) {
	path := newPath(t)
	require.NoError(t, os.WriteFile(path+"-shm", nil, 0o600))
	line, _ := refused(t, path, nil)
	assert.Contains(t, line, "there is no such file, only "+path+"-shm, which SQLite kept beside it and which holds no changes.")
	assert.Contains(t, line, "to make a new store here, delete this first (rm "+path+"-shm)")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	line, _ = refused(t, path, nil)
	assert.Contains(t, line, "the file was replaced, and "+path+"-shm, which SQLite kept beside the previous file, holds no changes: delete it (rm ")
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path+"-journal", nil, 0o600))
	line, _ = refused(t, path, nil)
	assert.Contains(t, line, "there is no such file, but "+path+"-journal holds changes of it.", "beside the index")
}

// D4: a file that was put beside the log of another one was spoilt by it.
func TestReplacedFileBesideAnOldLogIsRefused(t *testing.T) {
	path, other := newPath(t), newPath(t)
	s := openAt(t, other, nil)
	enqueue(t, s, 3)
	require.NoError(t, s.Close())
	known := killed(t, path)
	log, file := content(t, path+"-wal"), content(t, other)

	away := filepath.Join(t.TempDir(), "away.db")
	require.NoError(t, os.Rename(path, away))
	require.NoError(t, os.Rename(other, path))
	line, err := refused(t, path, nil)
	assert.ErrorIs(t, err, store.ErrUnavailable)
	assert.Contains(t, line, "the file was replaced, and "+path+"-wal holds changes of the previous file.")
	assert.Contains(t, line, "(rm "+path+"-wal "+path+"-shm)")
	assert.Contains(t, line, "(rm "+path+".lock)")
	_, err = SchemaVersion(t.Context(), path)
	assert.ErrorContains(t, err, "the file was replaced")
	assert.Equal(t, log, content(t, path+"-wal"))
	assert.Equal(t, file, content(t, path))

	require.NoError(t, os.Rename(away, path))
	known.check(t, openAt(t, path, nil))
}

// The number of a deleted file is soon given to another: it alone would not tell them apart.
func TestFileCopiedOverADeletedOneIsAnother(t *testing.T) {
	path, other := newPath(t), newPath(t)
	s := openAt(t, other, nil)
	enqueue(t, s, 3)
	require.NoError(t, s.Close())
	killed(t, path)
	for range 10 {
		require.NoError(t, os.Remove(path))
		copyFile(t, other, path)
		line, _ := refused(t, path, nil)
		require.Contains(t, line, "the file was replaced")
	}
}

// What is moved or copied as a whole opens, with or without the note of what file it was.
func TestCopiesAndMovesOfWholeStoresOpen(t *testing.T) {
	closed, crashed := newPath(t), newPath(t)
	s := openAt(t, closed, nil)
	added := enqueue(t, s, 3)
	require.NoError(t, s.Close())
	known := killed(t, crashed)
	for name, k := range map[string]struct {
		from  string
		files []string
		known ledger
	}{
		"ClosedWithItsNote": {closed, []string{"", ".lock"}, nil},
		"ClosedAlone":       {closed, []string{""}, nil},
		"CrashedWithItsLog": {crashed, []string{"", "-wal"}, known},
		"WithItsIndex":      {crashed, []string{"", "-wal", "-shm"}, known},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			for _, suffix := range k.files {
				copyFile(t, k.from+suffix, path+suffix)
			}
			s := openAt(t, path, nil)
			enqueue(t, s, 1)
			again := openAt(t, path, nil) // what the first noted is right
			if k.known == nil {
				assert.Equal(t, int64(len(added)+1), countIn(t, again, store.Ready))
			} else {
				k.known.check(t, again)
			}
		})
	}
	path := newPath(t) // copied with the note after a crash: nobody knows whether the two belong together, and the error says how to go on
	for _, suffix := range []string{"", "-wal", ".lock"} {
		copyFile(t, crashed+suffix, path+suffix)
	}
	line, _ := refused(t, path, nil)
	assert.Contains(t, line, "If you copied or moved the file and its log here together, delete the note about the previous file (rm "+path+".lock)")
	require.NoError(t, os.Remove(path+".lock"))
	known.check(t, openAt(t, path, nil))
}

// D7: a copy that was put in the store's place by hand gave ids, and pairs of id and token, that had been given before.
func TestCopyInTheStoresPlaceIsFenced(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, nil)
	enqueue(t, s, 1)
	require.NoError(t, s.Close())
	copied := path + ".copy"
	copyFile(t, path, copied)
	s = openAt(t, path, nil)
	given := enqueue(t, s, 1)[0].ID
	require.Equal(t, int64(2), given)
	require.NoError(t, s.Close())

	require.NoError(t, os.Rename(copied, path))
	looking := openAt(t, path, &Options{NoMigrate: true}) // which only notes it
	require.NoError(t, looking.Close())
	for range 2 { // it is fenced once
		s = openAt(t, path, nil)
		var epoch int
		require.NoError(t, s.DB().Get(&epoch, `SELECT epoch FROM fence`))
		assert.Equal(t, 1, epoch)
		require.NoError(t, s.Close())
	}
	s = openAt(t, path, nil)
	assert.Greater(t, enqueue(t, s, 1)[0].ID, int64(store.FenceStep))
	assert.NotContains(t, s.turn.note(), anotherMark)
}

// A store of an earlier version has an empty lock: it opens beside its log, and is known from then on.
func TestStoreWithAnEmptyLockIsAdopted(t *testing.T) {
	path := newPath(t)
	known := killed(t, path)
	require.NoError(t, os.Truncate(path+".lock", 0))
	known.check(t, openAt(t, path, nil))
	assert.NotEmpty(t, newTurn(path, "").file())
}

// A process that dies between making the file and noting which one it is leaves nothing in the way.
func TestFileMadeButNotNotedOpens(t *testing.T) {
	for name, note := range map[string]string{"NoNote": "", "NoteOfAnEarlierFile": "inode=1,born=1.000000000"} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			require.NoError(t, create(path))
			lock := newTurn(path, "test")
			ok, err := lock.try()
			require.NoError(t, err)
			require.True(t, ok)
			require.NoError(t, lock.setFile(note))
			require.NoError(t, lock.close())
			s := openAt(t, path, nil)
			enqueue(t, s, 1)
			assert.NotEqual(t, note, s.turn.file())
			openAt(t, path, nil)
		})
	}
}

// SQLite looks for the log under the name by which it opened the file.
func TestHardLinksAreRefused(t *testing.T) {
	path := newPath(t)
	known := killed(t, path)
	link := filepath.Join(filepath.Dir(path), "link.db")
	require.NoError(t, os.Link(path, link))
	for _, name := range []string{path, link} {
		line, _ := refused(t, name, nil)
		assert.Contains(t, line, "one of 2 names of one file (hard links)")
	}
	require.NoError(t, os.Remove(link))
	known.check(t, openAt(t, path, nil))
}

// Who opens the file by a symbolic link takes turns with all others, and heeds the log beside the file itself.
func TestLinkedPathHasOneLockAndOneLog(t *testing.T) {
	path := newPath(t)
	folder := filepath.Join(t.TempDir(), "folder")
	require.NoError(t, os.Symlink(filepath.Dir(path), folder))
	link := filepath.Join(folder, "link.db")
	require.NoError(t, os.Symlink("jobs.db", link))
	known := killed(t, link)
	assert.FileExists(t, path+".lock")
	assert.NoFileExists(t, filepath.Join(filepath.Dir(path), "link.db.lock"))
	moved := newPath(t)
	require.NoError(t, os.Rename(path, moved))
	line, _ := refused(t, link, nil)
	assert.Contains(t, line, "jobs.db-wal holds changes of it")
	require.NoError(t, os.Rename(moved, path))
	known.check(t, openAt(t, link, nil))

	require.NoError(t, os.Symlink("loop", filepath.Join(folder, "loop")))
	line, _ = refused(t, filepath.Join(folder, "loop"), nil)
	assert.Contains(t, line, "can not be followed")
}

func TestPathsInMessagesAreWordsOfAShell(t *testing.T) {
	assert.Equal(t, `/a/b-1.db '/a b' '/it'\''s'`, shellWords([]string{"/a/b-1.db", "/a b", "/it's"}))
}

// D13: jobs are nobody else's business.
func TestFilesAreTheOwnersAlone(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, nil)
	enqueue(t, s, 1)
	backup := path + ".backup"
	require.NoError(t, s.Backup(t.Context(), backup))
	for _, file := range []string{path, path + "-wal", path + "-shm", path + ".lock", backup} {
		info, err := os.Stat(file)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode(), file)
	}
}

// A file of another program is refused and left as it is, unless the caller says that it is shared.
func TestFileOfAnotherProgramIsRefused(t *testing.T) {
	for name, k := range map[string]struct{ made, want string }{
		"Tables": {`CREATE TABLE orders (id INTEGER)`, "another program's tables"},
		"Mark":   {`PRAGMA application_id = 7`, "belongs to another program"},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			c := start(t, "sql", path)
			c.say(t, k.made)
			c.kill(t)
			before := content(t, path)
			line, err := refused(t, path, nil)
			assert.ErrorIs(t, err, store.ErrUnavailable)
			assert.Contains(t, line, k.want)
			assert.Contains(t, line, "Options.Shared")
			assert.Equal(t, before, content(t, path))
			s := openAt(t, path, &Options{Shared: true})
			enqueue(t, s, 1)
			var mark int
			require.NoError(t, s.DB().Get(&mark, `PRAGMA application_id`))
			assert.NotEqual(t, applicationID, mark, "the mark stays the other program's")
			openAt(t, path, nil) // it is a store now
		})
	}
}

// A store of an earlier version has no mark: it is marked when it is opened. The user's version is left alone.
func TestStoreIsMarked(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, nil)
	marks := func(s *Store) (id, version int) {
		require.NoError(t, s.DB().Get(&id, `PRAGMA application_id`))
		require.NoError(t, s.DB().Get(&version, `PRAGMA user_version`))
		return id, version
	}
	id, version := marks(s)
	assert.Equal(t, applicationID, id)
	assert.Zero(t, version)
	_, err := s.DB().Exec(`PRAGMA application_id = 0; PRAGMA user_version = 17`)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	s = openAt(t, path, nil)
	id, version = marks(s)
	assert.Equal(t, applicationID, id)
	assert.Equal(t, 17, version)
	require.NoError(t, s.Close())
	header := fmt.Sprintf("%x", content(t, path)[68:72])
	assert.Equal(t, "6a6f6271", header, "where file(1) looks")
}

// cp leaves the file that it writes over the same one, and jq took the old log for the backup's own, and gave ids and tokens twice.
func TestBackupWrittenOverTheStoreIsNoticed(t *testing.T) {
	path := newPath(t)
	backup := path + ".backup"
	s := openAt(t, path, nil)
	enqueue(t, s, 3)
	require.NoError(t, s.Backup(t.Context(), backup))
	enqueue(t, s, 3)
	require.NoError(t, s.Close())
	copyFile(t, backup, path)
	s = openAt(t, path, nil)
	assert.Equal(t, store.Floor(1)+1, enqueue(t, s, 1)[0].ID)
	require.NoError(t, s.Close())
	s = openAt(t, path, nil)
	assert.Equal(t, store.Floor(1)+2, enqueue(t, s, 1)[0].ID, "it is fenced once")
	require.NoError(t, s.Close())

	killed(t, path)
	log := content(t, path+"-wal")
	copyFile(t, backup, path)
	for _, o := range []*Options{nil, {NoMigrate: true}} {
		line, _ := refused(t, path, o)
		assert.Contains(t, line, "a backup was written over the file")
		assert.Contains(t, line, "(rm "+path+"-wal "+path+"-shm)")
	}
	assert.Equal(t, log, content(t, path+"-wal"))
	assert.Equal(t, content(t, backup), content(t, path))
	done, err := Restore(t.Context(), path, backup)
	require.NoError(t, err)
	assert.EqualValues(t, 3, done.Jobs)
	assert.Equal(t, log, content(t, done.Kept+".other-wal"))
}

// A process whose store was moved away noted its own file in the lock of the store that came after it, which nobody could open then
// once one of its processes had been killed.
func TestProcessOfAMovedStoreNotesNothingInTheNextOnesLock(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, nil)
	enqueue(t, s, 3)
	away := t.TempDir()
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		require.NoError(t, os.Rename(path+suffix, filepath.Join(away, "jobs.db"+suffix)))
	}
	next := openAt(t, path, nil)
	note := next.turn.note()
	_, err := s.Enqueue(t.Context(), newJobs(1))
	require.ErrorIs(t, err, store.ErrUnavailable)
	assert.Equal(t, note, next.turn.note())
}

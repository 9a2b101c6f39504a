package sqlite

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

func TestEightStoresMigrateOneFileAtOnce(t *testing.T) {
	path := newPath(t)
	stores := make([]*Store, 8)
	var all sync.WaitGroup
	for i := range stores {
		all.Go(func() {
			s, err := Open(t.Context(), path, nil)
			assert.NoError(t, err)
			stores[i] = s
		})
	}
	all.Wait()
	for _, s := range stores {
		enqueue(t, s, 1)
		require.NoError(t, s.Close())
	}
	assert.Equal(t, int64(8), countIn(t, openAt(t, path, nil), store.Ready))
}

// refused opens the store and returns the one line that says why that can not be.
func refused(t *testing.T, path string, options *Options) (string, error) {
	t.Helper()
	s, err := Open(t.Context(), path, options)
	if err == nil {
		require.NoError(t, s.Close())
	}
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "\n")
	return err.Error(), err
}

// Who opens a new file is told of each step, and who opens it again of none.
func TestOpenTellsOfMigrations(t *testing.T) {
	path := newPath(t)
	steps, err := folder()
	require.NoError(t, err)
	for _, want := range []int{len(steps), 0} {
		var told []int
		s, err := Open(t.Context(), path, &Options{Migrating: func(step, of int) { told = append(told, step, of) }})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.Len(t, told, 2*want)
		for i := range want {
			assert.Equal(t, []int{i + 1, len(steps)}, told[2*i:2*i+2])
		}
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	folder := t.TempDir()
	garbage := filepath.Join(folder, "garbage")
	require.NoError(t, os.WriteFile(garbage, []byte(strings.Repeat("not a database ", 500)), 0o600))
	for name, k := range map[string]struct{ path, want string }{
		"NoPath":        {"", "name a file"},
		"Memory":        {":memory:", "name a file"},
		"MissingFolder": {filepath.Join(folder, "missing", "jobs.db"), "make it first"},
		"FileAsFolder":  {filepath.Join(garbage, "jobs.db"), "folder"},
		"Folder":        {folder, "name a file"},
		"Garbage":       {garbage, "is not an SQLite database"},
	} {
		t.Run(name, func(t *testing.T) {
			line, err := refused(t, k.path, nil)
			assert.Contains(t, line, k.want)
			if filepath.IsAbs(k.path) {
				assert.ErrorIs(t, err, store.ErrUnavailable, "it may pass")
				assert.Contains(t, line, folder)
			}
		})
	}
	line, _ := refused(t, filepath.Join(folder, "a"), &Options{Synchronous: "OFF"})
	assert.Contains(t, line, "synchronous")
	line, _ = refused(t, filepath.Join(folder, "a"), &Options{Readers: -1})
	assert.Contains(t, line, "readers")
	kept, err := os.ReadFile(garbage)
	require.NoError(t, err)
	assert.Len(t, kept, 15*500, "what is no store stays as it is")
}

func TestNewerSchemaIsRefused(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, nil)
	_, err := s.DB().Exec(`INSERT INTO migrations (version, name) VALUES (99, 'future')`)
	require.NoError(t, err)
	line, err := refused(t, path, nil)
	assert.ErrorIs(t, err, sqlkit.ErrNewer)
	assert.Contains(t, line, "update the program")
	assert.Contains(t, line, path)
}

func TestOddPathsAreFiles(t *testing.T) {
	for _, name := range []string{"a b", "100%", "what?.db", "#1", "ä&b=c", "a+b%20c"} {
		path := filepath.Join(t.TempDir(), name)
		s := openAt(t, path, nil)
		enqueue(t, s, 1)
		_, err := os.Stat(path)
		assert.NoError(t, err, "the file %q", name)
	}
}

// A connection that may not write answers as one to a read-only file does.
func TestReadOnlyFileIsUnavailableAndPasses(t *testing.T) {
	s := newStore(t)
	err := s.writer.do(t.Context(), load{}, func(t *txn) error {
		if _, err := t.exec(`PRAGMA query_only = 1`); err != nil {
			return err
		}
		return add(1)(t)
	})
	require.ErrorIs(t, err, store.ErrUnavailable)
	assert.ErrorContains(t, err, "read-only")
	enqueue(t, s, 1)
	assert.Equal(t, int64(1), countIn(t, s, store.Ready))
}

func TestEveryConnectionHasWhatItNeeds(t *testing.T) {
	for mode, want := range map[Synchronous]int{Full: 2, Normal: 1, "": 2} {
		s := openAt(t, newPath(t), &Options{Synchronous: mode})
		var got struct {
			Journal     string `db:"journal_mode"`
			Synchronous int    `db:"synchronous"`
			Foreign     int    `db:"foreign_keys"`
			Busy        int    `db:"timeout"`
		}
		require.NoError(t, s.callers.Get(&got, `
			SELECT journal_mode, synchronous, foreign_keys, timeout
			FROM pragma_journal_mode, pragma_synchronous, pragma_foreign_keys, pragma_busy_timeout`))
		assert.Equal(t, "wal", got.Journal)
		assert.Equal(t, want, got.Synchronous, "synchronous of %q", mode)
		assert.Equal(t, 1, got.Foreign)
		assert.Positive(t, got.Busy)
		_, err := s.readers.db.Exec(`DELETE FROM jobs`)
		assert.Error(t, err, "a reader writes")
	}
}

func TestBackupIsOneMoment(t *testing.T) {
	s := newStore(t)
	enqueue(t, s, 10)
	var writing sync.WaitGroup
	stop := make(chan struct{})
	writing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				enqueue(t, s, 10)
			}
		}
	})
	for i := range 5 {
		path := filepath.Join(t.TempDir(), "backup.db")
		require.NoError(t, s.Backup(t.Context(), path))
		assert.ErrorContains(t, s.Backup(t.Context(), path), "exists")
		copied := openAt(t, path, nil)
		intact(t, copied)
		jobs := countIn(t, copied, store.Ready)
		assert.Zero(t, jobs%10, "backup %d has a call in part: %d jobs", i, jobs)
		last := enqueue(t, copied, 1)[0].ID
		assert.Equal(t, store.Floor(1)+1, last, "ids go on in the copy, which is fenced")
	}
	close(stop)
	writing.Wait()
	assert.Error(t, s.Backup(t.Context(), filepath.Join(t.TempDir(), "missing", "backup.db")))
}

// A copy that is fenced gives no pair of id and token that was given after the copy was made.
func TestFencedBackupGivesNoPairTwice(t *testing.T) {
	s := newStore(t)
	enqueue(t, s, 4)
	path := filepath.Join(t.TempDir(), "backup.db")
	given := map[store.Lease]bool{}
	work := func(s *Store) (leases []store.Lease) {
		enqueue(t, s, 2)
		for range 3 {
			jobs, err := s.FetchAndClaim(t.Context(), claimOf(10))
			require.NoError(t, err)
			require.NotEmpty(t, jobs)
			for _, j := range jobs {
				leases = append(leases, j.Lease())
				_, err := s.NAck(t.Context(), []store.NAck{{Lease: j.Lease(), Form: store.Release}})
				require.NoError(t, err)
			}
		}
		return leases
	}
	work(s)
	require.NoError(t, s.Backup(t.Context(), path))
	for _, l := range work(s) {
		given[l] = true
	}
	copied := openAt(t, path, nil)
	_, err := copied.Fence(t.Context(), store.FenceRequest{})
	require.NoError(t, err)
	for _, l := range work(copied) {
		assert.False(t, given[l], "%+v was given twice", l)
	}
}

func TestWakeUpsComeFromOtherStoresAndTransactions(t *testing.T) {
	path := newPath(t)
	here, there := openAt(t, path, nil), openAt(t, path, nil)
	woken, err := here.Subscribe(t.Context(), []string{"q"})
	require.NoError(t, err)
	every, err := here.Subscribe(t.Context(), nil)
	require.NoError(t, err)
	expect := func(what string) {
		t.Helper()
		for _, ch := range []<-chan store.Wakeup{woken, every} {
			select {
			case w := <-ch:
				assert.Equal(t, "q", w.Queue)
			case <-time.After(time.Minute):
				require.Fail(t, "no wake-up", what)
			}
			for len(ch) > 0 {
				<-ch
			}
		}
	}
	enqueue(t, there, 1)
	expect("after another store's commit")

	tx := hold(t, here)
	_, err = here.InTx(tx).Enqueue(t.Context(), newJobs(1))
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	expect("after a caller's commit")

	enqueue(t, here, 1)
	expect("after the store's own commit")
}

func TestWakeUpsOfCancellations(t *testing.T) {
	path := newPath(t)
	here, there := openAt(t, path, nil), openAt(t, path, nil)
	enqueue(t, here, 4)
	wakeups, err := here.Subscribe(t.Context(), []string{"q"})
	require.NoError(t, err)
	cancel := func(s *Store, ids ...int64) {
		t.Helper()
		_, err := s.Cancel(t.Context(), store.Filter{IDs: ids}, len(ids))
		require.NoError(t, err)
	}
	cancelled := store.Wakeup{Queue: "q", Cancelled: true}
	await := func(want store.Wakeup) (before []store.Wakeup) {
		t.Helper()
		for late := time.After(time.Minute); ; {
			select {
			case w := <-wakeups:
				if before = append(before, w); w == want {
					return before
				}
			case <-late:
				require.Fail(t, "no wake-up came", "%+v", want)
			}
		}
	}
	ids := []int64{}
	for _, j := range claimAll(t, here, 3) {
		ids = append(ids, j.ID)
	}
	cancel(here, 4)
	enqueue(t, there, 1)
	here.writer.busy.Lock()
	here.writer.lookAround() // this look sees the job that was cancelled while it waited, and what an earlier one has not seen of the opening
	here.writer.busy.Unlock()
	for len(wakeups) > 0 {
		<-wakeups
	}
	cancel(here, ids[0])
	assert.Equal(t, cancelled, await(cancelled)[0], "after the store's own commit, before another look")
	for _, id := range ids[1:] {
		cancel(there, id)
		await(cancelled)
	}
	for range 2 {
		enqueue(t, there, 1)
		assert.NotContains(t, await(store.Wakeup{Queue: "q"}), cancelled, "nothing was cancelled since")
	}
}

func TestStoreWaitsForACallersTransaction(t *testing.T) {
	s := newStore(t)
	enqueue(t, s, 1)
	tx := hold(t, s)
	jobs, err := s.InTx(tx).Enqueue(t.Context(), newJobs(2))
	require.NoError(t, err)
	done := make(chan []store.Enqueued)
	go func() {
		added, err := s.Enqueue(t.Context(), newJobs(1))
		assert.NoError(t, err)
		done <- added
	}()
	until(t, "the call waits", func() bool { return s.writer.inLine() == 1 })
	assert.Equal(t, int64(1), countIn(t, s, store.Ready), "readers do not wait")
	require.NoError(t, tx.Commit())
	added := <-done
	require.Len(t, added, 1)
	assert.Equal(t, jobs[1].ID+1, added[0].ID, "the id after the transaction's")
}

// D23: who opens a store only to look makes and migrates nothing.
func TestNoMigrateOpensWhatIsThere(t *testing.T) {
	existing := &Options{NoMigrate: true, Migrating: func(int, int) { t.Error("it was migrated") }}
	path := newPath(t)
	line, err := refused(t, path, existing)
	assert.ErrorIs(t, err, sqlkit.ErrMissing)
	assert.NotErrorIs(t, err, store.ErrUnavailable, "it does not pass")
	assert.Contains(t, line, "make one there by jobq migrate up")
	assert.NoFileExists(t, path)
	assert.NoFileExists(t, path+".lock")

	first := openAt(t, path, nil)
	enqueue(t, first, 1)
	stranger := hold(t, first)
	_, err = first.InTx(stranger).Enqueue(t.Context(), newJobs(1))
	require.NoError(t, err)
	s := openAt(t, path, existing)
	assert.Equal(t, int64(1), countIn(t, s, store.Ready), "it waits for nobody who writes")
	require.NoError(t, stranger.Rollback())
	enqueue(t, s, 1)
	assert.Equal(t, int64(2), countIn(t, s, store.Ready))

	_, err = first.DB().Exec(`INSERT INTO migrations (version, name) VALUES (99, 'future')`)
	require.NoError(t, err)
	_, err = refused(t, path, existing)
	assert.ErrorIs(t, err, sqlkit.ErrNewer)
}

// A backup is a file of another mode than the stores that are worked on. To look at it leaves it as it is.
func TestNoMigrateOpensABackup(t *testing.T) {
	s := newStore(t)
	enqueue(t, s, 1)
	path := filepath.Join(t.TempDir(), "backup.db")
	require.NoError(t, s.Backup(t.Context(), path))
	before, err := os.ReadFile(path)
	require.NoError(t, err)

	looking := openAt(t, path, &Options{NoMigrate: true})
	assert.Equal(t, int64(1), countIn(t, looking, store.Ready))
	require.NoError(t, looking.Close())
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, before, after)

	working := openAt(t, path, &Options{NoMigrate: true})
	assert.Equal(t, int64(1), countIn(t, working, store.Ready))
	enqueue(t, working, 1)
	assert.Equal(t, int64(2), countIn(t, working, store.Ready))
}

// A store hears what another one has left to settle, and what a caller's transaction has.
func TestWakeUpsOfWhatIsLeft(t *testing.T) {
	path := newPath(t)
	here, there := openAt(t, path, nil), openAt(t, path, nil)
	wakeups, err := here.Subscribe(t.Context(), []string{"elsewhere"})
	require.NoError(t, err)
	endRoot := func() func(w store.Writer) {
		root := enqueue(t, there, 1)[0].ID
		waiting := store.NewJob{Queue: "waiting", Kind: "k", Payload: []byte(`1`), After: []store.Wait{{ID: root}}}
		for _, n := range []int{store.SettledByCall, 1} {
			_, err := there.Enqueue(t.Context(), store.EnqueueRequest{Jobs: slices.Repeat([]store.NewJob{waiting}, n)})
			require.NoError(t, err)
		}
		jobs, err := there.FetchAndClaim(t.Context(), store.ClaimRequest{Queue: "q", Worker: "w", TTL: time.Minute, Limit: 1})
		require.NoError(t, err)
		return func(w store.Writer) {
			_, err := w.Ack(t.Context(), []store.Ack{{Lease: jobs[0].Lease()}})
			require.NoError(t, err)
		}
	}
	heard := func(what string) {
		t.Helper()
		for late, got := time.After(time.Minute), (store.Wakeup{}); got != (store.Wakeup{Settle: true}); {
			select {
			case got = <-wakeups:
			case <-late:
				require.Fail(t, "no wake-up came", what)
			}
		}
		for len(wakeups) > 0 {
			<-wakeups
		}
	}
	endRoot()(there)
	heard("after another store's call")
	_, err = there.Settle(t.Context(), 1000)
	require.NoError(t, err)

	end := endRoot()
	tx := hold(t, here)
	end(here.InTx(tx))
	require.NoError(t, tx.Commit())
	heard("after a caller's commit")
}

package sqlite

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// worked is a store that has answered for some work.
func worked(t *testing.T, path string) *trial {
	t.Helper()
	r := &trial{Store: openAt(t, path, nil), known: ledger{}}
	require.NoError(t, r.add(t, 10, 1000))
	require.NoError(t, r.claim(t))
	r.check(t, r.Store)
	return r
}

// answersNoMore finds that calls are refused, each with one line that says which file is not what it was.
func answersNoMore(t *testing.T, path string, calls map[string]error) {
	t.Helper()
	for what, err := range calls {
		require.ErrorIs(t, err, store.ErrUnavailable, what)
		assert.NotContains(t, err.Error(), "\n", what)
		assert.ErrorContains(t, err, path+" was removed or replaced while the store is open: close the store, and open it again", what)
	}
}

// writes are what calls that write are answered.
func (r *trial) writes(t *testing.T) map[string]error {
	t.Helper()
	_, enqueued := r.Enqueue(t.Context(), newJobs(1))
	_, claimed := r.FetchAndClaim(t.Context(), claimOf(1))
	_, acked := r.Ack(t.Context(), []store.Ack{{Lease: store.Lease{ID: 1, Token: 1}}})
	_, fenced := r.Fence(t.Context(), store.FenceRequest{})
	return map[string]error{"Enqueue": enqueued, "FetchAndClaim": claimed, "Ack": acked, "Fence": fenced}
}

// reads are what calls that read are answered, and what is written in a caller's transaction.
func (r *trial) reads(t *testing.T) map[string]error {
	t.Helper()
	_, got := r.Get(t.Context(), 1)
	_, listed := r.List(t.Context(), store.Filter{}, store.Page{Limit: 1})
	_, counted := r.Count(t.Context(), store.Filter{})
	_, within := r.InTx(querier{r.DB()}).Enqueue(t.Context(), newJobs(1))
	return map[string]error{"Get": got, "List": listed, "Count": counted, "InTx": within}
}

func TestRemovedFileIsNoticed(t *testing.T) {
	path := newPath(t)
	r := worked(t, path)
	require.NoError(t, os.Remove(path))
	for range 2 {
		answersNoMore(t, path, r.writes(t))
		answersNoMore(t, path, r.reads(t))
	}
	r.DB().SetMaxIdleConns(0)
	_, err := r.DB().Exec(`SELECT 1 FROM jobs`)
	assert.Error(t, err, "a new connection")
	assert.NoFileExists(t, path, "the store makes no other one")

	line, err := refused(t, path, nil)
	assert.ErrorIs(t, err, store.ErrUnavailable)
	assert.Contains(t, line, "there is no such file, but "+path+"-wal holds changes of it")
	require.NoError(t, r.Close())
	for _, suffix := range besides { // as the error says for a file that was deleted on purpose
		require.NoError(t, os.RemoveAll(path+suffix))
	}
	anew := worked(t, path)
	require.NoError(t, anew.add(t, 10, 1000))
	require.NoError(t, anew.Close())
	anew.check(t, openAt(t, path, nil))
}

func TestReplacedFileIsNoticed(t *testing.T) {
	path, other := newPath(t), newPath(t)
	backup := worked(t, other)
	require.NoError(t, backup.Close())
	r := worked(t, path)
	require.NoError(t, os.Rename(other, path))
	answersNoMore(t, path, r.writes(t))
	answersNoMore(t, path, r.reads(t))

	// What stands beside it is not the new file's, so it goes before that is opened.
	require.NoError(t, r.Close())
	require.NoError(t, os.Remove(path+"-wal"))
	require.NoError(t, os.Remove(path+"-shm"))
	backup.check(t, openAt(t, path, nil))
}

func TestFileThatComesBackIsTheStoresAgain(t *testing.T) {
	path := newPath(t)
	r := worked(t, path)
	away := filepath.Join(t.TempDir(), "away")
	require.NoError(t, os.Rename(path, away))
	answersNoMore(t, path, r.writes(t))
	answersNoMore(t, path, r.reads(t))
	require.NoError(t, os.Rename(away, path))
	require.NoError(t, r.add(t, 10, 1000))
	require.NoError(t, r.claim(t))
	require.NoError(t, r.Close())
	r.check(t, openAt(t, path, nil))
}

func TestRemovedLogIsNoticed(t *testing.T) {
	for _, suffix := range []string{"-wal", "-shm"} {
		t.Run(suffix, func(t *testing.T) {
			path := newPath(t)
			r := worked(t, path)
			require.NoError(t, os.Remove(path+suffix))
			for range 2 {
				answersNoMore(t, path+suffix, r.writes(t))
			}
			require.NoError(t, r.Close())
			r.check(t, openAt(t, path, nil))
		})
	}
}

func TestRemovedLockIsMadeAnew(t *testing.T) {
	path := newPath(t)
	r, other := worked(t, path), openAt(t, path, nil)
	require.NoError(t, os.Remove(path+".lock"))
	require.NoError(t, r.add(t, 10, 1))
	for _, e := range enqueue(t, other, 10) {
		r.known[e.ID] = store.Job{ID: e.ID, State: store.Ready}
	}
	assert.FileExists(t, path+".lock")
	r.check(t, other)
}

func TestFileBehindALinkHasItsLogBesideIt(t *testing.T) {
	path := newPath(t)
	link := newPath(t)
	require.NoError(t, os.Symlink(path, link)) // to a file that is not there yet
	r := worked(t, link)
	r.check(t, openAt(t, path, nil))
	require.NoError(t, os.Remove(path+"-wal"))
	answersNoMore(t, path+"-wal", r.writes(t))
}

// The files of a log that was removed are not forgotten with the connection: the next one would write to another log, while
// readers have the old one open.
func TestRemovedLogIsRememberedBeyondItsConnection(t *testing.T) {
	s := newStore(t)
	log := newPath(t)
	require.NoError(t, os.WriteFile(log, nil, 0o600))
	known, err := placeOf(log)
	require.NoError(t, err)
	reconnect := func() *writer {
		conn, err := s.DB().Connx(t.Context())
		require.NoError(t, err)
		w := &writer{kept: newPrepared(conn), side: []place{known}}
		w.disconnect()
		return w
	}
	assert.Empty(t, reconnect().side, "where it is as it was, the next connection looks for itself")
	require.NoError(t, os.Remove(log))
	assert.Equal(t, []place{known}, reconnect().side)
}

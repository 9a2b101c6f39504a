package bbolt

import (
	"context"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/kv"
)

// Go would allow internal imports here, because of the path of this module, but not in anybody else's module.
func TestNothingInternalIsImported(t *testing.T) {
	paths, err := filepath.Glob("*.go")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, i := range f.Imports {
			assert.NotContains(t, strings.Trim(i.Path.Value, `"`)+"/", "/internal/", "%s imports it", path)
		}
	}
}

func newStore(t *testing.T, options Options) (s *kv.Store, path string) {
	t.Helper()
	options.NoSync = true
	path = filepath.Join(t.TempDir(), "jobs.bolt")
	s, err := Open(t.Context(), path, &options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() }) // a test may have closed the file
	return s, path
}

func request(n int) contract.EnqueueRequest {
	var req contract.EnqueueRequest
	for i := range n {
		req.Jobs = append(req.Jobs, contract.NewJob{Queue: fmt.Sprint("q", i%2), Kind: "k", Payload: []byte(`{}`), Priority: i % 3})
	}
	return req
}

func TestOneProcessAtATimeHasTheFile(t *testing.T) {
	_, path := newStore(t, Options{})
	_, err := Open(t.Context(), path, nil)
	assert.EqualError(t, err, "jq: opening "+path+": another process has it open, and one at a time can: timeout")
}

func TestAnotherFileIsNotTakenForOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "letter.txt")
	letter := []byte(strings.Repeat("Dear Ada, ", 10_000))
	require.NoError(t, os.WriteFile(path, letter, 0o600))
	_, err := Open(t.Context(), path, nil)
	assert.ErrorContains(t, err, "it is no file of bbolt, or is damaged, name another: ")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, letter, after)
}

// The test closes the file while the store is open, so that bbolt cannot write.
func TestCommitThatFailsIsInDoubt(t *testing.T) {
	var file *os.File
	s, _ := newStore(t, Options{openFile: func(path string, flag int, mode os.FileMode) (f *os.File, err error) {
		file, err = os.OpenFile(path, flag, mode)
		return file, err
	}})
	_, err := s.Enqueue(t.Context(), request(1))
	require.NoError(t, err)
	require.NoError(t, file.Close())

	for range 2 {
		_, err = s.Enqueue(t.Context(), request(5))
		assert.ErrorIs(t, err, contract.ErrInDoubt)
		assert.NotErrorIs(t, err, contract.ErrUnavailable)
		assert.ErrorContains(t, err, "file already closed")
		page, err := s.List(t.Context(), contract.Filter{}, contract.Page{Limit: 10})
		assert.NoError(t, err)
		assert.Len(t, page.Jobs, 1)
	}
	none, err := s.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "another", Limit: 1, Worker: "w", TTL: time.Minute})
	assert.NoError(t, err, "a claim that finds nothing has nothing to commit")
	assert.Empty(t, none)
}

// What a process leaves behind that dies without closing the file is whole: a copy of the file is taken while the store is open, and opened.
func TestFileOfAProcessThatDiedIsOpened(t *testing.T) {
	s, path := newStore(t, Options{})
	enqueued, err := s.Enqueue(t.Context(), request(3))
	require.NoError(t, err)
	claimed, err := s.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "q0", Limit: 1, Worker: "w", TTL: time.Minute})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	left := filepath.Join(t.TempDir(), "left.bolt")
	require.NoError(t, os.WriteFile(left, file, 0o600))

	again, err := Open(t.Context(), left, nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, again.Close()) }()
	done, err := again.Ack(t.Context(), []contract.Ack{{Lease: claimed[0].Lease()}})
	require.NoError(t, err)
	assert.Equal(t, contract.StatusOK, done[0].Status)
	more, err := again.Enqueue(t.Context(), request(1))
	require.NoError(t, err)
	assert.Greater(t, more[0].ID, enqueued[2].ID)
}

// A call that waits for its turn to write stops waiting with its context, and has applied nothing.
func TestWaitForTheTurnEndsWithTheContext(t *testing.T) {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "jobs.bolt"), 0o600, &bolt.Options{NoSync: true})
	require.NoError(t, err)
	defer func() { assert.NoError(t, db.Close()) }()
	e := &engine{db: db, turn: make(chan struct{}, 1)}
	require.NoError(t, e.prepare())
	e.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v, err := e.View(t.Context())
	require.NoError(t, err)
	defer v.Close()
	err = v.Commit(ctx, kv.Change{Puts: []kv.Item{{Key: []byte("k")}}})
	assert.ErrorIs(t, err, kv.ErrNothing)
	assert.ErrorIs(t, err, context.Canceled)
	_, err = e.Tickets(ctx, 1)
	assert.ErrorIs(t, err, context.Canceled)
}

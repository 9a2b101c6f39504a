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

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/seed-ed332417/jq/contract"
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

func newStore(t *testing.T, options Options) (*Store, *clock.Mock) {
	t.Helper()
	clk := clock.NewMock()
	clk.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	options.Clock, options.NoSync = clk, true
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "jobs.bolt"), &options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() }) // a test may have closed the file
	return s, clk
}

func request(n int) contract.EnqueueRequest {
	var req contract.EnqueueRequest
	for i := range n {
		req.Jobs = append(req.Jobs, contract.NewJob{Queue: fmt.Sprint("q", i%2), Kind: "k", Payload: []byte(`{}`), Priority: i % 3})
	}
	return req
}

func TestOneProcessAtATimeHasTheFile(t *testing.T) {
	s, _ := newStore(t, Options{})
	_, err := Open(t.Context(), s.db.Path(), nil)
	assert.EqualError(t, err, "jq: opening "+s.db.Path()+": another process has it open, and one at a time can: timeout")
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

// The context ends between the work and the commit, where only the call itself can notice.
func TestCallWhoseCallerIsGoneIsTakenBack(t *testing.T) {
	s, _ := newStore(t, Options{})
	enqueued, err := s.Enqueue(t.Context(), request(1))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = write(ctx, s, nil, func(c *txn) contract.Outcome {
		defer cancel()
		return c.cancel(c.job(enqueued[0].ID))
	})
	assert.ErrorIs(t, err, contract.ErrUnavailable)
	assert.ErrorIs(t, err, context.Canceled)
	detail, err := s.Get(t.Context(), enqueued[0].ID)
	assert.NoError(t, err)
	assert.Equal(t, contract.Ready, detail.State)
}

func TestDamagedRowIsUnavailableAndNothingIsApplied(t *testing.T) {
	s, _ := newStore(t, Options{})
	enqueued, err := s.Enqueue(t.Context(), request(2))
	require.NoError(t, err)
	first := number(enqueued[0].ID)
	damages := map[string]func(tx *bolt.Tx) error{
		"an unreadable row": func(tx *bolt.Tx) error { return tx.Bucket([]byte(jobs)).Put(first, []byte("{")) },
		"a missing row":     func(tx *bolt.Tx) error { return tx.Bucket([]byte(jobs)).Delete(first) },
	}
	for _, what := range []string{"an unreadable row", "a missing row"} {
		require.NoError(t, s.db.Update(damages[what]))
		_, err := s.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "q0", Limit: 1, Worker: "w", TTL: time.Minute})
		assert.ErrorIs(t, err, contract.ErrUnavailable, what)
		assert.ErrorContains(t, err, "the file is damaged, restore it from a copy: ", what)
	}
	detail, err := s.Get(t.Context(), enqueued[1].ID)
	assert.NoError(t, err)
	assert.Equal(t, contract.Ready, detail.State)
}

// TestKeysAreNotLimited: a policy that limits jobs by their keys, lets the keys take turns, or keeps their jobs in order, is refused, rather than kept and ignored.
func TestKeysAreNotLimited(t *testing.T) {
	s, _ := newStore(t, Options{})
	for field, policy := range map[string]contract.Policy{"max_per_key": {MaxPerKey: 1}, "fair": {Fair: true}, "ordered": {Ordered: true}} {
		_, err := s.SetPolicy(t.Context(), "q0", policy)
		var invalid *contract.InvalidError
		require.ErrorAs(t, err, &invalid)
		assert.Equal(t, field, invalid.Field)
		assert.ErrorIs(t, err, contract.ErrInvalid)
	}
	p, err := s.Policy(t.Context(), "q0")
	assert.NoError(t, err)
	assert.Zero(t, p)
}

// TestClaimsAheadAgeFromTheFirstLook: claims of a clock that was ahead count for as long as the rate says, also if the claim that found them so
// took nothing.
func TestClaimsAheadAgeFromTheFirstLook(t *testing.T) {
	s, clk := newStore(t, Options{})
	_, err := s.SetPolicy(t.Context(), "q0", contract.Policy{Rate: contract.Rate{N: 2, Per: time.Minute}})
	require.NoError(t, err)
	_, err = s.Enqueue(t.Context(), request(8))
	require.NoError(t, err)
	claims := func(want int, when string) {
		t.Helper()
		claimed, err := s.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "q0", Limit: 4, Worker: "w", TTL: time.Minute})
		require.NoError(t, err)
		assert.Len(t, claimed, want, when)
	}
	began := clk.Now()
	clk.Set(began.Add(time.Hour))
	claims(2, "while the clock is ahead")
	clk.Set(began)
	claims(0, "when it was set back")
	clk.Add(time.Minute)
	claims(2, "a minute later")
}

// TestNothingIsLeftBehind takes jobs through every transition and deletes them. Then every bucket must be empty.
func TestNothingIsLeftBehind(t *testing.T) {
	s, clk := newStore(t, Options{})
	for round := range 5 {
		req := request(40)
		req.RequestKey = fmt.Sprint(round)
		for i := range req.Jobs {
			req.Jobs[i].UniqueKey = fmt.Sprintf("%d of %d", i, round)
			req.Jobs[i].UniqueFor = time.Duration(i%3) * time.Hour
			req.Jobs[i].MaxRetries = i % 4
			req.Jobs[i].ExpiresAt = clk.Now().Add(time.Duration(i%5+1) * time.Minute)
		}
		_, err := s.Enqueue(t.Context(), req)
		require.NoError(t, err)
		jobs, err := s.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "q0", Limit: 15, Worker: "w", TTL: time.Minute})
		require.NoError(t, err)
		require.Len(t, jobs, 15)
		endAll(t, s, jobs)
		clk.Add(time.Minute)
		recovered, err := s.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: 100})
		require.NoError(t, err)
		assert.Len(t, recovered, 2)
		all := contract.Filter{States: contract.Phases()}
		_, err = s.Cancel(t.Context(), all, 100)
		require.NoError(t, err)
		deleted, err := s.Delete(t.Context(), all, 100)
		require.NoError(t, err)
		require.Len(t, deleted, len(req.Jobs))
	}
	require.NoError(t, s.Beat(t.Context(), contract.Worker{Name: "old"}))
	did := []contract.Activity{{Queue: "q", Kind: "k", Succeeded: 1}}
	require.NoError(t, s.AddActivity(t.Context(), did))
	clk.Add(contract.WorkerLife + contract.MaxActivity)
	require.NoError(t, s.AddActivity(t.Context(), did))
	require.NoError(t, s.Beat(t.Context(), contract.Worker{Name: "w"}))
	last, err := s.Enqueue(t.Context(), request(1)) // it deletes the keys that have ended
	require.NoError(t, err)
	_, err = s.Cancel(t.Context(), contract.Filter{IDs: []int64{last[0].ID}}, 1)
	require.NoError(t, err)
	_, err = s.Delete(t.Context(), contract.Filter{IDs: []int64{last[0].ID}}, 1)
	require.NoError(t, err)

	left := map[string]int{}
	require.NoError(t, s.db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			left[string(name)] = b.Stats().KeyN
			return nil
		})
	}))
	assert.Equal(t, map[string]int{
		"jobs": 0, "payloads": 0, "attempts": 0, "waiting": 0, "expiries": 0, "leases": 0, "keys": 0, "requests": 0, "ends": 0, "queues": 0, "workers": 1,
		"activity": 6, "epochs": 0, // a row of each width, and one overall
	}, left)
}

// endAll ends the leases in every way, and lets some expire.
func endAll(t *testing.T, s *Store, jobs []contract.Job) {
	t.Helper()
	forms := []contract.Form{contract.Fail, contract.Never, contract.Snooze, contract.Release}
	for i, j := range jobs {
		var err error
		switch {
		case i%7 < 4:
			_, err = s.NAck(t.Context(), []contract.NAck{{Lease: j.Lease(), Form: forms[i%7]}})
		case i%7 < 6:
			_, err = s.Ack(t.Context(), []contract.Ack{{Lease: j.Lease(), Result: []byte(`1`)}})
		}
		require.NoError(t, err)
	}
}

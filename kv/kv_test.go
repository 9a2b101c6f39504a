package kv_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/jqtest"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

func newStore(t *testing.T) (*memkv.DB, *kv.Store, *clock.Mock) {
	t.Helper()
	db := memkv.New()
	s, clk := open(t, db.Connect())
	return db, s, clk
}

func open(t *testing.T, e kv.Engine) (*kv.Store, *clock.Mock) {
	t.Helper()
	clk := clock.NewMock()
	clk.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	s, err := kv.Open(t.Context(), e, &kv.Options{Clock: clk})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s, clk
}

func request(n int) contract.EnqueueRequest {
	var req contract.EnqueueRequest
	for i := range n {
		req.Jobs = append(req.Jobs, contract.NewJob{Queue: fmt.Sprint("q", i%2), Kind: "k", Payload: []byte(`{}`), Priority: i % 3})
	}
	return req
}

func claimOf(queue string, limit int) contract.ClaimRequest {
	return contract.ClaimRequest{Queue: queue, Limit: limit, Worker: "w", TTL: time.Minute}
}

// all returns every item of the map.
func all(t *testing.T, db *memkv.DB) []kv.Item {
	t.Helper()
	v, err := db.Connect().View(t.Context())
	require.NoError(t, err)
	defer v.Close()
	found, err := v.Read(t.Context(), kv.Range{From: []byte{0}, To: []byte{0xff}})
	require.NoError(t, err)
	return found[0]
}

// keysIn returns how many keys stand in the tables.
func keysIn(t *testing.T, db *memkv.DB, tables string) (n int) {
	t.Helper()
	for _, item := range all(t, db) {
		if strings.IndexByte(tables, item.Key[0]) >= 0 {
			n++
		}
	}
	return n
}

// commit changes the map behind the store's back.
func commit(t *testing.T, db *memkv.DB, c kv.Change) {
	t.Helper()
	v, err := db.Connect().View(t.Context())
	require.NoError(t, err)
	defer v.Close()
	require.NoError(t, v.Commit(t.Context(), c))
}

// The context ends while the engine reads, where only the call itself can notice.
func TestCallWhoseCallerIsGoneIsTakenBack(t *testing.T) {
	db := memkv.New()
	ctx, cancel := context.WithCancel(t.Context())
	gone := false
	e := &odd{Engine: db.Connect()}
	s, _ := open(t, e)
	enqueued, err := s.Enqueue(t.Context(), request(1))
	require.NoError(t, err)
	e.read = func(ctx context.Context, v kv.View, ask []kv.Range) ([][]kv.Item, error) {
		found, err := v.Read(ctx, ask...)
		if gone {
			cancel()
		}
		return found, err
	}
	gone = true
	_, err = s.Cancel(ctx, contract.Filter{IDs: []int64{enqueued[0].ID}}, 1)
	assert.ErrorIs(t, err, contract.ErrUnavailable)
	assert.ErrorIs(t, err, context.Canceled)
	gone = false
	detail, err := s.Get(t.Context(), enqueued[0].ID)
	assert.NoError(t, err)
	assert.Equal(t, contract.Ready, detail.State)
}

func TestDamagedRowIsUnavailableAndNothingIsApplied(t *testing.T) {
	db, s, _ := newStore(t)
	enqueued, err := s.Enqueue(t.Context(), request(2))
	require.NoError(t, err)
	first := binary.BigEndian.AppendUint64([]byte("j"), uint64(enqueued[0].ID))
	for what, damage := range map[string]kv.Change{
		"an unreadable row": {Puts: []kv.Item{{Key: first, Value: []byte("{")}}},
		"a missing row":     {Deletes: [][]byte{first}},
	} {
		commit(t, db, damage)
		_, err := s.FetchAndClaim(t.Context(), claimOf("q0", 1))
		assert.ErrorIs(t, err, contract.ErrUnavailable, what)
		assert.ErrorContains(t, err, "the store is damaged, restore it from a copy: ", what)
	}
	detail, err := s.Get(t.Context(), enqueued[1].ID)
	assert.NoError(t, err)
	assert.Equal(t, contract.Ready, detail.State)
}

// TestClaimsAheadAgeFromTheFirstLook: claims of a clock that was ahead count for as long as the rate says, also if the claim that found them so
// took nothing.
func TestClaimsAheadAgeFromTheFirstLook(t *testing.T) {
	_, s, clk := newStore(t)
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

// TestNothingIsLeftBehind takes jobs through every transition and deletes them. Then every table must be empty.
func TestNothingIsLeftBehind(t *testing.T) {
	db, s, clk := newStore(t)
	for round := range 5 {
		req := request(40)
		req.RequestKey = fmt.Sprint(round)
		for i := range req.Jobs {
			req.Jobs[i].UniqueKey = fmt.Sprintf("%d of %d", i, round)
			req.Jobs[i].UniqueFor = time.Duration(i%3) * time.Hour
			req.Jobs[i].MaxRetries = i % 4
			req.Jobs[i].Payload = []byte(`"` + strings.Repeat("x", 500*(i%4)) + `"`)
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
		every := contract.Filter{States: contract.Phases()}
		_, err = s.Cancel(t.Context(), every, 100)
		require.NoError(t, err)
		deleted, err := s.Delete(t.Context(), every, 100)
		require.NoError(t, err)
		require.Len(t, deleted, len(req.Jobs))
	}
	require.NoError(t, s.Beat(t.Context(), contract.Worker{Name: "old"}))
	did := []contract.Activity{{Queue: "q", Kind: "k", Succeeded: 1}}
	require.NoError(t, s.AddActivity(t.Context(), did))
	clk.Add(contract.WorkerLife + contract.MaxActivity)
	require.NoError(t, s.AddActivity(t.Context(), did))
	require.NoError(t, s.Beat(t.Context(), contract.Worker{Name: "w"}))
	for range 3 { // each forgets some of what has ended
		_, err := s.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: 1})
		require.NoError(t, err)
	}
	left := map[string]int{}
	for _, item := range all(t, db) {
		left[string(item.Key[:1])]++
	}
	assert.Equal(t, map[string]int{
		"m": 1, "b": 1, "e": 1, // the store, the worker, and when that is forgotten
		"f": 1, // that windows of unique keys were forgotten
		"a": 6, // a sum of each width, and one overall
	}, left)
}

// endAll ends the leases in every way, and lets some expire.
func endAll(t *testing.T, s contract.Store, jobs []contract.Job) {
	t.Helper()
	long := []byte(`"` + strings.Repeat("x", 5000) + `"`)
	_, err := s.Save(t.Context(), []contract.Save{{Lease: jobs[0].Lease(), Checkpoint: long, Progress: long}})
	require.NoError(t, err)
	forms := []contract.Form{contract.Fail, contract.Never, contract.Snooze, contract.Release}
	for i, j := range jobs {
		var err error
		switch {
		case i%7 < 4:
			_, err = s.NAck(t.Context(), []contract.NAck{{Lease: j.Lease(), Form: forms[i%7]}})
		case i%7 < 6:
			_, err = s.Ack(t.Context(), []contract.Ack{{Lease: j.Lease(), Result: long}})
		}
		require.NoError(t, err)
	}
}

// A call takes few trips to the engine, however many jobs it is about.
func TestTrips(t *testing.T) {
	e, made := counting(memkv.New())
	s, clk := open(t, e)
	made.take()
	req := request(100)
	for i := range req.Jobs {
		req.Jobs[i].Queue = "q"
		req.Jobs[i].UniqueKey = fmt.Sprint(i)
	}
	took := func(call string, err error, tickets, reads, commits int64) {
		t.Helper()
		require.NoError(t, err, call)
		assert.Equal(t, [4]int64{tickets, 1, reads, commits}, made.take(), "tickets, views, reads and commits of %s", call)
	}
	_, err := s.Enqueue(t.Context(), req)
	took("Enqueue", err, 1, 1, 1)
	_, err = s.Enqueue(t.Context(), req)
	took("Enqueue of duplicates", err, 1, 2, 0)
	jobs, err := s.FetchAndClaim(t.Context(), claimOf("q", 50))
	took("FetchAndClaim", err, 0, 2, 1)
	require.Len(t, jobs, 50)
	none, err := s.FetchAndClaim(t.Context(), claimOf("another", 50))
	took("FetchAndClaim of nothing", err, 0, 1, 0)
	assert.Empty(t, none)
	var leases []contract.Lease
	var acks []contract.Ack
	for _, j := range jobs {
		leases, acks = append(leases, j.Lease()), append(acks, contract.Ack{Lease: j.Lease()})
	}
	_, err = s.Extend(t.Context(), leases, time.Minute)
	took("Extend", err, 0, 1, 1)
	_, err = s.Ack(t.Context(), acks[:40])
	took("Ack", err, 0, 1, 1)
	_, err = s.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: 100}) // which looks for leases ahead
	took("the first recovery", err, 0, 2, 0)
	clk.Add(time.Hour)
	recovered, err := s.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: 100})
	took("RecoverExpiredLeases", err, 0, 2, 1)
	assert.Len(t, recovered, 10)
	_, err = s.Get(t.Context(), jobs[0].ID)
	took("Get", err, 0, 1, 0)
	_, err = s.List(t.Context(), contract.Filter{}, contract.Page{Limit: 100})
	took("List", err, 0, 3, 0)
	due, err := s.OldestDue(t.Context())
	took("OldestDue", err, 0, 4, 0)
	assert.Len(t, due.Queues, 1)
	_, err = s.Delete(t.Context(), contract.Filter{IDs: []int64{jobs[0].ID}}, 1)
	took("Delete", err, 0, 1, 1)
}

// A view that ends makes the call start again: a page has every job, and no job twice.
func TestViewThatEndsDuringAList(t *testing.T) {
	e := &odd{Engine: memkv.New().Connect()}
	s, _ := open(t, e)
	for range 6 {
		_, err := s.Enqueue(t.Context(), request(100))
		require.NoError(t, err)
	}
	reads := 0
	e.read = func(ctx context.Context, v kv.View, ask []kv.Range) ([][]kv.Item, error) {
		if reads++; reads == 4 { // in the second part of the page
			return nil, fmt.Errorf("compacted: %w", kv.ErrConflict)
		}
		return v.Read(ctx, ask...)
	}
	page, err := s.List(t.Context(), contract.Filter{}, contract.Page{Limit: 500})
	require.NoError(t, err)
	require.Len(t, page.Jobs, 500)
	for i, j := range page.Jobs {
		require.Equal(t, page.Jobs[0].ID-int64(i), j.ID)
	}
	assert.Greater(t, reads, 4)
}

// Histories on an engine whose views end, and whose commits conflict, without a reason.
func TestHistoriesWithViewsThatEnd(t *testing.T) {
	adapter := jqtest.EngineStores(enginesOf(func() func() kv.Engine {
		ends := once(10)
		return memkvEngine(&odd{
			read: func(ctx context.Context, v kv.View, ask []kv.Range) ([][]kv.Item, error) {
				if ends.now() {
					return nil, kv.ErrConflict
				}
				return v.Read(ctx, ask...)
			},
			commit: func(ctx context.Context, v kv.View, c kv.Change) error {
				if ends.now() {
					return kv.ErrConflict
				}
				return v.Commit(ctx, c)
			},
		})
	}))
	jqtest.Linear(t, adapter, 50)
}

// Histories on an engine that says of some commits, applied or not, that it does not know.
func TestHistoriesWithCommitsInDoubt(t *testing.T) {
	errLost := errors.New("the answer was lost")
	adapter := jqtest.EngineStores(enginesOf(func() func() kv.Engine {
		lost, applied := once(40), once(2)
		return memkvEngine(&odd{commit: func(ctx context.Context, v kv.View, c kv.Change) error {
			if !lost.now() {
				return v.Commit(ctx, c)
			}
			if applied.now() {
				if err := v.Commit(ctx, c); err != nil {
					return err
				}
			}
			return errLost
		}})
	}))
	jqtest.Linear(t, adapter, 50)
}

// memkvEngine connects to a map of its own with the oddities.
func memkvEngine(o *odd) func() kv.Engine {
	db := memkv.New()
	return func() kv.Engine {
		e := *o
		e.Engine = db.Connect()
		return &e
	}
}

// A recovery that has to start again still brings back the leases of a clock that was ahead.
func TestLeasesAheadAreBroughtBackAfterAConflict(t *testing.T) {
	e := &odd{Engine: memkv.New().Connect()}
	s, clk := open(t, e)
	began := clk.Now()
	_, err := s.Enqueue(t.Context(), request(1))
	require.NoError(t, err)
	clk.Set(began.Add(time.Hour))
	jobs, err := s.FetchAndClaim(t.Context(), claimOf("q0", 1))
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	clk.Set(began)
	tries := 0
	e.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
		if tries++; tries == 1 {
			return kv.ErrConflict
		}
		return v.Commit(ctx, c)
	}
	_, err = s.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: 10})
	require.NoError(t, err)
	detail, err := s.Get(t.Context(), jobs[0].ID)
	require.NoError(t, err)
	assert.Equal(t, began.Add(time.Minute), detail.LeaseExpiresAt)
	assert.Equal(t, 2, tries)
}

func TestErrorsOfACommit(t *testing.T) {
	e := &odd{Engine: memkv.New().Connect()}
	s, _ := open(t, e)
	full := errors.New("the disk is full")
	var answer error
	e.commit = func(context.Context, kv.View, kv.Change) error { return answer }
	for _, c := range []struct{ says, want error }{
		{full, contract.ErrInDoubt},
		{fmt.Errorf("%w: %w", kv.ErrNothing, full), contract.ErrUnavailable},
	} {
		answer = c.says
		_, err := s.Enqueue(t.Context(), request(1))
		assert.ErrorIs(t, err, c.want)
		assert.ErrorIs(t, err, full)
	}
}

// An engine whose ranges have their ends too is refused, in words that lead its author to the mistake.
func TestKeysOutsideOfARangeAreRefused(t *testing.T) {
	e := &odd{Engine: memkv.New().Connect()}
	s, _ := open(t, e)
	_, err := s.Enqueue(t.Context(), request(2))
	require.NoError(t, err)
	e.read = func(ctx context.Context, v kv.View, ask []kv.Range) ([][]kv.Item, error) {
		answers, err := v.Read(ctx, ask...)
		for i, r := range ask {
			if r.To != nil {
				answers[i] = append(answers[i], kv.Item{Key: r.To, Value: []byte(`{}`), Version: 1})
			}
		}
		return answers, err
	}
	_, err = s.FetchAndClaim(t.Context(), claimOf("q0", 2))
	require.ErrorIs(t, err, contract.ErrUnavailable)
	assert.Contains(t, err.Error(), "which is not in the range from")
	e.read = func(ctx context.Context, v kv.View, ask []kv.Range) ([][]kv.Item, error) {
		answers, err := v.Read(ctx, ask...)
		for i := range ask {
			answers[i] = append(answers[i], kv.Item{Key: []byte("k"), Value: []byte(`{}`), Version: 1})
		}
		return answers, err
	}
	_, err = s.Get(t.Context(), 1)
	require.ErrorIs(t, err, contract.ErrUnavailable)
	assert.Contains(t, err.Error(), `the key "k", which is not in the range`)
}

// An engine that always says conflict: the call ends with its context.
func TestConflictsWithoutEndAreUnavailable(t *testing.T) {
	e := &odd{Engine: memkv.New().Connect()}
	s, _ := open(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	e.commit = func(context.Context, kv.View, kv.Change) error {
		if tries++; tries == 5 {
			cancel()
		}
		return kv.ErrConflict
	}
	_, err := s.Enqueue(ctx, request(1))
	assert.ErrorIs(t, err, contract.ErrUnavailable)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 5, tries)
}

// An engine that has lost all keys is not taken for a new store as long as one is open: that would hide the jobs that came after.
func TestEngineThatHasLostAllIsNoNewStore(t *testing.T) {
	db := memkv.New()
	s, _ := open(t, db.Connect())
	var change kv.Change
	for _, item := range all(t, db) {
		change.Deletes = append(change.Deletes, item.Key)
	}
	commit(t, db, change)
	_, err := s.Enqueue(t.Context(), request(1))
	assert.ErrorContains(t, err, "the store is damaged, restore it from a copy: it says that its keys have the layout 0")
	assert.Empty(t, all(t, db))
}

// A store does not open keys of another layout, because it would find only some of their jobs.
func TestOtherLayoutsAreRefused(t *testing.T) {
	for _, other := range []string{"1", "6", "99"} {
		db := memkv.New()
		v, err := db.Connect().View(t.Context())
		require.NoError(t, err)
		require.NoError(t, v.Commit(t.Context(), kv.Change{Puts: []kv.Item{{Key: []byte("m"), Value: []byte(`{"Layout":` + other + `}`)}}}))
		_, err = kv.Open(t.Context(), db.Connect(), nil)
		require.ErrorContains(t, err, "the layout "+other+", and this version of jq knows 5: use the version that wrote them, or a later one")
	}
}

// A program that must not create a store opens one that is there, and leaves the engine empty if there is none.
func TestNoMigrateCreatesNothing(t *testing.T) {
	db := memkv.New()
	existing := &kv.Options{NoMigrate: true}
	_, err := kv.Open(t.Context(), db.Connect(), existing)
	require.EqualError(t, err, "jq: opening a store: there is no store: name another one, or create it by jobq migrate up")
	assert.Empty(t, all(t, db))
	open(t, db.Connect())
	s, err := kv.Open(t.Context(), db.Connect(), existing)
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// An examined engine finds something about itself.
type examined struct {
	kv.Engine
	found []contract.Finding
	err   error
}

func (e examined) Examine(context.Context) ([]contract.Finding, error) { return e.found, e.err }

// A store has the findings of its engine, and none if that does not look.
func TestExamineIsThatOfTheEngine(t *testing.T) {
	plain, _ := open(t, memkv.New().Connect())
	found, err := plain.Examine(t.Context())
	require.NoError(t, err)
	assert.Empty(t, found)

	want := []contract.Finding{{Name: "full", Detail: "it is full", Advice: "empty it"}}
	s, _ := open(t, examined{Engine: memkv.New().Connect(), found: want})
	found, err = s.Examine(t.Context())
	require.NoError(t, err)
	assert.Equal(t, want, found)

	broken, _ := open(t, examined{Engine: memkv.New().Connect(), err: errors.New("no answer")})
	_, err = broken.Examine(t.Context())
	require.ErrorIs(t, err, contract.ErrUnavailable)
	require.NoError(t, broken.Close())
	_, err = broken.Examine(t.Context())
	assert.ErrorIs(t, err, contract.ErrClosed)
}

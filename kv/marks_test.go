package kv_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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

// A watched map is one of which a test sees, after each commit, that no key stands before the mark that is there for it.
type watched struct {
	t *testing.T
	*memkv.DB
	held  atomic.Int64 // marks that were looked at
	taken atomic.Int64 // marks that were there at the look before, and are gone

	mu     sync.Mutex
	before map[string]mark
}

func (w *watched) connect() kv.Engine {
	e := w.Connect()
	return struct {
		kv.Engine
		kv.Watcher
	}{&odd{Engine: e, commit: func(ctx context.Context, v kv.View, c kv.Change) error {
		err := v.Commit(ctx, c)
		if err == nil {
			w.look()
		}
		return err
	}, read: func(ctx context.Context, v kv.View, ask []kv.Range) ([][]kv.Item, error) {
		for _, r := range ask {
			assert.True(w.t, r.To == nil || bytes.Compare(r.From, r.To) < 0, "a range from %q to %q", r.From, r.To)
		}
		return v.Read(ctx, ask...)
	}}, e.(kv.Watcher)}
}

// A mark is what tests know of one.
type mark struct{ At, Proposed []byte }

func marksOf(t *testing.T, v kv.View) map[string]mark {
	t.Helper()
	found, err := v.Read(context.Background(), kv.Range{From: []byte("m")})
	require.NoError(t, err)
	if len(found[0]) == 0 {
		return nil
	}
	return marksAt(t, found[0][0])
}

func marksAt(t *testing.T, item kv.Item) map[string]mark {
	t.Helper()
	var meta struct{ Marks map[string]mark }
	require.NoError(t, json.Unmarshal(item.Value, &meta))
	return meta.Marks
}

// microsOf decodes the moment of a mark.
func microsOf(at []byte) int64 { return int64(binary.BigEndian.Uint64(at) ^ 1<<63) }

func marksIn(t *testing.T, db *memkv.DB) map[string]mark {
	t.Helper()
	v, err := db.Connect().View(t.Context())
	require.NoError(t, err)
	return marksOf(t, v)
}

func (w *watched) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	marks := requireMarks(w.t, w.DB)
	for name, m := range w.before {
		if len(m.At) > 0 && len(marks[name].At) == 0 {
			w.taken.Add(1)
		}
	}
	w.before = marks
	for _, m := range marks {
		if len(m.At) > 0 {
			w.held.Add(1)
		}
	}
}

// requireMarks fails the test if a key stands before a mark. It returns the marks.
func requireMarks(t *testing.T, db *memkv.DB) map[string]mark {
	t.Helper()
	v, err := db.Connect().View(context.Background())
	require.NoError(t, err)
	marks := marksOf(t, v)
	for name, m := range marks {
		prefixes := [][]byte{[]byte(name)}
		if name[0] == 'w' {
			prefixes = nil
			for shard := range byte(16) {
				prefixes = append(prefixes, append([]byte(name), shard))
			}
		}
		for _, prefix := range prefixes {
			found, err := v.Read(context.Background(), kv.Range{From: prefix, To: append(bytes.Clone(prefix), m.At...), Limit: 1})
			require.NoError(t, err)
			assert.Empty(t, found[0], "a key stands before the mark %x", m.At)
		}
	}
	return marks
}

// raising returns an adapter for several stores on one map, each of which raises its marks at each look. Their engines have a clock if there is a function that connects such ones.
func raising(t *testing.T, stores int, timed func(*watched, clock.Clock) func() kv.Engine) jqtest.Adapter {
	t.Helper()
	held := &atomic.Int64{}
	t.Cleanup(func() { assert.Positive(t, held.Load(), "marks that held") })
	return jqtest.Adapter{Exclude: excluded, New: func(ctx context.Context, clk clock.Clock) (*jqtest.Instance, error) {
		w := &watched{t: t, DB: memkv.New()}
		of, one := clk, w.connect
		if timed != nil {
			of, one = nil, timed(w, clk)
		}
		open := func(ctx context.Context) (contract.Store, error) {
			s, err := openSeveral(ctx, stores, of, one)
			if err != nil {
				return nil, err
			}
			for _, one := range s.Stores {
				one.RaiseAlways()
			}
			return s, nil
		}
		return jqtest.Reopened(ctx, open, func() error { held.Add(w.held.Load()); return nil })
	}}
}

func TestRandomWithMarks(t *testing.T) { jqtest.Random(t, raising(t, 1, nil)) }

// A program whose clock is behind puts jobs and leases before marks. They are found all the same, whenever they come: before the mark is proposed, before it holds, and then.
func TestKeyBeforeAMark(t *testing.T) {
	for what, scene := range map[string]func(*late){"job": (*late).job, "job by a little": (*late).jobByALittle, "lease": (*late).lease} {
		for name, when := range map[string]func(mark) bool{"before it is proposed": isProposed, "before it holds": holds} {
			t.Run(what+" "+name, func(t *testing.T) {
				l := newLate(t, nothing)
				scene(l)
				l.between(l.raises(when), func(*kv.Store) { l.again() }, func(*kv.Store) { l.put() })
				l.again()
				l.again()
				assert.Subset(t, l.found, l.late)
			})
		}
		t.Run(what+" afterwards", func(t *testing.T) {
			l := newLate(t, nothing)
			scene(l)
			l.again()
			require.NotEmpty(t, marksIn(t, l.db)[l.mark].At)
			l.two.Walk(1, 0) // the next call only reads
			l.put()
			l.clk.Add(time.Second)
			l.look() // it knows the mark that was there before
			l.again()
			assert.Subset(t, l.found, l.late)
		})
	}
}

// Without the guard of the key that has the marks, jobs and leases are hidden.
func TestMarksRestOnTheirGuard(t *testing.T) {
	for what, scene := range map[string]func(*late){"job": (*late).job, "lease": (*late).lease} {
		t.Run(what, func(t *testing.T) {
			l := newLate(t, func(_ kv.Change, g kv.Item) bool { return g.Key[0] == 'm' })
			scene(l)
			l.between(l.raises(holds), func(*kv.Store) { l.again() }, func(*kv.Store) { l.put() })
			for range 3 {
				l.again()
			}
			assert.NotEmpty(t, marksIn(t, l.db)[l.mark].At)
			assert.NotSubset(t, l.found, l.late)
		})
	}
}

// Marks stay behind the time, so that clocks which differ a little take none away.
func TestMarksStayBehindTheTime(t *testing.T) {
	l := newLate(t, nothing)
	l.jobByALittle()
	l.two.Walk(0, time.Second)
	for range 3 { // by the third one there is no job any more where the mark will be
		l.again()
	}
	before := marksIn(t, l.db)
	require.NotEmpty(t, before[l.mark].At)
	l.put()
	assert.Equal(t, before, marksIn(t, l.db))
}

// A recovery with a grace has not looked at the latest leases.
func TestGraceHidesNoLease(t *testing.T) {
	l := newLate(t, nothing)
	l.clk.Add(time.Minute)
	l.enqueue(l.two, oneOfQ)
	id := claimed(t, l.two)
	l.clk.Add(time.Minute + 5*time.Second)
	for range 5 {
		recovered, err := l.two.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: 1, Grace: 10 * time.Second})
		require.NoError(t, err)
		require.Empty(t, recovered)
	}
	recovered, err := l.two.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: 1})
	require.NoError(t, err)
	require.Len(t, recovered, 1)
	assert.Equal(t, id[0], recovered[0].ID)
}

func nothing(kv.Change, kv.Item) bool { return false }

// A late has two stores. The clock of the first one is behind, and the second one raises its marks.
type late struct {
	*pair
	behind *clock.Mock
	mark   string  // its name
	put    func()  // puts two keys before the mark, by the first store
	late   []int64 // their jobs
	look   func()  // raises the mark, and finds one or two keys, by the second store
	found  []int64 // their jobs
}

func newLate(t *testing.T, lacks func(kv.Change, kv.Item) bool) *late {
	t.Helper()
	l := &late{pair: newPair(t, lacks), behind: clock.NewMock()}
	l.behind.Set(l.clk.Now().Add(-15 * time.Minute))
	l.gone = &odd{Engine: l.db.Connect()}
	s, err := kv.Open(t.Context(), l.gone, &kv.Options{Clock: l.behind})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	l.one = s
	l.two.RaiseAlways()
	return l
}

var oneOfQ = contract.NewJob{Queue: "q", Kind: "k", Payload: []byte(`{}`), MaxRetries: 9}

func claimed(t *testing.T, s *kv.Store) (ids []int64) {
	t.Helper()
	jobs, err := s.FetchAndClaim(t.Context(), claimOf("q", 1))
	require.NoError(t, err)
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

func (l *late) job() {
	l.mark = "wq\x00f\x09" // of fresh jobs of the usual priority
	l.put = func() { l.late = l.enqueue(l.one, oneOfQ, oneOfQ) }
	l.look = func() { l.found = append(l.found, claimed(l.t, l.two)...) }
	l.enqueue(l.two, oneOfQ)
	claimed(l.t, l.two) // so that the line is known
}

func (l *late) jobByALittle() {
	l.job()
	put := l.put
	l.put = func() {
		l.behind.Set(l.clk.Now().Add(-500 * time.Millisecond))
		put()
	}
	commit := l.slow.commit
	l.slow.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
		err := commit(ctx, v, c)
		if l.raises(isProposed)(c) {
			l.clk.Add(time.Second) // so that the keys which are put before it holds stand behind it
		}
		return err
	}
}

func (l *late) lease() {
	l.mark = "l"
	l.put = func() { l.late = append(claimed(l.t, l.one), claimed(l.t, l.one)...) }
	l.look = func() {
		recovered, err := l.two.RecoverExpiredLeases(l.t.Context(), contract.RecoverRequest{Limit: 1})
		require.NoError(l.t, err)
		for _, r := range recovered {
			l.found = append(l.found, r.ID)
		}
	}
	l.enqueue(l.one, oneOfQ, oneOfQ)
}

// again looks once more.
func (l *late) again() {
	l.clk.Add(time.Second)
	require.NoError(l.t, l.two.Ping(l.t.Context())) // it knows the marks of the look before
	l.look()
}

// raises returns a function that selects changes which make such a mark of the scene's.
func (l *late) raises(such func(mark) bool) func(kv.Change) bool {
	return func(c kv.Change) bool {
		for _, item := range c.Puts {
			if item.Key[0] == 'm' && such(marksAt(l.t, item)[l.mark]) {
				return true
			}
		}
		return false
	}
}

// failing returns what an engine does that commits no such mark of the scene's.
func (l *late) failing(such func(mark) bool) func(context.Context, kv.View, kv.Change) error {
	return func(ctx context.Context, v kv.View, c kv.Change) error {
		if l.raises(such)(c) {
			return fmt.Errorf("full: %w", kv.ErrNothing)
		}
		return v.Commit(ctx, c)
	}
}

func isProposed(m mark) bool { return len(m.Proposed) > 0 }
func holds(m mark) bool      { return len(m.At) > 0 && len(m.Proposed) == 0 }

// A mark is raised while a call is under way, which then commits what it has decided.
func TestCallsUnderWayWhenAMarkIsRaised(t *testing.T) {
	slow := func(t *testing.T, lag time.Duration, meanwhile func(l *late)) (tries int) {
		t.Helper()
		l := newLate(t, nothing)
		l.behind.Set(l.clk.Now())
		l.job()
		l.again()
		l.clk.Add(time.Second)
		opened, closed := 0, 0
		l.slow.view = func(ctx context.Context) (kv.View, error) {
			v, err := l.slow.Engine.View(ctx)
			opened++
			require.Equal(t, opened-1, closed, "a call has one view open")
			return closingView{v, func() { closed++ }}, err
		}
		l.slow.tickets = func(ctx context.Context, n int) ([]int64, error) {
			tries++
			return l.slow.Engine.Tickets(ctx, n)
		}
		var id int64
		l.one.RaiseAlways()
		l.between(anyChange, func(s *kv.Store) { id = l.enqueue(s, oneOfQ)[0] }, func(*kv.Store) {
			l.behind.Set(l.clk.Now().Add(lag))
			meanwhile(l)
		})
		l.clk.Add(time.Minute)
		l.two.Walk(1, 0)
		assert.Equal(t, []int64{id}, claimed(t, l.two))
		assert.Equal(t, opened, closed, "views that were opened, and closed")
		return tries
	}
	raise := func(l *late) {
		before := marksIn(l.t, l.db)[l.mark]
		require.NoError(l.t, l.one.Ping(l.t.Context())) // so that it knows the line
		claimed(l.t, l.one)
		require.Equal(l.t, 1, bytes.Compare(marksIn(l.t, l.db)[l.mark].At, before.At), "the mark must be raised")
	}
	assert.Equal(t, 1, slow(t, 0, raise))
	assert.Equal(t, 1, slow(t, -2*time.Millisecond, func(l *late) { raise(l); l.behind.Add(time.Millisecond); raise(l) }), "twice")
	assert.Equal(t, 2, slow(t, time.Millisecond, raise), "the job would stand before the mark")
	assert.Equal(t, 2, slow(t, time.Millisecond, func(l *late) {
		l.gone.commit = l.failing(holds)
		require.NoError(t, l.one.Ping(t.Context())) // so that it knows the line
		claimed(t, l.one)
		require.True(t, isProposed(marksIn(t, l.db)[l.mark]))
	}), "the job would stand before a mark that is proposed")
	assert.Equal(t, 2, slow(t, 0, func(l *late) { raise(l); setPolicy(l.t, l.one, "other", contract.Policy{Fair: true}) }), "other things have changed too")
	assert.Equal(t, 2, slow(t, 0, func(l *late) { setPolicy(l.t, l.one, "other", contract.Policy{Fair: true}) }), "only other things have changed")
}

// A closingView tells when it is closed.
type closingView struct {
	kv.View
	closed func()
}

func (v closingView) Close() {
	v.closed()
	v.View.Close()
}

// The mark of the leases is raised beyond a lease that is being given.
func TestLeaseUnderWayWhenAMarkIsRaised(t *testing.T) {
	l := newLate(t, nothing)
	l.one.RaiseAlways()
	l.enqueue(l.two, oneOfQ)
	raise := func(s *kv.Store) {
		before := marksIn(t, l.db)["l"].At
		_, err := s.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: 1})
		require.NoError(t, err)
		require.Equal(t, 1, bytes.Compare(marksIn(t, l.db)["l"].At, before), "the mark must be raised")
	}
	raise(l.one) // or the other one changes the layout too
	l.behind.Set(l.clk.Now().Add(time.Hour))
	l.between(anyChange, func(s *kv.Store) { require.Len(t, claimed(t, s), 1) }, raise)
	assert.Empty(t, requireMarks(t, l.db), "it is taken away")
}

// A mark that could not be raised is raised later, also if nothing is removed any more, and up to the time of then.
func TestMarkIsRaisedLater(t *testing.T) {
	for name, such := range map[string]func(mark) bool{"not proposed": isProposed, "does not hold": holds} {
		t.Run(name, func(t *testing.T) {
			l := newLate(t, nothing)
			l.job()
			l.two.Walk(100, 0)
			l.slow.commit = l.failing(such)
			for range 50 { // of which about each 14th raises a mark
				l.enqueue(l.two, oneOfQ)
				l.again()
			}
			require.Len(t, l.found, 50)
			require.Empty(t, marksIn(t, l.db)[l.mark].At)
			l.slow.commit = nil
			ended := l.clk.Now()
			for range 4 {
				l.again()
			}
			at := marksIn(t, l.db)[l.mark].At
			require.NotEmpty(t, at)
			assert.Greater(t, microsOf(at), ended.UnixMicro())
		})
	}
}

// No call fails, or waits for long, because a mark can not be raised.
func TestCallsWithoutMarks(t *testing.T) {
	for name, commit := range map[string]func(ctx context.Context) error{
		"full":     func(context.Context) error { return fmt.Errorf("full: %w", kv.ErrNothing) },
		"in doubt": func(context.Context) error { return errors.New("the answer is lost") },
		"silent": func(ctx context.Context) error {
			<-ctx.Done()
			assert.ErrorIs(t, ctx.Err(), context.Canceled, "the engine is not to blame")
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := &odd{Engine: memkv.New().Connect()}
			s, clk := open(t, e)
			s.RaiseAlways()
			_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{oneOfQ}})
			require.NoError(t, err)
			require.NoError(t, s.Ping(t.Context())) // so that it knows the line
			met := 0
			e.commit = func(ctx context.Context, v kv.View, c kv.Change) error {
				if len(c.Puts) == 1 && c.Puts[0].Key[0] == 'm' {
					met++
					return commit(ctx)
				}
				return v.Commit(ctx, c)
			}
			assert.Len(t, claimed(t, s), 1)
			assert.Empty(t, claimed(t, s))
			clk.Add(2 * time.Minute)
			recovered, err := s.RecoverExpiredLeases(t.Context(), contract.RecoverRequest{Limit: 1})
			require.NoError(t, err)
			assert.Len(t, recovered, 1)
			assert.Equal(t, 3, met)
		})
	}
}

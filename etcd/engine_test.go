//go:build unix

package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/etcd"
	"github.com/seed-ed332417/jq/kv"
)

func view(t *testing.T, e kv.Engine) kv.View {
	t.Helper()
	v, err := e.View(t.Context())
	require.NoError(t, err)
	t.Cleanup(v.Close)
	return v
}

// read returns the items of a range, each as key=value.
func read(t *testing.T, v kv.View, r kv.Range) (list []string) {
	t.Helper()
	answers, err := v.Read(t.Context(), r)
	require.NoError(t, err)
	require.Len(t, answers, 1)
	for _, item := range answers[0] {
		assert.NotZero(t, item.Version)
		list = append(list, string(item.Key)+"="+string(item.Value))
	}
	return list
}

// version returns that of the key k, 0 if there is none.
func version(t *testing.T, e kv.Engine) uint64 {
	t.Helper()
	answers, err := view(t, e).Read(t.Context(), kv.Range{From: []byte("k")})
	require.NoError(t, err)
	if len(answers[0]) == 0 {
		return 0
	}
	return answers[0][0].Version
}

func put(key, value string) kv.Change {
	return kv.Change{Puts: []kv.Item{{Key: []byte(key), Value: []byte(value)}}}
}

func commit(t *testing.T, e kv.Engine, c kv.Change) {
	t.Helper()
	require.NoError(t, view(t, e).Commit(t.Context(), c))
}

func TestRangesAreReadInOrderAndWithoutTheirEnds(t *testing.T) {
	e := engine(t)
	var c kv.Change
	for _, key := range []string{"b", "a\x00", "a", "c\xff", "c", "a\xff"} {
		c.Puts = append(c.Puts, kv.Item{Key: []byte(key), Value: []byte("of " + key)})
	}
	commit(t, e, c)
	v := view(t, e)
	for _, test := range []struct {
		r    kv.Range
		want []string
	}{
		{kv.Range{From: []byte("a")}, []string{"a=of a"}},
		{kv.Range{From: []byte("d")}, nil},
		{kv.Range{From: []byte("a"), To: []byte("c")}, []string{"a=of a", "a\x00=of a\x00", "a\xff=of a\xff", "b=of b"}},
		{kv.Range{From: []byte("a\x00"), To: []byte("z"), Limit: 2}, []string{"a\x00=of a\x00", "a\xff=of a\xff"}},
		{kv.Range{From: []byte("b"), To: []byte("z"), KeysOnly: true}, []string{"b=", "c=", "c\xff="}},
		{kv.Range{From: []byte("b"), To: []byte("b")}, nil},
		{kv.Range{From: []byte("b"), To: []byte{}}, nil},
	} {
		assert.Equal(t, test.want, read(t, v, test.r), "%+v", test.r)
	}
}

// Stores whose prefixes begin alike share nothing, also if one is the beginning of the other.
func TestPrefixesShareNothing(t *testing.T) {
	p, err := newPlace()
	require.NoError(t, err)
	longer := *p
	longer.prefix += "\x02"
	a, b := engineAt(t, p), engineAt(t, &longer)
	commit(t, a, put("k", "of a"))
	commit(t, b, put("k", "of b"))
	all := kv.Range{From: []byte{}, To: []byte{0xff}}
	assert.Equal(t, []string{"k=of a"}, read(t, view(t, a), all))
	assert.Equal(t, []string{"k=of b"}, read(t, view(t, b), all))
}

func TestViewStaysAtItsFirstRead(t *testing.T) {
	p, err := newPlace()
	require.NoError(t, err)
	var engines []kv.Engine
	for range 4 { // one at all members, and one at each
		engines = append(engines, engineAt(t, p))
	}
	for i := range 200 {
		one, other := engines[i%4], engines[(i+1+i/4)%4]
		before, after := fmt.Sprint("v", i), fmt.Sprint("w", i)
		commit(t, one, put("k", before))
		v := view(t, other)
		require.Equal(t, []string{"k=" + before}, read(t, v, kv.Range{From: []byte("k")}), "a commit that has returned is seen at every member")
		commit(t, one, put("k", after))
		require.Equal(t, []string{"k=" + before}, read(t, v, kv.Range{From: []byte("k"), To: []byte("l")}), "a view does not move")
	}
}

func TestGuards(t *testing.T) {
	e := engine(t)
	commit(t, e, put("k", "same"))
	first := version(t, e)
	guarded := func(key string, version uint64) kv.Change {
		c := put("written", "by "+key)
		c.Guards = []kv.Item{{Key: []byte(key), Version: version}}
		return c
	}
	commit(t, e, guarded("k", first))
	commit(t, e, guarded("absent", 0))
	require.ErrorIs(t, view(t, e).Commit(t.Context(), guarded("k", 0)), kv.ErrConflict)
	require.ErrorIs(t, view(t, e).Commit(t.Context(), guarded("absent", first)), kv.ErrConflict)

	commit(t, e, put("k", "same"))
	second := version(t, e)
	assert.NotEqual(t, first, second, "the value stayed the same, and the version must not")
	require.ErrorIs(t, view(t, e).Commit(t.Context(), guarded("k", first)), kv.ErrConflict)

	commit(t, e, kv.Change{Deletes: [][]byte{[]byte("k"), []byte("not there")}})
	require.ErrorIs(t, view(t, e).Commit(t.Context(), guarded("k", second)), kv.ErrConflict)
	commit(t, e, put("k", "same"))
	require.ErrorIs(t, view(t, e).Commit(t.Context(), guarded("k", second)), kv.ErrConflict)
	require.ErrorIs(t, view(t, e).Commit(t.Context(), guarded("k", 0)), kv.ErrConflict)
	assert.Equal(t, []string{"written=by absent"}, read(t, view(t, e), kv.Range{From: []byte("written")}), "a commit in conflict writes nothing")
}

// Of commits that each write a key which another one guards, one succeeds.
func TestOneOfManyCommitsSucceeds(t *testing.T) {
	p, err := newPlace()
	require.NoError(t, err)
	const rounds, each = 20, 8
	var engines []kv.Engine
	for range each {
		engines = append(engines, engineAt(t, p))
	}
	for round := range rounds {
		key := fmt.Sprint("k", round)
		errs := make([]error, each)
		var all sync.WaitGroup
		for i, e := range engines {
			v := view(t, e)
			all.Go(func() {
				c := put(key, fmt.Sprint(i))
				c.Guards = []kv.Item{{Key: []byte(key)}}
				errs[i] = v.Commit(t.Context(), c)
			})
		}
		all.Wait()
		succeeded := 0
		for _, err := range errs {
			if err == nil {
				succeeded++
			} else {
				require.ErrorIs(t, err, kv.ErrConflict)
			}
		}
		require.Equal(t, 1, succeeded)
	}
}

func TestTicketsRiseAndAreGivenOnce(t *testing.T) {
	p, err := newPlace()
	require.NoError(t, err)
	var engines []kv.Engine
	for range 4 {
		engines = append(engines, engineAt(t, p))
	}
	var mu sync.Mutex
	given := map[int64]bool{}
	var all sync.WaitGroup
	for i, e := range engines {
		all.Go(func() {
			var last int64
			for range 50 {
				list, err := e.Tickets(t.Context(), 1+i*700) // up to 2,101
				if !assert.NoError(t, err) {
					return
				}
				assert.Len(t, list, 1+i*700)
				assert.True(t, slices.IsSorted(list))
				assert.Greater(t, list[0], last)
				last = list[len(list)-1]
				mu.Lock()
				for _, n := range list {
					assert.False(t, given[n], "ticket %d was given twice", n)
					given[n] = true
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	before, err := engines[0].Tickets(t.Context(), 1)
	require.NoError(t, err)
	after, err := engineAt(t, p).Tickets(t.Context(), 1)
	require.NoError(t, err)
	assert.Greater(t, after[0], before[0], "an engine that is opened later")
	assert.Less(t, after[0], int64(1)<<60)
}

// A commit as large as a store makes is taken, and one that is larger than the cluster takes has surely applied nothing.
func TestLargeCommits(t *testing.T) {
	p, err := newPlace()
	require.NoError(t, err)
	e, err := etcd.New(t.Context(), clientv3.Config{Endpoints: p.cluster.Endpoints()}, p.prefix)
	require.NoError(t, err, "the cluster has the flags")
	defer func() { assert.NoError(t, e.Close()) }()
	change := func(keys, bytes int) (c kv.Change) {
		for i := range keys {
			c.Puts = append(c.Puts, kv.Item{Key: fmt.Appendf(nil, "k%08d", i), Value: []byte(strings.Repeat("x", bytes))})
			c.Guards = append(c.Guards, kv.Item{Key: fmt.Appendf(nil, "g%08d", i)})
		}
		return c
	}
	commit(t, e, change(kv.MinKeys/2, (kv.MinBytes-kv.MinKeys*10)/(kv.MinKeys/2)))
	commit(t, e, change(1, kv.MinValue))
	for _, test := range []struct {
		what  string
		c     kv.Change
		error string
	}{{"keys", change(kv.MinKeys+1, 1), "too many operations"}, {"bytes", change(10, 4<<20), "larger than max"}} {
		err := view(t, e).Commit(t.Context(), test.c)
		require.ErrorIs(t, err, kv.ErrNothing, test.what)
		assert.ErrorContains(t, err, test.error)
		assert.ErrorContains(t, err, "--max-txn-ops 50000 --max-request-bytes 33554432")
	}
	require.NoError(t, p.remove(t.Context()))
}

// If the answer to a commit is lost, it is in doubt, also if the error says that it was cancelled: etcd's client would send it again by itself.
func TestCommitWhoseAnswerIsLostIsInDoubt(t *testing.T) {
	for _, code := range []codes.Code{codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.Unknown, codes.Internal, codes.ResourceExhausted} {
		p, err := newPlace()
		require.NoError(t, err)
		sent := 0
		lose := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			if err := invoke(ctx, method, req, reply, cc, options...); err != nil {
				return err
			}
			sent++
			return status.Error(code, "lost")
		}
		e := etcd.Connect(clientv3.Config{Endpoints: p.cluster.Endpoints(), DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(lose)}}, p.prefix)
		c := put("k", "1")
		c.Guards = []kv.Item{{Key: []byte("k")}}
		err = view(t, e).Commit(t.Context(), c)
		require.Error(t, err)
		require.NotErrorIs(t, err, kv.ErrConflict, code)
		require.NotErrorIs(t, err, kv.ErrNothing, code)
		assert.Equal(t, 1, sent, code)
		assert.NotZero(t, version(t, engineAt(t, p)), code)
		require.NoError(t, e.Close())
	}
}

// A member answers that it is full to commits that it has refused, and to one that it has applied. The latter is in doubt, also if its key is gone again.
func TestCommitThatFillsTheClusterIsInDoubt(t *testing.T) {
	none := func(*testing.T, kv.Engine) {}
	later := func(t *testing.T, e kv.Engine) {
		t.Helper()
		commit(t, e, put("k", "later"))
	}
	gone := func(t *testing.T, e kv.Engine) {
		t.Helper()
		commit(t, e, kv.Change{Deletes: [][]byte{[]byte("k")}})
	}
	for _, test := range []struct {
		what             string
		before, applied  bool
		meanwhile, after func(*testing.T, kv.Engine)
		nothing          bool
	}{
		{what: "a new key was not put", meanwhile: none, after: none, nothing: true},
		{what: "an old key was not put", before: true, meanwhile: none, after: none, nothing: true},
		{what: "an old key was not put, but is gone", before: true, meanwhile: gone, after: none, nothing: true},
		{what: "others have put it", meanwhile: later, after: none},
		{what: "a new key was put", applied: true, meanwhile: none, after: none},
		{what: "an old key was put", before: true, applied: true, meanwhile: none, after: none},
		{what: "a key was put and deleted", applied: true, meanwhile: none, after: gone},
		{what: "a key was put, and again", applied: true, meanwhile: none, after: later},
	} {
		t.Run(test.what, func(t *testing.T) {
			p, err := newPlace()
			require.NoError(t, err)
			other := engineAt(t, p)
			if test.before {
				commit(t, other, put("k", "before"))
			}
			full := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
				if r, is := req.(*etcdserverpb.TxnRequest); !is || len(r.Success) == 0 || r.Success[0].GetRequestPut() == nil {
					return invoke(ctx, method, req, reply, cc, options...)
				}
				test.meanwhile(t, other)
				if test.applied {
					require.NoError(t, invoke(ctx, method, req, reply, cc, options...))
				}
				test.after(t, other)
				return rpctypes.ErrGRPCNoSpace
			}
			e := etcd.Connect(clientv3.Config{Endpoints: p.cluster.Endpoints(), DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(full)}}, p.prefix)
			v := view(t, e)
			read(t, v, kv.Range{From: []byte("k")})
			err = v.Commit(t.Context(), put("k", "1"))
			require.ErrorIs(t, err, rpctypes.ErrNoSpace)
			assert.ErrorContains(t, err, "raise --quota-backend-bytes")
			assert.Equal(t, test.nothing, errors.Is(err, kv.ErrNothing))
			require.NoError(t, e.Close())
		})
	}
}

// After its revision was compacted, a view ends.
func TestViewEndsWhenItIsCompacted(t *testing.T) {
	p, err := newPlace()
	require.NoError(t, err)
	e := engineAt(t, p)
	commit(t, e, put("k", "1"))
	v := view(t, e)
	read(t, v, kv.Range{From: []byte("k")})
	compact(t, p)
	_, err = v.Read(t.Context(), kv.Range{From: []byte("k")})
	require.ErrorIs(t, err, kv.ErrConflict)
	require.ErrorIs(t, err, rpctypes.ErrCompacted)
}

// compact forgets all earlier revisions.
func compact(t *testing.T, p *place) {
	t.Helper()
	r, err := p.cluster.Client().Put(t.Context(), p.prefix+"\x01", "")
	require.NoError(t, err)
	_, err = p.cluster.Client().Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
}

// A compacting engine compacts between the reads of its first views.
type compacting struct {
	kv.Engine
	compact func()
	times   int
}

type compactingView struct {
	kv.View
	of    *compacting
	reads int
}

func (c *compacting) View(ctx context.Context) (kv.View, error) {
	v, err := c.Engine.View(ctx)
	return &compactingView{v, c, 0}, err
}

func (v *compactingView) Read(ctx context.Context, ask ...kv.Range) ([][]kv.Item, error) {
	if v.reads++; v.reads > 2 && v.of.times > 0 {
		v.of.times--
		v.of.compact()
	}
	return v.View.Read(ctx, ask...)
}

// A List whose view is compacted in its middle starts again, and is whole.
func TestListDuringACompactionIsWhole(t *testing.T) {
	p, err := newPlace()
	require.NoError(t, err)
	e, err := p.connect()
	require.NoError(t, err)
	c := &compacting{Engine: e, compact: func() { compact(t, p) }}
	s, err := kv.Open(t.Context(), c, nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	const jobs = 1000
	added, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: slices.Repeat([]contract.NewJob{{Queue: "q", Kind: "k", Payload: []byte(`1`)}}, jobs)})
	require.NoError(t, err)
	c.times = 3
	page, err := s.List(t.Context(), contract.Filter{}, contract.Page{Limit: jobs})
	require.NoError(t, err)
	assert.Zero(t, c.times, "how often it is still to be compacted")
	require.Len(t, page.Jobs, jobs)
	for i, j := range page.Jobs {
		require.Equal(t, added[jobs-1-i].ID, j.ID)
	}
}

func TestContextsThatHaveEnded(t *testing.T) {
	e := engine(t)
	ctx, cancel := context.WithCancel(t.Context())
	v := view(t, e)
	cancel()
	_, err := e.View(ctx)
	require.ErrorIs(t, err, context.Canceled)
	_, err = e.Tickets(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	_, err = v.Read(ctx, kv.Range{From: []byte("k")})
	require.ErrorIs(t, err, context.Canceled)
	err = v.Commit(ctx, put("k", "1"))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, kv.ErrNothing)
	assert.Zero(t, version(t, e))
}

// heardPatience bounds how long a test waits for a watch.
const heardPatience = 30 * time.Second

// A watcher runs Watch and passes on what it hears.
type watcher struct {
	heard chan []byte
	ended chan error
	stop  context.CancelFunc
}

func watch(t *testing.T, e kv.Engine, prefixes ...string) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watcher{make(chan []byte, 100), make(chan error, 1), cancel}
	var list [][]byte
	for _, p := range prefixes {
		list = append(list, []byte(p))
	}
	go func() {
		w.ended <- e.(kv.Watcher).Watch(ctx, func(key []byte) { w.heard <- bytes.Clone(key) }, list...)
	}()
	t.Cleanup(cancel)
	require.Nil(t, w.next(t), "a watch says that it has begun")
	return w
}

func (w *watcher) next(t *testing.T) []byte {
	t.Helper()
	select {
	case key := <-w.heard:
		return key
	case err := <-w.ended:
		require.Fail(t, "the watch has ended", "%v", err)
	case <-time.After(heardPatience):
		require.Fail(t, "nothing was heard")
	}
	return nil
}

func TestWatchHearsTheCommitsOfOthers(t *testing.T) {
	p, err := newPlace()
	require.NoError(t, err)
	mine, other := engineAt(t, p), engineAt(t, p)
	w := watch(t, mine, "a", "b")
	commit(t, other, put("c", "not with a prefix"))
	commit(t, other, put("a1", ""))
	commit(t, other, kv.Change{Deletes: [][]byte{[]byte("a1")}})
	commit(t, mine, put("a2", ""))
	assert.Equal(t, "a1", string(w.next(t)))
	assert.Equal(t, "a2", string(w.next(t)))
	commit(t, other, put("b1", ""))
	assert.Equal(t, "b1", string(w.next(t)))
	w.stop()
	require.ErrorIs(t, <-w.ended, context.Canceled)
}

// A watch of a client that is closed ends with an error.
func TestWatchEndsWithItsClient(t *testing.T) {
	p, err := newPlace()
	require.NoError(t, err)
	e, err := p.connect()
	require.NoError(t, err)
	w := watch(t, e, "a")
	require.NoError(t, e.Close())
	select {
	case err := <-w.ended:
		require.Error(t, err)
	case <-time.After(heardPatience):
		require.Fail(t, "the watch goes on")
	}
}

package tikv_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pingcap/kvproto/pkg/errorpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tikv/client-go/v2/tikvrpc"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/tikv"
	"github.com/seed-ed332417/jq/tikv/internal/tikvtest"
)

func view(t *testing.T, e kv.Engine) kv.View {
	t.Helper()
	v, err := e.View(t.Context())
	require.NoError(t, err)
	t.Cleanup(v.Close)
	return v
}

func read(t *testing.T, e kv.Engine, r kv.Range) []kv.Item {
	t.Helper()
	answers, err := view(t, e).Read(t.Context(), r)
	require.NoError(t, err)
	require.Len(t, answers, 1)
	return answers[0]
}

// get returns the item of a key, whose version is zero if there is none.
func get(t *testing.T, e kv.Engine, key string) kv.Item {
	t.Helper()
	if found := read(t, e, kv.Range{From: []byte(key)}); len(found) > 0 {
		return found[0]
	}
	return kv.Item{Key: []byte(key)}
}

func put(key, value string, guards ...kv.Item) kv.Change {
	return kv.Change{Guards: guards, Puts: []kv.Item{{Key: []byte(key), Value: []byte(value)}}}
}

func commit(t *testing.T, e kv.Engine, c kv.Change) {
	t.Helper()
	require.NoError(t, view(t, e).Commit(t.Context(), c))
}

// cluster returns a place that stops when the test ends.
func cluster(t *testing.T) *place {
	t.Helper()
	p, err := newPlace()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.cluster.Stop()) })
	return p
}

// Stores whose prefixes begin alike share nothing, also if one is the beginning of the other.
func TestPrefixesShareNothing(t *testing.T) {
	p := cluster(t)
	longer := &place{cluster: p.cluster, prefix: p.prefix + "\x02"}
	a, b := engineAt(t, p), engineAt(t, longer)
	commit(t, a, put("k", "of a"))
	commit(t, b, put("k", "of b"))
	all := kv.Range{From: []byte{}, To: []byte{0xff}}
	for e, want := range map[kv.Engine]string{a: "of a", b: "of b"} {
		found := read(t, e, all)
		require.Len(t, found, 1)
		assert.Equal(t, want, string(found[0].Value))
	}
}

// isDecision reports whether a request decides a transaction.
func isDecision(r *tikvrpc.Request) bool {
	return r.Type == tikvrpc.CmdCommit && string(r.Commit().GetPrimaryKey()) == string(r.Commit().GetKeys()[0])
}

// Each of two commits writes a key that the other one guards. Both have locked their keys and compared their guards before the request that decides
// one of them arrives. At most one of them may take effect.
func TestOfTwoCommitsThatGuardEachOtherOneTakesEffect(t *testing.T) {
	const rounds = 20
	for round := range rounds {
		p := cluster(t)
		var held sync.WaitGroup // the first decisions of both
		held.Add(2)
		wire := func() tikvtest.Wire {
			var once sync.Once
			return func(r *tikvrpc.Request, send tikvtest.Request) (*tikvrpc.Response, error) {
				if isDecision(r) {
					once.Do(func() {
						held.Done()
						held.Wait()
					})
				}
				return send()
			}
		}
		setup := engineAt(t, p)
		commit(t, setup, put("a", "free"))
		commit(t, setup, put("w", "free")) // in another region
		keys := []string{"a", "w"}
		var errs [2]error
		var both sync.WaitGroup
		for i := range 2 {
			e := engineAt(t, p.with(wire()))
			v := view(t, e)
			answers, err := v.Read(t.Context(), kv.Range{From: []byte("a")}, kv.Range{From: []byte("w")})
			require.NoError(t, err)
			both.Go(func() { errs[i] = v.Commit(t.Context(), put(keys[i], "taken", answers[1-i][0])) })
		}
		both.Wait()
		taken := 0
		for i, key := range keys {
			if errs[i] != nil {
				require.ErrorIs(t, errs[i], kv.ErrConflict, "round %d", round)
			}
			is := string(get(t, setup, key).Value) == "taken"
			require.Equal(t, errs[i] == nil, is, "round %d, the key %s: %v", round, key, errs[i])
			if is {
				taken++
			}
		}
		require.LessOrEqual(t, taken, 1, "round %d", round)
	}
}

// A guard is compared again when the commit has its timestamp, also if the key was as it should be when the other keys were locked.
func TestGuardsAreComparedAtTheMomentOfTheCommit(t *testing.T) {
	p := cluster(t)
	other := engineAt(t, p)
	commit(t, other, put("guarded", "1"))
	var once sync.Once
	mine := p.with(func(r *tikvrpc.Request, send tikvtest.Request) (*tikvrpc.Response, error) {
		answer, err := send()
		if r.Type == tikvrpc.CmdPrewrite {
			once.Do(func() { commit(t, other, put("guarded", "2")) })
		}
		return answer, err
	})
	e := engineAt(t, mine)
	v := view(t, e)
	found, err := v.Read(t.Context(), kv.Range{From: []byte("guarded")})
	require.NoError(t, err)
	require.ErrorIs(t, v.Commit(t.Context(), put("written", "x", found[0][0])), kv.ErrConflict)
	assert.Zero(t, get(t, other, "written").Version)
}

// lockPatience is longer than the locks of a small commit last.
const lockPatience = 30 * time.Second

var errCut = errors.New("the connection was lost")

// If the request that decides a commit, or its answer, is lost, the commit is in doubt. The locks that it has left are taken away by whoever reads the
// keys next, in favour of what was decided.
func TestLostDecisionsAreInDoubt(t *testing.T) {
	for _, arrives := range []bool{true, false} {
		t.Run(fmt.Sprint("arrives ", arrives), func(t *testing.T) {
			p := cluster(t)
			mine := p.with(func(r *tikvrpc.Request, send tikvtest.Request) (*tikvrpc.Response, error) {
				if r.Type != tikvrpc.CmdCommit {
					return send()
				}
				if arrives {
					_, _ = send() // nobody hears the answer
				}
				return nil, errCut
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			c := put("a", "1")
			c.Puts = append(c.Puts, put("w", "1").Puts...) // in another region
			err := view(t, engineAt(t, mine)).Commit(ctx, c)
			require.Error(t, err)
			require.NotErrorIs(t, err, kv.ErrConflict)
			require.NotErrorIs(t, err, kv.ErrNothing)

			late, cancel := context.WithTimeout(t.Context(), lockPatience)
			defer cancel()
			v := view(t, engineAt(t, p))
			answers, err := v.Read(late, kv.Range{From: []byte("a")}, kv.Range{From: []byte("w"), To: []byte("x")})
			require.NoError(t, err)
			for _, found := range answers {
				assert.Equal(t, arrives, len(found) == 1)
			}
			require.NoError(t, v.Commit(late, put("w", "2")), "the locks are gone")
		})
	}
}

// A region that is gone answers that it is stale, also if it has passed the request on before. If nobody answers the next ones, the commit is in doubt, and also if the context has ended.
func TestDecisionAtARegionThatIsGoneIsInDoubt(t *testing.T) {
	p := cluster(t)
	var stale atomic.Bool
	mine := p.with(func(r *tikvrpc.Request, send tikvtest.Request) (*tikvrpc.Response, error) {
		if r.Type != tikvrpc.CmdCommit {
			return send()
		}
		if stale.Swap(true) {
			return tikvrpc.GenRegionErrorResp(r, &errorpb.Error{ServerIsBusy: &errorpb.ServerIsBusy{}})
		}
		_, _ = send()
		return tikvrpc.GenRegionErrorResp(r, &errorpb.Error{StaleCommand: &errorpb.StaleCommand{}})
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := view(t, engineAt(t, mine)).Commit(ctx, put("a", "1"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, kv.ErrConflict)
	require.NotErrorIs(t, err, kv.ErrNothing)
	assert.NotZero(t, get(t, engineAt(t, p), "a").Version, "it was applied")
}

// A view that is too old has ended: what is deleted after it, and then collected, would look as if nothing had changed.
func TestViewThatIsTooOldHasEnded(t *testing.T) {
	e := engineAt(t, cluster(t))
	commit(t, e, put("k", "1"))
	old := view(t, e)
	read, err := old.Read(t.Context(), kv.Range{From: []byte("k")})
	require.NoError(t, err)
	tikv.SetOldest(e, time.Millisecond)
	require.Eventually(t, func() bool {
		_, err := old.Read(t.Context(), kv.Range{From: []byte("k")})
		return errors.Is(err, kv.ErrConflict)
	}, lockPatience, time.Millisecond, "a read of an old view")
	require.Eventually(t, func() bool {
		later, err := e.View(t.Context())
		if err != nil {
			return false
		}
		defer later.Close()
		return later.(kv.Timer).Now().Sub(old.(kv.Timer).Now()) > time.Millisecond
	}, lockPatience, time.Millisecond, "a commit goes by the time of the cluster, in milliseconds")
	require.ErrorIs(t, old.Commit(t.Context(), put("k", "2", read[0][0])), kv.ErrConflict)
	tikv.SetOldest(e, time.Hour)
	assert.Equal(t, "1", string(get(t, e, "k").Value))
}

// If the keys cannot be locked, nothing was applied.
func TestCommitThatIsNotDecidedHasAppliedNothing(t *testing.T) {
	p := cluster(t)
	mine := p.with(func(r *tikvrpc.Request, send tikvtest.Request) (*tikvrpc.Response, error) {
		if r.Type == tikvrpc.CmdPrewrite {
			return nil, errCut
		}
		return send()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := view(t, engineAt(t, mine)).Commit(ctx, put("a", "1"))
	require.ErrorIs(t, err, kv.ErrNothing)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Zero(t, get(t, engineAt(t, p), "a").Version)
}

// A view whose values may be collected has ended.
func TestViewEndsWhenItsValuesMayBeCollected(t *testing.T) {
	p := cluster(t)
	client, err := p.cluster.Client(nil)
	require.NoError(t, err)
	e, err := tikv.New(client, p.prefix)
	require.NoError(t, err)
	defer func() { assert.NoError(t, e.Close()) }()
	commit(t, e, put("k", "1"))
	v := view(t, e)
	now, err := client.GetTimestamp(t.Context())
	require.NoError(t, err)
	client.UpdateTxnSafePointCache(now, time.Now())
	for _, r := range []kv.Range{{From: []byte("k")}, {From: []byte("a"), To: []byte("z")}} {
		_, err = v.Read(t.Context(), r)
		require.ErrorIs(t, err, kv.ErrConflict)
	}
}

// Tickets of several engines rise, and begin small.
func TestTicketsBeginWithTheStore(t *testing.T) {
	p := cluster(t)
	engines := []kv.Engine{engineAt(t, p), engineAt(t, p)}
	var last int64
	for i := range 10 {
		list, err := engines[i%2].Tickets(t.Context(), 1000)
		require.NoError(t, err)
		require.Len(t, list, 1000)
		require.True(t, slices.IsSorted(list))
		require.Greater(t, list[0], last)
		last = list[999]
	}
	assert.Less(t, last, int64(time.Hour/time.Millisecond)<<14)
}

// Nothing is lost, and no view has a part of a commit, while regions are divided and led by other stores.
func TestRegionsMove(t *testing.T) {
	const (
		callers = 4
		each    = 50
	)
	p := cluster(t)
	p.wire = moving(p)
	var engines []kv.Engine
	for range callers {
		engines = append(engines, engineAt(t, p))
	}
	commit(t, engines[0], put("sum", "0"))
	var all sync.WaitGroup
	for i, e := range engines {
		all.Go(func() {
			for n := 0; n < each; {
				ok, err := add(t.Context(), e, fmt.Sprintf("%c%d-%d", 'a'+n%26, i, n))
				if !assert.NoError(t, err) {
					return
				}
				if ok {
					n++
				}
			}
		})
	}
	all.Wait()
	assert.NotZero(t, p.stale.Load(), "requests to regions that had moved")
	assert.Equal(t, strconv.Itoa(callers*each), string(get(t, engines[0], "sum").Value))
	assert.Len(t, read(t, engines[1], kv.Range{From: []byte("a"), To: []byte("zz")}), callers*each+1)
}

// add adds one to the sum and writes a key, and reports false if it conflicts.
func add(ctx context.Context, e kv.Engine, key string) (bool, error) {
	v, err := e.View(ctx)
	if err != nil {
		return false, err
	}
	defer v.Close()
	found, err := v.Read(ctx, kv.Range{From: []byte("sum")})
	if err != nil {
		return false, err
	}
	n, err := strconv.Atoi(string(found[0][0].Value))
	if err != nil {
		return false, err
	}
	c := put("sum", strconv.Itoa(n+1), found[0][0], kv.Item{Key: []byte(key)})
	c.Puts = append(c.Puts, put(key, "").Puts...)
	err = v.Commit(ctx, c)
	if errors.Is(err, kv.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// If a store of TiKV does not answer, a method returns when its context ends.
func TestContextsThatEndMeanwhile(t *testing.T) {
	p := cluster(t)
	commit(t, engineAt(t, p), put("k", "1"))
	silent, hung := make(chan struct{}), make(chan struct{}, 10)
	e := engineAt(t, p.with(func(_ *tikvrpc.Request, send tikvtest.Request) (*tikvrpc.Response, error) {
		hung <- struct{}{}
		<-silent
		return send()
	}))
	defer close(silent)
	for _, r := range []kv.Range{{From: []byte("k")}, {From: []byte("a"), To: []byte("z")}} {
		v := view(t, e)
		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan error, 1)
		go func() {
			_, err := v.Read(ctx, r)
			returned <- err
		}()
		<-hung
		cancel()
		select {
		case err := <-returned:
			require.ErrorIs(t, err, context.Canceled)
		case <-time.After(lockPatience):
			require.Fail(t, "Read goes on")
		}
	}
}

// The time of a store is that of PD, which a machine with a wrong clock does not change. No store has to agree with others on a time.
func TestTimeIsThatOfPD(t *testing.T) {
	p := cluster(t)
	e, err := p.connect()
	require.NoError(t, err)
	s, err := kv.Open(t.Context(), e, nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close()) }()
	shown := func() time.Time { return view(t, engineAt(t, p)).(kv.Timer).Now() }
	before := shown()
	enqueued, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{{Queue: "q", Kind: "k", Payload: []byte(`1`)}}})
	require.NoError(t, err)
	after := shown()
	job, err := s.Get(t.Context(), enqueued[0].ID)
	require.NoError(t, err)
	assert.False(t, job.EnqueuedAt.Before(before.UTC()), "%v is before %v", job.EnqueuedAt, before)
	assert.False(t, job.EnqueuedAt.After(after.UTC()), "%v is after %v", job.EnqueuedAt, after)
	assert.Empty(t, read(t, engineAt(t, p), kv.Range{From: []byte("B")}), "no key has the time")
}

package await

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/store"
)

// TestMain fails where a test has left a goroutine behind.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// A shelf is a store with one job. It notes when it is looked at, and calls within in the middle of each look.
type shelf struct {
	store.Store
	within func(look int) // may be nil

	mu    sync.Mutex // guards the fields below
	job   store.JobDetail
	err   error
	began time.Time
	looks []time.Duration
}

func (s *shelf) Get(ctx context.Context, _ int64) (store.JobDetail, error) {
	s.mu.Lock()
	s.looks = append(s.looks, time.Since(s.began))
	job, err, number := s.job, s.err, len(s.looks)
	s.mu.Unlock()
	if s.within != nil {
		s.within(number)
	}
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
	return job, err
}

func (s *shelf) set(state store.State, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.job.State, s.err = state, err
}

func (s *shelf) looked() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks
}

const id = 7

func onShelf(state store.State) *shelf {
	s := &shelf{began: time.Now()}
	s.job.ID, s.job.State = id, state
	s.job.Tags, s.job.Result = []string{"tag"}, []byte(`"result"`)
	return s
}

type returned struct {
	job   store.JobDetail
	err   error
	after time.Duration
}

// waiting waits in the background.
func waiting(ctx context.Context, s store.Store) <-chan returned {
	began, out := time.Now(), make(chan returned, 1)
	go func() {
		job, err := Until(ctx, clock.New(), s, id)
		out <- returned{job, err, time.Since(began)}
	}()
	return out
}

// inBubble runs the test on a time of its own, and checks that no watch is left.
func inBubble(t *testing.T, test func(t *testing.T)) {
	bubble.Test(t, func(t *testing.T) {
		test(t)
		synctest.Wait()
		assert.Zero(t, all.watched.Load(), "watches that nobody needs")
		assert.Empty(t, all.watches)
	})
}

func told(state store.State) []store.Outcome {
	return []store.Outcome{{ID: 1, Status: store.StatusOK, State: store.Succeeded}, {ID: id, Status: store.StatusOK, State: state}}
}

func TestAJobThatHasEndedIsReturnedAtOnce(t *testing.T) {
	for _, state := range []store.State{store.Succeeded, store.Failed, store.Cancelled} {
		inBubble(t, func(t *testing.T) {
			s := onShelf(state)
			got := <-waiting(t.Context(), s)
			require.NoError(t, got.err)
			assert.Equal(t, s.job, got.job)
			assert.Zero(t, got.after)
			assert.Equal(t, []time.Duration{0}, s.looked())
		})
	}
}

func TestErrorsThatDoNotPassAreReturnedAtOnce(t *testing.T) {
	for _, err := range []error{store.ErrNotFound, store.ErrClosed, store.ErrDenied, store.ErrInvalid, errors.ErrUnsupported} {
		inBubble(t, func(t *testing.T) {
			s := onShelf(store.Ready)
			s.err = err
			got := <-waiting(t.Context(), s)
			assert.ErrorIs(t, got.err, err)
			assert.Zero(t, got.after)
		})
	}
}

func TestAWaiterLooksEachSecond(t *testing.T) {
	for state, next := range map[store.State]time.Time{store.Ready: {}, store.InFlight: {}, store.Failed: time.Now()} {
		inBubble(t, func(t *testing.T) {
			s := onShelf(state)
			s.job.RetryAt = next
			time.AfterFunc(2500*time.Millisecond, func() { s.set(store.Succeeded, nil) })
			got := <-waiting(t.Context(), s)
			require.NoError(t, got.err)
			assert.Equal(t, []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}, s.looked())
		})
	}
}

// TestTellMakesItLookAtOnce, and only if the job may have ended.
func TestTellMakesItLookAtOnce(t *testing.T) {
	soon := time.Now()
	for _, c := range []struct {
		name  string
		tell  func(s *shelf)
		looks int
	}{
		{"Succeeded", func(s *shelf) { Tell(s, told(store.Succeeded)) }, 2},
		{"Dead", func(s *shelf) { Tell(s, told(store.Failed)) }, 2},
		{"Cancelled", func(s *shelf) { Tell(s, told(store.Cancelled)) }, 2},
		{"Deleted", func(s *shelf) { Tell(s, told("")) }, 2},
		{"Finished", func(s *shelf) {
			Tell(s, []store.Outcome{{ID: id, Status: store.StatusFinished, State: store.Succeeded}})
		}, 2},
		{"Recovered", func(s *shelf) { TellRecovered(s, []store.Recovered{{ID: id}}) }, 2},
		{"RecoveredToRetry", func(s *shelf) { TellRecovered(s, []store.Recovered{{ID: id, Next: soon}}) }, 1},
		{"Retrying", func(s *shelf) {
			Tell(s, []store.Outcome{{ID: id, Status: store.StatusOK, State: store.Failed, Next: soon}})
		}, 1},
		{"Requeued", func(s *shelf) {
			Tell(s, []store.Outcome{{ID: id, Status: store.StatusOK, State: store.Ready, Next: soon}})
		}, 1},
		{"Busy", func(s *shelf) { Tell(s, []store.Outcome{{ID: id, Status: store.StatusBusy}}) }, 1},
		{"Stale", func(s *shelf) { Tell(s, []store.Outcome{{ID: id, Status: store.StatusStale, State: store.Succeeded}}) }, 1},
		{"AnotherJob", func(s *shelf) { Tell(s, told(store.Succeeded)[:1]) }, 1},
		{"AnotherStore", func(*shelf) { Tell(onShelf(store.Ready), told(store.Succeeded)) }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := onShelf(store.InFlight)
				got := waiting(t.Context(), s)
				synctest.Wait()
				c.tell(s)
				synctest.Wait()
				assert.Len(t, s.looked(), c.looks, "at once")
				s.set(store.Succeeded, nil)
				assert.NoError(t, (<-got).err)
			})
		})
	}
}

// TestAnEndInTheMiddleOfALookIsNotMissed: the store reads the job, then the job ends, then the store returns what it has read.
func TestAnEndInTheMiddleOfALookIsNotMissed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := onShelf(store.InFlight)
		s.within = func(look int) {
			if look == 1 {
				s.set(store.Succeeded, nil)
				Tell(s, told(store.Succeeded))
			}
		}
		got := <-waiting(t.Context(), s)
		require.NoError(t, got.err)
		assert.Equal(t, store.Succeeded, got.job.State)
		assert.Equal(t, []time.Duration{0, 0}, s.looked())
	})
}

// TestNoLookFromBeforeTheCallCounts: who requeues a dead job and then waits for it must not get the end from before, even if somebody
// else was just looking.
func TestNoLookFromBeforeTheCallCounts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := onShelf(store.Failed)
		var second <-chan returned
		s.within = func(look int) {
			if look == 1 {
				s.set(store.Ready, nil)
				second = waiting(t.Context(), s)
				time.Sleep(time.Millisecond) //nolint:forbidigo // in the bubble's time: until the second one has joined
			}
		}
		first := <-waiting(t.Context(), s)
		require.NoError(t, first.err)
		assert.Equal(t, store.Failed, first.job.State)
		synctest.Wait()
		assert.Empty(t, second, "what it waits for has not come")
		s.set(store.Succeeded, nil)
		got := <-second
		require.NoError(t, got.err)
		assert.Equal(t, store.Succeeded, got.job.State)
	})
}

func TestOneLookServesTwoHundredWaiters(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := onShelf(store.InFlight)
		var waiters []<-chan returned
		for range 200 {
			waiters = append(waiters, waiting(t.Context(), s))
		}
		synctest.Wait()
		before := len(s.looked())
		s.set(store.Succeeded, nil)
		Tell(s, told(store.Succeeded))
		for _, w := range waiters {
			got := <-w
			require.NoError(t, got.err)
			require.Equal(t, `"result"`, string(got.job.Result))
			require.Equal(t, []string{"tag"}, got.job.Tags)
			got.job.Result[0], got.job.Tags[0] = '?', "mine" // everybody has a copy
		}
		assert.Len(t, s.looked(), before+1)
	})
}

func TestWhoLeavesLeavesTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := onShelf(store.InFlight)
		ctx, cancel := context.WithCancel(t.Context())
		leaves, stays := waiting(ctx, s), waiting(t.Context(), s)
		synctest.Wait()
		cancel()
		got := <-leaves
		assert.ErrorIs(t, got.err, context.Canceled)
		assert.NotErrorIs(t, got.err, store.ErrUnavailable, "the store was available")
		assert.EqualError(t, got.err, "jq: waited for the end of job 7, which has not come: context canceled")
		s.set(store.Succeeded, nil)
		assert.NoError(t, (<-stays).err)
	})
}

func TestTheContextEndsTheWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := onShelf(store.InFlight)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		got := <-waiting(ctx, s)
		assert.ErrorIs(t, got.err, context.DeadlineExceeded)
		assert.Equal(t, 90*time.Second, got.after)

		looks := len(s.looked())
		s.set(store.Succeeded, nil)
		got = <-waiting(ctx, s)
		assert.ErrorIs(t, got.err, context.DeadlineExceeded, "even if the job has ended")
		assert.Len(t, s.looked(), looks)
	})
}

func TestAnOutageIsWaitedOut(t *testing.T) {
	for _, err := range []error{store.ErrUnavailable, store.ErrInDoubt} {
		inBubble(t, func(t *testing.T) {
			s := onShelf(store.InFlight)
			s.err = err
			time.AfterFunc(2500*time.Millisecond, func() { s.set(store.Succeeded, nil) })
			got := <-waiting(t.Context(), s)
			require.NoError(t, got.err)
			assert.Equal(t, 3*time.Second, got.after)
		})
	}
}

func TestAnOutageUntilTheEndOfTheContextIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := onShelf(store.InFlight)
		s.err = fmt.Errorf("%w: no route", store.ErrUnavailable)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		got := <-waiting(ctx, s)
		assert.ErrorIs(t, got.err, context.DeadlineExceeded)
		assert.ErrorIs(t, got.err, store.ErrUnavailable)
		assert.ErrorContains(t, got.err, "no route")
	})
}

func TestAStoreThatIsClosedEndsTheWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := onShelf(store.InFlight)
		time.AfterFunc(100*time.Millisecond, func() { s.set("", store.ErrClosed) })
		got := <-waiting(t.Context(), s)
		assert.ErrorIs(t, got.err, store.ErrClosed)
		assert.Equal(t, time.Second, got.after)
	})
}

// TestALookThatHangsIsGivenUp, and no other one begins meanwhile.
func TestALookThatHangsIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := &hanging{shelf: onShelf(store.InFlight)}
		got := <-waiting(t.Context(), s)
		require.NoError(t, got.err)
		assert.Equal(t, []time.Duration{0, time.Minute}, s.looked())
	})
}

// A hanging store does not answer its first look.
type hanging struct{ *shelf }

func (h *hanging) Get(ctx context.Context, id int64) (store.JobDetail, error) {
	if len(h.looked()) == 0 {
		_, _ = h.shelf.Get(ctx, id)
		h.set(store.Succeeded, nil)
		<-ctx.Done()
		return store.JobDetail{}, fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
	return h.shelf.Get(ctx, id)
}

// TestTheLastWaiterWaitsForTheLook: when all calls have returned, nobody uses the store.
func TestTheLastWaiterWaitsForTheLook(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := onShelf(store.InFlight)
		s.within = func(int) {
			time.Sleep(time.Second) //nolint:forbidigo // in the bubble's time: a slow store
			s.set(store.Succeeded, nil)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		got := <-waiting(ctx, s)
		assert.ErrorIs(t, got.err, context.DeadlineExceeded)
		assert.Equal(t, store.Succeeded, s.job.State, "the store is done with the look")
	})
}

func TestAStoreThatWaitsByItselfIsNotAskedEachSecond(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := &patient{shelf: onShelf(store.InFlight)}
		time.AfterFunc(70*time.Second, func() { s.set(store.Succeeded, nil) })
		got := <-waiting(t.Context(), s)
		require.NoError(t, got.err)
		assert.Equal(t, []time.Duration{30 * time.Second, time.Minute, 90 * time.Second}, s.looked())
	})
}

// A patient store answers its waiters after 30 seconds.
type patient struct{ *shelf }

func (p *patient) AwaitEnd(ctx context.Context, id int64) (store.JobDetail, error) {
	select {
	case <-time.After(30 * time.Second):
	case <-ctx.Done():
	}
	return p.Get(ctx, id)
}

// An unnamed store is no key of a map.
type unnamed struct {
	*shelf
	_ []int
}

func TestAStoreThatIsNoKeyIsLookedAtEachSecond(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := unnamed{shelf: onShelf(store.InFlight)}
		got, other := waiting(t.Context(), s), waiting(t.Context(), onShelf(store.Ready).gone(time.Second))
		synctest.Wait()
		s.set(store.Succeeded, nil)
		Tell(s, told(store.Succeeded))
		synctest.Wait()
		assert.Empty(t, got, "nobody can tell it")
		assert.Equal(t, time.Second, (<-got).after)
		assert.ErrorIs(t, (<-other).err, store.ErrNotFound)
	})
}

// gone deletes the job after a time.
func (s *shelf) gone(after time.Duration) *shelf {
	time.AfterFunc(after, func() { s.set("", store.ErrNotFound) })
	return s
}

// TestTellingAllocatesNothing, whether anybody waits for another job or not.
func TestTellingAllocatesNothing(t *testing.T) {
	s, ends := onShelf(store.InFlight), told(store.Succeeded)[:1]
	recovered := []store.Recovered{{ID: 1}}
	tell := func() { Tell(s, ends); TellRecovered(s, recovered) }
	assert.Zero(t, testing.AllocsPerRun(100, tell), "nobody waits")
	ctx, cancel := context.WithCancel(t.Context())
	got := waiting(ctx, s)
	for len(s.looked()) == 0 {
		require.NoError(t, ctx.Err())
		time.Sleep(time.Millisecond) //nolint:forbidigo // polls, and ends with the test
	}
	assert.Zero(t, testing.AllocsPerRun(100, tell), "somebody waits for another job")
	cancel()
	assert.ErrorIs(t, (<-got).err, context.Canceled)
}

// BenchmarkTell measures what a batch of ends costs if nobody waits, and if somebody waits for another job.
func BenchmarkTell(b *testing.B) {
	outcomes := make([]store.Outcome, 500)
	for i := range outcomes {
		outcomes[i] = store.Outcome{ID: int64(1000 + i), Status: store.StatusOK, State: store.Succeeded}
	}
	s := onShelf(store.InFlight)
	b.Run("nobody", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Tell(s, outcomes)
		}
	})
	b.Run("another", func(b *testing.B) {
		ctx, cancel := context.WithCancel(b.Context())
		got := waiting(ctx, s)
		for all.watched.Load() == 0 {
			time.Sleep(time.Millisecond) //nolint:forbidigo // polls
		}
		b.ReportAllocs()
		for b.Loop() {
			Tell(s, outcomes)
		}
		cancel()
		<-got
	})
}

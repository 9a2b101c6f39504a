package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// The model has no callers' transactions, so what a store may take for one is broken in the store in memory.

// A careless store takes things for a transaction that are none, or refuses one.
type careless struct {
	*memory.Store
	inTx func(s *memory.Store, tx store.Tx) store.Writer
}

func (c careless) InTx(tx store.Tx) store.Writer { return c.inTx(c.Store, tx) }

// An either writer makes each call by the first writer, and then again by the second if that is wanted for the error.
type either struct {
	store.Writer
	second store.Writer
	wanted func(error) bool
	mended func(error) error
}

func (e either) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	return byEither(e, func(w store.Writer) ([]store.Enqueued, error) { return w.Enqueue(ctx, req) })
}

func (e either) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	return byEither(e, func(w store.Writer) ([]store.Outcome, error) { return w.Ack(ctx, acks) })
}

func (e either) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	return byEither(e, func(w store.Writer) ([]store.Outcome, error) { return w.NAck(ctx, nacks) })
}

func byEither[T any](e either, call func(store.Writer) ([]T, error)) ([]T, error) {
	answer, err := call(e.Writer)
	if err == nil || !e.wanted(err) {
		return answer, err
	}
	if e.second != nil {
		answer, err2 := call(e.second)
		if e.mended == nil {
			return answer, err2
		}
	}
	return nil, e.mended(err)
}

func ofTx(err error) bool {
	invalid, ok := errors.AsType[*store.InvalidError](err)
	return ok && invalid.Field == "tx"
}

func ended(err error) bool      { return errors.Is(err, sql.ErrTxDone) }
func neverBegun(err error) bool { return ofTx(err) && !ended(err) }

var txMutants = map[string]func(s *memory.Store, tx store.Tx) store.Writer{
	"what is no transaction is written by itself": func(s *memory.Store, tx store.Tx) store.Writer {
		return either{Writer: s.InTx(tx), second: s, wanted: neverBegun}
	},
	"what is written after the end of the transaction is written by itself": func(s *memory.Store, tx store.Tx) store.Writer {
		return either{Writer: s.InTx(tx), second: s, wanted: ended}
	},
	"only a pool of its own type is refused": func(s *memory.Store, tx store.Tx) store.Writer {
		if store.CheckTx(tx) != nil {
			return s.InTx(tx)
		}
		return either{Writer: s.InTx(tx), second: s, wanted: ofTx}
	},
	"it is refused after it was written": func(s *memory.Store, tx store.Tx) store.Writer {
		return either{Writer: s.InTx(tx), second: s, wanted: ofTx, mended: func(err error) error { return err }}
	},
	"a transaction that has ended is unavailable": func(s *memory.Store, tx store.Tx) store.Writer {
		return either{Writer: s.InTx(tx), wanted: ended, mended: func(error) error { return store.ErrUnavailable }}
	},
	"the field is not named": func(s *memory.Store, tx store.Tx) store.Writer {
		return either{Writer: s.InTx(tx), wanted: ofTx, mended: func(error) error { return store.ErrInvalid }}
	},
	"schedules are set by themselves": func(s *memory.Store, tx store.Tx) store.Writer {
		return struct {
			store.Writer
			store.ScheduleKeeper
		}{s.InTx(tx), s}
	},
	"the Writer keeps no schedules": func(s *memory.Store, tx store.Tx) store.Writer {
		return struct{ store.Writer }{s.InTx(tx)}
	},
	"nil panics": func(s *memory.Store, tx store.Tx) store.Writer {
		_, _ = tx.ExecContext(context.Background(), "")
		return s.InTx(tx)
	},
	"a wrapped transaction is refused": func(s *memory.Store, tx store.Tx) store.Writer {
		if _, plain := tx.(*sql.Tx); !plain {
			tx = nil
		}
		return s.InTx(tx)
	},
	"a transaction is taken for what it wraps": func(s *memory.Store, tx store.Tx) store.Writer {
		if _, plain := tx.(*sql.Tx); !plain && store.CheckTx(tx) == nil {
			return s
		}
		return s.InTx(tx)
	},
}

// Each of them must be failed by a case that is about what a transaction is.
func TestCarelessTransactorsAreKilled(t *testing.T) {
	for what, inTx := range txMutants {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			assert.True(t, notices(t, func(s *memory.Store) conformance.Instance {
				return conformance.Instance{Store: careless{s, inTx}, DB: s.DB()}
			}, "Tx/OnlyAnOpenOneIsTaken", "Tx/AfterItsEndNoCallIsTaken", "Tx/WrappedOneIsTaken", "Tx/SchedulesArePartOfIt"), "no case notices")
		})
	}
}

// The cases that are about the room of a job which a transaction has finished must each notice a store that does not wait for the commit.
func TestRoomBeforeTheCommitIsNoticed(t *testing.T) {
	atOnce := func(s *memory.Store, _ store.Tx) store.Writer { return s }
	for _, name := range []string{"Tx/FinishedJobTakesItsRoomUntilTheCommit", "Tx/FinishedJobTakesTheRoomOfItsKeyUntilTheCommit"} {
		assert.True(t, notices(t, func(s *memory.Store) conformance.Instance {
			return conformance.Instance{Store: careless{s, atOnce}, DB: s.DB()}
		}, name), name)
	}
}

// notices says whether one of the cases fails on stores in memory that are changed so.
func notices(t *testing.T, change func(*memory.Store) conformance.Instance, cases ...string) bool {
	t.Helper()
	adapter := conformance.Adapter{New: func(_ context.Context, clk clock.Clock) (*conformance.Instance, error) {
		changed := change(memory.New(memory.Options{Clock: clk}))
		return &changed, nil
	}}
	return slices.ContainsFunc(conformance.Cases(), func(k conformance.Case) bool {
		if !slices.Contains(cases, k.Name) {
			return false
		}
		result := conformance.Run(t.Context(), adapter, k)
		assert.False(t, result.Hung, "%s hangs: %s", k.Name, strings.Join(result.Log, "\n"))
		return result.Failed
	})
}

// The model wakes nobody, so wake-ups are broken in the store in memory.

// A mumbling store changes its wake-ups, or loses them.
type mumbling struct {
	*memory.Store
	searched atomic.Bool // the latest Cancel had no ids
	acked    atomic.Bool // an Ack was made after the latest Enqueue
	claimed  atomic.Bool // a claim was
	alter    func(m *mumbling, w *store.Wakeup) (lost bool)
}

func (m *mumbling) Cancel(ctx context.Context, filter store.Filter, limit int) ([]store.Outcome, error) {
	m.searched.Store(len(filter.IDs) == 0)
	return m.Store.Cancel(ctx, filter, limit)
}

func (m *mumbling) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	m.acked.Store(false)
	m.claimed.Store(false)
	return m.Store.Enqueue(ctx, req)
}

func (m *mumbling) FetchAndClaim(ctx context.Context, req store.ClaimRequest) ([]store.Job, error) {
	m.claimed.Store(true)
	return m.Store.FetchAndClaim(ctx, req)
}

func (m *mumbling) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	m.acked.Store(true)
	return m.Store.Ack(ctx, acks)
}

func (m *mumbling) Subscribe(ctx context.Context, queues []string) (<-chan store.Wakeup, error) {
	in, err := m.Store.Subscribe(ctx, queues)
	if err != nil {
		return nil, err
	}
	out := make(chan store.Wakeup, 64)
	go func() {
		defer close(out)
		for w := range in {
			if m.alter(m, &w) {
				continue
			}
			select {
			case out <- w:
			default:
			}
		}
	}()
	return out, nil
}

const unbroken = "nothing is broken"

var notifyMutants = map[string]func(m *mumbling, w *store.Wakeup) (lost bool){
	unbroken:                          func(*mumbling, *store.Wakeup) bool { return false },
	"nobody is told of cancellations": func(_ *mumbling, w *store.Wakeup) bool { return w.Cancelled },
	"nobody is told of cancellations without ids": func(m *mumbling, w *store.Wakeup) bool {
		return w.Cancelled && m.searched.Load()
	},
	"nobody is told of the room that an Ack makes": func(m *mumbling, _ *store.Wakeup) bool { return m.acked.Load() },
	"nobody is told of the room that time makes":   func(m *mumbling, _ *store.Wakeup) bool { return m.claimed.Load() },
	"nobody is told of what is left to settle":     func(_ *mumbling, w *store.Wakeup) bool { return w.Settle },
	"one queue of a Cancel is forgotten":           func(_ *mumbling, w *store.Wakeup) bool { return w.Cancelled && w.Queue == "b" },
	"what is cancelled looks claimable": func(_ *mumbling, w *store.Wakeup) bool {
		w.Cancelled = false
		return false
	},
	"what is claimable looks cancelled": func(_ *mumbling, w *store.Wakeup) bool {
		w.Cancelled = true
		return false
	},
}

// The cases that are about room must each notice that nobody is told of it.
func TestSilenceAboutRoomIsNoticed(t *testing.T) {
	for name, silence := range map[string]string{
		"Notify/FollowsRoom": "an Ack", "Notify/FollowsRoomOfAKey": "an Ack", "Notify/FollowsRoomUnderARate": "time",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.True(t, notices(t, func(s *memory.Store) conformance.Instance {
				return conformance.Instance{Store: &mumbling{Store: s, alter: notifyMutants["nobody is told of the room that "+silence+" makes"]}}
			}, name))
		})
	}
}

// Each of them must be failed by a case that is about wake-ups, and the store that they are made of by none.
func TestMumblingNotifiersAreKilled(t *testing.T) {
	for what, alter := range notifyMutants {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			killed := notices(t, func(s *memory.Store) conformance.Instance {
				return conformance.Instance{Store: &mumbling{Store: s, alter: alter}}
			}, "Notify/FollowsTheCancellationOfJobsInFlight", "Notify/FollowsEachCommitThatMakesAJobClaimable", "Notify/FollowsACallThatLeavesSomething", "Notify/FollowsRoom", "Notify/FollowsRoomUnderARate")
			assert.Equal(t, what != unbroken, killed, "a case notices")
		})
	}
}

package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A ledger stands before a store and records how leases end: no lease may end twice, or in two ways.
type ledger struct {
	*gate
	mu    sync.Mutex // guards what follows
	ended map[store.Lease]string
	wrong []string
}

func newLedger(w *world) *ledger {
	l := &ledger{gate: w.gate(), ended: map[store.Lease]string{}}
	l.ack = func(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
		outcomes, err := l.Store.Ack(ctx, acks)
		for i, o := range outcomes {
			l.note(acks[i].Lease, "ack", o)
		}
		return outcomes, err
	}
	l.nack = func(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
		outcomes, err := l.Store.NAck(ctx, nacks)
		for i, o := range outcomes {
			l.note(nacks[i].Lease, string(nacks[i].Form), o)
		}
		return outcomes, err
	}
	return l
}

func (l *ledger) note(lease store.Lease, how string, o store.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, ok := l.ended[lease]; ok {
		l.wrong = append(l.wrong, fmt.Sprintf("%v was ended by %s, and then by %s with the answer %s", lease, before, how, o.Status))
	}
	l.ended[lease] = how
}

// Handlers return at the very moments when their timeout ends, their lease is lost, they are abandoned, or the server stops, in every
// order by chance. The book is consistent at each moment, each lease ends once, and nothing is left at the end. The race detector runs
// with it.
func TestEverythingAtTheSameMoment(t *testing.T) {
	for seed := range uint64(60) {
		inWorld(t, func(w *world) {
			r := rand.New(rand.NewPCG(seed, 0))
			moments := []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second, 40 * time.Second}
			some := func() time.Duration { return moments[r.IntN(len(moments))] }
			var mu sync.Mutex // guards runs and r
			runs := map[int64]int{}
			w.handlers["odd"] = func(ctx context.Context, run *Run) error {
				mu.Lock()
				runs[run.ID]++
				d, ignores, heeds, result := some(), r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(4)
				mu.Unlock()
				err := deaf(d)(ctx, run)
				if !ignores {
					err = work(d)(ctx, run)
				}
				switch {
				case err != nil && heeds, result == 0:
					return err
				case result == 1:
					return errors.New("no luck")
				default:
					return run.Save(ctx, []byte("1"), nil)
				}
			}
			l := newLedger(w)
			var ids []int64
			for range 30 {
				timeout := some()
				ids = append(ids, w.enqueue(1, "odd", func(n *store.NewJob) { n.Timeout, n.MaxRetries = timeout, 1 })...)
			}
			slots, buffer := 1+r.IntN(8), r.IntN(8)
			s := w.start(Options{
				Slots: slots, Claim: ClaimOptions{Buffer: buffer}, Abandon: AbandonOptions{MaxHandlers: r.IntN(4) - 1},
				Commit: CommitOptions{MaxDelay: 10 * time.Second}, Shutdown: ShutdownOptions{DrainTimeout: 10 * time.Second},
				Queues: map[string]QueueOptions{DefaultQueue: {Slots: slots + buffer}}, // so that the book counts its jobs
			}, l)
			for range 12 {
				w.wait(10 * time.Second)
				require.NoError(w, s.book.broken(time.Now()))
				mu.Lock()
				id, what := ids[r.IntN(len(ids))], r.IntN(3)
				mu.Unlock()
				switch what {
				case 0:
					_, err := w.store.Cancel(w.Context(), store.Filter{IDs: []int64{id}}, 1)
					require.NoError(w, err)
				case 1:
					l.away()
				default:
					l.back()
				}
				require.NoError(w, s.book.broken(time.Now()))
			}
			l.back()
			_ = s.Stop(w.Context()) // an error if handlers ignore it: they are let go below
			w.wait(5 * time.Minute)
			require.NoError(w, s.book.broken(time.Now()))
			assert.Empty(w, l.wrong, "seed %d", seed)
			assert.Equal(w, 0, s.Stats().Running+s.Stats().Abandoned+s.Stats().Buffered, "seed %d", seed)
			for id, n := range runs {
				j := w.job(id)
				require.LessOrEqual(w, n, len(j.History), "seed %d", seed)
			}
		})
	}
}

// Goroutines that a handler leaves behind do no harm: what they write late is refused or ignored.
func TestGoroutinesOfAHandlerOutliveIt(t *testing.T) {
	inWorld(t, func(w *world) {
		var late error
		var rest sync.WaitGroup
		w.handlers["leave"] = func(ctx context.Context, r *Run) error {
			rest.Go(func() {
				<-ctx.Done() // as soon as the handler has returned
				r.SetResult([]byte(`"late"`))
				<-time.NewTimer(time.Minute).C
				late = r.Save(context.WithoutCancel(ctx), []byte("1"), nil)
			})
			return nil
		}
		id := w.enqueue(1, "leave")[0]
		s := w.start(Options{})
		w.wait(2 * time.Minute)
		rest.Wait()
		require.ErrorIs(w, late, store.ErrStaleLease)
		assert.Equal(w, store.Succeeded, w.job(id).State)
		assert.Empty(w, w.job(id).Result)
		assert.Equal(w, Stats{Slots: DefaultSlots}, s.Stats())
		synctest.Wait()
		w.stop(s)
	})
}

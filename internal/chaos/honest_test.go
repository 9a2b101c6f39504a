//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/store"
)

const (
	honestQueue = "honest"
	honestCall  = 10  // jobs
	mostAhead   = 200 // jobs that wait, beyond which the producer does
)

// Honest clients enqueue jobs and do them, as fast as the server answers one producer and two workers.
type honest struct {
	mu       sync.Mutex // guards what follows
	enqueued map[int64]bool
	finished map[int64]int64 // the token with which an Ack of the job was applied
	refused  int             // calls that were not applied, and made again
	problems []string
}

func newHonest() *honest { return &honest{enqueued: map[int64]bool{}, finished: map[int64]int64{}} }

// produce enqueues until the context ends. A call whose answer is lost is made again with its key.
func (h *honest) produce(ctx context.Context, s jq.Store) {
	for call := 0; ctx.Err() == nil; call++ {
		req := store.EnqueueRequest{RequestKey: fmt.Sprintf("honest %d", call)}
		for range honestCall {
			req.Jobs = append(req.Jobs, store.NewJob{
				Queue: honestQueue, Kind: "honest", Payload: []byte(`{"n":1}`), MaxRetries: 1000, Backoff: jq.DefaultBackoff,
			})
		}
		for {
			added, err := s.Enqueue(context.WithoutCancel(ctx), req)
			if err == nil {
				h.keep(added)
				break
			}
			if !h.passes(err) {
				return
			}
		}
		for h.ahead() > mostAhead && ctx.Err() == nil {
			<-time.After(time.Millisecond)
		}
	}
}

func (h *honest) keep(added []store.Enqueued) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range added {
		h.enqueued[e.ID] = true
	}
}

func (h *honest) ahead() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.enqueued) - len(h.finished)
}

// passes says of an error of a call whether it is made again: the server is busy, or its answer came too late.
func (h *honest) passes(err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused++
	if errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrInDoubt) {
		return true
	}
	h.problems = append(h.problems, err.Error())
	return false
}

// work claims and finishes jobs until the context ends.
func (h *honest) work(ctx context.Context, s jq.Store, name string) {
	for ctx.Err() == nil {
		jobs, err := s.FetchAndClaim(context.WithoutCancel(ctx), store.ClaimRequest{Queue: honestQueue, Limit: honestCall, Worker: name, TTL: 5 * time.Second})
		if err != nil {
			if !h.passes(err) {
				return
			}
			continue
		}
		if len(jobs) == 0 {
			<-time.After(5 * time.Millisecond)
			continue
		}
		if !h.ack(s, jobs) {
			return
		}
	}
}

func (h *honest) ack(s jq.Store, jobs []store.Job) bool {
	acks := make([]store.Ack, len(jobs))
	for i, j := range jobs {
		acks[i] = store.Ack{Lease: store.Lease{ID: j.ID, Token: j.Token}, Result: []byte("true")}
	}
	for {
		outcomes, err := s.Ack(context.Background(), acks)
		if err == nil {
			h.note(acks, outcomes)
			return true
		}
		if !h.passes(err) {
			return false
		}
	}
}

// note keeps what was applied, perhaps by an Ack that was repeated.
func (h *honest) note(acks []store.Ack, outcomes []store.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, o := range outcomes {
		if o.Status != store.StatusOK {
			continue // its lease has ended: another one finishes it
		}
		if token, ok := h.finished[o.ID]; ok && token != acks[i].Token {
			h.problems = append(h.problems, fmt.Sprintf("job %d was finished with the tokens %d and %d", o.ID, token, acks[i].Token))
		}
		h.finished[o.ID] = acks[i].Token
	}
}

func (h *honest) done() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.finished)
}

// rates are how many jobs a second are finished, by windows of a second, until the time is over.
func (h *honest) rates(d time.Duration) []float64 {
	var all []float64
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	before, at := h.done(), time.Now()
	for range int(d / time.Second) {
		<-tick.C
		now := time.Now()
		done := h.done()
		all = append(all, float64(done-before)/now.Sub(at).Seconds())
		before, at = done, now
	}
	return all
}

func middle(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }

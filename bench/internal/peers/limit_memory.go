package peers

import (
	"context"
	"sync"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

// limitMemory is a slice under a mutex.
type limitMemory struct {
	started func(int64)
	work    sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	more   sync.Cond  // there are jobs, or the queue is closed
	states []byte     // of each job: ready, claimed, done
	next   int        // the first job that may be ready
	done   int64
	over   bool
}

func openLimitMemory(_ context.Context, _ peer.Place, handle peer.Handler) (peer.Queue, error) {
	q := &limitMemory{started: handle.Started}
	q.more.L = &q.mu
	return q, nil
}

func (q *limitMemory) Enqueue(ctx context.Context, load peer.Load) error {
	return load.Spread(ctx, func(_ context.Context, first int64, jobs int) error {
		q.mu.Lock()
		defer q.mu.Unlock()
		for len(q.states) < int(first)+jobs {
			q.states = append(q.states, absent)
		}
		for i := range jobs {
			q.states[int(first)+i] = ready
		}
		q.next = min(q.next, int(first))
		q.more.Signal()
		return nil
	})
}

const (
	absent = iota
	ready
	claimed
	done
)

func (q *limitMemory) Work(_ context.Context, handlers int) error {
	for range handlers {
		q.work.Go(q.take)
	}
	return nil
}

// take claims 64 jobs, and finishes them when it claims the next ones.
func (q *limitMemory) take() {
	const size = 64
	batch := make([]int, 0, size)
	for {
		q.mu.Lock()
		for _, number := range batch {
			q.states[number] = done
			q.done++
		}
		batch = batch[:0]
		for {
			for q.next < len(q.states) && len(batch) < size {
				if q.states[q.next] == ready {
					q.states[q.next] = claimed
					batch = append(batch, q.next)
				}
				q.next++
			}
			if len(batch) > 0 || q.over {
				break
			}
			q.more.Wait()
		}
		q.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for _, number := range batch {
			q.started(int64(number))
		}
	}
}

func (q *limitMemory) Count(context.Context) (peer.Counts, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var c peer.Counts
	for _, state := range q.states {
		switch state {
		case done:
			c.Finished++
		case ready, claimed:
			c.Unfinished++
		}
	}
	return c, nil
}

func (q *limitMemory) Close(context.Context) error {
	q.mu.Lock()
	q.over = true
	q.more.Broadcast()
	q.mu.Unlock()
	q.work.Wait()
	return nil
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ed332417/jq"
)

// kind is the kind of all jobs here.
const kind = "bench"

// A run is one round on one queue.
type run struct {
	o       Options
	queue   string
	store   jq.Store // the store under test
	counted jq.Store // the store whose costs are counted: the same, or the one behind it
	payload jq.Raw
	ids     *ids
}

func newRun(s jq.Store, o Options) *run {
	return &run{
		o: o, queue: fmt.Sprintf("bench-%08x", rand.Uint32()), store: s, counted: s,
		payload: jq.Raw{Name: kind, Document: document(0, o.Payload)}, ids: &ids{},
	}
}

// over returns the run on another store that leads to the same jobs.
func (r *run) over(s jq.Store) *run {
	other := *r
	other.store = s
	return &other
}

// beside returns the run on another queue.
func (r *run) beside(name string) *run {
	other := *r
	other.queue, other.ids = other.queue+"-"+name, &ids{}
	return &other
}

func (r *run) client() *jq.Client {
	return jq.NewClient(r.store, &jq.ClientOptions{
		Defaults: jq.EnqueueOptions{Queue: r.queue}, Middleware: []jq.EnqueueMiddleware{r.ids.note},
	})
}

// produce lets producers enqueue. next says how many jobs each call has, at most a batch, and none at the end. made is called
// after each call, with the time that it took.
func (r *run) produce(ctx context.Context, producers int, next func() int, made func(jobs int, took time.Duration)) error {
	client := r.client()
	group, ctx := errgroup.WithContext(ctx)
	for range producers {
		group.Go(func() error {
			items := r.items(r.o.Batch, nil)
			for n := next(); n > 0; n = next() {
				began := time.Now()
				if err := enqueue(ctx, client, items[:n]); err != nil {
					return err
				}
				made(n, time.Since(began))
			}
			return nil
		})
	}
	return group.Wait()
}

// items returns n jobs with the same payload.
func (r *run) items(n int, options *jq.EnqueueOptions) []jq.Item {
	return slices.Repeat([]jq.Item{{Payload: r.payload, Options: options}}, n)
}

func enqueue(ctx context.Context, client *jq.Client, items []jq.Item) error {
	if len(items) == 1 {
		_, err := client.Enqueue(ctx, items[0].Payload, items[0].Options)
		return err
	}
	_, err := client.EnqueueMany(ctx, items, nil)
	return err
}

// upTo hands out jobs in portions, until none is left.
func upTo(jobs, portion int) func() int {
	var taken atomic.Int64
	return func() int {
		before := taken.Add(int64(portion)) - int64(portion)
		return int(max(0, min(int64(portion), int64(jobs)-before)))
	}
}

// fillers is how many goroutines fill a queue, which no figure includes.
const fillers = 2

// fill enqueues jobs in large calls, before the measurement.
func (r *run) fill(ctx context.Context, jobs int, options *jq.EnqueueOptions) error {
	next, done := upTo(jobs, r.o.most()), atomic.Int64{}
	client := r.client()
	group, ctx := errgroup.WithContext(ctx)
	for range fillers {
		group.Go(func() error {
			for n := next(); n > 0; n = next() {
				if _, err := client.EnqueueMany(ctx, r.items(n, options), nil); err != nil {
					return err
				}
				done.Add(int64(n))
			}
			return nil
		})
	}
	defer r.telling(ofJobs("filling the queue", done.Load, int64(jobs)))()
	return group.Wait()
}

// often is the interval between reports of progress.
const often = 100 * time.Millisecond

// ofJobs is progress by jobs, out of whole if that is known.
func ofJobs(doing string, done func() int64, whole int64) func() Progress {
	return func() Progress {
		p := Progress{Doing: doing, Jobs: done(), Part: -1}
		if whole > 0 {
			p.Part = float64(p.Jobs) / float64(whole)
		}
		return p
	}
}

// ofTime is progress by time, from now on.
func ofTime(doing string, done func() int64, whole time.Duration) func() Progress {
	began := time.Now()
	return func() Progress { return Progress{doing, done(), min(1, float64(time.Since(began))/float64(whole))} }
}

// telling reports progress until end is called.
func (r *run) telling(progress func() Progress) (end func()) {
	return every(often, func() { r.o.Progress(progress()) })
}

// every calls do regularly until end is called. end may be called twice.
func every(pause time.Duration, do func()) (end func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		look := time.NewTicker(pause)
		defer look.Stop()
		for {
			select {
			case <-quit:
				return
			case <-look.C:
				do()
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(quit)
		<-ended
	})
}

// verify checks that the store has exactly these numbers of jobs in each state.
func (r *run) verify(ctx context.Context, want map[jq.State]int64) error {
	held, err := r.held(ctx)
	if err != nil {
		return fmt.Errorf("cannot verify the jobs: %w", err)
	}
	var wrong []string
	for _, state := range []jq.State{jq.Blocked, jq.Ready, jq.InFlight, jq.Retrying, jq.Succeeded, jq.Dead, jq.Cancelled} {
		if held[state] != want[state] {
			wrong = append(wrong, fmt.Sprintf("%d %s where %d should be", held[state], state, want[state]))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	missing := total(want) - total(held)
	switch {
	case missing > 0:
		wrong = append(wrong, fmt.Sprintf("%d jobs are missing", missing))
	case missing < 0:
		wrong = append(wrong, fmt.Sprintf("%d jobs are too many", -missing))
	}
	return fmt.Errorf("the run does not count: the store has %s", strings.Join(wrong, ", "))
}

func total(jobs map[jq.State]int64) (sum int64) {
	for _, n := range jobs {
		sum += n
	}
	return sum
}

// held returns how many jobs of the run the store has in each state. Stores limit the time of a call, which is too short to
// count many millions; held then counts page by page.
func (r *run) held(ctx context.Context) (map[jq.State]int64, error) {
	counts, err := r.store.Count(ctx, jq.Filter{Queue: r.queue})
	switch {
	case errors.Is(err, jq.ErrUnavailable) && ctx.Err() == nil:
		return r.goThrough(ctx)
	case err != nil || len(counts.Queues) == 0:
		return nil, err
	}
	return counts.Queues[0].Jobs, nil
}

// goThrough counts page by page.
func (r *run) goThrough(ctx context.Context) (map[jq.State]int64, error) {
	var seen atomic.Int64
	defer r.telling(ofJobs("counting the jobs", seen.Load, 0))()
	jobs, page := map[jq.State]int64{}, jq.Page{Limit: portion}
	for {
		part, err := r.store.List(ctx, jq.Filter{Queue: r.queue}, page)
		if err != nil {
			return nil, err
		}
		for _, j := range part.Jobs {
			jobs[j.Phase()]++
		}
		seen.Add(int64(len(part.Jobs)))
		if page.Cursor = part.Next; page.Cursor == "" {
			return jobs, nil
		}
	}
}

// live returns how many jobs of the run may still change.
func (r *run) live(ctx context.Context) (int64, error) {
	held, err := r.held(ctx)
	return held[jq.Ready] + held[jq.InFlight] + held[jq.Retrying], err
}

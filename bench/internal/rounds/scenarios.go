package rounds

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/bench/internal/site"
)

// A Scenario is a kind of load.
type Scenario struct {
	Name   string
	Does   string // for people
	play   func(ctx context.Context, p *play) (Result, error)
	longer int      // times the duration, if not 1
	only   []string // the peers that run it, if not all
}

// The names of the scenarios.
const (
	Enqueue1   = "enqueue1"
	Enqueue16  = "enqueue16"
	Bulk       = "bulk"
	Drain      = "drain"
	Continuous = "continuous"
	Held       = "held"
	Latency    = "latency"
	Long       = "long"
	LongHeld   = "long-held"
)

// Scenarios returns all scenarios.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: Enqueue1, Does: "one caller enqueues one job a call", play: enqueue(1, 1)},
		{Name: Enqueue16, Does: "16 goroutines enqueue one job a call each", play: enqueue(16, 1)},
		{Name: Bulk, Does: "one caller enqueues 1,000 jobs a call", play: enqueue(1, bulk)},
		{Name: Drain, Does: "jobs that wait are worked off, until the store has the end of the last one", play: drain},
		{Name: Continuous, Does: "jobs are enqueued, worked and finished at once; the time ends with the end of the last job in the store", play: continuous},
		{Name: Held, Does: "continuous, while another session holds a snapshot of the database open", play: held},
		{Name: Latency, Does: fmt.Sprintf("%d jobs a second; milliseconds from the start of the enqueue call to the start of the handler", pace), play: latency},
		{Name: Long, Does: "continuous, twelve times as long", play: continuous, longer: 12, only: lasting},
		{Name: LongHeld, Does: "held, twenty-four times as long", play: held, longer: 24, only: lasting},
	}
}

// lasting are the peers whose long runs the goals compare. Long runs of all peers would take hours.
var lasting = []string{"jq-postgres", "river-postgres"}

const (
	bulk    = 1000
	backlog = 10_000 // how many jobs may wait in the continuous scenarios
	pace    = 100    // jobs per second for latency
)

// Unfit returns why the peer does not run this scenario, or nothing.
func (s Scenario) Unfit(p peer.Peer) string {
	if s.Name == Held && p.Store != peer.Postgres {
		return "it has no snapshots that others pay for"
	}
	if s.only != nil && !slices.Contains(s.only, p.ID()) {
		return "no goal asks for its long runs"
	}
	return p.Skips[s.Name]
}

// times returns how many jobs are timed: a first one, for warming up, and those of half the duration.
func (s Scenario) times(o Options) int {
	if s.Name != Latency {
		return 0
	}
	return 1 + max(1, int(o.Duration.Seconds()/2*pace))
}

// A play is one run.
type play struct {
	Options
	peer   peer.Peer
	place  peer.Place
	queue  peer.Queue
	ledger *peer.Ledger
	times  int // how many jobs are timed
}

// enqueue adds jobs for the duration.
func enqueue(callers, batch int) func(ctx context.Context, p *play) (Result, error) {
	return func(ctx context.Context, p *play) (Result, error) {
		warm := int64(callers) // warm-up: opens connections and prepares statements before the clock starts
		if err := p.queue.Enqueue(ctx, peer.Load{Jobs: callers, Callers: callers, Batch: 1}); err != nil {
			return Result{}, err
		}
		began, jobs, chunk := time.Now(), warm, callers*batch
		for jobs == warm || time.Since(began) < p.Duration/5 && jobs < p.most(10) {
			at := time.Now()
			err := p.queue.Enqueue(ctx, peer.Load{First: jobs, Jobs: chunk, Callers: callers, Batch: batch})
			if err != nil {
				return Result{}, err
			}
			jobs += int64(chunk)
			if time.Since(at) < p.Duration/100 {
				chunk *= 2
			}
		}
		r := rate(jobs-warm, time.Since(began))
		c, err := p.queue.Count(ctx)
		if err == nil && c.Unfinished != jobs {
			err = fmt.Errorf("%d jobs were enqueued, and %d wait in the store", jobs, c.Unfinished)
		}
		return r, err
	}
}

// most returns the limit on the number of jobs, as a multiple of those to drain, if the store keeps them in memory.
func (p *play) most(times int64) int64 {
	if p.peer.Store == peer.Memory || p.peer.Store == peer.Redis {
		return times * int64(p.Jobs)
	}
	return 1 << 40
}

func rate(jobs int64, took time.Duration) Result {
	return Result{Jobs: jobs, Seconds: took.Seconds(), Rate: float64(jobs) / took.Seconds()}
}

// load returns the peer's fastest way to enqueue many jobs.
func (p *play) load(first int64, jobs int) peer.Load {
	if p.peer.Skips[Bulk] != "" {
		return peer.Load{First: first, Jobs: jobs, Callers: 16, Batch: 1}
	}
	return peer.Load{First: first, Jobs: jobs, Callers: 1, Batch: bulk}
}

func (p *play) work(ctx context.Context) error {
	return p.queue.Work(ctx, cmp.Or(p.Handlers, p.peer.Handlers))
}

// drain works off the waiting jobs.
func drain(ctx context.Context, p *play) (Result, error) {
	jobs := p.Jobs
	if p.peer.Store == peer.Memory {
		jobs *= 10 // otherwise it is over too soon
	}
	if err := p.queue.Enqueue(ctx, p.load(0, jobs)); err != nil {
		return Result{}, err
	}
	began := time.Now()
	if err := p.work(ctx); err != nil {
		return Result{}, err
	}
	err := p.finish(ctx, int64(jobs))
	return rate(int64(jobs), time.Since(began)), err
}

// finish waits until the store has the end of every job, and checks that every job has run.
func (p *play) finish(ctx context.Context, jobs int64) error {
	if err := p.ledger.Await(ctx, jobs); err != nil {
		return fmt.Errorf("%d of %d jobs were begun, and not number %d: %w", p.ledger.Count(), jobs, p.ledger.Missing(jobs), err)
	}
	var c peer.Counts
	err := peer.Until(ctx, func() (over bool, err error) {
		c, err = p.queue.Count(ctx)
		return c.Unfinished == 0, err
	})
	switch missing := p.ledger.Missing(jobs); {
	case err != nil:
		return fmt.Errorf("%d jobs in the store are not finished: %w", c.Unfinished, err)
	case p.peer.Keeps && c.Finished != jobs:
		return fmt.Errorf("%d jobs are finished in the store, of %d", c.Finished, jobs)
	case missing >= 0 || p.ledger.Count() != jobs:
		return fmt.Errorf("%d of %d jobs were begun, job %d was not", p.ledger.Count(), jobs, missing)
	}
	return nil
}

func held(ctx context.Context, p *play) (Result, error) {
	release, err := site.Hold(ctx, p.place.DSN)
	if err != nil {
		return Result{}, err
	}
	r, err := continuous(ctx, p)
	if released := release(); err == nil {
		err = released
	}
	return r, err
}

// continuous keeps some jobs waiting with two producers, for the duration.
func continuous(ctx context.Context, p *play) (Result, error) {
	if err := p.work(ctx); err != nil {
		return Result{}, err
	}
	began := time.Now()
	var next atomic.Int64
	producers, producing := errgroup.WithContext(ctx)
	for range 2 {
		producers.Go(func() error { return p.produce(producing, began.Add(p.Duration), &next) })
	}
	tenths := p.tenths(producing, began)
	if err := producers.Wait(); err != nil {
		return Result{}, err
	}
	err := p.finish(ctx, next.Load())
	r := rate(next.Load(), time.Since(began))
	r.Tenths = <-tenths
	return r, err
}

// produce enqueues while few enough jobs wait, until the time is over.
func (p *play) produce(ctx context.Context, end time.Time, next *atomic.Int64) error {
	for {
		over := func() bool { return next.Load() > 0 && (!time.Now().Before(end) || next.Load() >= p.most(20)) }
		err := peer.Until(ctx, func() (bool, error) { return over() || next.Load()-p.ledger.Count() < backlog, nil })
		if err != nil || over() {
			return err
		}
		first := next.Add(bulk) - bulk
		if err := p.queue.Enqueue(ctx, p.load(first, bulk)); err != nil {
			return err
		}
	}
}

// tenths returns the rates in each tenth of the duration.
func (p *play) tenths(ctx context.Context, began time.Time) <-chan []float64 {
	all := make(chan []float64, 1)
	go func() {
		tick := time.NewTicker(p.Duration / 10)
		defer tick.Stop()
		var speeds []float64
		last, count := began, int64(0)
		for len(speeds) < 10 {
			select {
			case <-ctx.Done(): // the producers have ended
				all <- speeds
				return
			case <-tick.C:
			}
			now, begun := time.Now(), p.ledger.Count()
			speeds = append(speeds, float64(begun-count)/now.Sub(last).Seconds())
			last, count = now, begun
		}
		all <- speeds
	}()
	return all
}

// latency enqueues at a steady pace, slow enough for every peer.
func latency(ctx context.Context, p *play) (Result, error) {
	if err := p.work(ctx); err != nil {
		return Result{}, err
	}
	warm := func() error {
		if err := p.queue.Enqueue(ctx, peer.Load{Jobs: 1, Callers: 1, Batch: 1}); err != nil {
			return err
		}
		return p.ledger.Await(ctx, 1)
	}
	if err := warm(); err != nil {
		return Result{}, err
	}
	began := time.Now()
	called, err := peer.Steadily(ctx, p.queue, peer.Load{First: 1, Jobs: p.times - 1}, pace)
	if err != nil {
		return Result{}, err
	}
	r := Result{Jobs: int64(p.times), Seconds: time.Since(began).Seconds()}
	if err := p.finish(ctx, int64(p.times)); err != nil {
		return r, err
	}
	waits := make([]float64, len(called))
	for i, at := range called {
		waits[i] = float64(p.ledger.Began(i+1).Sub(at)) / 1e6 // the first job was for warming up
	}
	slices.Sort(waits)
	r.P50, r.P95, r.P99, r.Max = quantile(waits, 50), quantile(waits, 95), quantile(waits, 99), waits[len(waits)-1]
	return r, nil
}

// quantile returns the smallest of the sorted values that at least that many percent do not exceed.
func quantile(sorted []float64, percent int) float64 {
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

package rounds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ed332417/jq/bench/internal/cost"
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
	pace   int      // jobs a second, if the scenario sets it
	shape  peer.Shape
}

// Names returns the names by which people choose it: its own, and that of its group.
func (s Scenario) Names() []string {
	if s.Lone() {
		return []string{Lone, s.Name}
	}
	return []string{s.Name}
}

// Lone reports whether another process enqueues the jobs one by one.
func (s Scenario) Lone() bool { return strings.HasPrefix(s.Name, Lone+"-") }

// Paced reports whether the scenario sets the pace, so that its figures are waits and costs, not rates.
func (s Scenario) Paced() bool { return s.pace > 0 }

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
	Big        = "big"
	Failing    = "failing"
	Lone       = "lone" // a group
	Lone20     = "lone-20"
	Lone20Tx   = "lone-20-tx"
	Lone300    = "lone-300"
	Lone300Tx  = "lone-300-tx"
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
		{Name: Latency, Does: fmt.Sprintf("%d jobs a second; milliseconds from the start of the enqueue call to the start of the handler", pace), play: latency, pace: pace},
		{Name: Long, Does: "continuous, twelve times as long", play: continuous, longer: 12, only: lasting},
		{Name: LongHeld, Does: "held, twenty-four times as long", play: held, longer: 24, only: lasting},
		{Name: Big, Does: fmt.Sprintf("continuous, with payloads of %d kB", large/1000), play: continuous, shape: peer.Shape{Text: large}},
		{Name: Failing, Does: "continuous, and one job in ten fails once", play: continuous, shape: peer.Shape{Fails: 10}},
		loneScenario(Lone20, "20 jobs a second, each enqueued by itself in another process; empty handlers", 20, false),
		loneScenario(Lone20Tx, "the same, each job in a transaction of the caller's own", 20, true),
		loneScenario(Lone300, "300 jobs a second, each enqueued by itself in another process; handlers that take 5 to 800 ms", 300, false),
		loneScenario(Lone300Tx, "the same, each job in a transaction of the caller's own", 300, true),
	}
}

func loneScenario(name, does string, pace int, tx bool) Scenario {
	return Scenario{Name: name, Does: does, play: lone(tx), only: lonePeers, pace: pace, shape: peer.Shape{Slow: pace > 20}}
}

// lasting are the peers whose long runs the goals compare. Long runs of all peers would take hours.
var lasting = []string{"jq-postgres", "river-postgres"}

// lonePeers are the peers with lone jobs: those on Postgres, whose servers others use too. All offer to enqueue in a transaction of
// the caller's own.
var lonePeers = []string{"jq-postgres", "jq-100ms-postgres", "river-postgres", "river-100ms-postgres", "graphile-worker-postgres", "pg-boss-postgres"}

const (
	large   = 5000 // bytes of a large payload
	bulk    = 1000
	backlog = 10_000 // how many jobs may wait in the continuous scenarios
	pace    = 100    // jobs per second for latency
)

// Unfit returns why the peer does not run this scenario, or nothing.
func (s Scenario) Unfit(p peer.Peer) string {
	if s.Name == Held && p.Store != peer.Postgres {
		return "it has no snapshots that others pay for"
	}
	if s.Name == Big && (p.Store == peer.Memory || p.Store == peer.Redis) {
		return "it keeps all payloads in memory"
	}
	if s.only != nil && !slices.Contains(s.only, p.ID()) {
		return "no goal asks for it"
	}
	if p.Plays != "" && !slices.Contains(s.Names(), p.Plays) {
		return "it differs only in " + p.Plays
	}
	return p.Skips[s.Name]
}

// times returns how many jobs are timed: a first one, for warming up, and those of half the duration, or of four times the
// duration.
func (s Scenario) times(o Options) int {
	switch {
	case s.Lone():
		return 1 + max(1, int(4*o.Duration.Seconds()*float64(s.pace)))
	case s.Paced():
		return 1 + max(1, int(o.Duration.Seconds()/2*float64(s.pace)))
	}
	return 0
}

// A play is one run.
type play struct {
	Options
	peer   peer.Peer
	place  peer.Place
	queue  peer.Queue
	ledger *peer.Ledger
	meter  *cost.Meter
	shape  peer.Shape
	pace   int
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
		return peer.Load{First: first, Jobs: jobs, Callers: 16, Batch: 1, Shape: p.shape}
	}
	return peer.Load{First: first, Jobs: jobs, Callers: 1, Batch: bulk, Shape: p.shape}
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
	if err := p.meter.Begin(ctx, 0); err != nil {
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
	return r, errors.Join(err, p.meter.End(ctx))
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
	called, err := peer.Steadily(ctx, p.queue, peer.Load{First: 1, Jobs: p.times - 1}, p.pace)
	if err != nil {
		return Result{}, err
	}
	r := Result{Jobs: int64(p.times), Seconds: time.Since(began).Seconds()}
	if err := p.finish(ctx, int64(p.times)); err != nil {
		return r, err
	}
	p.waits(&r, called)
	return r, nil
}

// waits adds how long the jobs waited that were enqueued at these times. The first job of the run was for warming up.
func (p *play) waits(r *Result, called []time.Time) {
	waits := make([]float64, len(called))
	for i, at := range called {
		waits[i] = float64(p.ledger.Began(i+1).Sub(at)) / 1e6
	}
	slices.Sort(waits)
	r.P50, r.P95, r.P99, r.Max = quantile(waits, 50), quantile(waits, 95), quantile(waits, 99), waits[len(waits)-1]
}

// quantile returns the smallest of the sorted values that at least that many percent do not exceed.
func quantile(sorted []float64, percent int) float64 {
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

package server_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/server"
	"github.com/seed-ed332417/jq/internal/store"
)

// A scenario is what a seed stands for: which jobs there are, which servers run them, and what goes wrong. It is drawn before anything
// runs and depends on the seed alone, and so does the fault that meets the nth call of one method on one connection.
//
// A seed does not decide which goroutine runs first at one instant, nor the jitter that the servers draw themselves. So the job that
// meets a fault varies a little from run to run, and you must play a seed that failed many times.
type scenario struct {
	seed      uint64
	calm      bool // no faults: then nothing may be explained by one
	producers int
	servers   int
	wakeups   bool // the servers see the abilities of the store, wake-ups among them
	faultsFor time.Duration
	rates     []rate
	plans     []*plan
	flows     []*flow
	events    []event

	awayAtFirst time.Duration // the store, when the servers start
	maxInFlight int           // of jobs of the first queue, or zero
	maxPerKey   int           // of those with the same limit key, or zero
	pace        store.Rate    // at which jobs of the first queue may be claimed
	ordered     bool          // the jobs of a limit key of the first queue are claimed in order
}

// policy returns the policy of the first queue.
func (sc *scenario) policy() store.Policy {
	return store.Policy{MaxInFlight: sc.maxInFlight, MaxPerKey: sc.maxPerKey, Ordered: sc.ordered, Rate: sc.pace}
}

// A limit is how many jobs of a queue, or of one of its limit keys, may be in flight at once.
type limit struct {
	queue, key string // no key means all jobs of the queue
	most       int
}

// of names what the limit is of.
func (l limit) of() string {
	if l.key == "" {
		return "queue"
	}
	return "limit key"
}

// limits returns the limits for which the job counts.
func (sc *scenario) limits(p *plan) []limit {
	var all []limit
	if p.Queue == queues[0] && sc.maxInFlight > 0 {
		all = append(all, limit{queue: p.Queue, most: sc.maxInFlight})
	}
	if most := sc.policy().KeyLimit(); p.Queue == queues[0] && most > 0 && p.LimitKey != "" {
		all = append(all, limit{queue: p.Queue, key: p.LimitKey, most: most})
	}
	return all
}

// isPaced reports whether the rate of the first queue is about the job.
func (sc *scenario) isPaced(p *plan) bool { return sc.pace.N > 0 && p.Queue == queues[0] }

// A rate is how probable a fault of a call is.
type rate struct {
	fault fault
	part  float64
}

// An event is something that the director does at a time after the start.
type event struct {
	at    time.Duration
	what  fault
	who   int           // a server, a job or a queue
	lasts time.Duration // how long it lasts, or until a successor is there
	hang  bool          // calls hang rather than being refused; a stop is in a hurry; a cancelled job is requeued
}

// queues are the queues of every scenario.
var queues = []string{"mail", "video"}

// dice returns the dice for one decision: equal names roll equally, whatever else was rolled before.
func dice(seed uint64, name string, n int) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%d", name, n)
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// between returns a duration of whole microseconds, which is the resolution of the contract.
func between(d *rand.Rand, least, most time.Duration) time.Duration {
	return (least + time.Duration(d.Int64N(int64(most-least)+1))).Truncate(store.Resolution)
}

func newScenario(seed uint64) *scenario {
	d := dice(seed, "scenario", 0)
	sc := &scenario{
		seed: seed, calm: d.IntN(20) == 0, producers: 1 + d.IntN(2), servers: 2 + d.IntN(2), wakeups: d.IntN(4) > 0,
		faultsFor: between(d, 3*time.Second, 5*time.Second),
	}
	if !sc.calm {
		sc.rates = drawRates(d)
	}
	for n := range 8 + d.IntN(14) {
		sc.plans = append(sc.plans, newPlan(dice(seed, "plan", n), n))
	}
	if d.IntN(2) == 0 {
		sc.addFlow(dice(seed, "flows", 0))
	}
	sc.drawEvents(d)
	if d := dice(seed, "limit", 0); d.IntN(3) == 0 {
		sc.maxInFlight = 1 + d.IntN(3)
	}
	if d := dice(seed, "limit of a key", 0); d.IntN(3) == 0 {
		sc.maxPerKey = 1 + d.IntN(2)
	}
	if d := dice(seed, "pace", 0); d.IntN(4) == 0 {
		sc.pace = store.Rate{N: 2 + d.IntN(3), Per: between(d, store.MinPer, 500*time.Millisecond)}
	}
	if d := dice(seed, "order", 0); d.IntN(4) == 0 {
		sc.putInOrder()
	}
	for _, q := range queues {
		sc.plans = append(sc.plans, lastPlan(q, len(sc.plans)))
	}
	slices.SortStableFunc(sc.events, func(a, b event) int { return int(a.at - b.at) })
	return sc
}

// drawRates leaves some faults out, sometimes all of them, so that the others also occur alone.
func drawRates(d *rand.Rand) []rate {
	var rates []rate
	if d.IntN(5) == 0 {
		return nil
	}
	for _, r := range []rate{{refused, 0.15}, {lost, 0.15}, {delayed, 0.05}, {stalled, 0.015}, {late, 0.015}, {deaf, 0.01}} {
		if d.IntN(3) > 0 {
			rates = append(rates, rate{r.fault, r.part * 2 * d.Float64() * d.Float64()})
		}
	}
	return rates
}

// drawEvents draws what happens to whole servers, the store and the queues, and what people do to jobs.
func (sc *scenario) drawEvents(d *rand.Rand) {
	add := func(most int, what fault, who int, least, longest time.Duration) {
		for range d.IntN(most + 1) {
			e := event{what: what, who: d.IntN(who), lasts: between(d, least, longest), hang: d.IntN(2) == 0}
			e.at = between(d, 0, max(0, sc.faultsFor-e.lasts))
			sc.events = append(sc.events, e)
		}
	}
	add(4, jobCancelled, len(sc.plans), 0, 20*time.Millisecond)
	add(3, jobRequeued, len(sc.plans), 0, 0)
	for _, p := range sc.plans {
		if p.work > 300*time.Millisecond && d.IntN(3) == 0 { // those that probably run when they are cancelled
			at := p.at + p.Delay + between(d, 0, 2*p.work)
			sc.events = append(sc.events, event{at: at, what: jobCancelled, who: p.n, hang: d.IntN(2) == 0})
		}
	}
	add(2, queuePaused, len(queues), 200*time.Millisecond, time.Second)
	add(2, serverStopped, sc.servers, 0, time.Second)
	if sc.calm {
		return
	}
	add(2, storeDied, 1, 100*time.Millisecond, 2500*time.Millisecond)
	add(1, partitioned, sc.servers, maxLease, 2*maxLease)
	add(1, serverDied, sc.servers, 0, time.Second)
	if d.IntN(8) == 0 {
		sc.awayAtFirst = between(d, 50*time.Millisecond, time.Second)
	}
}

// The longest times of a scenario.
const (
	maxLease = 1200 * time.Millisecond
	maxStall = 2 * maxLease

	unknownFor = 25 * time.Second // so that a job is put off by half a second
)

// options returns the options of the server with the number, in its nth life.
func (sc *scenario) options(number, life int) server.Options {
	d := dice(sc.seed, fmt.Sprintf("server %d", number), life)
	o := server.Options{
		Name:   fmt.Sprintf("server-%d-%d", number, life),
		Queues: map[string]server.QueueOptions{},
		Slots:  1 + d.IntN(3),
		Claim: server.ClaimOptions{
			Buffer:       d.IntN(5),
			RetryShare:   d.Float64() - 0.2, // at times none
			PollInterval: between(d, 50*time.Millisecond, time.Second),
		},
		Lease:              server.LeaseOptions{Duration: between(d, 400*time.Millisecond, maxLease)},
		Timeout:            between(d, 5*time.Second, 8*time.Second),
		Abandon:            server.AbandonOptions{Timeout: between(d, 50*time.Millisecond, 300*time.Millisecond)},
		UnknownKindTimeout: unknownFor,
		Commit: server.CommitOptions{
			Size:           1 + d.IntN(8),
			MaxDelay:       between(d, time.Millisecond, 20*time.Millisecond),
			MaxUncommitted: 1 + d.IntN(10),
		},
		Recovery: server.RecoveryOptions{Interval: between(d, 200*time.Millisecond, time.Second), Limit: 1 + d.IntN(5)},
		Shutdown: server.ShutdownOptions{DrainTimeout: between(d, 100*time.Millisecond, 3*time.Second)},
	}
	if part := d.IntN(4); part > 0 {
		o.Lease.Heartbeat = o.Lease.Duration / time.Duration(2+part)
	}
	if number > 0 && d.IntN(6) == 0 {
		o.Recovery.Interval = -1
	}
	if d.IntN(4) == 0 {
		o.Recovery.Grace = between(d, 0, 200*time.Millisecond)
	}
	if part := dice(sc.seed, fmt.Sprintf("intervals of %d", number), life); part.IntN(3) == 0 {
		o.Claim.Interval, o.Commit.Interval = between(part, 0, 200*time.Millisecond), between(part, 0, 300*time.Millisecond)
	}
	for _, q := range queues {
		o.Queues[q] = server.QueueOptions{Weight: d.IntN(4), Slots: d.IntN(2) * (1 + d.IntN(o.Slots+o.Claim.Buffer))}
	}
	return o
}

// knowsRare returns whether the server has a handler for the new kind. During a deployment only some servers have one.
func (sc *scenario) knowsRare(number, life int) bool {
	return number == 0 || dice(sc.seed, fmt.Sprintf("deployment of %d", number), life).IntN(2) == 0
}

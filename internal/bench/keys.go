package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq"
)

// Scenes of the workload keys.
const (
	OneEach  = "one-each"  // many keys with one waiting job each
	FewEach  = "few-each"  // many keys with a few waiting jobs each
	BigKey   = "big-key"   // one key is full and has very many waiting jobs; another has one
	FullKeys = "full-keys" // all keys but one are full and have a waiting job each
)

// KeyScenes returns the names of all scenes.
func KeyScenes() []string { return []string{OneEach, FewEach, BigKey, FullKeys} }

const (
	mostKeys  = 100_000
	jobsOfFew = 5
	maxPerKey = 1
)

// A keyScene is what a queue has before each claim: jobs in flight and waiting ones, of all keys in turn, and maybe a waiting job of one
// key more. If it has that job, the other keys are full.
type keyScene struct {
	name          string
	keys          int
	held, waiting int
	spare         bool
}

func (o Options) keyScene(name string) keyScene {
	keys := min(mostKeys, o.Jobs)
	switch name {
	case OneEach:
		return keyScene{name: name, keys: keys, waiting: keys}
	case FewEach:
		return keyScene{name: name, keys: keys, waiting: jobsOfFew * keys}
	case BigKey:
		return keyScene{name: name, keys: 1, held: maxPerKey, waiting: o.Jobs, spare: true}
	default:
		return keyScene{name: name, keys: keys, held: maxPerKey * keys, waiting: keys, spare: true}
	}
}

// KeyCounts says how large a scene of the workload keys is.
type KeyCounts struct {
	Keys    int // with waiting jobs, without the key that has room if all others are full
	Waiting int // jobs of these keys
}

// KeyJobs returns how large a scene is with that option.
func KeyJobs(jobs int, scene string) KeyCounts {
	s := Options{Jobs: jobs}.keyScene(scene)
	return KeyCounts{s.keys, s.waiting}
}

// all returns how many jobs wait.
func (s keyScene) all() int {
	if s.spare {
		return s.waiting + 1
	}
	return s.waiting
}

// keying measures claims in one scene after the other, each beside a queue without a policy.
func keying(ctx context.Context, r *run) ([]Part, error) {
	var parts []Part
	for _, name := range KeyScenes() {
		figures, err := r.beside(name).keyPair(name).play(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		parts = append(parts, Part{name, figures})
	}
	return parts, nil
}

// A KeyPair is a queue with MaxPerKey in some scene, and a plain queue with as many jobs, from which the same number is claimed. They
// stay, so that they can be measured several times.
type KeyPair struct {
	run            *run
	scene          keyScene
	limited, plain *keyQueue
	settled        time.Duration
}

// NewKeyPair sets up a scene. Its jobs and its policy stay in the store.
func NewKeyPair(ctx context.Context, s jq.Store, options Options, scene string) (*KeyPair, error) {
	options.Workload = Keys
	o, err := options.filled()
	if err != nil {
		return nil, err
	}
	p := newRun(s, o).keyPair(scene)
	if err := p.set(ctx); err != nil {
		return nil, fmt.Errorf("laying the jobs out: %w", err)
	}
	return p, nil
}

func (r *run) keyPair(name string) *KeyPair {
	scene := r.o.keyScene(name)
	takes := min(r.o.Batch, scene.keys)
	if scene.spare {
		takes = 1
	}
	return &KeyPair{
		run: r, scene: scene,
		// A worker does not know that only one of the jobs has room, so it asks for a whole batch. The plain queue would give it a
		// whole batch, which costs more than one job, so it is asked for one.
		limited: &keyQueue{run: r.beside("limited"), scene: scene, asks: r.o.Batch, takes: takes, keyed: true, use: newUse(jq.Policy{MaxPerKey: maxPerKey})},
		plain:   &keyQueue{run: r.beside("plain"), scene: scene, asks: takes, takes: takes, use: newUse(jq.Policy{})},
	}
}

func (p *KeyPair) queues() []*keyQueue { return []*keyQueue{p.limited, p.plain} }

// play sets the pair up, measures, and removes the jobs and the policy.
func (p *KeyPair) play(ctx context.Context) (figures []Figure, err error) {
	defer func() {
		for _, q := range p.queues() {
			err = errors.Join(err, q.run.lift(ctx, q.use.policy), q.run.remove(ctx))
		}
	}()
	if err := p.set(ctx); err != nil {
		return nil, err
	}
	if figures, err = p.claims(ctx); err != nil {
		return nil, err
	}
	return figures, p.Verify(ctx)
}

// Settled returns how long it took, once the jobs were laid out, until a claim from the queue with MaxPerKey found what it should.
func (p *KeyPair) Settled() time.Duration { return p.settled }

// set lays the jobs out. It also claims as often as a measurement: in the first claims, a store may have to read what it knows later.
func (p *KeyPair) set(ctx context.Context) (err error) {
	for _, q := range p.queues() {
		if err := q.set(ctx); err != nil {
			return err
		}
	}
	for _, q := range []*keyQueue{p.plain, p.limited} {
		if p.settled, err = q.settle(ctx); err != nil {
			return err
		}
	}
	return p.each(ctx, func(q *keyQueue) error { return q.once(ctx, &claimTimes{}) })
}

// Measure measures one round. Afterwards as many jobs wait as before.
func (p *KeyPair) Measure(ctx context.Context) (Result, error) {
	figures, err := p.claims(ctx)
	if err != nil {
		return Result{}, err
	}
	return Result{Workload: Keys, Queue: p.run.queue, Parts: []Part{{p.scene.name, figures}}}, nil
}

// Verify checks in the store how the jobs of all rounds have ended, and that the limit still holds.
func (p *KeyPair) Verify(ctx context.Context) error {
	for _, q := range p.queues() {
		err := q.run.verify(ctx, map[jq.State]int64{
			jq.Ready: int64(p.scene.all()), jq.InFlight: int64(p.scene.held), jq.Succeeded: int64(q.taken),
		})
		if err = errors.Join(err, q.run.stillLimited(ctx, q.use.policy)); err != nil {
			return fmt.Errorf("%s: %w", q.run.queue, err)
		}
	}
	return nil
}

// keyClaims is how many claims are measured: few if there are few jobs.
func (o Options) keyClaims() int { return min(mostClaims, max(1, o.Jobs/10)) }

// each calls do for both queues as often as claims are measured. No queue always comes first.
func (p *KeyPair) each(ctx context.Context, do func(*keyQueue) error) error {
	for i := range p.run.o.keyClaims() {
		queues := p.queues()
		if i%2 == 1 {
			queues[0], queues[1] = queues[1], queues[0]
		}
		for _, q := range queues {
			if err := errors.Join(ctx.Err(), do(q)); err != nil {
				return err
			}
		}
	}
	return nil
}

// claims claims from both queues in turn.
func (p *KeyPair) claims(ctx context.Context) ([]Figure, error) {
	limited, plain := &claimTimes{}, &claimTimes{}
	var taken atomic.Int64
	jobs := p.run.o.keyClaims() * p.limited.takes
	m, err := p.run.measure(ctx, taken.Load, ofJobs("claiming with "+p.scene.name, taken.Load, int64(2*jobs)))
	if err != nil {
		return nil, err
	}
	defer m.halt()
	err = p.each(ctx, func(q *keyQueue) error {
		took := limited
		if q == p.plain {
			took = plain
		}
		taken.Add(int64(q.takes))
		return q.once(ctx, took)
	})
	if err != nil {
		return nil, err
	}
	if _, err := m.stop(ctx); err != nil { // costs are those of both queues together
		return nil, err
	}
	return keyFigures(jobs, limited, plain), nil
}

// keyFigures returns the figures of a scene, where so many jobs were claimed from each queue.
func keyFigures(jobs int, limited, plain *claimTimes) []Figure {
	mine, others := limited.figures(""), plain.figures("plain ")
	figures := append(append([]Figure{{"jobs", "", float64(jobs)}}, mine...), others...)
	for _, name := range []string{"claim p50", "claim and ack p50"} {
		one, _ := Part{Figures: mine}.Figure(name)
		other, _ := Part{Figures: others}.Figure("plain " + name)
		if other.Value > 0 {
			figures = append(figures, Figure{name + " to plain", "%", 100 * one.Value / other.Value})
		}
	}
	return figures
}

// claimTimes are how long claims took, alone and with their acks.
type claimTimes struct{ claim, both times }

func (t *claimTimes) figures(of string) []Figure {
	return append(t.claim.figures(of+"claim "), t.both.figures(of+"claim and ack ")...)
}

// A keyQueue is one of a pair.
type keyQueue struct {
	run         *run
	scene       keyScene
	asks, takes int  // how many jobs a claim asks for, and how many it must find
	keyed       bool // jobs have keys
	use         *use
	taken       int // how many jobs were claimed and acked
}

// set lays the jobs out. The policy comes first, so that the store need not count jobs for it.
func (q *keyQueue) set(ctx context.Context) error {
	if err := q.run.limit(ctx, q.use.policy); err != nil {
		return err
	}
	keys := 0
	if q.keyed {
		keys = q.scene.keys
	}
	if err := q.hold(ctx, keys); err != nil {
		return fmt.Errorf("holding jobs in flight: %w", err)
	}
	if err := q.run.fillKeys(ctx, 0, q.scene.waiting, keys); err != nil {
		return err
	}
	if !q.scene.spare {
		return nil
	}
	key := ""
	if q.keyed {
		key = "spare"
	}
	return enqueue(ctx, q.run.client(), q.run.ofKeys([]string{key}))
}

// settle claims until a claim finds what it should, as a worker would: a store may not have found all jobs yet, or take longer than a call may.
// It returns how long that took.
func (q *keyQueue) settle(ctx context.Context) (time.Duration, error) {
	for began := time.Now(); ; {
		jobs, err := q.run.claim(ctx, q.asks)
		late := errors.Is(err, jq.ErrUnavailable) && ctx.Err() == nil
		if err != nil && !late {
			return 0, err
		}
		took := time.Since(began)
		if len(jobs) < q.takes && took >= stuck {
			return 0, errors.Join(fmt.Errorf("the run does not count: for %v, each claim has found fewer than the %d jobs that have room, the last one %d",
				stuck, q.takes, len(jobs)), err)
		}
		found := len(jobs)
		if found > 0 {
			err = errors.Join(q.use.begin(jobs), q.finish(ctx, jobs), q.again(ctx, jobs))
		} else {
			err = sleep(ctx, watched)
		}
		if err != nil || found >= q.takes {
			return took, err
		}
	}
}

// hold enqueues and claims the jobs that stay in flight, one call after the other, so that each claim finds its jobs.
func (q *keyQueue) hold(ctx context.Context, keys int) error {
	next, done := upTo(q.scene.held, q.run.o.most()), 0
	for n := next(); n > 0; n = next() {
		if err := q.run.fillKeys(ctx, done, n, keys); err != nil {
			return err
		}
		jobs, err := q.run.claim(ctx, n)
		if err != nil {
			return err
		}
		if err := q.check(jobs, n, n); err != nil {
			return err
		}
		done += n
	}
	return nil
}

// once claims and acks, and adds what that took. Then it enqueues other jobs of the same keys.
func (q *keyQueue) once(ctx context.Context, took *claimTimes) error {
	began := time.Now()
	jobs, err := q.run.claim(ctx, q.asks)
	took.claim.add(time.Since(began))
	if err != nil {
		return err
	}
	if err := q.check(jobs, q.asks, q.takes); err != nil {
		return err
	}
	if err := q.finish(ctx, jobs); err != nil {
		return err
	}
	took.both.add(time.Since(began))
	return q.again(ctx, jobs)
}

// finish acks claimed jobs.
func (q *keyQueue) finish(ctx context.Context, jobs []jq.Job) error {
	q.use.end(jobs)
	q.taken += len(jobs)
	return q.run.ack(ctx, jobs)
}

// again enqueues as many jobs with the same keys.
func (q *keyQueue) again(ctx context.Context, jobs []jq.Job) error {
	keys := make([]string, len(jobs))
	for i, j := range jobs {
		keys[i] = j.LimitKey()
	}
	return enqueue(ctx, q.run.client(), q.run.ofKeys(keys))
}

// check checks that no limit is broken, and that the claim has found what it must.
func (q *keyQueue) check(jobs []jq.Job, asks, takes int) error {
	if err := q.use.begin(jobs); err != nil {
		return err
	}
	if len(jobs) != takes {
		return fmt.Errorf("the run does not count: a claim of %d has found %d, where %d have room", asks, len(jobs), takes)
	}
	return nil
}

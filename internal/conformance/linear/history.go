package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
)

// The times that scripts use. They are few, and the clock moves by the same ones, so that calls meet the very moment at
// which something becomes due or ends.
const (
	ttl    = 10 * time.Second
	delay  = 2 * time.Second
	window = 15 * time.Second
)

var backoff = store.Backoff{Base: time.Second, Cap: 4 * time.Second, Jitter: 20}

// moves are by what the clock is moved, unless to a time at which something happens.
var moves = []time.Duration{store.Resolution, backoff.Base, delay, delay + backoff.Cap, ttl, ttl, window, window + ttl}

// callsPerRound is how many calls a client makes before it waits for the others.
const callsPerRound = 2

// A history is one run of some clients on a few jobs.
type history struct {
	store   store.Store
	clock   *clock.Mock
	seed    uint64
	shared  bool // the store has jobs of earlier histories
	rounds  int
	clients []*client
	reader  *client
	queues  []string
	keys    []string
	groups  []string
	waits   bool              // jobs wait for others and for groups
	last    string            // the queue and the group of the last two jobs
	keeper  store.GroupKeeper // nil if the store opens and seals no groups

	board  board
	order  atomic.Int64  // of calls and returns
	begun  atomic.Int64  // calls of this round
	doubts atomic.Int64  // answers lost
	moveAt int64         // the call of this round at which the clock moves
	move   chan struct{} // is closed then

	most   int        // how many jobs of the first queue may be in flight, or 0 for any number
	perKey int        // how many of them with the same limit key, or 0 for any number
	rate   store.Rate // how many of them may be claimed in how long
	fair   bool       // limit keys take turns in it
	sorted bool       // it is ordered, which limits each key as perKey says
	lifted int64      // the order at which that was over

	records []record // when the run is over
	links   *links   // between jobs, then
	rests   []rest   // after it
	unended int64    // the id of a job that does not end although workers go on, or 0
	end     int64    // of the run, by the store's clock
}

func newHistory(s store.Store, clk *clock.Mock, opts Options, lacks []string, seed uint64) *history {
	h := &history{store: s, clock: clk, seed: seed, shared: opts.PerStore > 1, rounds: calls / callsPerRound}
	h.waits = !slices.Contains(lacks, unblocking)
	_, able := s.(store.PolicyKeeper)
	if able && !slices.Contains(lacks, filling) && seed%3 == 2 {
		h.most = limit
	} else if able && !slices.Contains(lacks, fillingKeys) && seed%3 == 1 {
		h.perKey, h.sorted = keyLimit, seed%2 == 0
	} else if able && !slices.Contains(lacks, rating) && seed%6 == 3 {
		h.rate = limitRate
	}
	h.fair = able && !slices.Contains(lacks, fillingKeys) && seed%6 < 2 // beside a limit for each key, or alone
	h.keeper, _ = s.(store.GroupKeeper)
	h.last = h.named("last")
	h.queues = []string{h.named("q1"), h.named("q2"), h.last}
	h.keys = []string{h.named("k1"), h.named("k2")}
	h.groups = []string{h.named("g1"), h.named("g2")}
	lossy := seed%2 == 0 // the other half is judged more strictly, for nothing in it is in doubt
	for i := range clients {
		h.clients = append(h.clients, &client{h: h, number: i, lossy: lossy, details: map[int64]store.JobDetail{}})
	}
	h.board.named = map[int64]bool{}
	h.reader = &client{h: h, number: clients, details: map[int64]store.JobDetail{}}
	return h
}

// named is a name that no other history on the store has.
func (h *history) named(name string) string { return fmt.Sprintf("h%d.%s", h.seed, name) }

func (h *history) now() int64 { return exactly(store.Truncate(h.clock.Now())).lo }

// run makes all calls and collects their records.
func (h *history) run(ctx context.Context) error {
	policy := store.Policy{MaxInFlight: h.most, MaxPerKey: h.perKey, Rate: h.rate, Fair: h.fair, Ordered: h.sorted}
	if h.sorted {
		policy.MaxPerKey = 0
	}
	if err := h.limits(ctx, policy); err != nil {
		return err
	}
	h.reader.prepare(ctx)
	for round := range h.rounds {
		h.round(ctx, round)
	}
	h.lifted = h.order.Add(1)
	if err := h.limits(ctx, store.Policy{}); err != nil {
		return err
	}
	if h.waits {
		h.lastTwo(ctx)
		h.reader.settleAll(ctx)
	}
	h.reader.readAll(ctx)
	if h.waits {
		h.rest(ctx)
	}
	h.end = h.now()
	if err := ctx.Err(); err != nil {
		return err // the calls were refused for it
	}
	for _, c := range append(slices.Clone(h.clients), h.reader) {
		if c.err != nil {
			return fmt.Errorf("client %d: %w", c.number, c.err)
		}
		h.records = append(h.records, c.records...)
	}
	return h.clear(ctx)
}

// clear ends what is in flight, so that a later history on the same store does not recover it. The way to the store may lose answers.
func (h *history) clear(ctx context.Context) error {
	for _, q := range h.queues {
		var err error
		for try := 0; try == 0 || try < 20 && (errors.Is(err, store.ErrInDoubt) || errors.Is(err, store.ErrUnavailable)); try++ {
			_, err = h.store.Cancel(ctx, store.Filter{Queue: q}, store.MaxItems)
		}
		if err != nil {
			return fmt.Errorf("clearing away: %w", err)
		}
	}
	return nil
}

// round lets all clients make some calls at once, and the clock move at some moment meanwhile. Rounds keep the clients
// together: one that ran ahead would meet nobody.
func (h *history) round(ctx context.Context, round int) {
	script := rand.New(rand.NewPCG(h.seed, uint64(round)))
	h.begun.Store(0)
	h.moveAt, h.move = 1+script.Int64N(int64(len(h.clients)*callsPerRound)), make(chan struct{})
	by, draw := moves[script.IntN(len(moves))], script.IntN(3*recent)
	if h.rate.N > 0 && script.IntN(2) == 0 { // to just before the claims of this moment cease to count
		by, draw = h.rate.Per-store.Resolution, 2*recent
	}

	var deeds []func()
	for _, c := range h.clients {
		deeds = append(deeds, func() {
			for i := range callsPerRound {
				c.step(ctx, round*callsPerRound+i)
			}
		})
	}
	atOnce(append(deeds, func() {
		<-h.move
		if next, ok := h.board.someNext(draw, h.now()); ok && draw < 2*recent {
			by = next - store.Resolution*time.Duration(draw%2) // to the very moment, or to just before it
		}
		h.clock.Add(by)
	})...)
}

// atOnce does everything at the same time, and waits for it.
func atOnce(things ...func()) {
	gate := make(chan struct{})
	var doing sync.WaitGroup
	for _, do := range things {
		doing.Go(func() {
			<-gate
			do()
		})
	}
	close(gate)
	doing.Wait()
}

// enter begins a call: it says what comes before it. To yield lets the calls of others come between a call and its stamps,
// which two processors alone would seldom do.
func (h *history) enter() (order, now int64) {
	if h.begun.Add(1) == h.moveAt {
		close(h.move)
	}
	order, now = h.order.Add(1), h.now()
	runtime.Gosched()
	return order, now
}

// leave ends a call.
func (h *history) leave() (order, now int64) {
	runtime.Gosched()
	now = h.now()
	return h.order.Add(1), now
}

// hasOverlap says that two claims on one queue overlapped, and one of them returned a job.
func (h *history) hasOverlap() bool {
	for i, a := range h.records {
		for _, b := range h.records[:i] {
			if a.op == store.OpClaim && b.op == store.OpClaim && a.queue == b.queue &&
				a.call < b.ret && b.call < a.ret && (a.claimed() || b.claimed()) {
				return true
			}
		}
	}
	return false
}

func (r record) claimed() bool { return !r.lost && len(r.events) > 0 }

// hasLostLease says that somebody used a lease that was overtaken.
func (h *history) hasLostLease() bool {
	return slices.ContainsFunc(h.records, func(r record) bool {
		return slices.ContainsFunc(r.events, func(e event) bool { return e.token != 0 && e.token < e.seen.token })
	})
}

// hasUnblocked says that a blocked job was claimed by a client, and that another call was made at the same time as one of those that it
// had waited for.
func (h *history) hasUnblocked() bool {
	for _, r := range h.records {
		for _, e := range r.events {
			if e.op == store.OpClaim && r.claimed() && r.client < clients && h.unblockedAmid(e.id) {
				return true
			}
		}
	}
	return false
}

// unblockedAmid says that a call which has ended what the job waits for overlapped with a call that may have ended something else, or taken
// the job.
func (h *history) unblockedAmid(id int64) bool {
	for _, w := range h.links.births[id].after {
		for _, c := range h.links.endsOf(w) {
			overlaps := func(r record) bool {
				return r.call != c.call && r.call < c.ret && c.call < r.ret && !slices.Contains([]store.Op{opGet, store.OpExtend, store.OpSave}, r.op)
			}
			if slices.ContainsFunc(h.records, overlaps) {
				return true
			}
		}
	}
	return false
}

// hasDoubt says that an answer got lost.
func (h *history) hasDoubt() bool {
	return slices.ContainsFunc(h.records, func(r record) bool { return r.lost })
}

// A board is what the clients know of: they share it, so that they use each other's leases.
type board struct {
	mu     sync.Mutex // guards what follows
	ids    []int64
	named  map[int64]bool // ids of which it is known which enqueue they come from
	leases []store.Lease
	nexts  []int64 // when jobs become due, or their leases end
}

// learn notes what the events show.
func (b *board) learn(events []event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range events {
		for _, it := range e.items {
			b.meet(it.ID, !it.Duplicate)
		}
		b.meet(e.id, e.seen.kind != "")
		if !e.seen.next.IsZero() {
			b.nexts = append(b.nexts, e.seen.next.UnixMicro())
		}
		if e.op == store.OpClaim {
			b.leases = append(b.leases, store.Lease{ID: e.id, Token: e.seen.token})
		}
	}
}

func (b *board) meet(id int64, named bool) {
	if _, known := b.named[id]; !known && id != 0 {
		b.ids = append(b.ids, id)
	}
	b.named[id] = b.named[id] || named
}

// recent is how far back clients reach: among few jobs and leases they collide.
const recent = 6

// someID is the draw-th of the latest ids, if there is any.
func (b *board) someID(draw int) (id int64, named bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id, _ = pick(b.ids, draw)
	return id, b.named[id]
}

// someLease is the draw-th of the latest leases, if there is any.
func (b *board) someLease(draw int) (store.Lease, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return pick(b.leases, draw)
}

// someNext is how long it takes from now to the draw-th of the latest times at which something happens, if any is to come.
func (b *board) someNext(draw int, now int64) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nexts = slices.DeleteFunc(b.nexts, func(t int64) bool { return t <= now })
	next, ok := pick(b.nexts, draw)
	return time.Duration(next-now) * time.Microsecond, ok
}

// pick is the draw-th of the latest ones, if there is any.
func pick[T any](list []T, draw int) (T, bool) {
	if len(list) == 0 {
		var none T
		return none, false
	}
	latest := list[max(len(list)-recent, 0):]
	return latest[draw%len(latest)], true
}

package httpapi

import (
	"context"
	"net/http"
	"runtime"
	"sync/atomic"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// The memory that a request or an answer uses for each byte of its text: the text itself, the values decoded from it or
// encoded into it, and the copies of the database driver.
const (
	asRequest = 4
	asAnswer  = 2
)

// A budget limits how many bytes requests and answers use at once. It has no queue: a call that gets nothing is refused, and
// the client should retry later.
type budget struct {
	most int64
	used atomic.Int64
}

// limit returns the limit for a small or a large call. Large calls leave an eighth to small ones, above all to heartbeats:
// without those, leases expire.
func (b *budget) limit(large bool) int64 {
	if large {
		return b.most - b.most/8
	}
	return b.most
}

func (b *budget) take(n int64, large bool) bool {
	for {
		used := b.used.Load()
		if used+n > b.limit(large) {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// spared reports whether this budget is used so little that its calls are served even if others have used up the whole
// budget. Otherwise many small calls of others could shut it out. With the default MaxBytes it is 1 MiB for each name of
// tokens.
func (b *budget) spared() bool { return b.used.Load() <= b.most/64 }

func (b *budget) give(n int64) { b.used.Add(-n) }

// A share limits what callers use at once: all callers together, or the bearers of all tokens with one name.
type share struct {
	bytes   budget
	claimed latest // answer to a claim
	listed  latest // answer to a listing of jobs
	workers latest // answer to a listing of workers
	reads   room   // running listings and counts
	briefs  room   // running quick reads
	polls   room   // waiting claims, and waits for the end of a job
	streams room
	parses  room // bulky bodies that are parsed
	heavy   room // heavy writes that run or wait for their turn
	refused sink // what is left of refused bodies
}

// latest is how large the latest answer of a kind was, also if there was no memory for it; nil before the first.
type latest = atomic.Pointer[extent]

// An extent is how many bytes of memory an answer needs, and how many jobs or workers it has.
type extent struct {
	bytes int64
	items int
}

// of returns how many bytes an answer with at most limit items needs if they are as large.
func (e *extent) of(limit int) int64 {
	if e == nil {
		return 0
	}
	return e.bytes * int64(min(max(limit, 0), e.items)) / int64(e.items)
}

// newShare returns the share of all callers (n is 1), or the n-th part of it for one name, so that a name leaves something to
// the others.
func newShare(o Options, n int) *share {
	part := func(places int) room { return newRoom((places + n - 1) / n) }
	return &share{
		bytes: budget{most: o.MaxBytes / int64(n)}, parses: part(max(1, runtime.GOMAXPROCS(0)/2)),
		heavy: part(maxHeavy()),
		reads: part(o.MaxReads), briefs: part(o.MaxReads), polls: part(o.MaxWaiting), streams: part(o.MaxStreams),
	}
}

// An exchange is a request with its answer, and the memory that both use until the answer is written.
type exchange struct {
	http.ResponseWriter
	to     route
	bearer *bearer // nil until the token is known, or if there are no tokens
	all    *share
	own    *share // the share of the token; equal to all until the token is known, or if there are no tokens
	taken  int64
	likely int64     // the part of taken that expect has reserved for the answer
	latest *latest   // answer of this kind; nil if that is not kept
	act    *act      // the audit record; nil if the call is not audited
	audit  func(act) // writes the audit record
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// shares returns the shares that the exchange takes from, the narrower one first.
func (x *exchange) shares() []*share {
	if x.own == x.all {
		return []*share{x.all}
	}
	return []*share{x.own, x.all}
}

// take reserves bytes. It fails with tooMuch if the token's calls have used up its share, and with busy if all callers
// together have used up theirs. A call that needs more than the limit gets the whole limit, so that it is served if it is the
// only one.
func (x *exchange) take(n int64) error {
	large := x.taken+n > firstRead*asRequest
	n = min(n, x.own.bytes.limit(large)-x.taken)
	if n <= 0 {
		return nil
	}
	if x.own != x.all && !x.own.bytes.take(n, large) {
		return tooMuch
	}
	switch {
	case x.all.bytes.take(n, large):
	case x.own == x.all:
		return busy
	case x.own.bytes.spared():
		x.all.bytes.used.Add(n)
	default:
		x.own.bytes.give(n)
		return busy
	}
	x.taken += n
	return nil
}

// end gives back all reserved bytes.
func (x *exchange) end() {
	x.give(x.taken)
	x.likely = 0
}

func (x *exchange) give(n int64) {
	for _, s := range x.shares() {
		s.bytes.give(n)
	}
	x.taken -= n
}

// expect reserves memory for an answer with at most limit items before the store is asked: as much as the latest such answer
// needed. Otherwise a client that does not read its answers would make the store lease large jobs, or read them, only for the
// call to be refused because there is no memory for the answer.
func (x *exchange) expect(kind *latest, limit int) error {
	found := kind.Load()
	x.latest = kind
	err := x.reserve(found.of(limit))
	if err != nil {
		kind.Store(&extent{found.bytes / 2, found.items}) // expect less each time, so that the store is asked again at last
	}
	return err
}

// reserve reserves memory for an answer that will probably be so large.
func (x *exchange) reserve(n int64) error {
	before := x.taken
	if err := x.take(n); err != nil {
		return err
	}
	x.likely = x.taken - before
	return nil
}

// know corrects the reservation of expect to what the answer needs, and remembers it. An answer without items says nothing of
// those to come.
func (x *exchange) know(needs int64, items int) error {
	if x.latest != nil && items > 0 {
		x.latest.Store(&extent{needs, items})
	}
	if needs >= x.likely {
		return x.take(needs - x.likely)
	}
	x.give(x.likely - needs)
	x.likely = needs
	return nil
}

// enter takes a place in the room of each share. It fails if one of them is full.
func (x *exchange) enter(of func(*share) room) (leave func(), ok bool) {
	shares := x.shares()
	for i, s := range shares {
		if !of(s).enter() {
			leaveAll(shares[:i], of)
			return nil, false
		}
	}
	return func() { leaveAll(shares, of) }, true
}

// wait waits for a place in the room of each share. It fails if the context ends before.
func (x *exchange) wait(ctx context.Context, of func(*share) room) (leave func(), err error) {
	shares := x.shares()
	for i, s := range shares {
		if err := of(s).wait(ctx); err != nil {
			leaveAll(shares[:i], of)
			return nil, err
		}
	}
	return func() { leaveAll(shares, of) }, nil
}

func leaveAll(shares []*share, of func(*share) room) {
	for _, s := range shares {
		of(s).leave()
	}
}

// gather waits for a place in the room of each share, reads from the store, and encodes the answer. It fails if the context
// ends before.
func (x *exchange) gather(ctx context.Context, of func(*share) room, read func(context.Context) (any, error)) ([]byte, error) {
	leave, err := x.wait(ctx, of)
	if err != nil {
		return nil, err
	}
	defer leave()
	answer, err := read(ctx)
	if err != nil {
		return nil, err
	}
	return x.encode(x.bearer.redact(answer))
}

// encode reserves memory for the answer and encodes it. If the size is known in advance, it reserves first.
func (x *exchange) encode(answer any) ([]byte, error) {
	if found, ok := answer.(results); ok {
		answer = found.Jobs
	}
	if jobs, ok := answer.(wire.Jobs); ok {
		if err := x.know(int64(jobs.Size())*asAnswer, len(jobs.Jobs)); err != nil {
			return nil, err
		}
		return wire.Marshal(jobs)
	}
	items := 0
	if page, ok := answer.(store.WorkerPage); ok {
		items = len(page.Workers)
	}
	text, err := wire.Marshal(answer)
	if err == nil {
		err = x.know(int64(len(text))*asAnswer, items)
	}
	return text, err
}

// show answers a listing or a count.
func (a *API) show(x *exchange, r *http.Request, read func(context.Context) (any, error)) error {
	return a.shown(x, r, func(s *share) room { return s.reads }, read)
}

// showBrief answers a quick read. It does not wait for listings and counts.
func (a *API) showBrief(x *exchange, r *http.Request, read func(context.Context) (any, error)) error {
	return a.shown(x, r, func(s *share) room { return s.briefs }, read)
}

func (a *API) shown(x *exchange, r *http.Request, of func(*share) room, read func(context.Context) (any, error)) error {
	ctx, cancel := a.within(r.Context())
	defer cancel()
	text, err := x.gather(ctx, of, read)
	if err != nil {
		return err
	}
	return a.send(x, http.StatusOK, wire.JSON, text)
}

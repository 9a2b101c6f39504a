package httpapi

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/seed-ed332417/jq/internal/wire"
)

// What a request or an answer takes up for each byte of its text: the text itself, what is decoded from it or was encoded into
// it, and what the driver of a database makes of that.
const (
	asRequest = 4
	asAnswer  = 2
)

// A budget is how many bytes requests and answers take up at once. It has no queue: whoever gets nothing comes back later.
type budget struct {
	most int64
	used atomic.Int64
}

// limit is how many of the bytes a call may get. Large ones, which can take their time, leave an eighth to small ones: to heartbeats,
// without which leases end.
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

// spared says whether whoever has this budget takes up so little of it that the others' calls are no reason to refuse more: they can be
// small too, and many. It is 1 MiB of the budget of a server by default, for each name of tokens.
func (b *budget) spared() bool { return b.used.Load() <= b.most/64 }

func (b *budget) give(n int64) { b.used.Add(-n) }

// A share is what some may take up at once: all who call, or the bearers of all tokens of one name.
type share struct {
	bytes   budget
	claimed atomic.Int64 // the room that the latest answer to a claim took
	listed  atomic.Int64 // likewise to a listing
	reads   room         // of listings and counts
	briefs  room         // of what is read quickly
	polls   room         // of claims that wait
	streams room
}

// newShare is that of all, or its n-th part: one name leaves something to the others.
func newShare(o Options, n int) *share {
	part := func(places int) room { return newRoom((places + n - 1) / n) }
	return &share{
		bytes: budget{most: o.MaxBytes / int64(n)},
		reads: part(o.MaxReads), briefs: part(o.MaxReads), polls: part(o.MaxWaiting), streams: part(o.MaxStreams),
	}
}

// An exchange is a request with its answer, and what both take up until the answer is written.
type exchange struct {
	http.ResponseWriter
	to     route
	bearer *bearer // nil until the token is known, and where there are no tokens
	all    *share
	own    *share // of the token: that of all until it is known, and where there are no tokens
	taken  int64
	likely int64         // of them for an answer that is not known yet
	latest *atomic.Int64 // what the latest answer of its kind took, nil where that is not kept
	act    *act          // for the audit, nil where it has no line of the call
	audit  func(act)     // writes it
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// shares are those that the exchange takes from, the narrower one first.
func (x *exchange) shares() []*share {
	if x.own == x.all {
		return []*share{x.all}
	}
	return []*share{x.own, x.all}
}

// take reserves bytes, or says by whom they are used up. Whoever needs more than there are gets all of them, so that it is let
// through when it comes alone.
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

// end gives back what was taken.
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

// expect takes the room that an answer with jobs is likely to need, as much as the latest one, before the store is asked. Whoever reads
// none of his answers would else have the store lease large jobs, only to release them since there is no room to answer.
func (x *exchange) expect(latest *atomic.Int64) error {
	before, likely := x.taken, latest.Load()
	x.latest = latest
	if err := x.take(likely); err != nil {
		latest.Store(likely / 2) // by and by less is expected, and the store is asked again
		return err
	}
	x.likely = x.taken - before
	return nil
}

// know takes the room that an answer needs in place of what it was likely to need.
func (x *exchange) know(needs int64) error {
	if needs >= x.likely {
		return x.take(needs - x.likely)
	}
	x.give(x.likely - needs)
	x.likely = needs
	return nil
}

// enter takes places for as long as something lasts, if there are any.
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

func leaveAll(shares []*share, of func(*share) room) {
	for _, s := range shares {
		of(s).leave()
	}
}

// gather lets a few readings at a time, of those that take such places, ask the store, and encode what it answers. It returns when its
// turn has come and the text is there, or the context has ended.
func (x *exchange) gather(ctx context.Context, of func(*share) room, read func(context.Context) (any, error)) ([]byte, error) {
	for _, s := range x.shares() {
		if err := of(s).wait(ctx); err != nil {
			return nil, err
		}
		defer of(s).leave()
	}
	answer, err := read(ctx)
	if err != nil {
		return nil, err
	}
	return x.encode(x.bearer.redact(answer))
}

// encode writes an answer that there is room for. Where it is known how large it gets, the room is taken before it is written.
func (x *exchange) encode(answer any) ([]byte, error) {
	jobs, ok := answer.(wire.Jobs)
	if !ok {
		text, err := wire.Marshal(answer)
		if err == nil {
			err = x.take(int64(len(text)) * asAnswer)
		}
		return text, err
	}
	needs := int64(jobs.Size()) * asAnswer
	if err := x.know(needs); err != nil {
		return nil, err
	}
	if x.latest != nil && len(jobs.Jobs) > 0 {
		x.latest.Store(needs)
	}
	return wire.Marshal(jobs)
}

// show answers with a listing or a count.
func (a *API) show(x *exchange, r *http.Request, read func(context.Context) (any, error)) error {
	return a.shown(x, r, func(s *share) room { return s.reads }, read)
}

// showBrief answers with what is read quickly, and does not wait for listings and counts.
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

package tikv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	tikverr "github.com/tikv/client-go/v2/error"
	"github.com/tikv/client-go/v2/oracle"
	"github.com/tikv/client-go/v2/tikvrpc"
	"github.com/tikv/client-go/v2/tikvrpc/interceptor"

	"github.com/seed-ed332417/jq/kv"
)

// A decision sees the request that decides a transaction: the commit of its first key. All keys are locked then, and it has its timestamp.
//
// TiKV compares only keys that a transaction writes with what it has read. So the decision reads the other guarded keys again at that timestamp, and
// refuses the request if one of them has changed. Everything that the transaction has decided upon is then true at the moment at which it takes effect.
// Of two transactions that each write a key which the other one guards, the one with the greater timestamp meets the lock or the value of the other. If
// it is the lock, its read makes TiKV refuse to commit the other one at an earlier timestamp, and the other one decides anew, with a later one.
type decision struct {
	ctx    context.Context
	engine *Engine
	guards []kv.Item

	at      uint64 // the timestamp for which the guards fit
	refused error  // by the guards; the request was not sent
	sent    bool
	lost    bool // a request was not answered
	open    bool // the last answer leaves open whether the request takes effect

	rejected atomic.Bool // TiKV has refused to lock a key, not only because somebody else has locked it
}

var _ interceptor.RPCInterceptor = (*decision)(nil)

// Name is part of interceptor.RPCInterceptor.
func (d *decision) Name() string { return "jq" }

// Wrap is part of interceptor.RPCInterceptor. The client locks several keys at a time, and decides once.
func (d *decision) Wrap(next interceptor.RPCInterceptorFunc) interceptor.RPCInterceptorFunc {
	return func(target string, request *tikvrpc.Request) (*tikvrpc.Response, error) {
		switch {
		case request.Type == tikvrpc.CmdCommit && request.Commit().GetCommitRole() == kvrpcpb.CommitRole_Primary:
			return d.decide(next, target, request)
		case request.Type == tikvrpc.CmdPrewrite:
			answer, err := next(target, request)
			if err == nil {
				d.look(answer)
			}
			return answer, err
		default:
			return next(target, request)
		}
	}
}

// decide sends the request that decides, if the guards fit.
func (d *decision) decide(next interceptor.RPCInterceptorFunc, target string, request *tikvrpc.Request) (*tikvrpc.Response, error) {
	if at := request.Commit().GetCommitVersion(); at != d.at {
		if d.refused = d.check(at, request.Commit().GetStartVersion()); d.refused != nil {
			// To the client, an error of the request would mean that it does not know whether it was sent. This answer makes it take the locks away.
			said := &kvrpcpb.KeyError{Abort: "a guarded key has changed, or could not be read"}
			return &tikvrpc.Response{Resp: &kvrpcpb.CommitResponse{Error: said}}, nil
		}
		d.at = at
	}
	d.sent = true
	answer, err := next(target, request)
	d.lost = d.lost || err != nil
	d.open = err == nil && leavesOpen(answer)
	return answer, err
}

// check returns why the transaction that began at one timestamp must not commit at another one. Both are of PD, so it does not matter if this process was stopped in between.
func (d *decision) check(at, began uint64) error {
	if age := oracle.ExtractPhysical(at) - oracle.ExtractPhysical(began); age > d.engine.oldest.Milliseconds() {
		return errOld
	}
	return d.engine.fits(d.ctx, at, d.guards)
}

// leavesOpen reports whether an answer does not say what becomes of the request. A region that is gone, or a store that ends, may have passed it on before it
// refuses it. An abort is what TiKV says of whatever it has no other words for.
func leavesOpen(answer *tikvrpc.Response) bool {
	said, is := answer.Resp.(*kvrpcpb.CommitResponse)
	return !is || said.GetRegionError() != nil || said.GetError().GetAbort() != ""
}

// look notes an answer to the request to lock keys.
func (d *decision) look(answer *tikvrpc.Response) {
	locked, is := answer.Resp.(*kvrpcpb.PrewriteResponse)
	if is && slices.ContainsFunc(locked.GetErrors(), func(e *kvrpcpb.KeyError) bool { return e.GetLocked() == nil }) {
		d.rejected.Store(true)
	}
}

// of returns the error of the commit for that of the transaction.
func (d *decision) of(err error) error {
	switch {
	case err == nil:
		return nil
	case d.lost, d.open, tikverr.IsErrorUndetermined(err): // it is in doubt
		return cmp.Or(d.ctx.Err(), fmt.Errorf("tikv: %w", err))
	case errors.Is(d.refused, kv.ErrConflict):
		return d.refused
	case d.refused != nil:
		return nothing(d.refused)
	case d.ctx.Err() != nil:
		return nothing(d.ctx.Err())
	case d.sent, d.rejected.Load(), isWriteConflict(err): // a key was changed, or somebody has taken the locks away
		return fmt.Errorf("%w: tikv: %w", kv.ErrConflict, err)
	default:
		return nothing(ofClient(d.ctx, err))
	}
}

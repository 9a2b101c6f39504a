package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/kv"
)

// An Engine is a [kv.Engine] in a cluster of etcd. Give it to kv.Open.
type Engine struct {
	members *members
	prefix  string
	guesses guesses
	alarm   alarming
}

var (
	_ kv.Engine         = (*Engine)(nil)
	_ kv.Watcher        = (*Engine)(nil)
	_ contract.Examiner = (*Engine)(nil)
)

// The byte behind the prefix. No prefix contains them, so stores whose prefixes begin alike share no key.
const (
	items   = "\x00" // keys of the store follow
	tickets = "\x01" // the key whose revisions are tickets
)

// item returns the key in etcd of a key of the store.
func (e *Engine) item(key []byte) string { return e.prefix + items + string(key) }

// Limits is part of kv.Engine. It returns what New has checked.
func (e *Engine) Limits() kv.Limits { return kv.Limits{Keys: kv.MinKeys, Bytes: kv.MinBytes} }

// Close is part of kv.Engine.
func (e *Engine) Close() error { return e.members.close() }

// perPut is how many tickets one revision gives.
const perPut = 1024

// Tickets is part of kv.Engine. Each put to a key has a revision that no other commit has, in whatever process.
func (e *Engine) Tickets(ctx context.Context, n int) ([]int64, error) {
	list := make([]int64, 0, n)
	for len(list) < n {
		var revision int64
		err := e.members.repeat(ctx, func(ctx context.Context, m member) error {
			r, err := m.Put(ctx, e.prefix+tickets, "")
			if err == nil {
				revision = r.Header.Revision
			}
			return err
		})
		if err != nil {
			return nil, advised(err)
		}
		if revision >= math.MaxInt64/8/perPut {
			return nil, fmt.Errorf("the revision of the cluster, %d, is too great to make ids of: move the jobs to a new cluster", revision)
		}
		for i := int64(0); i < perPut && len(list) < n; i++ {
			list = append(list, revision*perPut+i)
		}
	}
	return list, nil
}

// View is part of kv.Engine. The view begins with its first Read.
func (e *Engine) View(ctx context.Context) (kv.View, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &view{engine: e}, nil
}

// A view is the map at a revision.
type view struct {
	engine   *Engine
	revision int64 // zero before the first Read
}

// Read is part of kv.View. It asks for ranges up to near ends, and then for what is missing.
func (v *view) Read(ctx context.Context, ask ...kv.Range) ([][]kv.Item, error) {
	answers := make([][]kv.Item, len(ask))
	missing := make([]int, len(ask)) // positions in ask
	for i := range ask {
		missing[i] = i
	}
	rest := slices.Clone(ask)
	for step := 0; len(missing) > 0; step++ {
		parts := make([]kv.Range, len(missing))
		for n, i := range missing {
			parts[n] = rest[i]
			parts[n].To = v.engine.guesses.near(ask[i], rest[i], step)
		}
		found, err := v.read(ctx, parts)
		if err != nil {
			return nil, err
		}
		var still []int
		for n, i := range missing {
			answers[i] = append(answers[i], found[n]...)
			rest[i].Limit -= len(found[n])
			if whole := parts[n].To == nil || bytes.Equal(parts[n].To, rest[i].To); whole || rest[i].Limit == 0 {
				v.engine.guesses.learn(ask[i], answers[i])
				continue
			}
			rest[i].From = parts[n].To
			still = append(still, i)
		}
		missing = still
	}
	return answers, ctx.Err()
}

// read makes one request of ranges. If the view has begun, the member that is asked answers alone: what was committed at a revision is the same on each of
// them.
func (v *view) read(ctx context.Context, ask []kv.Range) ([][]kv.Item, error) {
	r, err := v.request(ctx, v.revision > 0, ask)
	if errors.Is(err, rpctypes.ErrFutureRev) { // the member is behind
		r, err = v.request(ctx, false, ask)
	}
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return nil, fmt.Errorf("%w: %w", kv.ErrConflict, err)
	case err != nil:
		return nil, advised(err)
	}
	if v.revision == 0 {
		v.revision = r.Header.Revision
	}
	return v.engine.answers(r, ask), nil
}

// request asks for ranges. If it is local, the member does not ask the others.
func (v *view) request(ctx context.Context, local bool, ask []kv.Range) (*clientv3.TxnResponse, error) {
	options := []clientv3.OpOption{clientv3.WithRev(v.revision)}
	if local {
		options = append(options, clientv3.WithSerializable())
	}
	ops := make([]clientv3.Op, len(ask))
	for i, r := range ask {
		ops[i] = v.engine.get(r, options)
	}
	return v.engine.send(ctx, ops)
}

// send makes a request that changes nothing.
func (e *Engine) send(ctx context.Context, ops []clientv3.Op) (r *clientv3.TxnResponse, err error) {
	err = e.members.repeat(ctx, func(ctx context.Context, m member) (err error) {
		r, err = m.Txn(ctx).Then(ops...).Commit()
		return err
	})
	return r, err
}

// get returns the request for a range.
func (e *Engine) get(r kv.Range, options []clientv3.OpOption) clientv3.Op {
	options = slices.Clip(options)
	if r.To != nil {
		options = append(options, clientv3.WithRange(e.item(r.To)), clientv3.WithLimit(int64(r.Limit)))
	}
	if r.KeysOnly {
		options = append(options, clientv3.WithKeysOnly())
	}
	return clientv3.OpGet(e.item(r.From), options...)
}

func (e *Engine) answers(r *clientv3.TxnResponse, ask []kv.Range) [][]kv.Item {
	answers := make([][]kv.Item, len(ask))
	for i := range ask {
		found := r.Responses[i].GetResponseRange().Kvs
		answers[i] = make([]kv.Item, len(found))
		for j, pair := range found {
			answers[i][j] = kv.Item{Key: pair.Key[len(e.prefix)+len(items):], Value: pair.Value, Version: uint64(pair.ModRevision)}
		}
	}
	return answers
}

// Commit is one transaction of etcd. It is sent once.
func (v *view) Commit(ctx context.Context, c kv.Change) error {
	if err := ctx.Err(); err != nil {
		return nothing(err)
	}
	size := 0
	guards := make([]clientv3.Cmp, len(c.Guards))
	for i, g := range c.Guards {
		guards[i] = clientv3.Compare(clientv3.ModRevision(v.engine.item(g.Key)), "=", int64(g.Version)) // 0 if there is no such key
	}
	changes := make([]clientv3.Op, 0, len(c.Puts)+len(c.Deletes))
	for _, p := range c.Puts {
		changes = append(changes, clientv3.OpPut(v.engine.item(p.Key), string(p.Value)))
		size += len(p.Value)
	}
	for _, key := range c.Deletes {
		changes = append(changes, clientv3.OpDelete(v.engine.item(key)))
	}
	wait := commitPatience + time.Duration(len(changes))*patiencePerKey + time.Duration(size>>20)*patiencePerMiB
	var r *clientv3.TxnResponse
	err := v.engine.members.once(ctx, wait, func(ctx context.Context, m member) (err error) {
		r, err = m.Txn(ctx).If(guards...).Then(changes...).Commit()
		return err
	})
	switch {
	case err == nil && !r.Succeeded:
		return kv.ErrConflict
	case err == nil:
		return nil
	case refused(err) && (!errors.Is(err, rpctypes.ErrNoSpace) || v.without(ctx, c.Puts)):
		return nothing(advised(err))
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return advised(err)
	}
}

// mostRevisions is at how many revisions without looks.
const mostRevisions = 1000

// without reports whether surely no commit since the view has put the first of the keys. A full member refuses most commits before it proposes them, but gives the same
// answer to the one that it has applied, and that has made it full. Others may have deleted the key since, so each revision counts.
func (v *view) without(ctx context.Context, puts []kv.Item) bool {
	if v.revision == 0 || len(puts) == 0 {
		return false
	}
	one := kv.Range{From: puts[0].Key, KeysOnly: true}
	now := &view{engine: v.engine}
	if _, err := now.read(ctx, []kv.Range{one}); err != nil || now.revision-v.revision > mostRevisions {
		return false
	}
	var ops []clientv3.Op
	for revision := v.revision + 1; revision <= now.revision; revision++ {
		ops = append(ops, v.engine.get(one, []clientv3.OpOption{clientv3.WithRev(revision)}))
	}
	r, err := v.engine.send(ctx, ops)
	return err == nil && !slices.ContainsFunc(r.Responses, func(at *etcdserverpb.ResponseOp) bool {
		found := at.GetResponseRange().Kvs
		return len(found) > 0 && found[0].ModRevision > v.revision
	})
}

// Close is part of kv.View: etcd knows nothing of a view.
func (v *view) Close() {}

// How long a member may take to answer a commit. When a leader dies, the commits that it had got are never answered, while another leader is elected within a second or
// two.
const (
	commitPatience = 3 * time.Second
	patiencePerKey = time.Millisecond
	patiencePerMiB = 500 * time.Millisecond
)

// refusals are the answers of a member that has not proposed a request to the others, or that say that all of them have refused it.
var refusals = []error{
	rpctypes.ErrEmptyKey, rpctypes.ErrDuplicateKey, rpctypes.ErrTooManyOps, rpctypes.ErrRequestTooLarge, rpctypes.ErrTooManyRequests, rpctypes.ErrNoSpace,
	rpctypes.ErrCompacted, rpctypes.ErrFutureRev, rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound, rpctypes.ErrPermissionDenied,
	rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrAuthNotEnabled, rpctypes.ErrCorrupt,
}

// refused reports whether the error says that asking again is no use. Nothing was applied then, unless the error is ErrNoSpace.
func refused(err error) bool {
	for _, r := range refusals {
		if errors.Is(err, r) {
			return true
		}
	}
	return overlong(err)
}

// overlong reports whether a request was longer than one side takes. An answer cannot be too long, because New sets no limit to it.
func overlong(err error) bool {
	return err != nil && strings.Contains(err.Error(), "message larger than max")
}

// advised says what to do about an error.
func advised(err error) error {
	advice := ""
	switch {
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrRequestTooLarge), overlong(err):
		advice = flags + ": "
	case errors.Is(err, rpctypes.ErrNoSpace):
		advice = "delete jobs, compact and defragment etcd, and disarm its alarm, or raise --quota-backend-bytes: "
	case errors.Is(err, rpctypes.ErrCorrupt):
		advice = "the data of the members differ, see jobq doctor: "
	case errors.Is(err, rpctypes.ErrUserEmpty), errors.Is(err, rpctypes.ErrAuthFailed):
		advice = "write USER:PASSWORD@ in front of the first host of the URL: "
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		advice = "grant the user the keys with the prefix (etcdctl role grant-permission ROLE readwrite PREFIX --prefix=true): "
	case err == nil:
		return nil
	}
	return fmt.Errorf("%setcd: %w", advice, err)
}

func nothing(err error) error { return fmt.Errorf("%w: %w", kv.ErrNothing, err) }

// Errors of a watch.
var (
	errLeft       = errors.New("etcd: the member failed, and another one is asked")
	errWatchEnded = errors.New("etcd: the client ended the watch")
)

// Watch is part of kv.Watcher. If the connection to the member is lost, the client goes on from the same revision. The watch ends if that is
// compacted, if the member has no leader, and if the engine asks another member.
func (e *Engine) Watch(ctx context.Context, heard func(key []byte), prefixes ...[]byte) error {
	m, err := e.members.ask()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	responses := make(chan clientv3.WatchResponse)
	for _, p := range prefixes {
		all.Go(func() {
			watch := m.Watch(ctx, e.item(p), clientv3.WithPrefix(), clientv3.WithCreatedNotify(), clientv3.WithFilterDelete())
			for {
				r, open := <-watch
				if !open {
					r = clientv3.WatchResponse{Canceled: true}
				}
				select {
				case responses <- r:
				case <-ctx.Done():
					return
				}
				if !open {
					return
				}
			}
		})
	}
	for begun := 0; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-m.left:
			return errLeft
		case r := <-responses:
			if err := r.Err(); err != nil {
				e.members.leave(m)
				return fmt.Errorf("etcd: %w", err)
			}
			if r.Canceled {
				return errWatchEnded
			}
			if r.Created {
				if begun++; begun == len(prefixes) {
					heard(nil)
				}
			}
			for _, event := range r.Events {
				heard(bytes.TrimPrefix(event.Kv.Key, []byte(e.item(nil))))
			}
		}
	}
}

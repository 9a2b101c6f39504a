package tikv

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	tikverr "github.com/tikv/client-go/v2/error"
	tikvkv "github.com/tikv/client-go/v2/kv"
	"github.com/tikv/client-go/v2/oracle"
	"github.com/tikv/client-go/v2/tikv"
	"github.com/tikv/client-go/v2/txnkv"
	"github.com/tikv/client-go/v2/txnkv/transaction"
	"golang.org/x/sync/errgroup"

	"github.com/seed-ed332417/jq/kv"
)

// An Engine is a [kv.Engine] in a cluster of TiKV. Give it to kv.Open.
type Engine struct {
	client *txnkv.Client
	prefix string
	oldest time.Duration // of a view

	mu    sync.Mutex // guards what follows
	first uint64     // the timestamp before the first ticket; zero if it is not known yet
}

var (
	_ kv.Engine = (*Engine)(nil)
	_ kv.Sharer = (*Engine)(nil)
	_ kv.Timer  = (*view)(nil)
)

// The byte behind the prefix. No prefix contains them, so stores whose prefixes begin alike share no key.
const (
	items = "\x00" // keys of the store follow
	first = "\x01" // the key of the timestamp before the first ticket
)

// item returns the key in TiKV of a key of the store.
func (e *Engine) item(key []byte) []byte { return append([]byte(e.prefix+items), key...) }

// Shared is part of kv.Sharer.
func (e *Engine) Shared() {}

// The client refuses a transaction of more than 100 MB, and a region of TiKV an entry of its log of more than 8 MB.
const (
	mostBytes = 64 << 20
	longest   = 4 << 20
)

// Limits is part of kv.Engine.
func (e *Engine) Limits() kv.Limits { return kv.Limits{Bytes: mostBytes, Value: longest} }

// Close is part of kv.Engine.
func (e *Engine) Close() error { return e.client.Close() }

// Tickets is part of kv.Engine. Each ticket is a timestamp of the cluster, which it gives once. The client asks for many of them in one message.
func (e *Engine) Tickets(ctx context.Context, n int) ([]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return soon(ctx, func() ([]int64, error) {
		began, err := e.began(ctx)
		if err != nil {
			return nil, err
		}
		list := make([]int64, 0, n)
		for {
			asked := make([]oracle.Future, n-len(list))
			for i := range asked {
				asked[i] = e.client.GetOracle().GetTimestampAsync(ctx, &oracle.Option{TxnScope: oracle.GlobalTxnScope})
			}
			for _, future := range asked {
				at, err := future.Wait()
				if err != nil || oracle.ExtractLogical(at) >= mostOrdinals { // the leader of PD may have changed, or its clock must go on first
					continue
				}
				ticket := ticketOf(at) - oracle.ExtractPhysical(began)<<ordinalBits
				if ticket <= 0 {
					return nil, errBehind
				}
				list = append(list, ticket)
			}
			if len(list) == n {
				break
			}
			if err := e.pause(ctx); err != nil {
				return nil, err
			}
		}
		slices.Sort(list)
		return list, nil
	})
}

// A timestamp is a time in milliseconds and an ordinal of 18 bits, of which PD uses few before its clock goes on, each 50 ms. A ticket has 14 bits of it, and
// counts from when the store began: ids of an epoch should be small, or few epochs would fit.
const (
	ordinalBits  = 14
	mostOrdinals = 1 << ordinalBits
)

func ticketOf(at uint64) int64 {
	return oracle.ExtractPhysical(at)<<ordinalBits + oracle.ExtractLogical(at)
}

var errBehind = errors.New("the clock of PD is behind the time at which the store began: set it right")

// clockPause is less than the clock of PD takes to go on.
const clockPause = 10 * time.Millisecond

// pause waits until the clock of PD has gone on, and fails if PD does not answer.
func (e *Engine) pause(ctx context.Context) error {
	select {
	case <-time.After(clockPause):
		_, err := e.client.GetTimestamp(ctx)
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// began returns the timestamp at which the store began. The first process that asks writes it.
func (e *Engine) began(ctx context.Context) (uint64, error) {
	e.mu.Lock()
	known := e.first
	e.mu.Unlock()
	if known != 0 {
		return known, nil
	}
	key := []byte(e.prefix + first)
	for {
		t, err := e.client.Begin()
		if err != nil {
			return 0, err
		}
		raw, err := t.Get(ctx, key)
		switch {
		case err == nil && len(raw) == versionLen:
			e.mu.Lock()
			defer e.mu.Unlock()
			e.first = binary.BigEndian.Uint64(raw)
			return e.first, nil
		case err == nil:
			return 0, errForeign
		case !tikverr.IsErrNotFound(err):
			return 0, err
		}
		if err := t.Set(key, binary.BigEndian.AppendUint64(nil, t.StartTS())); err != nil {
			return 0, err
		}
		if err := t.Commit(ctx); err != nil && !isWriteConflict(err) {
			return 0, err // if it is in doubt, the next call finds out
		}
	}
}

// View is part of kv.Engine. Each view has a timestamp of its own, which is also the version of what it commits.
func (e *Engine) View(ctx context.Context) (kv.View, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return soon(ctx, func() (kv.View, error) {
		began := time.Now()
		at, err := e.client.GetTimestamp(ctx)
		if err != nil {
			return nil, err
		}
		// The locks of a transaction last from its timestamp on, and the client adds to that how long ago it began. So it begins now.
		t, err := e.client.Begin(tikv.WithStartTS(at))
		if err != nil {
			return nil, err
		}
		return &view{engine: e, began: began, at: at, transaction: t, known: map[string]uint64{}}, nil
	})
}

// soon runs a request, and returns when the context ends, because the client does not always look at it. The request may go on for some seconds then.
func soon[T any](ctx context.Context, request func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		value, err := request()
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, ofClient(ctx, a.err)
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// ofClient returns an error of the client as the store expects it.
func ofClient(ctx context.Context, err error) error {
	var collected *tikverr.ErrTxnAbortedByGC
	var early *tikverr.ErrGCTooEarly
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &collected), errors.As(err, &early): // the view has ended
		return fmt.Errorf("%w: tikv: %w", kv.ErrConflict, err)
	default:
		return fmt.Errorf("tikv: %w", err)
	}
}

// A view is the map at a timestamp.
type view struct {
	engine      *Engine
	began       time.Time
	at          uint64
	transaction *transaction.KVTxn // has that timestamp
	known       map[string]uint64  // versions of the keys that were read
}

// oldest is how old a view may be. What was deleted after an older one may be collected, and would look as if it had not changed.
const oldest = 5 * time.Minute

var errOld = fmt.Errorf("%w: the view is too old", kv.ErrConflict)

// Now is part of kv.Timer: the time is that of PD, to the millisecond.
func (v *view) Now() time.Time { return oracle.GetTimeFromTS(v.at) }

// Read is part of kv.View.
func (v *view) Read(ctx context.Context, ask ...kv.Range) ([][]kv.Item, error) {
	answers, err := soon(ctx, func() ([][]kv.Item, error) { return v.engine.read(ctx, v.at, ask) })
	if err != nil {
		return nil, err
	}
	if time.Since(v.began) > v.engine.oldest {
		return nil, errOld
	}
	for i, r := range ask {
		if r.To == nil {
			v.known[string(r.From)] = 0
		}
		for _, item := range answers[i] {
			v.known[string(item.Key)] = item.Version
		}
	}
	return answers, nil
}

// atOnce is how many ranges of a view are read at the same time.
const atOnce = 16

// read asks for all single keys in one request for each region, and for ranges beside it.
func (e *Engine) read(ctx context.Context, at uint64, ask []kv.Range) ([][]kv.Item, error) {
	answers := make([][]kv.Item, len(ask))
	var all errgroup.Group
	all.SetLimit(atOnce)
	var single []int // positions in ask
	for i, r := range ask {
		switch {
		case r.To == nil:
			single = append(single, i)
		case bytes.Compare(r.From, r.To) < 0:
			all.Go(func() (err error) {
				answers[i], err = e.scan(ctx, at, r)
				return err
			})
		}
	}
	if len(single) > 0 {
		all.Go(func() error {
			keys := make([][]byte, len(single))
			for n, i := range single {
				keys[n] = ask[i].From
			}
			found, err := e.get(ctx, at, keys)
			for _, i := range single {
				if item, is := found[string(ask[i].From)]; is {
					answers[i] = []kv.Item{item}
				}
			}
			return err
		})
	}
	return answers, all.Wait()
}

// get returns the items of those keys that are there.
func (e *Engine) get(ctx context.Context, at uint64, keys [][]byte) (map[string]kv.Item, error) {
	asked := make([][]byte, len(keys))
	for i, key := range keys {
		asked[i] = e.item(key)
	}
	raw, err := e.client.GetSnapshot(at).BatchGet(ctx, asked)
	if err != nil {
		return nil, err
	}
	found := make(map[string]kv.Item, len(raw))
	for key, value := range raw {
		item, err := e.decode([]byte(key), value)
		if err != nil {
			return nil, err
		}
		found[string(item.Key)] = item
	}
	return found, nil
}

// inScan is how many items of a range are read in one request.
const inScan = 256

func (e *Engine) scan(ctx context.Context, at uint64, r kv.Range) (list []kv.Item, err error) {
	snapshot := e.client.GetSnapshot(at)
	var ended uint32 // a scan takes no context
	stop := context.AfterFunc(ctx, func() { atomic.StoreUint32(&ended, 1) })
	defer stop()
	snapshot.SetVars(tikvkv.NewVariables(&ended))
	snapshot.SetScanBatchSize(inScan)
	if r.Limit > 0 {
		snapshot.SetScanBatchSize(min(max(r.Limit, 2), inScan)) // the client takes one for unlimited
	}
	found, err := snapshot.Iter(e.item(r.From), e.item(r.To))
	if err != nil {
		return nil, err
	}
	defer found.Close()
	for found.Valid() {
		item, err := e.decode(found.Key(), found.Value())
		if err != nil {
			return nil, err
		}
		if r.KeysOnly { // the version stands in the value
			item.Value = nil
		}
		if list = append(list, item); len(list) == r.Limit {
			break
		}
		if err := errors.Join(ctx.Err(), found.Next()); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// versionLen is the length of the version, with which each value begins.
const versionLen = 8

var errForeign = errors.New("the value was not written by a store of jq")

func (e *Engine) decode(key, value []byte) (kv.Item, error) {
	if len(value) < versionLen {
		return kv.Item{}, fmt.Errorf("the key %q: %w", key, errForeign)
	}
	return kv.Item{Key: key[len(e.prefix)+len(items):], Value: value[versionLen:], Version: binary.BigEndian.Uint64(value)}, nil
}

// fits compares the guards with what is there at a timestamp.
func (e *Engine) fits(ctx context.Context, at uint64, guards []kv.Item) error {
	if len(guards) == 0 {
		return nil
	}
	keys := make([][]byte, len(guards))
	for i, g := range guards {
		keys[i] = g.Key
	}
	found, err := e.get(ctx, at, keys)
	if err != nil {
		return ofClient(ctx, err)
	}
	for _, g := range guards {
		if found[string(g.Key)].Version != g.Version {
			return kv.ErrConflict
		}
	}
	return nil
}

// Close is part of kv.View: TiKV knows nothing of a view.
func (v *view) Close() {}

// Commit is one transaction of TiKV, whose reads were those of the view.
func (v *view) Commit(ctx context.Context, c kv.Change) error {
	if err := ctx.Err(); err != nil {
		return nothing(err)
	}
	others, added, err := v.split(ctx, c)
	if err != nil {
		return err
	}
	t := v.transaction
	if err := v.fill(t, c, added); err != nil {
		return nothing(ofClient(ctx, err))
	}
	// Both would commit before the other guards are compared.
	t.SetEnableAsyncCommit(false)
	t.SetEnable1PC(false)
	last := &decision{ctx: ctx, engine: v.engine, guards: others}
	t.SetRPCInterceptor(last)
	var left background
	t.SetBackgroundGoroutineLifecycleHooks(transaction.LifecycleHooks{Pre: left.begin, Post: left.end})
	err = t.Commit(ctx)
	left.wait(ctx)
	return last.of(err)
}

// split returns the guards of keys that the change does not write, and those keys that it puts and that must not be there. It compares the other
// guards with the view; TiKV refuses a transaction that writes a key which was changed since.
func (v *view) split(ctx context.Context, c kv.Change) (others []kv.Item, added map[string]bool, err error) {
	puts, deletes := map[string]bool{}, map[string]bool{}
	for _, p := range c.Puts {
		puts[string(p.Key)] = true
	}
	for _, key := range c.Deletes {
		deletes[string(key)] = true
	}
	added = map[string]bool{}
	var unknown []kv.Item
	for _, g := range c.Guards {
		key := string(g.Key)
		version, known := v.known[key]
		switch {
		case !puts[key] && !deletes[key]:
			others = append(others, g)
		case known && version != g.Version:
			return nil, nil, kv.ErrConflict
		case known:
		case g.Version == 0 && puts[key]:
			added[key] = true
		default:
			unknown = append(unknown, g)
		}
	}
	if len(puts)+len(deletes) == 0 { // there is no transaction
		unknown, others = append(unknown, others...), nil
	}
	_, err = soon(ctx, func() (struct{}, error) { return struct{}{}, v.engine.fits(ctx, v.at, unknown) })
	if err != nil && !errors.Is(err, kv.ErrConflict) {
		err = nothing(err)
	}
	return others, added, err
}

func (v *view) fill(t *transaction.KVTxn, c kv.Change, added map[string]bool) error {
	for _, p := range c.Puts {
		value := append(binary.BigEndian.AppendUint64(make([]byte, 0, versionLen+len(p.Value)), v.at), p.Value...)
		var flags []tikvkv.FlagsOp
		if added[string(p.Key)] {
			flags = append(flags, tikvkv.SetPresumeKeyNotExists) // TiKV looks, and refuses the transaction if it is wrong
		}
		if err := t.GetMemBuffer().SetWithFlags(v.engine.item(p.Key), value, flags...); err != nil {
			return err
		}
	}
	for _, key := range c.Deletes {
		if err := t.Delete(v.engine.item(key)); err != nil {
			return err
		}
	}
	return nil
}

// isWriteConflict reports whether a key that the transaction writes was changed. Transactions of one process may meet before they ask the cluster.
func isWriteConflict(err error) bool {
	var here *tikverr.ErrWriteConflictInLatch
	return tikverr.IsErrWriteConflict(err) || errors.As(err, &here)
}

func nothing(err error) error { return fmt.Errorf("%w: %w", kv.ErrNothing, err) }

// A background is what the client does for a transaction after its end: it commits its other keys when the first one is committed, or takes
// its locks away. A commit waits for that, because the next call probably reads these keys, and had to ask about each lock.
type background struct {
	mu      sync.Mutex // guards what follows
	running int
	idle    chan struct{} // closed when nothing runs any more; nil if nobody waits
}

func (b *background) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running++
}

func (b *background) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running--; b.running == 0 && b.idle != nil {
		close(b.idle)
	}
}

// backgroundPatience bounds the wait: the outcome of the transaction is known.
const backgroundPatience = time.Second

func (b *background) wait(ctx context.Context) {
	b.mu.Lock()
	if b.running == 0 {
		b.mu.Unlock()
		return
	}
	b.idle = make(chan struct{})
	b.mu.Unlock()
	select {
	case <-b.idle:
	case <-ctx.Done():
	case <-time.After(backgroundPatience):
	}
}

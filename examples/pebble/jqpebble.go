// Package jqpebble keeps the jobs of jq in a folder of Pebble, for one process at a time. It is an engine for package jq/kv.
//
//	store, err := jqpebble.Open(ctx, "jobs", nil)
//
// A call that changes something returns when the change is on the disk. Calls at the same time share a sync.
package jqpebble

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/seed-ed332417/jq/kv"
)

// Open opens the store in the folder, and creates the folder if it does not exist. Options may be nil.
func Open(ctx context.Context, path string, options *kv.Options) (*kv.Store, error) {
	options = cmp.Or(options, &kv.Options{})
	e, err := openEngine(path, vfs.Default, cmp.Or(options.Logger, slog.Default()))
	if err != nil {
		return nil, fmt.Errorf("jq: opening %s: %w", path, err)
	}
	return kv.Open(ctx, e, options)
}

// A logger passes on the lines of Pebble.
type logger struct{ *slog.Logger }

func (l logger) Infof(format string, args ...any)  { l.Debug(fmt.Sprintf(format, args...)) }
func (l logger) Errorf(format string, args ...any) { l.Error(fmt.Sprintf(format, args...)) }

// Fatalf ends the process: Pebble cannot go on.
func (l logger) Fatalf(format string, args ...any) { l.Errorf(format, args...); os.Exit(1) }

// The keys in Pebble. The value of an item is preceded by its version.
var (
	numbers = []byte("n") // the latest version, and the last ticket that is reserved
	items   = []byte("i") // before the key of each item
)

func at(key []byte) []byte { return append(bytes.Clone(items), key...) }

// An engine is an ordered map in a folder.
type engine struct {
	db *pebble.DB
	// turn is the right to write. The holder keeps its value in the channel, so that waiting ends with the caller's context.
	turn chan struct{}

	version          uint64 // of the latest commit; guarded by turn, like the next three
	ticket, reserved int64  // the latest ticket, and the last that is reserved
	reservation      *write // of reserved
	latest           atomic.Pointer[write]
	syncs            sync.WaitGroup // under way
}

// A write is a batch in Pebble. Readers see it at once, but until it is synced, a crash can undo it. Pebble syncs writes in their order.
type write struct {
	synced chan struct{} // closed after the sync
	err    error         // of the write or its sync
}

func (w *write) wait(ctx context.Context) error {
	select {
	case <-w.synced:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func openEngine(path string, fs vfs.FS, log *slog.Logger) (*engine, error) {
	db, err := pebble.Open(path, &pebble.Options{FS: fs, Logger: logger{log}})
	if err != nil {
		return nil, err
	}
	e := &engine{db: db, turn: make(chan struct{}, 1)}
	raw, err := get(db, numbers)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if raw != nil {
		e.version, e.ticket = binary.BigEndian.Uint64(raw), int64(binary.BigEndian.Uint64(raw[8:]))
		e.reserved = e.ticket
	}
	e.reservation = e.apply(db.NewBatch())
	return e, nil
}

// get returns a copy of the value, or nil if there is no such key.
func get(r pebble.Reader, key []byte) ([]byte, error) {
	raw, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return bytes.Clone(raw), closer.Close()
}

// Limits is part of kv.Engine: Pebble takes any batch below 4 GiB.
func (e *engine) Limits() kv.Limits { return kv.Limits{} }

// Close is part of kv.Engine. It waits for syncs whose callers have stopped waiting.
func (e *engine) Close() error {
	e.syncs.Wait()
	return e.db.Close()
}

// begin waits for the caller's turn.
func (e *engine) begin(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// apply gives the batch and the numbers to Pebble, in the caller's turn. It does not wait for the sync.
func (e *engine) apply(b *pebble.Batch) *write {
	w := &write{synced: make(chan struct{})}
	e.latest.Store(w) // before a view can see the batch
	n := binary.BigEndian.AppendUint64(nil, e.version)
	w.err = b.Set(numbers, binary.BigEndian.AppendUint64(n, uint64(e.reserved)), nil)
	w.err = errors.Join(w.err, e.db.ApplyNoSyncWait(b, pebble.Sync))
	e.syncs.Go(func() {
		if w.err == nil {
			w.err = errors.Join(b.SyncWait(), b.Close())
		}
		close(w.synced)
	})
	return w
}

// Tickets is part of kv.Engine. It reserves a thousand at a time. When the folder is opened again, those that were not used are left out.
func (e *engine) Tickets(ctx context.Context, n int) ([]int64, error) {
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	if missing := e.ticket + int64(n) - e.reserved; missing > 0 {
		e.reserved += max(missing, 1000)
		e.reservation = e.apply(e.db.NewBatch())
	}
	tickets := make([]int64, n)
	for i := range tickets {
		e.ticket++
		tickets[i] = e.ticket
	}
	reservation := e.reservation
	<-e.turn
	return tickets, reservation.wait(ctx)
}

// A view is a snapshot of Pebble.
type view struct {
	engine   *engine
	snapshot *pebble.Snapshot
}

// View is part of kv.Engine. It waits until all that the snapshot has is synced: otherwise the store could answer with what a crash undoes.
func (e *engine) View(ctx context.Context) (kv.View, error) {
	v := &view{e, e.db.NewSnapshot()}
	if err := e.latest.Load().wait(ctx); err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

func (v *view) Close() { _ = v.snapshot.Close() } // fails only if it was closed before

func (v *view) Read(ctx context.Context, ask ...kv.Range) (answers [][]kv.Item, err error) {
	it, err := v.snapshot.NewIter(nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	answers = make([][]kv.Item, len(ask))
	for i, r := range ask {
		if r.To == nil {
			r.To = append(bytes.Clone(r.From), 0) // the next key that is possible
		}
		it.SetBounds(at(r.From), at(r.To))
		for ok := it.First(); ok; ok = it.Next() {
			raw, err := it.ValueAndErr()
			if err = errors.Join(err, ctx.Err()); err != nil {
				return nil, err
			}
			item := kv.Item{Key: bytes.Clone(it.Key()[len(items):]), Version: binary.BigEndian.Uint64(raw)}
			if !r.KeysOnly {
				item.Value = bytes.Clone(raw[8:])
			}
			if answers[i] = append(answers[i], item); len(answers[i]) == r.Limit {
				break
			}
		}
		if err := it.Error(); err != nil { // SetBounds forgets it
			return nil, err
		}
	}
	return answers, nil
}

func (v *view) Commit(ctx context.Context, c kv.Change) error {
	e := v.engine
	if err := e.begin(ctx); err != nil {
		return nothing(err)
	}
	b := e.db.NewBatch()
	if err := errors.Join(e.fill(b, c), ctx.Err()); err != nil {
		<-e.turn
		_ = b.Close() // the first error says more
		return nothing(err)
	}
	w := e.apply(b)
	<-e.turn
	return w.wait(ctx) // an error does not say whether the batch is in the log
}

func nothing(err error) error { return fmt.Errorf("%w: %w", kv.ErrNothing, err) }

// fill checks the guards and puts the change into the batch, in the caller's turn.
func (e *engine) fill(b *pebble.Batch, c kv.Change) (err error) {
	for _, g := range c.Guards {
		if raw, err := get(e.db, at(g.Key)); err != nil {
			return err
		} else if raw == nil && g.Version != 0 || raw != nil && binary.BigEndian.Uint64(raw) != g.Version {
			return kv.ErrConflict
		}
	}
	e.version++
	for _, key := range c.Deletes {
		err = errors.Join(err, b.Delete(at(key), nil))
	}
	for _, it := range c.Puts {
		err = errors.Join(err, b.Set(at(it.Key), append(binary.BigEndian.AppendUint64(nil, e.version), it.Value...), nil))
	}
	return err
}

package bbolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/seed-ed332417/jq/kv"
)

// items is the only bucket. A value in it is preceded by its version, which is the number of the transaction that wrote it. The sequence of the bucket is
// the last ticket that is reserved.
var items = []byte("items")

// An engine is an ordered map in a file.
type engine struct {
	db *bolt.DB

	// turn is the right to write. The holder keeps its value in the channel. It is a channel, not the driver's own lock, so that
	// waiting ends with the caller's context.
	turn chan struct{}

	ticket, reserved int64 // the latest ticket, and the last that the file knows of; guarded by turn
}

func (e *engine) prepare() error {
	return e.db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(items)
		if err == nil {
			e.ticket = int64(b.Sequence())
			e.reserved = e.ticket
		}
		return err
	})
}

// Limits is part of kv.Engine: bbolt takes any transaction that fits into memory.
func (e *engine) Limits() kv.Limits { return kv.Limits{} }

// Close is part of kv.Engine.
func (e *engine) Close() error { return e.db.Close() }

// write runs a transaction when it is the caller's turn. Errors before its commit have applied nothing. Most errors of the commit itself occur before
// bbolt writes the page that makes the commit count, but the error does not say so.
func (e *engine) write(ctx context.Context, do func(*bolt.Tx, *bolt.Bucket) error) error {
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return nothing(ctx.Err())
	}
	tx, err := e.db.Begin(true)
	if err != nil {
		return nothing(err)
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	if err := do(tx, tx.Bucket(items)); err != nil {
		return nothing(err)
	}
	if err := ctx.Err(); err != nil {
		return nothing(err)
	}
	return tx.Commit()
}

func nothing(err error) error { return fmt.Errorf("%w: %w", kv.ErrNothing, err) }

// reservedAtOnce is how many tickets one transaction reserves: so most jobs need none for theirs.
const reservedAtOnce = 1000

// Tickets is part of kv.Engine. What is reserved and not used when the file is closed is left out.
func (e *engine) Tickets(ctx context.Context, n int) ([]int64, error) {
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-e.turn }()
	if missing := e.ticket + int64(n) - e.reserved; missing > 0 {
		reserved := e.reserved + max(missing, reservedAtOnce)
		if err := e.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(items).SetSequence(uint64(reserved)) }); err != nil {
			return nil, err
		}
		e.reserved = reserved
	}
	tickets := make([]int64, n)
	for i := range tickets {
		e.ticket++
		tickets[i] = e.ticket
	}
	return tickets, nil
}

// A view is a transaction that reads.
type view struct {
	engine *engine
	tx     *bolt.Tx
}

// View is part of kv.Engine.
func (e *engine) View(context.Context) (kv.View, error) {
	tx, err := e.db.Begin(false)
	if err != nil {
		return nil, err
	}
	return &view{e, tx}, nil
}

func (v *view) Close() { _ = v.tx.Rollback() } // no effect after Commit has closed it

func (v *view) Read(ctx context.Context, ask ...kv.Range) ([][]kv.Item, error) {
	answers := make([][]kv.Item, len(ask))
	b := v.tx.Bucket(items)
	for i, r := range ask {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if r.To == nil {
			if raw := b.Get(r.From); raw != nil {
				answers[i] = []kv.Item{item(r.From, raw, false)}
			}
			continue
		}
		c := b.Cursor()
		for key, raw := c.Seek(r.From); key != nil && bytes.Compare(key, r.To) < 0; key, raw = c.Next() {
			if answers[i] = append(answers[i], item(key, raw, r.KeysOnly)); len(answers[i]) == r.Limit {
				break
			}
		}
	}
	return answers, nil
}

// item copies what is valid only during the transaction.
func item(key, raw []byte, keyOnly bool) kv.Item {
	it := kv.Item{Key: bytes.Clone(key), Version: binary.BigEndian.Uint64(raw)}
	if !keyOnly {
		it.Value = bytes.Clone(raw[8:])
	}
	return it
}

// Commit ends the view first: a writer that makes the file grow waits for all readers.
func (v *view) Commit(ctx context.Context, c kv.Change) error {
	v.Close()
	return v.engine.write(ctx, func(tx *bolt.Tx, b *bolt.Bucket) error {
		for _, g := range c.Guards {
			if version(b.Get(g.Key)) != g.Version {
				return kv.ErrConflict
			}
		}
		for _, key := range c.Deletes {
			if err := b.Delete(key); err != nil {
				return err
			}
		}
		for _, it := range c.Puts {
			if err := b.Put(it.Key, append(binary.BigEndian.AppendUint64(nil, uint64(tx.ID())), it.Value...)); err != nil {
				return err
			}
		}
		return nil
	})
}

func version(raw []byte) uint64 {
	if raw == nil {
		return 0
	}
	return binary.BigEndian.Uint64(raw)
}

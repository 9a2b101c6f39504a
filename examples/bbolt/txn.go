package bbolt

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/seed-ed332417/jq/contract"
)

// A txn is a call in its bbolt transaction. It records its first error and then commits nothing. After an error, its steps
// return zero values instead of passing errors to each other.
type txn struct {
	ctx     context.Context
	tx      *bolt.Tx
	now     time.Time
	epoch   int64 // see Fence
	changed bool
	woken   map[contract.Wakeup]bool // the wake-ups to send after the commit
	later   map[string]time.Duration // the queues to wake after a while, whether or not the call changes something
	err     error
}

// read runs a read-only call. It takes snapshot and now together, so that now is not older than the data.
func read[T any](ctx context.Context, s *Store, refused error, do func(*txn) T) (T, error) {
	var none T
	if err := s.enter(ctx, refused); err != nil {
		return none, err
	}
	tx, err := s.db.Begin(false)
	now := s.now()
	s.leave()
	if err != nil {
		return none, ours(err)
	}
	defer func() { _ = tx.Rollback() }() // a reader ends by rollback
	t := begin(ctx, tx, now)
	answer := do(t)
	if t.err != nil {
		return none, t.err
	}
	return answer, nil
}

// write runs a call that may change something, and commits it as a whole if it did: a claim that found no job does not
// wait for the disk.
func write[T any](ctx context.Context, s *Store, refused error, do func(*txn) T) (T, error) {
	var none T
	if err := s.enter(ctx, refused); err != nil {
		return none, err
	}
	defer s.leave()
	tx, err := s.db.Begin(true)
	if err != nil {
		return none, ours(err)
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	t := begin(ctx, tx, s.now())
	answer := do(t)
	t.look() // the last chance to undo a claim whose caller is gone
	if t.err != nil {
		return none, t.err
	}
	if t.changed {
		if err := tx.Commit(); err != nil {
			return none, inDoubt(err)
		}
		s.hub.tell(t.woken)
	}
	s.hub.tellLater(s.clock, t.later)
	return answer, nil
}

func begin(ctx context.Context, tx *bolt.Tx, now time.Time) *txn {
	t := &txn{ctx: ctx, tx: tx, now: now, woken: map[contract.Wakeup]bool{}, later: map[string]time.Duration{}}
	t.epoch, _ = get[int64](t, epochs, []byte(present))
	return t
}

// fail records the error, unless there is one already.
func (t *txn) fail(err error) {
	if err != nil && t.err == nil {
		t.err = ours(err)
	}
}

// look fails the call if its context has ended, and reports whether the call may continue.
func (t *txn) look() bool {
	t.fail(t.ctx.Err())
	return t.err == nil
}

func (t *txn) in(b bucket) *bolt.Bucket { return t.tx.Bucket([]byte(b)) }

// get reads a value and reports whether it exists.
func get[T any](t *txn, b bucket, key []byte) (value T, ok bool) {
	raw := t.in(b).Get(key)
	if raw == nil {
		return value, false
	}
	return decode[T](t, b, raw), true
}

func decode[T any](t *txn, b bucket, raw []byte) (value T) {
	if err := json.Unmarshal(raw, &value); err != nil {
		t.fail(fmt.Errorf("%w: a value of the bucket %s can not be read: %w", errDamaged, b, err))
	}
	return value
}

func (t *txn) put(b bucket, key []byte, value any) {
	raw, err := json.Marshal(value)
	t.fail(err)
	t.putRaw(b, key, raw)
}

func (t *txn) putRaw(b bucket, key, raw []byte) {
	t.changed = true
	t.fail(t.in(b).Put(key, raw))
}

func (t *txn) remove(b bucket, key []byte) {
	t.changed = true
	t.fail(t.in(b).Delete(key))
}

// upTo returns copies of the first keys that begin with the prefix and whose next bytes, a moment, are no later than the
// given one; at most limit of them. It collects them before the caller changes anything, because a change invalidates the cursor.
func (t *txn) upTo(b bucket, prefix []byte, until time.Time, limit int) [][]byte {
	var found [][]byte
	last := string(moment(until))
	c := t.in(b).Cursor()
	for key, _ := c.Seek(prefix); key != nil && len(found) < limit; key, _ = c.Next() {
		if !bytes.HasPrefix(key, prefix) || momentAt(key, len(prefix)) > last {
			break
		}
		found = append(found, bytes.Clone(key))
	}
	return found
}

// before moves the cursor to the last key below the bound.
func before(c *bolt.Cursor, bound []byte) (key, value []byte) {
	if key, _ := c.Seek(bound); key == nil {
		return c.Last()
	}
	return c.Prev()
}

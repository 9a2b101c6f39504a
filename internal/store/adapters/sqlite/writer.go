package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/wake"
)

// A writer commits the queued calls in batches (group commit). Each call is atomic within the shared transaction, and no call is
// affected by another's context. The writer has a goroutine; but a caller who finds nobody writing writes the batch itself.
type writer struct {
	ctx    context.Context // never ends: a commit belongs to no single caller
	db     *sqlx.DB
	place  place
	afresh func() // closes the store's other idle connections
	turns  *turn
	now    *now
	hub    *wake.Hub

	patience time.Duration // how long a call waits for other processes

	log  logbook
	kept *prepared // the connection that writes; nil before the first use, and after trouble
	side []place   // the WAL and its index; nil before they are known
	seen int64     // its data version, which changes when another connection commits

	cancelled int64 // when the latest job that a look has seen was cancelled

	latest string // the group of a job that the latest Ack has finished

	commits   atomic.Int64
	others    atomic.Int64 // calls that are not patient
	abandoned bool         // a goroutine still waits for the lock, and will close its file

	queue *queue
	busy  sync.Mutex // whoever writes holds it; it guards the fields from log to seen, cancelled and latest
	quit  chan struct{}
	done  chan struct{}
}

func newWriter(ctx context.Context, s *Store, patience time.Duration) *writer {
	w := &writer{
		ctx: ctx, db: s.callers, place: s.place, afresh: s.afresh, turns: s.turn, now: s.now, hub: s.hub, patience: patience,
		cancelled: s.now.get().UnixMicro(), queue: newQueue(), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go w.loop()
	return w
}

// do runs the call in the next transaction and returns after its commit. If the context ends before the writer has taken the
// call, do withdraws it. After that it waits for the answer, which is only one commit away.
func (w *writer) do(ctx context.Context, l load, run func(*txn) error) error {
	c := &call{run: run, load: l, since: time.Now(), answer: make(chan error, 1)}
	if !l.patient {
		w.others.Add(1)
	}
	if !w.queue.put(c) {
		return store.ErrClosed
	}
	if w.busy.TryLock() { // otherwise, whoever writes now looks at the queue after it
		w.turnAtOnce()
		if !w.queue.empty() {
			w.queue.alert()
		}
	}
	select {
	case err := <-c.answer:
		return err
	case <-ctx.Done():
		if w.queue.withdraw(c) {
			return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
		}
		return <-c.answer
	}
}

// close refuses waiting calls and waits for those that the writer has taken.
func (w *writer) close() error {
	for _, c := range w.queue.close() {
		c.answer <- store.ErrClosed
	}
	close(w.quit)
	<-w.done
	w.busy.Lock() // a caller may still be writing
	defer w.busy.Unlock()
	w.disconnect()
	if w.abandoned {
		return nil
	}
	return w.turns.close()
}

func (w *writer) loop() {
	defer close(w.done)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-w.quit:
			return
		case <-w.queue.wake:
		case <-look.C:
			w.busy.Lock()
			w.lookAround()
			w.tidy()
			w.busy.Unlock()
		}
		for !w.queue.empty() {
			w.turn()
		}
	}
}

// turnAtOnce writes one batch in the goroutine of a caller, who holds busy: that saves two switches of goroutines. If it would
// have to wait or to report trouble, it leaves the batch to the writer's goroutine.
func (w *writer) turnAtOnce() {
	defer w.busy.Unlock()
	if w.kept == nil {
		return
	}
	if ok, err := w.turns.try(); !ok || err != nil {
		return
	}
	defer w.turns.release()
	if _, err := w.kept.ExecContext(w.ctx, `BEGIN IMMEDIATE`); err != nil {
		return
	}
	if w.inPlace() != nil {
		w.rollback()
		return
	}
	w.write()
}

// turn writes one batch, once this process has the turn.
func (w *writer) turn() {
	w.busy.Lock()
	defer w.busy.Unlock()
	if !w.lockFile() {
		return
	}
	defer w.turns.release()
	if err := w.begin(); err != nil {
		if codeOf(err) != codeBusy {
			w.settle(w.queue.take(), ours(err))
		}
		return
	}
	w.write()
}

// write writes one batch in the open transaction.
func (w *writer) write() {
	batch := w.queue.take()
	if len(batch) == 0 { // all withdrawn
		w.rollback()
		return
	}
	if w.commit(batch) {
		return
	}
	// One call has spoiled the transaction for all. Run each alone to find it.
	w.makeRoom()
	for _, c := range batch {
		c.err, c.woken = nil, nil
		if err := w.begin(); err != nil {
			w.settle([]*call{c}, ours(err))
		} else if !w.commit([]*call{c}) {
			w.settle([]*call{c}, c.err)
		}
	}
}

// commit runs the calls in the open transaction and answers them. It returns false if the transaction was lost; then nothing is
// applied, and no call is answered.
func (w *writer) commit(batch []*call) bool {
	t := &txn{ctx: w.ctx, tx: w.kept, latest: &w.latest}
	applied := 0
	for _, c := range batch {
		err := w.runOne(t, c, len(batch) > 1)
		if err != nil {
			return w.lost(batch, err)
		}
		if c.err == nil {
			applied++
		}
	}
	if applied == 0 {
		w.rollback()
		w.settle(batch, nil)
		return true
	}
	if _, err := w.kept.ExecContext(w.ctx, `COMMIT`); err != nil {
		err = committed(err)
		if errors.Is(err, store.ErrInDoubt) {
			w.rollback()
			w.settle(batch, err)
			return true
		}
		return w.lost(batch, err)
	}
	w.commits.Add(1)
	w.settle(batch, nil)
	return true
}

// lost rolls back, and keeps the error if the batch is a single call.
func (w *writer) lost(batch []*call, err error) bool {
	w.rollback()
	if len(batch) == 1 && batch[0].err == nil {
		batch[0].err = ours(err)
	}
	return false
}

// runOne applies the call as a whole or not at all. A returned error concerns the transaction, not the call.
func (w *writer) runOne(t *txn, c *call, shared bool) error {
	if !shared {
		c.err = run(t, c, w.now.get())
		return nil // the only call in its transaction: after an error nothing is committed
	}
	if _, err := t.tx.ExecContext(w.ctx, `SAVEPOINT one`); err != nil {
		return err
	}
	if c.err = run(t, c, w.now.get()); c.err != nil {
		if _, err := t.tx.ExecContext(w.ctx, `ROLLBACK TO one`); err != nil {
			return err
		}
	}
	_, err := t.tx.ExecContext(w.ctx, `RELEASE one`)
	return err
}

// run runs the call. A panic becomes the call's error, so that the writer can serve the others.
func run(t *txn, c *call, now time.Time) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: panic: %v\n%s", store.ErrUnavailable, p, debug.Stack())
		}
	}()
	t.now, t.woken, t.failed = now, nil, nil
	err = ours(cmp.Or(c.run(t), t.failed))
	c.woken = t.woken
	return err
}

// settle answers the calls, each with its own error or else with the common one.
func (w *writer) settle(batch []*call, err error) {
	for _, c := range batch {
		if err == nil && c.err == nil {
			w.hub.Tell(c.woken...)
		}
		if c.err == nil {
			c.err = err
		}
		c.answer <- c.err
	}
}

// lockFile waits until no other process is writing. It returns false if the store is closed meanwhile. A stopped process could
// hold the lock for ever, so a goroutine waits for it, and releases the lock if nobody needs it any more.
func (w *writer) lockFile() bool {
	if ok, err := w.turns.try(); ok || err != nil {
		return true // if files cannot be locked, rely on SQLite's own lock
	}
	blocked := time.Now()
	got := make(chan struct{})
	go func() {
		_ = w.turns.wait()
		select {
		case got <- struct{}{}:
		case <-w.quit:
			_ = w.turns.close()
		}
	}()
	look := time.NewTicker(max(w.patience/8, time.Millisecond))
	defer look.Stop()
	for {
		select {
		case <-got:
			return true
		case <-w.quit:
			w.abandoned = true
			return false
		case <-look.C:
			w.expire(blocked, w.turns.blocker)
		}
	}
}

// expire refuses the calls that have waited longer than patience. A call's wait begins when it was queued, or when other
// processes began to block this one if that is later. who names the other processes.
func (w *writer) expire(blocked time.Time, who func() string) {
	before := time.Now().Add(-w.patience)
	if blocked.After(before) {
		return
	}
	if expired := w.queue.takeOlder(before); len(expired) > 0 {
		w.settle(expired, fmt.Errorf("%w: %s", store.ErrUnavailable, who()))
	}
}

// begin starts a write transaction. If the connection cannot, begin tries a new one: the cause may have passed.
func (w *writer) begin() error {
	err := w.tryBegin()
	if err != nil && codeOf(err) != codeBusy {
		w.disconnect()
		w.afresh()
		err = w.tryBegin()
	}
	if err != nil {
		return err
	}
	if err = w.inPlace(); err != nil {
		w.rollback()
	}
	return err
}

// inPlace checks that the file is where it was, and so are the WAL and its index: without them, commits are lost when the next
// process opens the file.
func (w *writer) inPlace() error {
	if err := w.place.check(); err != nil {
		return err
	}
	if w.side != nil {
		return w.sideInPlace()
	}
	log, err := placeOf(w.place.real + "-wal")
	if err != nil {
		return err
	}
	index, err := placeOf(w.place.real + "-shm")
	if err != nil {
		return err
	}
	w.side = []place{log, index}
	return nil
}

func (w *writer) sideInPlace() error {
	for _, p := range w.side {
		if err := p.check(); err != nil {
			return err
		}
	}
	return nil
}

// makeRoom checkpoints the WAL so that SQLite can reuse it: on a full disk that may be room enough. If it fails, the next
// commit reports the error.
func (w *writer) makeRoom() {
	if w.connect() == nil {
		var busy, pages, done int
		_ = w.kept.QueryRowContext(w.ctx, `PRAGMA wal_checkpoint`).Scan(&busy, &pages, &done)
	}
}

// tryBegin waits, as long as a call may, for those who write without the lock file, as callers' transactions do.
func (w *writer) tryBegin() error {
	if err := w.connect(); err != nil {
		return err
	}
	for blocked := time.Now(); ; {
		_, err := w.kept.ExecContext(w.ctx, `BEGIN IMMEDIATE`)
		if codeOf(err) != codeBusy {
			return err
		}
		w.expire(blocked, w.turns.stranger)
		select {
		case <-w.quit:
			return err
		case <-time.After(time.Duration(rand.Int64N(int64(2 * time.Millisecond)))):
		}
		if w.queue.empty() {
			return err
		}
	}
}

// connect opens the connection that writes. It waits for locks itself, because SQLite pauses too long between attempts.
func (w *writer) connect() error {
	if w.kept != nil {
		return nil
	}
	if err := w.place.check(); err != nil {
		return err
	}
	conn, err := w.db.Connx(w.ctx)
	if err != nil {
		return err
	}
	if _, err := conn.ExecContext(w.ctx, `PRAGMA journal_mode = WAL; PRAGMA busy_timeout = 0`); err != nil { // a backup is not in WAL mode
		return errors.Join(err, conn.Close())
	}
	w.kept = newPrepared(conn)
	return nil
}

// disconnect drops a connection that is done or in trouble. If the files beside the store's are still in place, the next
// connection may create new ones; if somebody removed them, it must not.
func (w *writer) disconnect() {
	if w.kept == nil {
		return
	}
	if w.sideInPlace() == nil {
		w.side = nil
	}
	w.kept.discard()
	w.kept = nil
}

// rollback ends the transaction. SQLite may have ended it already; if ROLLBACK fails, rollback drops the connection to be sure.
func (w *writer) rollback() {
	if _, err := w.kept.ExecContext(w.ctx, `ROLLBACK`); err != nil {
		w.disconnect()
	}
}

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/wake"
)

// A writer is the goroutine that writes. It commits the calls in its queue in batches (group commit). Each call is atomic in the shared
// transaction, and none depends on the context of another.
type writer struct {
	ctx    context.Context // never ends: a commit is no caller's
	db     *sqlx.DB
	place  place
	afresh func() // gives up the store's other connections that nobody uses
	turns  *turn
	now    *now
	hub    *wake.Hub

	patience time.Duration // how long a call waits for other processes

	log  logbook
	kept *prepared // the connection that writes; nil before it is needed, and after trouble
	side []place   // the files beside the store's that it writes to; none before they are known
	seen int64     // its data version: another connection's commit changes it

	commits   atomic.Int64 // how many there were
	abandoned bool         // the lock of the file is still waited for, by a goroutine that will close it

	queue *queue
	quit  chan struct{}
	done  chan struct{}
}

func newWriter(ctx context.Context, s *Store, patience time.Duration) *writer {
	w := &writer{
		ctx: ctx, db: s.callers, place: s.place, afresh: s.afresh, turns: s.turn, now: s.now, hub: s.hub, patience: patience,
		queue: newQueue(), quit: make(chan struct{}), done: make(chan struct{}),
	}
	go w.loop()
	return w
}

// do runs the call in the next transaction, and returns when that was committed. A context that ends before the call was
// taken up withdraws it; afterwards the answer is a commit away, and is waited for.
func (w *writer) do(ctx context.Context, l load, run func(*txn) error) error {
	c := &call{run: run, load: l, since: time.Now(), answer: make(chan error, 1)}
	if !w.queue.put(c) {
		return store.ErrClosed
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

// close refuses the calls that wait, and waits for those that were taken up.
func (w *writer) close() error {
	for _, c := range w.queue.close() {
		c.answer <- store.ErrClosed
	}
	close(w.quit)
	<-w.done
	if w.abandoned {
		return nil
	}
	return w.turns.close()
}

func (w *writer) loop() {
	defer close(w.done)
	defer w.disconnect()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-w.quit:
			return
		case <-w.queue.wake:
		case <-look.C:
			w.lookAround()
			w.tidy()
			continue
		}
		for !w.queue.empty() {
			w.turn()
		}
	}
}

// turn writes one batch, once it is this process's turn.
func (w *writer) turn() {
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
	batch := w.queue.take()
	if len(batch) == 0 { // all withdrawn
		w.rollback()
		return
	}
	if w.commit(batch) {
		return
	}
	// One of them has spoiled the transaction for all: each alone finds which.
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

// commit runs the calls in the transaction that has begun, and answers them. It says false, with nothing answered and
// nothing applied, if the transaction was lost.
func (w *writer) commit(batch []*call) bool {
	t := &txn{ctx: w.ctx, tx: w.kept}
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

// lost gives up the transaction, and keeps the reason for a call that was alone in it.
func (w *writer) lost(batch []*call, err error) bool {
	w.rollback()
	if len(batch) == 1 && batch[0].err == nil {
		batch[0].err = ours(err)
	}
	return false
}

// runOne runs the call so that it is applied as a whole or not at all. An error is one of the transaction, not of the call.
func (w *writer) runOne(t *txn, c *call, shared bool) error {
	if !shared {
		c.err = run(t, c, w.now.get())
		return nil // without any other call, nothing is committed after an error
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

// run runs the call. A panic is an error of the call: the writer lives on for the others.
func run(t *txn, c *call, now time.Time) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: panic: %v\n%s", store.ErrUnavailable, p, debug.Stack())
		}
	}()
	t.now, t.woken = now, nil
	err = ours(c.run(t))
	c.woken = t.woken
	return err
}

// settle answers the calls: each with its own error, or with the one of all.
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

// lockFile waits until no other process writes, and says false if the store was closed meanwhile. A process that holds the
// lock and does not move could keep us for ever, so a goroutine waits for it, and gives the lock back if nobody wants it.
func (w *writer) lockFile() bool {
	if ok, err := w.turns.try(); ok || err != nil {
		return true // where files can not be locked, SQLite's own lock must do
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

// expire refuses the calls that have waited for others for as long as a call may: since they were put in the queue, or since others have
// kept this process from writing if that is later. who says who the others are.
func (w *writer) expire(blocked time.Time, who func() string) {
	before := time.Now().Add(-w.patience)
	if blocked.After(before) {
		return
	}
	if expired := w.queue.takeOlder(before); len(expired) > 0 {
		w.settle(expired, fmt.Errorf("%w: %s", store.ErrUnavailable, who()))
	}
}

// begin starts a transaction that may write. A connection that can not is given up for a new one, for what was wrong may have
// passed.
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

// inPlace says that the file is where it was, and so are the log of changes and its index, without which a commit is lost when
// the next process opens the file.
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

// makeRoom carries the log of changes into the file, so that it begins anew: on a full disk that may be room enough. What can
// not be done the next commit says.
func (w *writer) makeRoom() {
	if w.connect() == nil {
		var busy, pages, done int
		_ = w.kept.QueryRowContext(w.ctx, `PRAGMA wal_checkpoint`).Scan(&busy, &pages, &done)
	}
}

// tryBegin waits for whoever writes without the lock of the file, as callers' transactions do, for as long as a call waits.
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

// connect makes the connection that writes. It waits for locks by itself: SQLite would wait too long between two looks.
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
	if _, err := conn.ExecContext(w.ctx, `PRAGMA journal_mode = WAL; PRAGMA busy_timeout = 0`); err != nil { // a backup has another mode
		return errors.Join(err, conn.Close())
	}
	w.kept = newPrepared(conn)
	return nil
}

// disconnect forgets a connection that is done or in trouble. The next one may find other files beside the store's, unless
// these were removed by somebody else.
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

// rollback ends a transaction that is not to be committed. SQLite may have ended it already; to be sure, the connection is
// not used again if it can not be told.
func (w *writer) rollback() {
	if _, err := w.kept.ExecContext(w.ctx, `ROLLBACK`); err != nil {
		w.disconnect()
	}
}

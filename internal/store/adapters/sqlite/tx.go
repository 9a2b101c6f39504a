package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"os"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// InTx is part of the contract. The transaction must come from [Store.DB], or from any other connection to the same file whose
// transactions are immediate (_txlock=immediate with this driver): a transaction that begins with a read may fail at its first
// write, and you must then begin it again. It blocks every other writer, the store included, until it ends.
func (s *Store) InTx(tx store.Tx) store.Writer { return &txWriter{s: s, tx: tx} }

// A txWriter writes in a caller's transaction.
type txWriter struct {
	s  *Store
	tx store.Tx
}

// Enqueue is part of the contract.
func (w *txWriter) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	return within(ctx, w, req.Check(), func(t *txn) ([]store.Enqueued, error) { return t.enqueue(req) })
}

// Ack is part of the contract.
func (w *txWriter) Ack(ctx context.Context, acks []store.Ack) ([]store.Outcome, error) {
	return within(ctx, w, store.CheckAcks(acks), func(t *txn) ([]store.Outcome, error) { return t.ack(acks) })
}

// NAck is part of the contract.
func (w *txWriter) NAck(ctx context.Context, nacks []store.NAck) ([]store.Outcome, error) {
	return within(ctx, w, store.CheckNAcks(nacks), func(t *txn) ([]store.Outcome, error) { return t.nack(nacks) })
}

// SetSchedule is part of the contract.
func (w *txWriter) SetSchedule(ctx context.Context, by store.Schedule) (store.Schedule, error) {
	return within(ctx, w, by.Check(), func(t *txn) (store.Schedule, error) { return t.schedules().SetSchedule(by) })
}

// DeleteSchedule is part of the contract.
func (w *txWriter) DeleteSchedule(ctx context.Context, name string) error {
	_, err := within(ctx, w, store.CheckSchedule(name), func(t *txn) (struct{}, error) { return t.deleteSchedule(name) })
	return err
}

// Schedules is part of the contract.
func (w *txWriter) Schedules(ctx context.Context, filter store.ScheduleFilter, page store.Page) (store.SchedulePage, error) {
	after, invalid := filter.Position(page)
	return within(ctx, w, invalid, func(t *txn) (store.SchedulePage, error) { return t.schedulePage(filter, page, after) })
}

// Fire is part of the contract.
func (w *txWriter) Fire(ctx context.Context, firings []store.Firing) ([]store.Fired, error) {
	return within(ctx, w, store.CheckFirings(firings), func(t *txn) ([]store.Fired, error) { return t.schedules().Fire(firings, t.now) })
}

// SealGroup is part of the contract.
func (w *txWriter) SealGroup(ctx context.Context, name string) error {
	_, err := within(ctx, w, store.CheckGroup(name), func(t *txn) (struct{}, error) { return struct{}{}, t.seal(name) })
	return err
}

// Groups is part of the contract.
func (w *txWriter) Groups(ctx context.Context, filter store.GroupFilter, page store.Page) (store.GroupPage, error) {
	after, invalid := filter.Position(page)
	return within(ctx, w, invalid, func(t *txn) (store.GroupPage, error) { return t.groupPage(filter, page, after) })
}

// takeWriteLock changes nothing but takes the write lock, so that nobody changes what the transaction then reads.
const takeWriteLock = `
	DELETE FROM queues
	WHERE FALSE`

// within runs a call in the caller's transaction. Other stores notice its commit by the data version of the file.
func within[T any](ctx context.Context, w *txWriter, invalid error, run func(t *txn) (T, error)) (T, error) {
	var none T
	if err := sqlkit.Admit(ctx, w.s.closed, cmp.Or(invalid, sqlkit.CheckTx(w.tx))); err != nil {
		return none, err
	}
	if err := w.s.place.check(); err != nil {
		return none, err
	}
	t := &txn{ctx: ctx, tx: w.tx, strict: true}
	answer, err := func() (T, error) {
		if err := t.join(w.s); err != nil {
			return none, err
		}
		answer, err := run(t)
		if err != nil {
			return none, err
		}
		_, err = t.follow(store.SettledByCall)
		return answer, err
	}()
	if err != nil {
		return none, sqlkit.Because(ctx, w.s.closed, ours(store.TxError(err)))
	}
	return answer, nil
}

// join makes sure that the caller's transaction is open and on the store's file, then takes the write lock.
func (t *txn) join(s *Store) error {
	if err := t.mustBeOpen(); err != nil {
		return err
	}
	if err := t.mustBeOn(s.place); err != nil {
		return err
	}
	if _, err := t.exec(takeWriteLock); err != nil {
		return err
	}
	t.now = s.now.get()
	return nil
}

// mustBeOpen asks SQLite itself, because Go cannot tell: a pool can be wrapped to look like a transaction, and a *sql.Tx does
// not know that a full disk, an OR ROLLBACK or a COMMIT in the caller's SQL has ended it. The pragma has no effect, since
// temporary tables are never synced; but SQLite refuses it within a transaction, with the code SQLITE_ERROR. A BEGIN would tell
// as well, but would leave a transaction open if there was none.
func (t *txn) mustBeOpen() error {
	_, err := t.tx.ExecContext(t.ctx, `PRAGMA temp.synchronous = 1`)
	switch code := codeOf(err); {
	case err == nil:
		return store.NotInTx(t.tx)
	case code == codeError:
		return nil
	case code != 0 || t.ctx.Err() != nil || lost(err):
		return err
	default:
		return nil // another driver's error, whose codes have another type
	}
}

// lost reports whether the statement did not reach SQLite.
func lost(err error) bool {
	return errors.Is(err, sql.ErrTxDone) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, driver.ErrBadConn)
}

// mustBeOn refuses a transaction on another file, which may have the same tables.
func (t *txn) mustBeOn(p place) error {
	var path string
	err := t.each(func(rows *sql.Rows) error {
		var number int
		var name, file string
		err := rows.Scan(&number, &name, &file)
		if name == "main" {
			path = file
		}
		return err
	}, `PRAGMA database_list`)
	if err != nil || path == p.real {
		return err
	}
	if file, err := os.Stat(path); err == nil && os.SameFile(file, p.file) {
		return nil // the same file under another name
	}
	return sqlkit.OtherTx(p.real, path)
}

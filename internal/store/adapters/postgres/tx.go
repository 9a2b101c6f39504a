package postgres

import (
	"cmp"
	"context"
	"database/sql"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// InTx is part of the contract. The transaction may come from [Store.DB], or from any other connection to the same database,
// with any driver for database/sql. If it is not READ COMMITTED, it may fail with a serialization error; you must then begin it
// again. Only transactions of [Store.DB] and of [ConfirmCommits] report whether their COMMIT waited for a synchronous standby.
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

// within runs a call in the caller's transaction.
func within[T any](ctx context.Context, w *txWriter, invalid error, run func(t *txn) (T, error)) (T, error) {
	var none T
	if err := sqlkit.Admit(ctx, w.s.closed, cmp.Or(invalid, sqlkit.CheckTx(w.tx))); err != nil {
		return none, err
	}
	t := &txn{ctx: ctx, wire: ctx, s: w.s, tx: w.tx, strict: true}
	answer, err := func() (T, error) {
		if err := t.join(); err != nil {
			return none, err
		}
		answer, err := run(t)
		if err == nil {
			err = t.prove() // a call may have had nothing to write
		}
		if err == nil {
			err = t.notify()
		}
		return answer, err
	}()
	if err != nil {
		return none, sqlkit.Because(ctx, w.s.closed, ours(store.TxError(err)))
	}
	return answer, nil
}

// join reads the time, and makes sure that the caller's transaction is on the store's database. If it had a number before this
// statement, it is open: a lone statement has none. Otherwise the next statement must prove it, by having the same number: see
// prove and insert. Comparing now() with statement_timestamp() would prove nothing: drivers that send a statement in parts begin
// its transaction with the first part, and take its time at the last.
func (t *txn) join() error {
	switch err := t.start(t.s.with.caller); {
	case codeOf(err) == codeFailedTx:
		return sqlkit.FailedTx(err)
	case err != nil:
		return err
	case t.shown.database != t.s.database:
		return sqlkit.OtherTx(t.s.database, t.shown.database)
	}
	t.unproven = !t.shown.numbered
	return t.recognise()
}

// prove makes sure that the caller's transaction is open, unless that is known.
func (t *txn) prove() error {
	if !t.unproven {
		return nil
	}
	t.unproven = false // the next statement must not ask again
	var number int64
	err := t.each(func(rows *sql.Rows) error { return rows.Scan(&number) }, `
		SELECT pg_current_xact_id()::text::bigint`)
	if err == nil && number != t.shown.number {
		err = store.NotInTx(t.tx)
	}
	return err
}

// notify makes the server notify subscribers when the transaction commits.
func (t *txn) notify() error {
	payloads := toldToAll(t.woken)
	if t.heard || len(t.left) > 0 {
		payloads = append(payloads, toFollow)
	}
	if len(payloads) == 0 {
		return nil
	}
	_, err := t.exec(`
		SELECT pg_notify($1, told)
		FROM unnest($2::text[]) AS woken (told)`,
		t.s.channel(), arrayOfTexts(payloads))
	return err
}

// toldToAll returns the payloads of notifications that this store must hear too: otherwise it does not learn that the caller has
// committed.
func toldToAll(woken sqlkit.Woken) []string {
	all := make([]string, len(woken))
	for i, w := range woken {
		all[i] = told("", w)
	}
	return all
}

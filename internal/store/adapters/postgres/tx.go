package postgres

import (
	"cmp"
	"context"
	"database/sql"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// InTx is part of the contract. The transaction may be one of [Store.DB], or of any other connection to the same database by
// any driver for database/sql. Where it is not READ COMMITTED, it may fail as the database says, and is then to be begun anew.
// Whether its COMMIT waited for a synchronous standby, those of [Store.DB] and of [ConfirmCommits] say.
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

// within runs a call in the caller's transaction.
func within[T any](ctx context.Context, w *txWriter, invalid error, run func(t *txn) (T, error)) (T, error) {
	var none T
	if err := sqlkit.Admit(ctx, w.s.closed, cmp.Or(invalid, sqlkit.CheckTx(w.tx))); err != nil {
		return none, err
	}
	t := &txn{ctx: ctx, s: w.s, tx: w.tx, strict: true}
	answer, err := func() (T, error) {
		if err := t.join(); err != nil {
			return none, err
		}
		answer, err := run(t)
		return answer, cmp.Or(err, t.notify())
	}()
	if err != nil {
		return none, sqlkit.Because(ctx, w.s.closed, ours(store.TxError(err)))
	}
	return answer, nil
}

// join learns what time it is, and makes sure that the caller's transaction is open, and on the store's database. One that had
// its number before the statement that asks for it is open: a statement by itself has none. Else a second statement has the same
// number or is another transaction. That now() is before statement_timestamp() proves nothing: drivers that send a statement in
// parts begin its transaction with the first, and take its time at the last.
func (t *txn) join() error {
	switch err := t.start(t.s.with.caller); {
	case codeOf(err) == codeFailedTx:
		return sqlkit.FailedTx(err)
	case err != nil:
		return err
	case t.shown.database != t.s.database:
		return sqlkit.OtherTx(t.s.database, t.shown.database)
	case t.shown.numbered:
		return t.recognise()
	}
	var number int64
	err := t.each(func(rows *sql.Rows) error { return rows.Scan(&number) }, `
		SELECT pg_current_xact_id()::text::bigint`)
	switch {
	case err != nil:
		return err
	case number != t.shown.number:
		return store.NotInTx(t.tx)
	}
	return t.recognise()
}

// notify tells those who listen, once the transaction is committed.
func (t *txn) notify() error {
	if len(t.woken) == 0 {
		return nil
	}
	all := make([]string, len(t.woken))
	for i, queue := range t.woken {
		all[i] = told("", queue) // when the caller commits, nobody here learns of it otherwise
	}
	_, err := t.exec(`
		SELECT pg_notify($1, told)
		FROM unnest($2::text[]) AS woken (told)`,
		t.s.channel(), arrayOfTexts(all))
	return err
}

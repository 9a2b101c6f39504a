package sqlite

import (
	"context"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// InTx is part of the contract. The transaction is one of [Store.DB], or of any other connection to the same file whose
// transactions are immediate (_txlock=immediate with this driver): one that begins by reading may fail when it comes to
// write, and is then to be begun anew. It keeps every other writer waiting, the store itself included, until it ends.
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

// takeWriteLock writes nothing, and makes the transaction one that may write: what is read afterwards stays so until its end.
const takeWriteLock = `
	DELETE FROM queues
	WHERE FALSE`

// within runs a call in the caller's transaction. Others notice its commit by the version of the file.
func within[T any](ctx context.Context, w *txWriter, invalid error, run func(t *txn) (T, error)) (T, error) {
	var none T
	if err := sqlkit.Admit(ctx, w.s.closed, invalid); err != nil {
		return none, err
	}
	if err := w.s.place.check(); err != nil {
		return none, err
	}
	t := &txn{ctx: ctx, tx: w.tx, strict: true}
	if _, err := t.exec(takeWriteLock); err != nil {
		return none, sqlkit.Because(ctx, w.s.closed, ours(err))
	}
	t.now = w.s.now.get()
	answer, err := run(t)
	if err != nil {
		return none, sqlkit.Because(ctx, w.s.closed, ours(err))
	}
	return answer, nil
}

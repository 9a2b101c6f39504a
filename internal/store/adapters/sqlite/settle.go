package sqlite

import (
	"context"
	"math"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// settledAtOnce is how many jobs one transaction of Settle changes at most, so that other calls wait for a few milliseconds only. While there
// are others, Settle pauses after each transaction, for so many times as long as that took: then most of them wait for none.
const (
	settledAtOnce = 25
	pauses        = 4
)

// Settle is part of the contract. It takes several transactions for many jobs.
func (s *Store) Settle(ctx context.Context, limit int) (settled []store.Settled, err error) {
	invalid := store.CheckSettle(limit)
	seen := s.writer.others.Load()
	for more := true; more; {
		part, began := min(limit-len(settled), settledAtOnce), time.Now()
		some, err := write(ctx, s, invalid, load{items: part, patient: true}, func(t *txn) ([]store.Settled, error) { return t.settle(part) })
		if err != nil && len(settled) == 0 { // otherwise those are committed
			return nil, err
		}
		settled = append(settled, some...)
		more = len(some) == part && len(settled) < limit
		if others := s.writer.others.Load(); more && others != seen {
			seen = others
			sqlkit.Rest(ctx, pauses*time.Since(began))
		}
	}
	return settled, nil
}

// tellLeft adds a wake-up if something is left to settle.
func (t *txn) tellLeft() error {
	left, err := sqlkit.Values[int64](t.each, `
		SELECT 1
		FROM ends
		LIMIT 1`)
	if len(left) > 0 {
		t.woken.Add(store.Wakeup{Settle: true})
	}
	return err
}

func (t *txn) settle(limit int) ([]store.Settled, error) {
	expired, err := t.records(`
		SELECT`+columns+`,`+presentLinks+presentEpoch+`
		FROM jobs
		WHERE expires_at <= ? AND finished_at IS NULL AND state <> 'in_flight'
		ORDER BY expires_at, id
		LIMIT ?`,
		t.now.UnixMicro(), limit)
	if err != nil {
		return nil, err
	}
	settled := make([]store.Settled, len(expired))
	for i, e := range expired {
		if _, err := t.cancel(e); err != nil {
			return nil, err
		}
		settled[i] = store.SettledOf(&e.Job)
	}
	changed, err := t.hear(limit-len(settled), math.MaxInt)
	for _, e := range changed {
		settled = append(settled, store.SettledOf(&e.Job))
	}
	t.heard = false // what is left is for the next call
	return settled, err
}

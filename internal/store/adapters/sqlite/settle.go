package sqlite

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// A call, and each transaction of Settle, changes and tells so many jobs at most, so that other calls wait for a few milliseconds only. While
// there are others, Settle pauses after each transaction, for so many times as long as that took: then most of them wait for none.
const (
	settledAtOnce = 10
	toldAtOnce    = 100
	pauses        = 4
	longestRest   = 100 * time.Millisecond
)

// Settle is part of the contract. It takes several transactions for many jobs.
func (s *Store) Settle(ctx context.Context, limit int) (settled []store.Settled, err error) {
	invalid := store.CheckSettle(limit)
	defer func() {
		if len(settled) > 0 { // they may have held back others of their keys
			s.tellHeld()
		}
	}()
	seen := s.writer.others.Load()
	for more := true; more; {
		part, began := min(limit-len(settled), settledAtOnce), time.Now()
		did, err := write(ctx, s, invalid, load{items: part, patient: true}, func(t *txn) (settlement, error) {
			began = time.Now() // others may have been before it
			return t.settle(part)
		})
		if err != nil && len(settled) == 0 { // otherwise those are committed
			return nil, err
		}
		settled = append(settled, did.settled...)
		more = did.more && len(settled) < limit
		if others := s.writer.others.Load(); more && others != seen {
			seen = others
			sqlkit.Rest(ctx, min(pauses*time.Since(began), longestRest))
		}
	}
	return settled, nil
}

// goOn does what follows from a call that is committed, in transactions that other calls hardly notice. What is more than a call may do, or
// fails, is left to Settle. So is all if another call does the same, because ends are told in one order.
func (s *Store) goOn(ctx context.Context) {
	if !s.followed(ctx) {
		s.hub.Tell(store.Wakeup{Settle: true})
	}
}

// followed reports whether nothing is left.
func (s *Store) followed(ctx context.Context) bool {
	if !s.following.TryLock() {
		return false
	}
	defer s.following.Unlock()
	for most := store.SettledByCall - settledAtOnce; most > 0; {
		var told int
		var left bool
		err := s.writer.do(ctx, load{items: settledAtOnce, patient: true}, func(t *txn) (err error) {
			t.groups = groups{}
			_, told, left, err = t.hear(settledAtOnce, min(most, toldAtOnce))
			return err
		})
		if err != nil {
			return false
		}
		if !left {
			return true
		}
		most -= told
	}
	return false
}

// A settlement is what one transaction of Settle has done.
type settlement struct {
	settled []store.Settled
	more    bool // there may be more to do
}

// tellLeft adds a wake-up if something is left to settle.
func (t *txn) tellLeft() error {
	left, err := t.left()
	if left {
		t.woken.Add(store.Wakeup{Settle: true})
	}
	return err
}

// left reports whether somebody is to be told of an end.
func (t *txn) left() (bool, error) {
	some, err := sqlkit.Values[int64](t.each, `
		SELECT 1
		FROM ends
		LIMIT 1`)
	return len(some) > 0, err
}

func (t *txn) settle(limit int) (did settlement, err error) {
	expired, err := t.records(`
		SELECT`+columns+`,`+presentLinks+presentEpoch+`
		FROM jobs
		WHERE expires_at <= ? AND finished_at IS NULL AND state <> 'in_flight'
		ORDER BY expires_at, id
		LIMIT ?`,
		t.now.UnixMicro(), limit)
	if err != nil {
		return did, err
	}
	for _, e := range expired {
		if _, err := t.cancel(e); err != nil {
			return did, err
		}
		did.settled = append(did.settled, store.SettledOf(&e.Job))
	}
	changed, _, left, err := t.hear(limit-len(expired), toldAtOnce)
	if err != nil {
		return did, err
	}
	for _, e := range changed {
		did.settled = append(did.settled, store.SettledOf(&e.Job))
	}
	t.heard = false // what is left is for the next transaction
	did.more = left || len(did.settled) == limit
	return did, nil
}

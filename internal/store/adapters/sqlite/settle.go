package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// A call, and each transaction of Settle, changes and tells so many jobs at most, so that other calls wait for a few milliseconds only. Expired jobs are
// cancelled as long as longestWork lasts, because each claim walks over those that are left.
const (
	settledAtOnce = 10
	toldAtOnce    = 100
)

// Settle is part of the contract. It takes several transactions for many jobs.
func (s *Store) Settle(ctx context.Context, limit int) (settled []store.Settled, err error) {
	if err := sqlkit.Admit(ctx, s.closed, store.CheckSettle(limit)); err != nil {
		return nil, err
	}
	defer func() {
		if len(settled) > 0 { // they may have held back others of their keys
			s.tellHeld()
		}
	}()
	for more := true; more; {
		did, err := s.settleSome(ctx, limit-len(settled))
		if err != nil && len(settled) == 0 { // otherwise those are committed
			return nil, err
		}
		settled = append(settled, did.settled...)
		more = did.more && len(settled) < limit
	}
	return settled, nil
}

// settleSome makes one transaction of a Settle, when its time has come.
func (s *Store) settleSome(ctx context.Context, limit int) (did settlement, err error) {
	defer s.pace.wait(ctx, s.closed)()
	var began time.Time
	did, err = write(ctx, s, nil, load{items: min(limit, settledAtOnce), patient: true}, func(t *txn) (did settlement, err error) {
		began = time.Now() // others may have been before it
		if did, err = t.settle(limit, began.Add(s.pace.work)); err != nil || !did.more {
			return did, err
		}
		err = t.each(func(rows *sql.Rows) error { return rows.Scan(&did.version) }, `PRAGMA data_version`)
		return did, err
	})
	if err == nil && did.more {
		s.pace.took(time.Since(began), s.writer.others.Load()+did.version)
	}
	return did, err
}

// A pace keeps the transactions of all Settles of a store apart. Most servers of a process settle at the same time, and without pauses
// nearly every other call would have to wait for one of them. While others call, a pause is so many times as long as a transaction took
// that most wait for none, and not longer than lets a Settle of 100,000 jobs end in two minutes.
type pace struct {
	work    time.Duration // how long a transaction goes on to cancel expired jobs
	longest time.Duration // of a pause
	turn    chan struct{} // whoever makes or awaits the next transaction has put something in; it guards the fields below
	next    time.Time     // the next transaction begins then at the earliest
	calls   int64         // grows with each call of others, also of other processes
	noticed time.Time     // when that had grown
}

const (
	pauses       = 9
	pausesOfCall = 2 // a caller waits for it
	longestRest  = 10 * time.Millisecond
	longestWork  = 5 * time.Millisecond
	lately       = 100 * time.Millisecond // how long others count as calling
)

func newPace() *pace {
	return &pace{work: longestWork, longest: longestRest, turn: make(chan struct{}, 1)}
}

// wait waits for the time of the next transaction, unless the context ends or the store is closed. Call done after the transaction.
func (p *pace) wait(ctx context.Context, closed <-chan struct{}) (done func()) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return func() {}
	case <-closed:
		return func() {}
	}
	if left := time.Until(p.next); left > 0 {
		sqlkit.Rest(ctx, left)
	}
	return func() { <-p.turn }
}

// took notes how long a transaction took, after which there is more to do.
func (p *pace) took(d time.Duration, calls int64) {
	now := time.Now()
	if calls != p.calls {
		p.calls, p.noticed = calls, now
	}
	if now.Sub(p.noticed) < lately {
		p.next = now.Add(min(pauses*d, p.longest))
	}
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
	seen := s.writer.others.Load()
	for most := store.SettledByCall - settledAtOnce; most > 0; {
		var changed []*store.Record
		var told int
		var left bool
		var began time.Time
		err := s.writer.do(ctx, load{items: settledAtOnce, patient: true}, func(t *txn) (err error) {
			began, t.groups = time.Now(), groups{}
			changed, told, left, err = t.hear(settledAtOnce, min(most, toldAtOnce))
			return err
		})
		if err != nil {
			return false
		}
		if !left {
			return true
		}
		most -= told
		// Whoever has called will mostly do so again at once, to claim a job or to ack it. Jobs that become ready are waited for too.
		if others := s.writer.others.Load(); others != seen && !slices.ContainsFunc(changed, isReady) {
			seen = others
			sqlkit.Rest(ctx, min(pausesOfCall*time.Since(began), longestRest))
		}
	}
	return false
}

// tellAll tells jobs of all ends, in transactions for which other calls wait no longer than for most calls.
func (s *Store) tellAll(ctx context.Context) error {
	for left := true; left; {
		err := s.writer.do(ctx, load{items: toldAtOnce, patient: true}, func(t *txn) (err error) {
			t.groups = groups{}
			_, _, left, err = t.hear(toldAtOnce, toldAtOnce)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func isReady(r *store.Record) bool { return r.State == store.Ready }

// A settlement is what one transaction of Settle has done.
type settlement struct {
	settled []store.Settled
	more    bool  // there may be more to do
	version int64 // of the file's data, which changes when others commit
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

// settle cancels jobs that have expired, few at a time until it is late. Then it tells others of ends.
func (t *txn) settle(limit int, late time.Time) (did settlement, err error) {
	defer func() { t.heard = false }() // what is left is for the next transaction
	for did.more = true; did.more; {
		some, err := t.cancelExpired(min(limit-len(did.settled), settledAtOnce))
		if err != nil {
			return did, err
		}
		did.settled = append(did.settled, some...)
		if len(did.settled) == limit || len(some) == settledAtOnce && !time.Now().Before(late) {
			return did, nil
		}
		did.more = len(some) == settledAtOnce
	}
	room := min(limit-len(did.settled), settledAtOnce)
	changed, _, left, err := t.hear(room, toldAtOnce)
	for _, e := range changed {
		did.settled = append(did.settled, store.SettledOf(&e.Job))
	}
	did.more = left || len(changed) == room
	return did, err
}

// cancelExpired cancels so many jobs at most.
func (t *txn) cancelExpired(limit int) (settled []store.Settled, err error) {
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
	for _, e := range expired {
		if _, err := t.cancel(e); err != nil {
			return nil, err
		}
		settled = append(settled, store.SettledOf(&e.Job))
	}
	return settled, nil
}

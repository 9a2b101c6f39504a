package postgres

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// Notifications of jobs that callers enqueue in their transactions.
//
// Transactions that notify commit one after another, and each notification causes a claim. The store does not see when a caller commits, so
// it can not notify for several of them afterwards, as for its own. Instead, the first transaction notifies by itself. For those that
// insert jobs soon after it, the store remembers their numbers and asks the server, a little later, which have been committed.

// mostUntold is how many wake-ups of open transactions a store remembers. Further transactions notify by themselves.
const mostUntold = 1_000

// longestPause is the longest time between two looks for transactions that stay open, unless Options.NotifyEvery is longer.
const longestPause = 100 * time.Millisecond

// A callerLimiter decides how transactions of callers notify.
type callerLimiter struct {
	s     *Store
	every time.Duration // see Options.NotifyEvery

	mu     sync.Mutex      // guards the fields below
	latest spacing         // when a transaction last notified by itself, or the store for some of them
	untold map[untold]bool // of transactions that are open, as far as the store knows
	looks  bool            // a look is to come, or under way
	timer  *time.Timer     // of the next look
	pause  time.Duration   // before it
}

// An untold is a wake-up that the transaction with that number causes if it is committed.
type untold struct {
	number int64
	store.Wakeup
}

func newCallerLimiter(s *Store) *callerLimiter {
	return &callerLimiter{s: s, every: s.options.NotifyEvery, latest: spacing{}, untold: map[untold]bool{}}
}

// sort splits the wake-ups of a transaction into those that it causes by itself, and those for put.
func (l *callerLimiter) sort(wakeups []store.Wakeup) (now, later []store.Wakeup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.untold)+len(wakeups) > mostUntold {
		return wakeups, nil
	}
	return l.latest.sort(wakeups, func(store.Wakeup) time.Duration { return l.every })
}

// unsent says that the transaction has not notified after all.
func (l *callerLimiter) unsent(wakeups []store.Wakeup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest.forget(wakeups)
}

// put remembers what the transaction causes if it is committed.
func (l *callerLimiter) put(number int64, wakeups []store.Wakeup) {
	if len(wakeups) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range wakeups {
		l.untold[untold{number, w}] = true
	}
	if l.pause > l.every && l.timer.Stop() {
		l.looks = false // the look would come late
	}
	l.pause = l.every
	l.next()
}

// next schedules a look, unless there is nothing to look for.
func (l *callerLimiter) next() {
	if l.looks || len(l.untold) == 0 || sqlkit.Closed(l.s.closed) {
		return
	}
	l.looks = true
	l.timer = time.AfterFunc(l.pause, func() {
		l.s.background(func(ctx context.Context) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(l.s.hub.ctx, cancel)() // Close does not wait for it
			l.look(ctx)
		})
	})
}

// look tells of what has been committed. Then it schedules the next look: soon if transactions begin or end, later if they stay open.
func (l *callerLimiter) look(ctx context.Context) {
	all := l.all()
	ended, committed, err := l.ask(ctx, all)
	unknown := err != nil && !mayPass(err) // the server may have been restored, and not have given the number
	switch {
	case unknown:
		ended, committed = all, all
	case err != nil: // the next look asks again
		ended, committed = nil, nil
	}
	var woken sqlkit.Woken
	for _, u := range committed {
		woken.Add(u.Wakeup)
	}
	l.s.hub.Tell(woken...)
	if unknown {
		l.s.limiter.put(woken)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest.note(woken)
	for _, u := range ended {
		delete(l.untold, u)
	}
	if len(ended) > 0 {
		l.pause = l.every
	} else {
		l.pause = max(l.every, min(2*l.pause, longestPause))
	}
	l.looks = false
	l.next()
}

// all returns what to ask for.
func (l *callerLimiter) all() []untold {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.untold))
}

// ask returns those whose transactions have ended, and of these those that are committed, for which it notifies. The server calls a
// transaction committed once others see what it has written. It may have forgotten how an old one ended.
func (l *callerLimiter) ask(ctx context.Context, all []untold) (ended, committed []untold, err error) {
	numbers, payloads := newArray(ofNumbers, len(all)*numberBytes), newArray(ofTexts, 0)
	for _, u := range all {
		numbers.int(u.number)
		payloads.string(told(l.s.name, u.Wakeup))
	}
	t, err := l.s.take(ctx, l.s.with.write) // its sessions prepare the statement
	if err != nil {
		return nil, nil, err
	}
	err = t.send(false, func(rows *sql.Rows) error {
		var place int
		var notified bool
		if err := rows.Scan(&place, &notified); err != nil {
			return err
		}
		u := all[place-1]
		ended = append(ended, u)
		if notified {
			committed = append(committed, u)
		}
		return nil
	}, `
		WITH asked AS MATERIALIZED (
			SELECT place, told, pg_xact_status(number::text::xid8) AS status
			FROM unnest($2::bigint[], $3::text[]) WITH ORDINALITY AS untold (number, told, place)
		)
		SELECT place, CASE WHEN status = 'aborted' THEN false ELSE pg_notify($1, told)::text IS NOT NULL END
		FROM asked
		WHERE status IS DISTINCT FROM 'in progress'`,
		[]any{l.s.channel(), numbers, payloads})
	t.end(err)
	return ended, committed, err
}

// lookLast looks once more before the store closes, and again if the connection was dead.
func (l *callerLimiter) lookLast() {
	l.mu.Lock()
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), pingLimit)
	defer cancel()
	for try := 0; try <= l.s.options.MaxConns && len(l.all()) > 0; try++ {
		l.look(ctx)
	}
}

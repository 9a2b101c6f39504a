package jqprom

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/store"
)

// A reading asks the store for the values of a scrape. Each question has at most one call in progress, and concurrent scrapes
// share its answer. A scrape waits for the short calls. Counting many jobs takes long, so a count continues in the
// background, and scrapes show the last one with its age.
type reading struct {
	store           jq.Store
	timeout, maxAge time.Duration

	ping   question[struct{}]
	due    question[store.Due]
	counts question[jq.Counts]
}

// An answer is the result of one call for a question.
type answer[A any] struct {
	value A
	err   error
	began time.Time // when the call began: the answer is no older than that; zero if there is none
}

func (a answer[A]) known() bool { return !a.began.IsZero() }

// A question is a call to the store whose answer scrapes share.
type question[A any] struct {
	mu      sync.Mutex         // guards the fields below
	running chan struct{}      // closed when the current call returns; nil if there is none
	stop    context.CancelFunc // cancels the current call
	latest  answer[A]
	good    answer[A] // the latest answer without an error
	rest    time.Time // no new call before this time
}

// ask starts a call unless one is in progress or the last answer is recent enough. The channel it returns is closed when the
// answer is there. The call is cancelled after life. The next call may start after pause, which gets how long this one took.
func (q *question[A]) ask(life time.Duration, do func(context.Context) (A, error), pause func(took time.Duration) time.Duration) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running != nil {
		return q.running
	}
	done := make(chan struct{})
	if time.Now().Before(q.rest) {
		close(done)
		return done
	}
	ctx, cancel := context.WithTimeout(context.Background(), life)
	q.running, q.stop = done, cancel
	go func() {
		defer close(done)
		defer cancel()
		got := answer[A]{began: time.Now()}
		got.value, got.err = do(ctx)
		q.mu.Lock()
		defer q.mu.Unlock()
		q.latest, q.running, q.stop = got, nil, nil
		if got.err == nil {
			q.good = got
		}
		q.rest = time.Now().Add(pause(time.Since(got.began)))
	}()
	return done
}

// answers returns the latest answer, and the latest one without an error.
func (q *question[A]) answers() (latest, good answer[A]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.latest, q.good
}

// end cancels the current call and waits for it.
func (q *question[A]) end() {
	q.mu.Lock()
	running := q.running
	if running != nil {
		q.stop()
	}
	q.mu.Unlock()
	if running != nil {
		<-running
	}
}

const (
	// countLife limits how long a count may run. Stores have limits of their own.
	countLife = time.Minute
	// countRest makes the next count wait nine times as long as the last one took, so that counting takes at most a tenth of
	// the time.
	countRest = 9
)

// A sight is what one scrape shows of the store.
type sight struct {
	up     bool
	due    *store.Due        // nil if not known now
	counts answer[jq.Counts] // the latest known
}

// read asks the store. It returns when the short calls are answered or have timed out. It waits a little for a count as well,
// and so gets the quick ones.
func (r *reading) read() sight {
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	defer cancel()
	quick, cancel := context.WithTimeout(ctx, r.timeout/4)
	defer cancel()
	ping := r.ping.ask(r.timeout, func(ctx context.Context) (struct{}, error) { return struct{}{}, store.Ping(ctx, r.store) }, again)
	due := r.due.ask(r.timeout, r.oldestDue, again)
	counts := r.counts.ask(countLife, func(ctx context.Context) (jq.Counts, error) {
		return r.store.Count(ctx, jq.Filter{States: counted[:]})
	}, r.restOfCount)

	var seen sight
	unsupported := false
	if ended(ctx, ping) {
		latest, _ := r.ping.answers()
		seen.up = latest.err == nil
	}
	if ended(ctx, due) {
		if latest, _ := r.due.answers(); latest.err == nil {
			seen.due = &latest.value
		} else if errors.Is(latest.err, errors.ErrUnsupported) {
			unsupported = true
		}
	}
	ended(quick, counts)
	if _, seen.counts = r.counts.answers(); unsupported && seen.counts.known() {
		seen.due = dueOf(seen.counts.value)
	}
	return seen
}

func ended(ctx context.Context, what <-chan struct{}) bool {
	select {
	case <-what:
		return true
	default:
	}
	select {
	case <-what:
		return true
	case <-ctx.Done():
		return false
	}
}

// dueOf takes the due times from a count, for a store that is not a Monitor. They are as old as the count.
func dueOf(counts jq.Counts) *store.Due {
	due := store.Due{Now: counts.Now}
	for _, q := range counts.Queues {
		if !q.OldestDue.IsZero() {
			due.Queues = append(due.Queues, store.QueueDue{Queue: q.Queue, OldestDue: q.OldestDue})
		}
	}
	return &due
}

func again(time.Duration) time.Duration { return 0 }

func (r *reading) restOfCount(took time.Duration) time.Duration { return max(r.maxAge, countRest*took) }

func (r *reading) oldestDue(ctx context.Context) (store.Due, error) {
	if monitor, ok := r.store.(store.Monitor); ok {
		return monitor.OldestDue(ctx)
	}
	return store.Due{}, errors.ErrUnsupported
}

// end cancels all current calls and waits for them.
func (r *reading) end() {
	r.ping.end()
	r.due.end()
	r.counts.end()
}

package jqprom

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/store"
)

// A reading is what the store says of itself. Each question is under way once at a time, however many scrapes there are: those that
// come meanwhile share its answer. A scrape waits for the short ones. A count of many jobs takes long, so it goes on behind the
// scrapes, which show the last one with its age.
type reading struct {
	store           jq.Store
	timeout, maxAge time.Duration

	ping   question[struct{}]
	due    question[jq.Due]
	counts question[jq.Counts]
}

// An answer is that to a question.
type answer[A any] struct {
	value A
	err   error
	began time.Time // when it was asked: the answer is no older; zero where there is none
}

func (a answer[A]) known() bool { return !a.began.IsZero() }

// A question is one to the store.
type question[A any] struct {
	mu      sync.Mutex         // guards what follows
	running chan struct{}      // closed when the present one is answered; nil if there is none
	stop    context.CancelFunc // ends it
	latest  answer[A]
	good    answer[A] // the latest without an error
	rest    time.Time // before then it is not asked again
}

// ask begins to ask, unless that is under way or its answer is still good, and says when there is one. Life is for how long the store
// may take. After an answer it rests for pause, which may depend on how long that took.
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

// answers are the latest, and the latest without an error.
func (q *question[A]) answers() (latest, good answer[A]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.latest, q.good
}

// end ends what is under way, and waits for it.
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
	// countLife is for how long a count may go on. Stores have limits of their own.
	countLife = time.Minute
	// countRest is for how many times as long as a count took the next one waits, so that counting is a tenth of the time at most.
	countRest = 9
)

// A sight is what a scrape shows of the store.
type sight struct {
	up     bool
	due    *jq.Due           // nil where that is not known now
	counts answer[jq.Counts] // the latest there are
}

// read asks the store. It returns when the short questions are answered or their time is up. A count that is quick is waited for, too.
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

// dueOf is what a count tells of a store that is no Monitor. It is as old as that.
func dueOf(counts jq.Counts) *jq.Due {
	due := jq.Due{Now: counts.Now}
	for _, q := range counts.Queues {
		if !q.OldestDue.IsZero() {
			due.Queues = append(due.Queues, jq.QueueDue{Queue: q.Queue, OldestDue: q.OldestDue})
		}
	}
	return &due
}

func again(time.Duration) time.Duration { return 0 }

func (r *reading) restOfCount(took time.Duration) time.Duration { return max(r.maxAge, countRest*took) }

func (r *reading) oldestDue(ctx context.Context) (jq.Due, error) {
	if monitor, ok := r.store.(jq.Monitor); ok {
		return monitor.OldestDue(ctx)
	}
	return jq.Due{}, errors.ErrUnsupported
}

// end ends what is under way, and waits for it.
func (r *reading) end() {
	r.ping.end()
	r.due.end()
	r.counts.end()
}

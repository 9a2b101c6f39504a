package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

// callBound is how long a call may take, whatever happens to the server.
const callBound = 10 * time.Second

// A load is callers who use stores while something befalls the server, each on a queue of its own: so it is known of each
// queue, after every call that failed, what may have become of it.
type load struct {
	judge *Store // looks at the queues, over connections of its own
	epoch int64  // of the store when the load began

	answered, unavailable, applied, undone atomic.Int64 // calls: applied and undone are those that were in doubt
	slowest                                atomic.Int64 // of all calls, in nanoseconds

	mu     sync.Mutex // guards what follows
	errors map[string]int
	left   int           // so many answers are waited for
	wait   chan struct{} // closed when they are there
}

func newLoad(judge *Store) *load { return &load{judge: judge, errors: map[string]int{}} }

// run lets so many callers use the stores, in turn, until during returns, and then checks what there is.
func (l *load) run(t *testing.T, callers int, stores []*Store, during func()) {
	t.Helper()
	require.NoError(t, l.judge.db.Get(&l.epoch, l.judge.sql(`SELECT epoch FROM {schema}.fence`)))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	everyone := make([]*caller, callers)
	for i := range everyone {
		c := &caller{load: l, t: t, s: stores[i%len(stores)], queue: fmt.Sprint("queue ", i), known: map[int64]fact{}}
		everyone[i] = c
		all.Go(func() {
			for ctx.Err() == nil && !t.Failed() {
				c.step()
			}
		})
	}
	during()
	cancel()
	all.Wait()
	for _, c := range everyone {
		if !t.Failed() {
			c.finish()
		}
	}
	for text, times := range l.errors {
		t.Logf("%6d times: %s", times, text)
	}
}

// after waits until so many more calls were answered.
func (l *load) after(t *testing.T, calls int) {
	t.Helper()
	l.mu.Lock()
	l.left, l.wait = calls, make(chan struct{})
	wait := l.wait
	l.mu.Unlock()
	patience, look := time.After(time.Minute), time.NewTicker(100*time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-wait:
			return
		case <-look.C:
			require.False(t, t.Failed(), "callers have stopped")
		case <-patience:
			require.Fail(t, "the callers got no answers in a minute")
		}
	}
}

// hears waits until so many more calls have failed with an error that says this.
func (l *load) hears(t *testing.T, what string, times int) {
	t.Helper()
	before := l.heard(what)
	require.Eventually(t, func() bool { return l.heard(what) >= before+times }, time.Minute, 10*time.Millisecond, "nobody heard: %s", what)
}

// heard is how many calls have failed with an error that says this.
func (l *load) heard(what string) (times int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for text, n := range l.errors {
		if strings.Contains(text, what) {
			times += n
		}
	}
	return times
}

// count counts a call, and what it was answered.
func (l *load) count(err error, took time.Duration) {
	if err == nil {
		l.answered.Add(1)
	}
	for slowest := l.slowest.Load(); int64(took) > slowest && !l.slowest.CompareAndSwap(slowest, int64(took)); {
		slowest = l.slowest.Load()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.errors[ports.ReplaceAllString(err.Error(), "")]++
		return
	}
	if l.left--; l.left == 0 {
		close(l.wait)
	}
}

// ports are what differs from call to call in the errors of a network.
var ports = regexp.MustCompile(`127\.0\.0\.1:\d+->`)

// String is the figures.
func (l *load) String() string {
	return fmt.Sprintf("%d calls answered, %d unavailable (applied: 0), %d in doubt (applied: %d, not: %d), the slowest took %v",
		l.answered.Load(), l.unavailable.Load(), l.applied.Load()+l.undone.Load(), l.applied.Load(), l.undone.Load(),
		time.Duration(l.slowest.Load()).Round(time.Millisecond))
}

// look reads a queue, as soon as the server lets it. It waits for whoever holds a job: a session that was ended may go on
// doing so for a moment.
func (l *load) look(t *testing.T, queue string) (found map[int64]store.Job) {
	lock := l.judge.sql(`
		SELECT id
		FROM {schema}.jobs
		WHERE queue = $1 AND finished_at IS NULL
		ORDER BY id
		FOR UPDATE`)
	l.patiently(t, func(ctx context.Context) error {
		_, err := l.judge.db.ExecContext(ctx, lock, queue)
		if err == nil {
			found, err = listed(ctx, l.judge, store.Filter{Queue: queue})
		}
		return err
	})
	return found
}

// patiently repeats what the judge does until it succeeds.
func (l *load) patiently(t *testing.T, do func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var err error
	for ctx.Err() == nil && !t.Failed() {
		if err = do(ctx); err == nil {
			return
		}
		sqlkit.Rest(ctx, 20*time.Millisecond)
	}
	assert.NoError(t, err, "the server does not come back")
}

// wellSaid checks that an error says one of the two things, in one line.
func wellSaid(t *testing.T, err error) {
	t.Helper()
	if !assert.Error(t, err) {
		return
	}
	assert.NotEqual(t, errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrInDoubt), "one of the two: %v", err)
	assert.NotContains(t, err.Error(), "\n", "one line")
	assert.True(t, strings.HasPrefix(err.Error(), "jq: "), "%v", err)
}

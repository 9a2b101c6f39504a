package peers

import (
	"context"
	"database/sql"
	"strings"
	"sync/atomic"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

// limits are queues that do only the minimum: no handlers in goroutines, no JSON, no retries, no times. Their figures are an
// upper bound for queues on the same store.
func limits() []peer.Peer {
	none := map[string]string{
		"latency": "it wakes nobody", "big": "all its payloads are small", "failing": "it does not retry",
	}
	return []peer.Peer{
		{
			Name: "limit", Store: peer.Postgres, Handlers: 1, Keeps: true, Skips: none, Open: openLimitPostgres,
			Settings: "lib/pq; group commit by one inserter, one fetcher that claims 1,000 from a cursor, one acker, fenced by a token",
		},
		{
			Name: "limit", Store: peer.SQLite, Handlers: 1, Keeps: true, Skips: none, Open: openLimitSQLite,
			Settings: "modernc, synchronous=FULL; one writer, whose transactions enqueue, ack and claim up to 1,000 each",
		},
		{
			Name: "limit", Store: peer.Memory, Handlers: 2, Keeps: true, Skips: none, Open: openLimitMemory,
			Settings: "a mutex and a slice; two goroutines take 64 at a time",
		},
	}
}

const limitBatch = 1000

// A span is a range of jobs that one caller enqueues and waits for.
type span struct {
	first int64
	jobs  int
	done  chan error
}

// add passes the span to the goroutine that commits spans together, and waits.
func (s span) add(ctx context.Context, to chan<- span) error {
	select {
	case to <- s:
		return <-s.done
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newSpan(first int64, jobs int) span {
	return span{first: first, jobs: jobs, done: make(chan error, 1)}
}

// gather adds the waiting spans, up to a batch of jobs.
func gather(spans []span, from <-chan span) []span {
	jobs := 0
	for _, s := range spans {
		jobs += s.jobs
	}
	for jobs < limitBatch {
		select {
		case s := <-from:
			spans, jobs = append(spans, s), jobs+s.jobs
		default:
			return spans
		}
	}
	return spans
}

// answer sends the result to all callers.
func answer(spans []span, err error) {
	for _, s := range spans {
		s.done <- err
	}
}

// numbers returns the numbers of all jobs in the spans.
func numbers(spans []span) []int64 {
	var all []int64
	for _, s := range spans {
		for i := range s.jobs {
			all = append(all, s.first+int64(i))
		}
	}
	return all
}

// A claim is a claimed job with its token.
type claim struct{ id, token, number int64 }

// A failure is the first error of goroutines that cannot return one.
type failure struct{ first atomic.Pointer[error] }

func (f *failure) set(err error) {
	if err != nil {
		f.first.CompareAndSwap(nil, &err)
	}
}

func (f *failure) get() error {
	if err := f.first.Load(); err != nil {
		return *err
	}
	return nil
}

// text is a payload as long as those of the others.
const text = `{"number":12345,"user":12345,"text":"hello there"}`

// rows returns "(?,?),(?,?)" with that many pairs.
func rows(pairs int) string { return strings.TrimSuffix(strings.Repeat("(?,?),", pairs), ",") }

func countStates(row *sql.Row) (peer.Counts, error) {
	var c peer.Counts
	err := row.Scan(&c.Unfinished, &c.Finished)
	return c, err
}

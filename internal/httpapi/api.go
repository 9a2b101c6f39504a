package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// An API answers requests from a store. It is an [http.Handler].
type API struct {
	store    store.Store
	options  Options
	log      *slog.Logger
	clock    clock.Clock
	defaults wire.Defaults
	mux      *http.ServeMux
	origins  *http.CrossOriginProtection
	page     func() ([]byte, error) // of documentation

	lanes   lanes
	turns   turns
	waiters waiters
	ring    *ring
	counter Counter
	checks  checks
	held    *holdings
	byQueue quotas
	byToken quotas
	all     *share // of whoever calls
	bearers *bearers

	sessions sessions
	refusals refusals

	life    context.Context // of all that lasts longer than a call
	end     context.CancelFunc
	mu      sync.Mutex // guards closed, and keeps running from growing while it is waited for
	closed  bool
	running sync.WaitGroup
}

// Options are what can be chosen. The zero value of each field means its default.
type Options struct {
	// Tokens say who may do what, until SetTokens brings others. Without any, whoever reaches the API may do everything.
	Tokens *Tokens

	// Hosts are the names and addresses, without ports, by which this server may be called. Requests by other names are refused: the
	// page of another site can let its own name point here, and is no stranger then. With none, every name is fine.
	Hosts []string

	// Loopback lets localhost and addresses in besides Hosts, and without Hosts nothing else. It is for a server without tokens.
	Loopback bool

	// Logger hears of what goes wrong here: by default slog.Default().
	Logger *slog.Logger

	// Audit has a line for each call of an operator, and of each that a token may not make: who, from where, what, how many jobs were
	// changed, and the answer's status. By default they go to Logger, with the attribute audit=true.
	Audit *slog.Logger

	// Clock measures waiting, pauses and time-outs of the store: by default that of the process. It is not the store's time.
	Clock clock.Clock

	// Metrics is the handler of GET /metrics, for a token that may see some queues alone: see is nil for all others. Without it
	// there are none.
	Metrics func(see func(queue string) bool) http.Handler

	// Counter is told what was done to jobs. Without it nothing is counted.
	Counter Counter

	// RetryShare is which part of the claims that name no quota goes to retries, while fresh jobs wait: by default 0.2. A
	// negative one leaves retries what fresh jobs do not take.
	RetryShare float64

	// MaxWaiting is how many claims can wait for jobs at once: by default 1,000. MaxStreams is the same for streams of events. The
	// tokens of one name may have half of them, and of what follows, so that they leave something to others.
	MaxWaiting int
	MaxStreams int

	// MaxBytes is how much memory requests and answers may take up at once, about: by default DefaultMaxBytes. Whoever finds too little left
	// is told to come back later; a call that needs more than there is at all is served when it comes alone. An eighth is
	// kept for small calls.
	MaxBytes int64

	// MaxWaitingJobs is how many jobs of one queue may be ready or retrying, about: those who enqueue more are told to come back later. By
	// default any number. A token can have a bound of its own.
	MaxWaitingJobs int64

	// MaxReads is how many listings and counts are read from the store at once, and how many of what is read quickly, beside them: by
	// default 4. Others wait for them.
	MaxReads int

	// CallTimeout ends a call of the store: by default after 30 seconds. WriteTimeout ends an answer that its client does not
	// read: by default after 30 seconds.
	CallTimeout  time.Duration
	WriteTimeout time.Duration

	// PollPause is how often a queue that claims wait for is looked at, for wake-ups can get lost: by default every second.
	PollPause time.Duration

	// KeepEvents is how many events can be read again by who comes back: by default the latest 10,000.
	KeepEvents int
}

// DefaultMaxBytes is how much memory requests and answers may take up at once where the options do not say: 128 MiB.
const DefaultMaxBytes = 128 << 20

// New returns an API over the store. Options may be nil. Close it before the store.
func New(s jq.Store, options *Options) (*API, error) {
	o, err := options.filled()
	if err != nil {
		return nil, err
	}
	a := &API{
		store: s, options: o, log: o.Logger, clock: o.Clock,
		defaults: wire.Defaults{Queue: jq.DefaultQueue, MaxRetries: jq.DefaultMaxRetries, Backoff: jq.DefaultBackoff},
		origins:  http.NewCrossOriginProtection(), page: sync.OnceValues(renderDocs),
		lanes: lanes{part: max(0, o.RetryShare)}, turns: turns{seed: maphash.MakeSeed()}, ring: newRing(o.KeepEvents),
		counter: o.Counter, held: newHoldings(maxHeld),
		all: newShare(o, 1),
	}
	a.bearers = &bearers{clock: o.Clock, room: func() *share { return newShare(o, 2) }, shares: map[string]*share{}}
	if o.Tokens != nil {
		a.SetTokens(o.Tokens)
	}
	a.sessions = sessions{clock: o.Clock, bearers: a.bearers, all: map[[sha256.Size]byte]*session{}}
	a.refusals.clock, a.refusals.to = o.Clock, o.Logger
	a.life, a.end = context.WithCancel(context.Background())
	a.mux = a.routes()
	a.running.Go(a.poll)
	if n, ok := s.(store.Notifier); ok {
		a.running.Go(func() { a.listen(n) })
	}
	return a, nil
}

func (o *Options) filled() (Options, error) {
	var full Options
	if o != nil {
		full = *o
	}
	if full.Logger == nil {
		full.Logger = slog.Default()
	}
	if full.Audit == nil {
		full.Audit = full.Logger.With("audit", true)
	}
	if full.Clock == nil {
		full.Clock = clock.New()
	}
	if full.Counter == nil {
		full.Counter = uncounted{}
	}
	fill(&full.RetryShare, 0.2)
	fill(&full.MaxWaiting, 1000)
	fill(&full.MaxStreams, 1000)
	fill(&full.MaxBytes, DefaultMaxBytes)
	fill(&full.MaxReads, 4)
	fill(&full.CallTimeout, 30*time.Second)
	fill(&full.WriteTimeout, 30*time.Second)
	fill(&full.PollPause, time.Second)
	fill(&full.KeepEvents, 10_000)
	for _, name := range full.Hosts {
		if err := CheckHost(name); err != nil {
			return full, fmt.Errorf("jq: the host %w", err)
		}
	}
	switch {
	case full.RetryShare > 1 || math.IsNaN(full.RetryShare):
		return full, fmt.Errorf("jq: a retry share of %v: want at most 1", full.RetryShare)
	case min(full.MaxWaiting, full.MaxStreams, full.MaxReads, full.KeepEvents) < 0 || min(full.MaxBytes, full.MaxWaitingJobs) < 0:
		return full, errors.New("jq: a negative number of waiting claims, of streams, of readings, of bytes or of events: want more than nothing")
	case min(full.CallTimeout, full.WriteTimeout, full.PollPause) < time.Millisecond:
		return full, errors.New("jq: a time-out or a pause below a millisecond: want more")
	}
	return full, nil
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Close ends claims that wait, which are answered, and streams. It returns when they have ended. Later requests are refused. To
// close twice is fine.
func (a *API) Close() error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.end()
	a.running.Wait()
	a.refusals.tell()
	return nil
}

// lasting begins something that Close waits for, unless the API was closed.
func (a *API) lasting() (done func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, store.ErrClosed
	}
	a.running.Add(1)
	return a.running.Done, nil
}

// within is the context of one call of the store.
func (a *API) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return a.clock.WithTimeout(ctx, a.options.CallTimeout)
}

// A room has a number of places.
type room chan struct{}

func newRoom(places int) room { return make(room, places) }

func (r room) enter() bool {
	select {
	case r <- struct{}{}:
		return true
	default:
		return false
	}
}

// wait enters as soon as there is a place, in the order of those who wait.
func (r room) wait(ctx context.Context) error {
	select {
	case r <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
}

func (r room) leave() { <-r }

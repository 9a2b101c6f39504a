package httpapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/store"
	activities "github.com/seed-ed332417/jq/internal/tally"
	"github.com/seed-ed332417/jq/internal/timeout"
)

// An API serves a store over HTTP. It is an [http.Handler].
type API struct {
	store    store.Store
	options  Options
	log      *slog.Logger
	clock    clock.Clock
	defaults store.NewJob
	mux      *http.ServeMux
	origins  *http.CrossOriginProtection
	page     func() ([]byte, error) // renders the documentation

	lanes   lanes
	turns   turns
	waiters waiters
	ring    *ring
	counter Counter
	tally   *activities.Tally // nil if the store keeps no activity
	checks  checks
	held    *holdings
	stale   staleWrites
	byQueue quotas
	byToken quotas
	passes  passes
	all     *share // the share of all callers together
	pacer   *pacer
	bearers *bearers

	sessions sessions
	refusals refusals
	samples  samples

	life    context.Context // the context of everything that lasts longer than a call
	end     context.CancelFunc
	mu      sync.Mutex // guards closed, and running.Add against running.Wait
	closed  bool
	running sync.WaitGroup
}

// Options configures New. Zero fields mean the default.
type Options struct {
	// Tokens are the tokens that the API accepts, until SetTokens replaces them. Without tokens, anyone who can reach the API
	// may do everything.
	Tokens *Tokens

	// Hosts are the names and addresses of this server, without ports. A request with another Host header is refused: a web
	// site can make its own name resolve to this server, and its pages then count as pages of this server. Without Hosts,
	// every name is accepted.
	Hosts []string

	// Loopback also accepts localhost and IP addresses as names of this server, and no other name that is not in Hosts. It is
	// for a server without tokens.
	Loopback bool

	// Logger gets the errors of the API: by default slog.Default().
	Logger *slog.Logger

	// Audit gets a line for each operator call, also if the token does not allow it: who called, from where, what was requested,
	// how many jobs were changed, and the status of the answer. By default the lines go to Logger, with the attribute audit=true.
	Audit *slog.Logger

	// Clock measures waits, pauses and time-outs: by default the clock of the process. It is not the clock of the store.
	Clock clock.Clock

	// Metrics returns the handler of GET /metrics. For a token that is limited to some queues, see reports which queues it
	// may see; for all others, see is nil. Without Metrics, the API has no metrics.
	Metrics func(see func(queue string) bool) http.Handler

	// Home answers GET / and the paths below /ui/. They are pages for people and no calls of the API, so they need no token.
	// Without Home, / redirects to the documentation.
	Home http.Handler

	// Counter counts what calls do to jobs. Without it nothing is counted.
	Counter Counter

	// RetryShare is the part of each claim that may be retries while fresh jobs wait, for claims that set no quota: by
	// default 0.2. If it is negative, claims return retries only if there are not enough fresh jobs.
	RetryShare float64

	// MaxWaiting is how many calls can wait at once, claims for jobs and others for the end of a job, and MaxStreams how many
	// streams of events can be open: by default 1,000 each. All tokens with the same name together can use half of each limit, here and below, so that others
	// are still served.
	MaxWaiting int
	MaxStreams int

	// MaxBytes is about how much memory requests and answers may use at once: by default DefaultMaxBytes. If too little is
	// left for a call, it is refused and the client should retry later. A call that needs more than MaxBytes is served if it
	// is the only one. An eighth is reserved for small calls.
	MaxBytes int64

	// MaxWaitingJobs is about how many jobs of one queue may be blocked, ready or retrying. An Enqueue beyond that is refused, and the
	// client should retry later. By default there is no limit. A token can have a limit of its own.
	MaxWaitingJobs int64

	// MaxReads is how many listings and counts run on the store at once: by default 4. As many quick reads run beside them.
	// Other reads wait for their turn.
	MaxReads int

	// CallTimeout ends a call to the store: by default after 30 seconds. WriteTimeout ends an answer that the client does not
	// read: by default after 30 seconds.
	CallTimeout  time.Duration
	WriteTimeout time.Duration

	// PollPause is how often the API looks for jobs in queues with waiting claims, because wake-ups can get lost: by default
	// every second.
	PollPause time.Duration

	// ReadOnly refuses every call that changes something in the store. Sessions can still be begun and ended.
	ReadOnly bool

	// KeepEvents is how many events are kept for clients that reconnect: by default the latest 10,000.
	KeepEvents int
}

// DefaultMaxBytes is the default of Options.MaxBytes: 128 MiB.
const DefaultMaxBytes = 128 << 20

// New returns an API over the store. Options may be nil. Close it before the store.
func New(s jq.Store, options *Options) (*API, error) {
	a, err := newAPI(s, options, table())
	if err != nil {
		return nil, err
	}
	a.running.Go(a.poll)
	a.running.Go(func() { a.tally.Run(a.life, a.clock, a.options.CallTimeout) })
	if n, ok := s.(store.Notifier); ok {
		a.running.Go(func() { a.listen(n) })
	}
	return a, nil
}

// NewProbes returns an API with no calls but GET /healthz and GET /metrics, for a process that serves no store. Options may be nil.
func NewProbes(options *Options) (*API, error) {
	return newAPI(nil, options, slices.DeleteFunc(table(), func(r route) bool { return r.name != "alive" && r.name != "metrics" }))
}

// newAPI returns an API that has not started to poll.
func newAPI(s store.Store, options *Options, calls []route) (*API, error) {
	o, err := options.filled()
	if err != nil {
		return nil, err
	}
	a := &API{
		store: s, options: o, log: o.Logger, clock: o.Clock,
		defaults: store.NewJob{Queue: jq.DefaultQueue, Payload: []byte("null"), MaxRetries: jq.DefaultMaxRetries, Backoff: jq.DefaultBackoff},
		origins:  http.NewCrossOriginProtection(), page: sync.OnceValues(renderDocs),
		lanes: lanes{part: max(0, o.RetryShare)}, turns: turns{seed: maphash.MakeSeed()}, ring: newRing(o.KeepEvents),
		counter: o.Counter, tally: activities.New(s, o.Logger), held: newHoldings(maxHeld),
		all: newShare(o, 1), pacer: newPacer(o.Clock),
	}
	a.bearers = &bearers{clock: o.Clock, room: func() *share { return newShare(o, 2) }, shares: map[string]*share{}}
	if o.Tokens != nil {
		a.SetTokens(o.Tokens)
	}
	a.sessions = sessions{clock: o.Clock, bearers: a.bearers, all: map[[sha256.Size]byte]*session{}}
	a.refusals.clock, a.refusals.to = o.Clock, o.Logger
	a.life, a.end = context.WithCancel(context.Background())
	a.samples = newSamples(a)
	a.mux = a.routes(calls)
	return a, nil
}

func (o *Options) filled() (Options, error) {
	full := *cmp.Or(o, &Options{})
	fill(&full.Logger, slog.Default())
	fill(&full.Audit, full.Logger.With("audit", true))
	fill(&full.Clock, clock.New())
	fill[Counter](&full.Counter, uncounted{})
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

// Close ends waiting claims, which get an empty answer, waits for the end of a job, which get the job as it is, and streams. It
// returns when they have ended. Later requests are refused. Calling Close again does nothing.
func (a *API) Close() error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.end()
	a.running.Wait()
	a.samples.close()
	ctx, cancel := timeout.Of(context.Background(), a.clock, lastWrite)
	defer cancel()
	a.tally.Flush(ctx)
	a.refusals.tell()
	return nil
}

// lastWrite is how long Close waits for the store to take the activity of the last seconds.
const lastWrite = 2 * time.Second

// lasting registers something that Close waits for. It fails if the API was closed.
func (a *API) lasting() (done func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, store.ErrClosed
	}
	a.running.Add(1)
	return a.running.Done, nil
}

// within returns the context for one call to the store.
func (a *API) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return timeout.Of(ctx, a.clock, a.options.CallTimeout)
}

// A room is a semaphore with a number of places.
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

// wait waits for a place and takes it. Callers get places in the order in which they wait.
func (r room) wait(ctx context.Context) error {
	select {
	case r <- struct{}{}:
		return nil
	case <-ctx.Done():
		return gaveUp(ctx)
	}
}

// gaveUp returns why a call that has not asked the store yet will not do so, or nil if its context goes on.
func gaveUp(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return nil
}

func (r room) leave() { <-r }

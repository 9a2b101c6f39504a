// Package remote keeps jobs in a jq server, which it calls over the server's HTTP API. It implements the whole contract except
// callers' transactions, which need a connection to the database.
//
// Each call is one request. The store checks a call before it sends the request, with the same errors as every other store.
// A server acts only on complete requests. So a call without an answer is in doubt once the last byte of its request was written
// to the connection, and not applied before that. Only Enqueue is retried here, because it always has a request key.
package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
)

var (
	_ store.Store          = (*Store)(nil)
	_ store.Notifier       = (*Store)(nil)
	_ store.PolicyKeeper   = (*Store)(nil)
	_ store.Registry       = (*Store)(nil)
	_ store.Fencer         = (*Store)(nil)
	_ store.Monitor        = (*Store)(nil)
	_ store.ActivityReader = (*Store)(nil)
	_ store.GroupKeeper    = (*Store)(nil)
)

// A Store keeps its jobs in a jq server.
type Store struct {
	options Options
	base    *url.URL // prefix of every path
	log     *slog.Logger
	clock   clock.Clock
	own     *http.Transport // nil if the caller gave a transport
	traced  bool            // the transport reports when a request gets its connection

	closing sync.Once
	closed  chan struct{}
	life    context.Context // parent of every call; Close ends it
	end     context.CancelCauseFunc
	after   context.Context // parent of the work in the background; it ends shortly after Close
	abandon context.CancelCauseFunc

	mu      sync.Mutex     // guards running: Close must not miss work that is just being added
	running sync.WaitGroup // the work in the background

	redacted    atomic.Bool  // a job or a schedule came without its documents
	undelivered atomic.Int64 // claims that go on after their callers are gone
}

// Options configures Open. Zero fields mean the default.
type Options struct {
	// Token identifies the caller to the server. A server that is configured without tokens needs none.
	Token string

	// Timeout ends a request if the server does not answer in this time, or stops in the middle of its answer: by default 10
	// seconds. It should be well below the time of leases. An Enqueue may take several requests.
	Timeout time.Duration

	// TLS has the root certificates to trust, and the certificate to present: by default the system's roots, and no
	// certificate. It configures the store's own transport, so leave it out if you set Transport. The version is never below
	// TLS 1.2.
	TLS *tls.Config

	// Transport makes the requests. It must not retry requests by itself. The default has its own connections, uses the proxy
	// from the environment, and speaks HTTP/1.1 over TLS 1.2 or later.
	Transport http.RoundTripper

	// Logger gets a line when wake-ups stop and when they resume, and a warning if the token is sent without encryption: by
	// default slog.Default().
	Logger *slog.Logger

	// Clock measures time-outs and pauses: by default the clock of the process. The time of jobs is the server's.
	Clock clock.Clock
}

// Open returns the store of the jq server at the URL, such as http://127.0.0.1:7070, https://example.org/jq or, for a Unix
// socket, unix:/run/jq.sock. It first checks that the server answers.
func Open(ctx context.Context, baseURL string, options *Options) (*Store, error) {
	o, err := options.filled()
	if err != nil {
		return nil, err
	}
	base, socket, err := parse(baseURL)
	if err != nil {
		return nil, err
	}
	if socket != "" && o.Transport != nil {
		return nil, errors.New("jq: a Unix socket is reached by the store's own transport: leave Options.Transport out")
	}
	s := &Store{options: o, base: base, log: o.Logger, clock: o.Clock, closed: make(chan struct{})}
	if o.Transport == nil {
		s.own = newTransport(socket, o.TLS)
		s.options.Transport = s.own
	}
	_, s.traced = s.options.Transport.(*http.Transport)
	s.life, s.end = context.WithCancelCause(context.Background())
	s.after, s.abandon = context.WithCancelCause(context.Background())
	if o.Token != "" && base.Scheme == "http" && !local(base.Hostname()) {
		s.log.Warn("jq: the token travels without encryption, use https", "server", base.String())
	}
	if _, err := store.Now(ctx, s); err != nil {
		_ = s.Close()
		return nil, openError(shown(base, socket), err)
	}
	return s, nil
}

func (o *Options) filled() (Options, error) {
	full := *cmp.Or(o, &Options{})
	full.Timeout = cmp.Or(full.Timeout, 10*time.Second)
	full.Logger = cmp.Or(full.Logger, slog.Default())
	full.Clock = cmp.Or(full.Clock, clock.New())
	switch {
	case full.TLS != nil && full.Transport != nil:
		return full, errors.New("jq: a transport has a TLS configuration of its own: give Options.TLS or Options.Transport")
	case full.Timeout < 0:
		return full, fmt.Errorf("jq: a time-out of %v: want more than nothing", full.Timeout)
	case strings.ContainsFunc(full.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return full, errors.New("jq: the token has a blank, an end of line or a special character in it: give it alone")
	}
	return full, nil
}

// onSocket is the base URL of requests to a server on a Unix socket.
var onSocket = url.URL{Scheme: "http", Host: "localhost"}

// parse reads the URL of a server. If it names a Unix socket, parse also returns the path of the socket.
func parse(text string) (base *url.URL, socket string, err error) {
	path, is := strings.CutPrefix(text, "unix:")
	switch {
	case !is:
		base, err = parseHTTP(text)
		return base, "", err
	case path == "" || strings.HasPrefix(path, "//") || strings.ContainsRune(path, 0):
		return nil, "", errors.New("jq: this is not the path of a socket: want unix:PATH without //, as unix:/run/jq.sock")
	}
	at := onSocket
	return &at, path, nil
}

// shown returns the URL as the caller gave it.
func shown(base *url.URL, socket string) string {
	if socket != "" {
		return "unix:" + socket
	}
	return base.String()
}

// parseHTTP reads an http or https URL. Its errors do not quote the URL, because a malformed URL may have a password anywhere.
func parseHTTP(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Opaque != "", u.Host == "", u.Hostname() == "", u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("jq: this is not the URL of a jq server: want http://HOST:PORT or https://HOST, with a path if " +
			"the server has one, or unix:PATH")
	case u.User != nil:
		return nil, errors.New("jq: the URL has a user or a password in it, which others may read: give the token apart (Options.Token)")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("jq: the URL of a jq server has nothing behind its path: leave out what begins with ? or #")
	}
	return &url.URL{
		Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/"), RawPath: strings.TrimRight(u.RawPath, "/"),
	}, nil
}

func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// afterlife is how long a claim may go on after its caller is gone or the store was closed, until its jobs are released.
const afterlife = 3 * time.Second

// Close is part of the contract. It waits up to afterlife until the jobs that the server claimed for callers who are gone are
// released.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.mu.Lock()
		close(s.closed)
		s.mu.Unlock()
		s.end(errClosing)
		late := s.clock.AfterFunc(afterlife, func() { s.abandon(errClosing) })
		s.running.Wait()
		late.Stop()
		s.abandon(errClosing)
		if s.own != nil {
			s.own.CloseIdleConnections()
		}
	})
	return nil
}

// aside runs a function in the background, unless the store was closed. Close waits for it.
func (s *Store) aside(run func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		return false
	}
	s.running.Go(run)
	return true
}

func (s *Store) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// admit returns the reason why a call must not begin, or nil.
func (s *Store) admit(ctx context.Context, refused error) error {
	if s.isClosed() {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return refused
}

// Package remote keeps jobs in a jq server, which it reaches over its HTTP API: a worker far from the database has the whole
// contract but callers' transactions, for those do not travel.
//
// A call is one request. What is wrong with it is found before it is sent, in the words that all stores have. A call whose answer
// is lost is in doubt from the moment when the last byte of its request was handed to the connection: a server acts on whole
// requests only. Enqueue alone is repeated here, for it always has a request key.
package remote

import (
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
	_ store.Store        = (*Store)(nil)
	_ store.Notifier     = (*Store)(nil)
	_ store.PolicyKeeper = (*Store)(nil)
	_ store.Registry     = (*Store)(nil)
	_ store.Fencer       = (*Store)(nil)
	_ store.Monitor      = (*Store)(nil)
)

// A Store keeps its jobs in a jq server.
type Store struct {
	options Options
	base    *url.URL // what the server's paths are appended to
	log     *slog.Logger
	clock   clock.Clock
	own     *http.Transport // or nil, where the caller gave one
	traced  bool            // the transport tells when a request gets its connection

	closing sync.Once
	closed  chan struct{}
	life    context.Context // of calls: it ends with Close
	end     context.CancelCauseFunc
	after   context.Context // of what goes on behind calls: it ends a moment later
	abandon context.CancelCauseFunc

	mu      sync.Mutex     // keeps what follows from growing while it is closed
	running sync.WaitGroup // what goes on behind calls

	redacted    atomic.Bool  // a job came without its documents
	undelivered atomic.Int64 // claims that go on although their callers are gone
}

// Options are what can be chosen. The zero value of each field means its default.
type Options struct {
	// Token is what the server knows the caller by. A server that was told of no tokens wants none.
	Token string

	// Timeout ends a request when the server does not answer for so long, or stops in the middle of its answer: by default 10
	// seconds. It should be well below the time of leases. An Enqueue may take several requests.
	Timeout time.Duration

	// TLS says whom to trust, and which certificate to show: by default whom the system trusts, and none. It is for the transport of
	// the store's own; nothing of it can lower the version below 1.2.
	TLS *tls.Config

	// Transport makes the requests: by default one with connections of its own, which uses the proxy that the environment
	// names, and HTTP/1.1 over TLS 1.2 or later. It must not repeat requests by itself.
	Transport http.RoundTripper

	// Logger hears of wake-ups that stop and come back, and of a token that travels without encryption: by default
	// slog.Default().
	Logger *slog.Logger

	// Clock measures time-outs and pauses: by default that of the process. It is not the store's time, which is the server's.
	Clock clock.Clock
}

// Open returns the store of the jq server at the URL, such as http://127.0.0.1:7070, https://example.org/jq or, for a Unix socket,
// unix:/run/jq.sock, after asking it whether it is there.
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
	var full Options
	if o != nil {
		full = *o
	}
	if full.Timeout == 0 {
		full.Timeout = 10 * time.Second
	}
	if full.Logger == nil {
		full.Logger = slog.Default()
	}
	if full.Clock == nil {
		full.Clock = clock.New()
	}
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

// onSocket is the URL under which a server is called that listens on a Unix socket.
var onSocket = url.URL{Scheme: "http", Host: "localhost"}

// parse reads the URL of a server, which may be that of a Unix socket.
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

// shown is the URL as it was given.
func shown(base *url.URL, socket string) string {
	if socket != "" {
		return "unix:" + socket
	}
	return base.String()
}

// parseHTTP reads a URL that leads over the network. Its errors do not quote it, for there may be a password anywhere in one that is
// written wrongly.
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

// afterlife is for how long, after its caller is gone or the store was closed, a claim is waited for and given back.
const afterlife = 3 * time.Second

// Close is part of the contract. What the server has claimed for callers who are gone is given back before, if that is done
// soon.
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

// aside lets something go on behind calls, unless the store was closed. Close waits for it.
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

// admit says why a call may not begin.
func (s *Store) admit(ctx context.Context, refused error) error {
	if s.isClosed() {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return refused
}

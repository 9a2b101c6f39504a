package remote

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// newTransport returns a transport for one server, which may listen on a Unix socket. It closes idle connections before a
// server would, because a request is in doubt if the server closes its connection.
func newTransport(socket string, secure *tls.Config) *http.Transport {
	if secure = secure.Clone(); secure == nil {
		secure = &tls.Config{}
	}
	secure.MinVersion = max(tls.VersionTLS12, secure.MinVersion)
	var http1 http.Protocols
	http1.SetHTTP1(true)
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	dial, proxy := dialer.DialContext, http.ProxyFromEnvironment
	if socket != "" {
		proxy = nil
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	return &http.Transport{
		Proxy:               proxy,
		DialContext:         dial,
		TLSClientConfig:     secure,
		TLSHandshakeTimeout: 5 * time.Second,
		Protocols:           &http1,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     30 * time.Second,
	}
}

// A call is one request and what is known in advance about its answer.
type call struct {
	method string
	path   string // escaped
	query  string // escaped
	body   []byte // nil if the call has none
	key    string // the request key
	reads  bool   // the call changes nothing
	most   int64  // greatest size of the answer in bytes

	wait    time.Duration // how long the server may wait before it answers
	refused error         // why the call must not be sent, or nil
}

// fetch returns a call that reads and has no body.
func fetch(path string, refused error, most int64) call {
	return call{method: http.MethodGet, path: path, reads: true, most: most, refused: refused}
}

// post returns a call with a body. It is refused if the body is larger than a server accepts.
func post(path string, refused error, body any, most int64) call {
	c := call{method: http.MethodPost, path: path, most: most, refused: refused}
	if refused != nil {
		return c
	}
	var err error
	if c.body, err = wire.Marshal(body); err != nil {
		c.refused = &store.InvalidError{Item: -1, Field: "call", Rule: "must be text that fits JSON: " + err.Error()}
	} else if len(c.body) > wire.MaxBody {
		c.refused = &store.InvalidError{Item: -1, Field: "call", Rule: "is too large as JSON, send fewer items at a time"}
	}
	return c
}

// dropTwin leaves out a document if its text is sent too. The server uses the text.
func dropTwin(doc *json.RawMessage, text *string) {
	if text != nil {
		*doc = nil
	}
}

// request returns the HTTP request of the call. Its body can be withdrawn.
func (s *Store) request(ctx context.Context, c call, sent *parcel) (*http.Request, error) {
	path, err := url.PathUnescape(c.path)
	if err != nil {
		return nil, err
	}
	where := *s.base
	where.Path, where.RawPath = s.base.Path+path, s.base.EscapedPath()+c.path
	where.RawQuery = c.query
	req := &http.Request{Method: c.method, URL: &where, Host: s.base.Host, Header: http.Header{"Accept": {wire.JSON}}}
	if s.options.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.options.Token)
	}
	if c.key != "" {
		req.Header.Set(wire.RequestKeyHeader, wire.KeyHeader(c.key))
	}
	if c.body == nil {
		return req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: sent.gotConn})), nil
	}
	req.Header.Set("Content-Type", wire.JSON)
	req.Body, req.ContentLength = sent.reader(), int64(len(c.body))
	if c.key == "" {
		// GetBody lets a transport start again if an idle connection had ended before anything was written to it. If the
		// request had a key, a transport would also repeat a request that it has written, and the store would not learn of the
		// first try.
		req.GetBody = func() (io.ReadCloser, error) { return sent.reader(), nil }
	}
	return req.WithContext(ctx), nil
}

// once makes the call a single time and passes its answer to read. The error is one of the contract. After a failure, sent
// knows whether the server may have got the request.
func (s *Store) once(ctx context.Context, c call, sent *parcel, read func(*http.Response) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := s.clock.AfterFunc(s.options.Timeout+c.wait, func() { cancel(errSilent) })
	defer late.Stop()
	req, err := s.request(ctx, c, sent)
	if err != nil {
		return err
	}
	resp, err := s.options.Transport.RoundTrip(req)
	if err == nil {
		resp.Body = &progress{resp.Body, func() { late.Reset(s.options.Timeout) }}
		err = read(resp)
		_ = resp.Body.Close()
	}
	if err == nil || said(err) {
		return err
	}
	if ended := why(ctx); ended != nil {
		err = ended // the transport reports it only as an interruption
	}
	return lost(err, sent.withdraw(), c.reads)
}

// A progress calls more for each part of an answer, so that a long answer may take as long as its parts keep coming.
type progress struct {
	io.ReadCloser
	more func()
}

func (p *progress) Read(into []byte) (int, error) {
	n, err := p.ReadCloser.Read(into)
	if n > 0 {
		p.more()
	}
	return n, err
}

// during returns the context of a call. It also ends when the store is closed.
func (s *Store) during(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(s.life, func() { cancel(errClosing) })
	return ctx, func() {
		forget()
		cancel(nil)
	}
}

// ask makes the call and returns its answer. If the answer is lost and the call only reads, ask makes the call once more.
func ask[A any](ctx context.Context, s *Store, c call, valid func(A) error) (A, error) {
	var answer A
	err := s.admit(ctx, c.refused)
	if err != nil {
		return answer, err
	}
	during, cancel := s.during(ctx)
	defer cancel()
	err = s.patiently(during, func() (err error) {
		answer, err = try(during, s, c, valid)
		if c.reads && wasCut(err) && during.Err() == nil {
			answer, err = try(during, s, c, valid)
		}
		return err
	})
	return answer, s.because(ctx, err)
}

func try[A any](ctx context.Context, s *Store, c call, valid func(A) error) (A, error) {
	var answer, none A
	err := s.once(ctx, c, s.parcel(c), func(resp *http.Response) error { return decode(resp, c.most, &answer, valid) })
	if err != nil {
		return none, err
	}
	return answer, nil
}

// tell is ask for a call whose answer has no content.
func tell(ctx context.Context, s *Store, c call) error {
	if err := s.admit(ctx, c.refused); err != nil {
		return err
	}
	during, cancel := s.during(ctx)
	defer cancel()
	return s.because(ctx, s.patiently(during, func() error { return s.once(during, c, s.parcel(c), nothing) }))
}

// patiently repeats a call that the server sent away, after the pause that the server asked for.
func (s *Store) patiently(ctx context.Context, do func() error) error {
	for n := 0; ; n++ {
		err := do()
		away, ok := errors.AsType[*sentAway](err)
		if !ok || n == comeBacks || !s.pause(ctx, away.until) {
			return err
		}
	}
}

// A parcel is the body of a request that is being sent. Until all of it was handed over, the server can not act on it, and it
// can be withdrawn.
type parcel struct {
	connected atomic.Bool // used for a request without a body

	mu    sync.Mutex // guards the fields below
	data  []byte
	whole bool // a reader has handed over all of it
	ended bool // withdrawn: no reader hands over anything more
}

func (s *Store) parcel(c call) *parcel {
	p := &parcel{data: c.body}
	p.connected.Store(!s.traced)
	return p
}

func (p *parcel) gotConn(httptrace.GotConnInfo) { p.connected.Store(true) }

// withdraw withdraws the request. It reports whether the server may have got it already. If not, the server will never get it.
func (p *parcel) withdraw() (whole bool) {
	if p.data == nil {
		return p.connected.Load()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	return p.whole
}

func (p *parcel) reader() io.ReadCloser { return io.NopCloser(&parcelReader{p: p}) }

type parcelReader struct {
	p  *parcel
	at int
}

func (r *parcelReader) Read(into []byte) (int, error) {
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return 0, errWithdrawn
	}
	n := copy(into, p.data[r.at:])
	if r.at += n; r.at == len(p.data) {
		p.whole = true
		return n, io.EOF
	}
	return n, nil
}

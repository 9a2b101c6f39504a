package httpapi

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// served lets a server of ours serve the world, besides that of the tests.
func served(t *testing.T, w *world, limits *Limits, secure *tls.Config) string {
	t.Helper()
	server, err := NewServer(theBook().record(t, w.api), limits, secure)
	require.NoError(t, err)
	bound, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listener, err := Limit(bound, limits)
	require.NoError(t, err)
	ended := make(chan error)
	go func() {
		if secure != nil {
			ended <- server.ServeTLS(listener, "", "")
		} else {
			ended <- server.Serve(listener)
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, w.api.Close())
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	return bound.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// drip writes one byte after the other, slowly, until the connection is closed, and returns what the server has said.
func drip(t *testing.T, conn net.Conn, text string) string {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i = (i + 1) % len(text) {
			if _, err := conn.Write([]byte{text[i]}); err != nil {
				return
			}
			<-tick.C
		}
	}()
	said, _ := io.ReadAll(conn) // to the end, which is what is waited for
	_ = conn.Close()
	<-done
	return string(said)
}

const soon = time.Second // long enough for whoever has to wait for a processor

// TestSlowClientsAreCutOff: a client that sends a byte now and then holds nothing for long, in the head or in the body.
func TestSlowClientsAreCutOff(t *testing.T) {
	w := newWorld(t, Options{})
	addr := served(t, w, &Limits{HeaderTimeout: soon, ReadTimeout: 2 * soon, IdleTimeout: soon}, nil)
	begun := time.Now()
	drip(t, dial(t, addr), "GET /healthz HTTP/1.1\r\n") // the head never ends
	assert.Less(t, time.Since(begun), 5*soon)

	conn := dial(t, addr)
	_, err := fmt.Fprintf(conn, "POST /v1/jobs HTTP/1.1\r\nHost: jq\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
	require.NoError(t, err)
	said := drip(t, conn, " ")
	assert.Contains(t, said, " 400 Bad Request")
	assert.Contains(t, said, "body must arrive whole and in time")

	idle, err := io.ReadAll(dial(t, addr)) // one that says nothing at all
	require.NoError(t, err)
	assert.Empty(t, idle)
	assert.Empty(t, w.counts())
}

// TestTruncatedBody: a client that goes in the middle of its body has asked for nothing.
func TestTruncatedBody(t *testing.T) {
	w := newWorld(t, Options{})
	conn := w.raw("POST /v1/jobs HTTP/1.1\r\nHost: jq\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n" + `{"jobs":[{"kind":"k"}]}`)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	assert.Equal(t, 400, resp.StatusCode)
	assert.Empty(t, w.counts())
}

// TestLongPollOutlivesTheTimeouts: waiting is not slowness.
func TestLongPollOutlivesTheTimeouts(t *testing.T) {
	w := newWorld(t, Options{})
	limits := &Limits{HeaderTimeout: soon, ReadTimeout: soon, WriteTimeout: soon, IdleTimeout: 3 * soon}
	addr := served(t, w, limits, nil)
	conn := dial(t, addr)
	_, err := io.WriteString(conn, rawClaim(`{"worker":"w","wait":"1m"}`))
	require.NoError(t, err)
	w.asleep(1)
	stream := dial(t, addr)
	_, err = io.WriteString(stream, "GET /v1/events HTTP/1.1\r\nHost: jq\r\n\r\n")
	require.NoError(t, err)
	lines := bufio.NewReader(stream)
	idle := dial(t, addr)
	_, err = io.WriteString(idle, "GET /healthz HTTP/1.1\r\nHost: jq\r\n\r\n")
	require.NoError(t, err)
	_, err = io.ReadAll(idle) // until the longest of the limits is over
	require.NoError(t, err)
	assert.Len(t, w.api.all.polls, 1, "the claim waits still")
	w.enqueue("default")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Contains(t, string(text), `"id":"1"`)
	for { // the stream goes on as well
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		if strings.Contains(line, `"event":"claimed"`) {
			return
		}
	}
}

// narrow serves the world by connections that hold next to nothing on their way.
func narrow(w *world) net.Conn {
	w.Helper()
	server := httptest.NewUnstartedServer(theBook().record(w.T, w.api))
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		assert.NoError(w, c.(*net.TCPConn).SetWriteBuffer(4<<10))
		return ctx
	}
	server.Start()
	conn := dial(w.T, server.Listener.Addr().String())
	require.NoError(w, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	w.Cleanup(func() { _ = conn.Close(); server.Close() })
	return conn
}

// TestClientThatDoesNotReadLosesNothing: jobs whose answer is stuck on its way are released.
func TestClientThatDoesNotReadLosesNothing(t *testing.T) {
	w := newWorld(t, Options{WriteTimeout: soon})
	big := []byte(`"` + strings.Repeat("x", store.MaxDocBytes-2) + `"`)
	for range 3 {
		_, err := w.store.Enqueue(t.Context(), store.EnqueueRequest{Jobs: []store.NewJob{{Queue: "default", Kind: "k", Payload: big}}})
		require.NoError(t, err)
	}
	_, err := io.WriteString(narrow(w), rawClaim(`{"worker":"w","limit":3}`))
	require.NoError(t, err)
	w.eventually("the jobs are released", func() bool {
		detail, err := w.store.Get(t.Context(), 3)
		return err == nil && len(detail.History) == 1 && detail.History[0].Ending == store.EndReleased
	})
	assert.Equal(t, map[store.State]int64{store.Ready: 3}, w.counts())
}

// TestStreamThatIsNotReadEnds: who does not read events is cut off, and keeps no place.
func TestStreamThatIsNotReadEnds(t *testing.T) {
	w := newWorld(t, Options{WriteTimeout: soon, KeepEvents: 100_000})
	conn := narrow(w)
	_, err := io.WriteString(conn, "GET /v1/events HTTP/1.1\r\nHost: jq\r\n\r\n")
	require.NoError(t, err)
	_, err = bufio.NewReaderSize(conn, 16).ReadString('\n')
	require.NoError(t, err)
	w.eventually("the stream is there", func() bool { return len(w.api.all.streams) == 1 })
	many := make([]Event, 1000)
	for i := range many {
		many[i] = Event{Job: wire.ID(i), Queue: strings.Repeat("q", 250), Event: WasClaimed}
	}
	w.eventually("the stream ends", func() bool {
		w.api.Publish(many...)
		return len(w.api.all.streams) == 0
	})
}

// TestLargeHeadIsRefused, by the server itself. It sleeps for half a second before it closes the connection, with what it has not
// read: here that takes no time, and nobody sleeps any more when the tests have ended.
func TestLargeHeadIsRefused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		server, err := NewServer(http.NotFoundHandler(), &Limits{MaxHeaderBytes: 1 << 10}, nil)
		require.NoError(t, err)
		ours, theirs := net.Pipe()
		listener := handed{make(chan net.Conn, 1)}
		listener.conns <- theirs
		ended := make(chan error)
		go func() { ended <- server.Serve(listener) }()
		go func() { // until the server closes: it does not read all of it
			_, _ = fmt.Fprintf(ours, "GET /healthz HTTP/1.1\r\nHost: jq\r\nX: %s\r\n\r\n", strings.Repeat("x", 8<<10))
		}()
		resp, err := http.ReadResponse(bufio.NewReader(ours), nil)
		require.NoError(t, err)
		assert.Equal(t, 431, resp.StatusCode)
		_, err = io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
}

// handed is a listener for connections that are there already.
type handed struct{ conns chan net.Conn }

func (h handed) Accept() (net.Conn, error) {
	if c, ok := <-h.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (h handed) Close() error { close(h.conns); return nil }

func (h handed) Addr() net.Addr { return nil }

// piped is a listener without a network.
type piped struct{ closed chan struct{} }

func (p piped) Accept() (net.Conn, error) {
	select {
	case <-p.closed:
		return nil, net.ErrClosed
	default:
		conn, _ := net.Pipe()
		return conn, nil
	}
}

func (p piped) Close() error { close(p.closed); return nil }

func (p piped) Addr() net.Addr { return nil }

// TestConnectionsAreLimited: one more is let in when another has gone, and waiting for that ends with the listener.
func TestConnectionsAreLimited(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l, err := Limit(piped{make(chan struct{})}, &Limits{MaxConnections: 1})
		require.NoError(t, err)
		first, err := l.Accept()
		require.NoError(t, err)
		type accepted struct {
			net.Conn
			err error
		}
		next := make(chan accepted, 1)
		accept := func() { c, err := l.Accept(); next <- accepted{c, err} }
		go accept()
		synctest.Wait()
		require.Empty(t, next, "a second one has to wait")
		require.NoError(t, first.Close())
		second := <-next
		require.NoError(t, second.err)
		_ = first.Close() // which frees no second place
		go accept()
		synctest.Wait()
		require.Empty(t, next)
		require.NoError(t, l.Close())
		require.ErrorIs(t, (<-next).err, net.ErrClosed)
		require.NoError(t, second.Close())
		_, err = l.Accept()
		require.Error(t, err)
	})
}

// sender is a connection from an address.
type sender struct {
	net.Conn
	from net.Addr
}

func (s sender) RemoteAddr() net.Addr { return s.from }

// TestOneAddressLeavesConnectionsToOthers: a client without a token could hold all of them.
func TestOneAddressLeavesConnectionsToOthers(t *testing.T) {
	conns := handed{make(chan net.Conn, 10)}
	l, err := Limit(conns, &Limits{MaxConnections: 4})
	require.NoError(t, err)
	come := func(address string) (theirs net.Conn) {
		ours, theirs := net.Pipe()
		from := sender{ours, &net.UnixAddr{}}
		if address != "" {
			from.from = net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 7))
		}
		conns.conns <- from
		return theirs
	}
	var accepted []net.Conn
	accept := func() {
		c, err := l.Accept()
		require.NoError(t, err)
		accepted = append(accepted, c)
	}
	for _, same := range [][]string{
		{"192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1", "192.0.2.2"},
		{"2001:db8:1:2::1", "2001:db8:1:2:3::1", "2001:db8:1:2::1%eth0", "2001:db8:1:3::1"},
	} {
		come(same[0])
		come(same[1])
		accept()
		accept()
		refused := come(same[2])
		come(same[3])
		accept()
		_, err = refused.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "it is closed at once")
		require.NoError(t, accepted[0].Close())
		_ = accepted[0].Close() // which makes room for no second one
		come(same[2])
		accept()
		for _, c := range accepted {
			_ = c.Close()
		}
		assert.Empty(t, l.(*limited).from, "nothing is kept of who has gone")
		accepted = nil
	}
	for range 4 {
		come("")
		accept()
	}
	require.NoError(t, l.Close())
}

// An exhausted listener fails now and then, as one does that has no file descriptor left.
type exhausted struct {
	piped
	fails *bool
}

func (f exhausted) Accept() (net.Conn, error) {
	if *f.fails {
		return nil, errors.New("too many open files")
	}
	return f.piped.Accept()
}

// TestFailedAcceptKeepsNoPlace: each one that failed kept a place, and the server would have answered nobody in the end.
func TestFailedAcceptKeepsNoPlace(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		fails := true
		l, err := Limit(exhausted{piped{make(chan struct{})}, &fails}, &Limits{MaxConnections: 1})
		require.NoError(t, err)
		for range 3 {
			_, err := l.Accept()
			require.ErrorContains(t, err, "too many open files")
		}
		fails = false
		conn, err := l.Accept()
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		require.NoError(t, l.Close())
	})
}

// TestTLS is of version 1.2 at least.
func TestTLS(t *testing.T) {
	w := newWorld(t, Options{})
	lender := httptest.NewTLSServer(nil)
	defer lender.Close()
	addr := served(t, w, nil, &tls.Config{Certificates: lender.TLS.Certificates})
	client := lender.Client()
	config := client.Transport.(*http.Transport).TLSClientConfig
	config.ServerName = "example.com"
	resp, err := client.Get("https://" + addr + "/healthz")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 200, resp.StatusCode)
	client.CloseIdleConnections()
	for version, fine := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		c := config.Clone()
		c.MinVersion, c.MaxVersion = tls.VersionTLS10, version
		conn, err := tls.Dial("tcp", addr, c)
		assert.Equal(t, fine, err == nil, "%s: %v", tls.VersionName(version), err)
		if err == nil {
			require.NoError(t, conn.Close())
		}
	}
}

// TestLongPollOverHTTP2 outlives the time-outs as well, and a client that goes loses nothing there either.
func TestLongPollOverHTTP2(t *testing.T) {
	w := newWorld(t, Options{WriteTimeout: soon})
	lender := httptest.NewUnstartedServer(nil)
	lender.EnableHTTP2 = true
	lender.StartTLS()
	defer lender.Close()
	addr := served(t, w, &Limits{HeaderTimeout: soon, ReadTimeout: soon, WriteTimeout: soon, IdleTimeout: 3 * soon}, &tls.Config{Certificates: lender.TLS.Certificates})
	client := lender.Client()
	client.Transport.(*http.Transport).TLSClientConfig.ServerName = "example.com"
	ask := func(ctx context.Context, method, path, body string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, method, "https://"+addr+path, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", wire.JSON)
		return client.Do(req)
	}
	ctx, vanish := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() { _, err := ask(ctx, "POST", wire.PathClaim, `{"worker":"w","wait":"1m"}`); gone <- err }()
	w.asleep(1)
	vanish()
	require.Error(t, <-gone)
	w.asleep(0)

	got := make(chan *http.Response)
	go func() {
		resp, err := ask(t.Context(), "POST", wire.PathClaim, `{"worker":"w","wait":"1m"}`)
		assert.NoError(t, err)
		got <- resp
	}()
	w.asleep(1)
	stream, err := ask(t.Context(), "GET", "/v1/events", "")
	require.NoError(t, err)
	defer func() { _ = stream.Body.Close() }()
	assert.Equal(t, 2, stream.ProtoMajor)
	idle, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: client.Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com"})
	require.NoError(t, err)
	_, err = io.WriteString(idle, "GET /healthz HTTP/1.1\r\nHost: jq\r\n\r\n")
	require.NoError(t, err)
	_, err = io.ReadAll(idle) // until the longest of the limits is over
	require.NoError(t, err)
	require.NoError(t, idle.Close())
	w.enqueue("default")
	resp := <-got
	require.NotNil(t, resp)
	assert.Equal(t, 200, resp.StatusCode)
	require.NoError(t, resp.Body.Close())
	lines := bufio.NewReader(stream.Body)
	for {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		if strings.Contains(line, `"event":"claimed"`) {
			return
		}
	}
}

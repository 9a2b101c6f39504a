//go:build unix

package cli

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/httpapi"
)

// An authority signs certificates for tests.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a := &authority{t: t, key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &key.PublicKey, key)
	require.NoError(t, err)
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	require.True(a.t, pool.AppendCertsFromPEM(a.pem))
	return pool
}

// pair writes a certificate with the name, for a server or client on this machine, and its key.
func (a *authority) pair(cert, key, name string, usage x509.ExtKeyUsage) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, a.cert, &private.PublicKey, a.key)
	require.NoError(a.t, err)
	text, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(a.t, err)
	require.NoError(a.t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(a.t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}), 0o600))
}

// A testReloader is a reloader with a log and a mock clock.
type testReloader struct {
	*testing.T
	clock *clock.Mock
	log   bytes.Buffer
	r     reloader
}

// check checks every file once.
func (l *testReloader) check(now bool) {
	for _, w := range l.r.all {
		l.r.check(w, now)
	}
}

func newLookout(t *testing.T, s *secrets) *testReloader {
	l := &testReloader{T: t, clock: clock.NewMock()}
	l.r = reloader{clock: l.clock, log: slog.New(slog.NewTextHandler(&l.log, nil)), all: s.files}
	return l
}

// said returns the log lines since the previous call.
func (l *testReloader) said() string {
	defer l.log.Reset()
	return l.log.String()
}

// A changed file is loaded when two checks in a row see the same state. An invalid file changes nothing and is logged once.
func TestChangedFilesAreReloaded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	tokenCommand(t, "new", "anna", "--role", "worker", "--file", file)
	flags := serveFlags{tokens: file}
	s, err := flags.secrets()
	require.NoError(t, err)
	var used []int
	s.use = func(tokens *httpapi.Tokens) { used = append(used, tokens.Len()) }
	l := newLookout(t, s)
	l.check(false)
	assert.Empty(t, used, "nothing has changed")

	tokenCommand(t, "new", "berta", "--role", "worker", "--file", file)
	l.check(false)
	assert.Empty(t, used, "the file may still be changing")
	l.check(false)
	assert.Equal(t, []int{2}, used)
	assert.Contains(t, l.said(), `level=INFO msg="jq: loaded files" file=`+file+" tokens=2\n")

	good, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte("jq_secret"), 0o600))
	for range 5 {
		l.check(false)
	}
	said := l.said()
	assert.Equal(t, 1, strings.Count(said, "\n"), said)
	assert.Contains(t, said, "level=ERROR")
	assert.Contains(t, said, "tokens, line 1: want")
	assert.NotContains(t, said, "jq_secret")
	l.check(true)
	assert.Contains(t, l.said(), "line 1: want", "SIGHUP logs the error again")

	require.NoError(t, os.Remove(file))
	for range 5 {
		l.check(false)
	}
	said = l.said()
	assert.Equal(t, 1, strings.Count(said, "\n"), said)
	assert.Contains(t, said, "no such file")
	assert.Equal(t, []int{2}, used, "the previous values stay")

	require.NoError(t, os.WriteFile(file, good, 0o600))
	l.check(true)
	assert.Equal(t, []int{2, 2}, used, "SIGHUP loads the file at once")
	l.check(false)
	l.check(false)
	assert.Equal(t, []int{2, 2}, used, "the file is not loaded again")

	tokenCommand(t, "rm", "anna", "--file", file)
	tokenCommand(t, "rm", "berta", "--file", file)
	l.check(false)
	l.check(false)
	assert.Equal(t, []int{2, 2, 0}, used, "the last token can be removed too")
}

// Files are checked each second, and again soon after a check that found a change.
func TestFilesAreCheckedEachSecond(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	loaded := make(chan string, 10)
	w := &watchedFiles{files: []string{file}, load: func() ([]any, error) {
		text, err := os.ReadFile(file)
		loaded <- string(text)
		return nil, err
	}}
	require.NoError(t, w.first())
	<-loaded
	l := newLookout(t, &secrets{files: []*watchedFiles{w}})
	ctx, cancel := context.WithCancel(t.Context())
	hangups := make(chan os.Signal)
	var running sync.WaitGroup
	running.Go(func() { l.r.run(ctx, hangups) })
	hangups <- syscall.SIGHUP
	assert.Empty(t, <-loaded)
	require.NoError(t, os.WriteFile(file, []byte("changed"), 0o600))
	begun := l.clock.Now()
	require.Eventually(t, func() bool {
		l.clock.Add(stableFor)
		return len(loaded) > 0
	}, time.Minute, time.Millisecond, "the file is loaded again")
	assert.Equal(t, "changed", <-loaded)
	assert.GreaterOrEqual(t, l.clock.Now().Sub(begun), pollEvery)
	cancel()
	running.Wait()
}

// A caller is a TLS client with persistent connections.
type caller struct {
	client *http.Client
	dials  atomic.Int32
	lost   atomic.Int32 // connections that the server has closed
	url    string
	token  string
}

func newCaller(t testing.TB, url, token string, secure *tls.Config) *caller {
	c := &caller{url: url, token: token}
	c.client = &http.Client{Transport: &http.Transport{
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c.dials.Add(1)
			conn, err := (&tls.Dialer{Config: secure}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return keptConn{conn, &c.lost}, nil
		},
	}}
	t.Cleanup(c.client.CloseIdleConnections)
	return c
}

// A keptConn counts when the server closes it.
type keptConn struct {
	net.Conn
	lost *atomic.Int32
}

func (k keptConn) Read(into []byte) (int, error) {
	n, err := k.Conn.Read(into)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		k.lost.Add(1)
	}
	return n, err
}

// ask makes a request and returns its status.
func (c *caller) ask(ctx context.Context, method, path, body string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), errors.Join(err, resp.Body.Close())
}

// nameAt returns the name in the server's certificate for a new connection.
func nameAt(t testing.TB, addr string, pool *x509.CertPool) string {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: pool})
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// Tokens and certificates change while twenty clients have open connections and waiting claims. No request fails and no connection is
// closed, except that the waiting claim of a removed token ends and its next request is refused.
func TestReloadLosesNothing(t *testing.T) {
	w := newSandbox(t)
	ca := newAuthority(t)
	cert, key := filepath.Join(w.folder, "cert.pem"), filepath.Join(w.folder, "key.pem")
	ca.pair(cert, key, "before", x509.ExtKeyUsageServerAuth)
	token := func(name string) string {
		return strings.TrimSpace(w.run("token", "new", name, "--role", "operator"))
	}
	first, goneToken := token("first"), token("gone")
	server := w.start("serving on https://", "serve", "--store", "sqlite:jobs.db", "--addr", "127.0.0.1:0", "--tokens", "tokens",
		"--tls-cert", "cert.pem", "--tls-key", "key.pem")
	addr, _, _ := strings.Cut(server.ready, ";")
	url, secure := "https://"+addr, &tls.Config{RootCAs: ca.pool()}

	const n = 20
	ctx, stop := context.WithCancel(w.Context())
	defer stop()
	var callers []*caller
	var claims, calls sync.WaitGroup
	failed := make(chan string, 2*n)
	done := make(chan struct{})
	for range n {
		c, claimer := newCaller(t, url, first, secure), newCaller(t, url, first, secure)
		callers = append(callers, c, claimer)
		claims.Go(func() {
			if status, text, err := claimer.ask(ctx, "POST", "/v1/claim", `{"worker":"w","wait":"1m"}`); err != nil || status != 200 || !strings.Contains(text, `"kind"`) {
				failed <- fmt.Sprint("a claim: ", status, text, err)
			}
		})
		calls.Go(func() {
			for pause := time.NewTicker(10 * time.Millisecond); ; {
				if status, text, err := c.ask(ctx, "GET", "/v1/queues", ""); err != nil || status != 200 {
					failed <- fmt.Sprint("a call: ", status, text, err)
					return
				}
				select {
				case <-done:
					pause.Stop()
					return
				case <-pause.C:
				}
			}
		})
	}
	gone := newCaller(t, url, goneToken, secure)
	ended := make(chan int, 1)
	go func() {
		status, _, _ := gone.ask(ctx, "POST", "/v1/claim", `{"worker":"w","queues":["other"],"wait":"1m"}`)
		ended <- status
	}()
	require.Eventually(t, func() bool { // the claim has its own connection
		status, _, err := gone.ask(ctx, "GET", "/v1/queues", "")
		return err == nil && status == 200 && gone.dials.Load() >= 2
	}, time.Minute, 10*time.Millisecond, "the server answers the client before its token is removed")

	w.run("token", "rm", "gone")
	removed := time.Now()
	select {
	case status := <-ended:
		assert.Equal(t, 401, status)
		t.Logf("the claim of the token ended %v after the command", time.Since(removed))
	case <-time.After(30 * time.Second):
		require.Fail(t, "the claim of the removed token did not end")
	}
	status, _, err := gone.ask(ctx, "GET", "/v1/queues", "")
	require.NoError(t, err)
	assert.Equal(t, 401, status)

	ca.pair(cert, key, "after", x509.ExtKeyUsageServerAuth)
	require.Eventually(t, func() bool { return nameAt(t, addr, ca.pool()) == "after" }, time.Minute, 50*time.Millisecond, "the certificate changes")
	second := newCaller(t, url, token("second"), secure)
	require.NoError(t, server.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool {
		status, _, err := second.ask(ctx, "GET", "/v1/queues", "")
		return err == nil && status == 200
	}, time.Minute, 10*time.Millisecond, "the server accepts the new token")
	require.NoError(t, os.WriteFile(key, []byte("broken"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(w.folder, "tokens"), []byte("broken"), 0o600))
	require.NoError(t, server.Process.Signal(syscall.SIGHUP))
	assert.Equal(t, "after", nameAt(t, addr, ca.pool()))

	jobs := strings.TrimSuffix(strings.Repeat(`{"kind":"k"},`, n), ",")
	status, text, err := second.ask(ctx, "POST", "/v1/jobs", `{"jobs":[`+jobs+`]}`)
	require.NoError(t, err)
	require.Equal(t, 201, status, text)
	claims.Wait()
	close(done)
	calls.Wait()
	close(failed)
	for text := range failed {
		assert.Fail(t, text)
	}
	for _, c := range callers {
		assert.Zero(t, c.lost.Load(), "the server closes no connection")
	}
	w.end(server)
}

// SIGHUP does not end a server, even one without files to reload.
func TestHangupDoesNotEndServer(t *testing.T) {
	w := newSandbox(t)
	server := w.start("serving on ", "serve", "--store", "sqlite:jobs.db", "--addr", "127.0.0.1:0")
	url, _, _ := strings.Cut(server.ready, ";")
	for range 3 {
		require.NoError(t, server.Process.Signal(syscall.SIGHUP))
		require.NotEmpty(t, w.get(url+"/v1/stats"))
	}
	w.end(server)
}

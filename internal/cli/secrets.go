package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/httpapi"
)

// secrets are the tokens and certificates that a server loads from files at the start, and again when the files change.
type secrets struct {
	tokens *httpapi.Tokens // nil if anyone who reaches the server may do anything
	tls    *tls.Config     // nil for a server without TLS

	pair    atomic.Pointer[tls.Certificate]
	clients atomic.Pointer[x509.CertPool] // authorities that sign client certificates
	use     func(*httpapi.Tokens)         // replaces the server's tokens; nil until the server exists
	files   []*watchedFiles
}

// secrets loads the files that the flags name.
func (s *serveFlags) secrets() (*secrets, error) {
	if (s.cert == "") != (s.key == "") {
		return nil, misuse("--tls-cert and --tls-key must be given together")
	}
	if s.clientCA != "" && s.cert == "" {
		return nil, misuse("--client-ca requires TLS: add --tls-cert and --tls-key")
	}
	all := &secrets{}
	if s.cert != "" {
		all.tls = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return all.pair.Load(), nil }}
		files := pair{certFlag: "--tls-cert", cert: s.cert, keyFlag: "--tls-key", key: s.key}
		all.watch(func() ([]any, error) { return all.loadPair(files) }, s.cert, s.key)
	}
	if s.clientCA != "" {
		all.tls.ClientAuth, all.tls.VerifyConnection = tls.RequireAnyClientCert, all.checkClient
		all.watch(func() ([]any, error) { return all.loadClients(s.clientCA) }, s.clientCA)
	}
	if s.tokens != "" {
		all.watch(func() ([]any, error) { return all.loadTokens(s.tokens) }, s.tokens)
	}
	for _, w := range all.files {
		if err := w.first(); err != nil {
			return nil, err
		}
	}
	if all.tokens != nil && all.tokens.Len() == 0 {
		return nil, fmt.Errorf("%s contains no tokens: create one with token new", s.tokens)
	}
	return all, nil
}

func (s *secrets) watch(load func() ([]any, error), files ...string) {
	s.files = append(s.files, &watchedFiles{files: files, load: load})
}

// reload loads files again when they change, and at once on a hangup, until the context ends.
func (s *secrets) reload(ctx context.Context, use func(*httpapi.Tokens), hangups <-chan os.Signal, log *slog.Logger) {
	s.use = use
	r := reloader{clock: clock.New(), log: log, all: s.files}
	r.run(ctx, hangups)
}

func (s *secrets) loadPair(files pair) ([]any, error) {
	read, err := files.read()
	if err != nil {
		return nil, err
	}
	s.pair.Store(read)
	return []any{"certificate", read.Leaf.Subject.String(), "ends_at", read.Leaf.NotAfter.UTC().Format(time.RFC3339)}, nil
}

// A pair names the files of a certificate and its key, and the flags that set them.
type pair struct{ certFlag, cert, keyFlag, key string }

func (p pair) read() (*tls.Certificate, error) {
	public, err := os.ReadFile(p.cert)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.certFlag, err)
	}
	private, err := readSecret(p.key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.keyFlag, err)
	}
	read, err := tls.X509KeyPair(public, private)
	if err != nil {
		return nil, fmt.Errorf("%s %s, %s %s: %w", p.certFlag, p.cert, p.keyFlag, p.key, err)
	}
	return &read, nil
}

func (s *secrets) loadClients(file string) ([]any, error) {
	pool, n, err := authorities(file)
	if err != nil {
		return nil, fmt.Errorf("--client-ca: %w", err)
	}
	s.clients.Store(pool)
	return []any{"file", file, "client_authorities", n}, nil
}

// authorities reads the CA certificates in a file and counts them.
func authorities(file string) (*x509.CertPool, int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, 0, err
	}
	pool, n := x509.NewCertPool(), 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", file, err)
		}
		pool.AddCert(cert)
		n++
	}
	if n == 0 {
		return nil, 0, fmt.Errorf("%s contains no certificate: want blocks that begin with -----BEGIN CERTIFICATE-----", file)
	}
	return pool, n, nil
}

// checkClient verifies a client certificate against the current authorities. TLS also calls it for resumed connections.
func (s *secrets) checkClient(state tls.ConnectionState) error {
	between := x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: s.clients.Load(), Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

func (s *secrets) loadTokens(file string) ([]any, error) {
	text, err := readSecret(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: create it with token new", err)
	}
	if err != nil {
		return nil, err
	}
	tokens, err := tokensIn(file, text)
	if err != nil {
		return nil, err
	}
	s.tokens = tokens
	if s.use != nil {
		s.use(tokens)
	}
	return []any{"file", file, "tokens", tokens.Len()}, nil
}

// maxSecret is the maximum size of a file of secrets, enough for 10,000 tokens.
const maxSecret = 4 << 20

// readSecret reads a file that other users must not read or change.
func readSecret(path string) (text []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := checkSecret(f); err != nil {
		return nil, err
	}
	text, err = io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxSecret {
		return nil, fmt.Errorf("%s is larger than %d bytes, the limit for such a file", path, maxSecret)
	}
	return text, nil
}

package main

import (
	"context"
	"crypto/tls"
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

// Secrets are what a server reads from files, when it starts and whenever they change.
type secrets struct {
	tokens *httpapi.Tokens // nil where whoever reaches the server may do everything
	tls    *tls.Config     // nil for a server without TLS

	pair  atomic.Pointer[tls.Certificate]
	use   func(*httpapi.Tokens) // lets others take the place of the tokens; nil until the server is there
	files []*watched
}

// secrets reads the files that the flags name.
func (s *serveFlags) secrets() (*secrets, error) {
	if (s.cert == "") != (s.key == "") {
		return nil, misuse("--tls-cert and --tls-key go together")
	}
	all := &secrets{}
	if s.cert != "" {
		all.tls = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return all.pair.Load(), nil }}
		all.watch(func() ([]any, error) { return all.loadPair(s.cert, s.key) }, s.cert, s.key)
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
		return nil, fmt.Errorf("%s has no token: make one by token new", s.tokens)
	}
	return all, nil
}

func (s *secrets) watch(load func() ([]any, error), files ...string) {
	s.files = append(s.files, &watched{files: files, load: load})
}

// reload reads files anew that change, until the context ends, and at once when it is told to.
func (s *secrets) reload(ctx context.Context, use func(*httpapi.Tokens), told <-chan os.Signal, log *slog.Logger) {
	s.use = use
	r := reloader{clock: clock.New(), log: log, all: s.files}
	r.run(ctx, told)
}

func (s *secrets) loadPair(cert, key string) ([]any, error) {
	public, err := os.ReadFile(cert)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	private, err := readSecret(key)
	if err != nil {
		return nil, fmt.Errorf("--tls-key: %w", err)
	}
	pair, err := tls.X509KeyPair(public, private)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", cert, key, err)
	}
	s.pair.Store(&pair)
	return []any{"certificate", pair.Leaf.Subject.String(), "ends_at", pair.Leaf.NotAfter.UTC().Format(time.RFC3339)}, nil
}

func (s *secrets) loadTokens(file string) ([]any, error) {
	text, err := readSecret(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: make it by token new", err)
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

// maxSecret is how large a file of secrets can be: 10,000 tokens.
const maxSecret = 4 << 20

// readSecret reads a file of which others must not know, or which others must not change.
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
		return nil, fmt.Errorf("%s is larger than the %d bytes that such a file can have", path, maxSecret)
	}
	return text, nil
}

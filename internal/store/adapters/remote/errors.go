package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/seed-ed332417/jq/internal/store"
)

// The reasons why the client breaks off a request.
var (
	errSilent    = errors.New("the server is silent for too long")
	errClosing   = errors.New("the store was closed")
	errGone      = errors.New("nobody waits for the answer any more")
	errWithdrawn = errors.New("the request was withdrawn")
)

// why returns the reason why the context of a request has ended, or nil. It does not return the caller's own cause, which may
// look like an error of a store.
func why(ctx context.Context) error {
	cause := context.Cause(ctx)
	for _, ours := range []error{errSilent, errClosing, errGone} {
		if errors.Is(cause, ours) {
			return ours
		}
	}
	return ctx.Err()
}

// A lostCall is the error of a call that got no answer from a jq server.
type lostCall struct {
	means error // ErrUnavailable or ErrInDoubt
	cut   bool  // the connection was cut after the request was sent; asking again may help
	text  string
}

func (e *lostCall) Error() string { return fmt.Sprintf("%v: %s", e.means, e.text) }

// Unwrap hides the cause: a time-out of the network must not look like the end of the caller's context.
func (e *lostCall) Unwrap() error { return e.means }

// lost translates the error of a call that got no answer. Sent means that the server may have got the request.
func lost(err error, sent, reads bool) error {
	e := &lostCall{means: store.ErrUnavailable, cut: sent, text: advice(err) + strings.ReplaceAll(err.Error(), "\n", "; ")}
	if sent && !reads {
		e.means = store.ErrInDoubt
	}
	for _, lasting := range []error{errSilent, errClosing, errGone, context.Canceled, context.DeadlineExceeded} {
		e.cut = e.cut && !errors.Is(err, lasting)
	}
	return e
}

func wasCut(err error) bool {
	e, ok := errors.AsType[*lostCall](err)
	return ok && e.cut
}

// said reports whether the error is one of the contract.
func said(err error) bool {
	for _, ours := range []error{
		store.ErrInvalid, store.ErrNotFound, store.ErrState, store.ErrDuplicate, store.ErrConflict, store.ErrStaleLease, store.ErrUnavailable,
		store.ErrDenied, store.ErrInDoubt, errors.ErrUnsupported,
	} {
		if errors.Is(err, ours) {
			return true
		}
	}
	return false
}

// because adds the reason why a call was broken off: the store was closed, or the caller's context has ended.
func (s *Store) because(ctx context.Context, err error) error {
	unavailable := errors.Is(err, store.ErrUnavailable)
	if unavailable && s.isClosed() {
		return store.ErrClosed
	}
	ended := ctx.Err()
	if ended != nil && (unavailable || errors.Is(err, store.ErrInDoubt)) && !errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", err, ended)
	}
	return err
}

// A stranger is the error for an answer that does not come from a jq server.
type stranger struct {
	status int
	kind   string // media type
	to     string // target of a redirect
	wrong  string // what is wrong with it
}

func (e *stranger) Error() string {
	text := fmt.Sprintf("HTTP %d", e.status)
	if e.kind != "" {
		text += ", " + e.kind
	}
	if e.to != "" {
		text += ", to " + e.to
	}
	if e.wrong != "" {
		text += ", " + e.wrong
	}
	return text
}

// advice returns what to do about an error, for the errors that users are likely to see.
func advice(err error) string {
	var odd *stranger
	var host *net.DNSError
	var network *net.OpError
	var untrusted *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.As(err, &odd) && odd.to != "":
		return "something there redirects, open its other URL if that is meant: "
	case errors.As(err, &odd):
		return "this is no answer of a jq server, is the URL right and nothing in between: "
	case errors.As(err, &untrusted), errors.As(err, &authority):
		return "the server's certificate is not trusted: "
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "the server speaks no TLS, give its URL with http:// if that is meant: "
	case errors.As(err, &host):
		return "the host is not known, mend the URL: "
	case errors.As(err, &network) && network.Op == "dial":
		return "no server answers there, start it or mend the URL: "
	case errors.As(err, &network) && network.Op == "remote error":
		return "the server refuses the TLS connection, does it want a certificate of this client (Options.TLS, or --client-cert): "
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was lost: "
	default:
		return ""
	}
}

// openError returns an error of one line that says why the store could not be opened, and what to do.
func openError(where string, err error) error {
	if errors.Is(err, store.ErrDenied) {
		return fmt.Errorf("%w: opening %s: %s", store.ErrDenied, where, strings.TrimPrefix(err.Error(), store.ErrDenied.Error()+": "))
	}
	text := strings.TrimPrefix(err.Error(), store.ErrUnavailable.Error()+": ")
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, end) {
			return fmt.Errorf("%w: opening %s: %w", store.ErrUnavailable, where, end)
		}
	}
	return fmt.Errorf("%w: opening %s: %s", store.ErrUnavailable, where, text)
}

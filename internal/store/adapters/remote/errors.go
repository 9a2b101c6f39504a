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

// Why this side breaks off a request.
var (
	errSilent    = errors.New("the server is silent for too long")
	errClosing   = errors.New("the store was closed")
	errGone      = errors.New("nobody waits for the answer any more")
	errWithdrawn = errors.New("the request was withdrawn")
)

// why is the reason for which the context of a request has ended, or nil. What its caller gives as a cause stays with the
// caller: it may look like an error of a store.
func why(ctx context.Context) error {
	cause := context.Cause(ctx)
	for _, ours := range []error{errSilent, errClosing, errGone} {
		if errors.Is(cause, ours) {
			return ours
		}
	}
	return ctx.Err()
}

// A lostCall is one without an answer of a jq server.
type lostCall struct {
	means error // ErrUnavailable or ErrInDoubt
	cut   bool  // on its way, and not for anything that lasts
	text  string
}

func (e *lostCall) Error() string { return fmt.Sprintf("%v: %s", e.means, e.text) }

// Unwrap shows nothing of the cause: a time-out of the network is none of the caller's context.
func (e *lostCall) Unwrap() error { return e.means }

// lost says in the words of the contract what a call without an answer means. Sent says that the server may have got it.
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

// said says that the error is in the words of the contract.
func said(err error) bool {
	for _, ours := range []error{
		store.ErrInvalid, store.ErrNotFound, store.ErrState, store.ErrDuplicate, store.ErrConflict, store.ErrUnavailable,
		store.ErrDenied, store.ErrInDoubt, errors.ErrUnsupported,
	} {
		if errors.Is(err, ours) {
			return true
		}
	}
	return false
}

// because is the error of a call with the reason why it was broken off: the store was closed, or the caller's context has ended.
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

// A stranger is an answer that no jq server gives.
type stranger struct {
	status int
	kind   string // its media type
	to     string // where it redirects
	wrong  string // with what should be an answer
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

// advice is what to do, for errors that people meet.
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

// openError says in one line why the store can not be opened, and what to do.
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

package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// answer writes the answer. An error means that the client did not get it, and that no other answer can be sent.
func (a *API) answer(w *exchange, status int, body any) error {
	return a.write(w, status, wire.JSON, body)
}

func (a *API) write(w *exchange, status int, kind string, body any) error {
	text, err := wire.Marshal(body)
	if err != nil {
		return err
	}
	return a.send(w, status, kind, text)
}

// send writes an encoded answer.
func (a *API) send(w *exchange, status int, kind string, text []byte) error {
	text = append(text, '\n')
	a.allow(w)
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	if _, err := w.Write(text); err != nil {
		return &unsent{err}
	}
	return nil
}

// allow gives the client WriteTimeout to read the next write.
func (a *API) allow(w *exchange) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(a.options.WriteTimeout)) // ignore the error: tests have no connection
}

// unhurried removes that deadline while nothing is written. Otherwise HTTP/2 would end the stream at the deadline even if
// there is nothing to write.
func (a *API) unhurried(w *exchange) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
}

func done(w *exchange) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// unsent is the error of an answer that could not be sent completely.
type unsent struct{ err error }

func (u *unsent) Error() string { return "jq: answer not sent: " + u.err.Error() }
func (u *unsent) Unwrap() error { return u.err }

// The problems that the API itself finds.
var (
	noSuchCall      = problem("no_such_call", "there is no such call", http.StatusNotFound, "look at /docs")
	noSuchMethod    = problem("no_such_method", "this call has another method", http.StatusMethodNotAllowed, "the Allow header has those that it takes")
	noSuchHost      = problem("no_such_host", "this server has another name", http.StatusMisdirectedRequest, "call it localhost, or by its address")
	noJSON          = problem("media_type", "the body must be JSON", http.StatusUnsupportedMediaType, "send Content-Type: application/json")
	noToken         = problem("unauthorized", "a token is needed", http.StatusUnauthorized, "send Authorization: Bearer TOKEN, with one that the server knows")
	tokenExpired    = problem("token_expired", "the token has expired", http.StatusUnauthorized, "")
	noSession       = problem("unauthorized", "the session has ended", http.StatusUnauthorized, "sign in again, by POST /v1/session")
	noLogin         = problem("unauthorized", "the token is not known", http.StatusUnauthorized, "sign in with one that the server knows")
	noCSRF          = problem("csrf", "the token against forged requests is missing or wrong", http.StatusForbidden, "send X-CSRF-Token, as GET /v1/session tells it")
	noRole          = problem("forbidden", "the token does not have the role for this", http.StatusForbidden, "")
	notForThis      = problem("forbidden", "the token is not for this", http.StatusForbidden, "")
	noOrigin        = problem("cross_origin", "the page of another site may not do this", http.StatusForbidden, "")
	noRoom          = problem("too_many_waiting", "too many clients are waiting", http.StatusTooManyRequests, "come back later, or raise the server's limit")
	tooManySessions = problem("too_many_sessions", "there are too many sessions", http.StatusTooManyRequests, "come back later, or end others by DELETE /v1/session")
	tooMuch         = problem("too_much_at_once", "the calls of this token take up too much memory", http.StatusTooManyRequests, comeBack)
	busy            = problem("busy", "the server is busy, nothing was applied", http.StatusServiceUnavailable, comeBack)
	overQuota       = problem("quota", "too many jobs wait already, nothing was applied", http.StatusTooManyRequests, "")
	noSessions      = problem("no_sessions", "this server has no tokens, and needs no session", http.StatusNotFound, "")
	noMetrics       = problem("no_metrics", "this server has no metrics", http.StatusNotFound, "")
)

const comeBack = "come back later, with less at a time"

const urn = "urn:jq:"

func problem(name, title string, status int, detail string) wire.Fail {
	return wire.Fail{Type: urn + name, Title: title, Status: status, Detail: detail}
}

// fail answers with a problem document.
func (a *API) fail(w *exchange, r *http.Request, err error) {
	if late, ok := errors.AsType[*unsent](err); ok {
		a.log.Debug("jq: a client did not wait for its answer", "path", r.Pattern, "error", late.err)
		return
	}
	f := a.failOf(r, err)
	a.refused(w, r, f)
	if w.act != nil {
		w.act.Problem = strings.TrimPrefix(f.Type, urn)
		if f.Status == http.StatusForbidden {
			w.act.Detail = f.Detail
		}
	}
	switch f.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="jq"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	_ = a.write(w, f.Status, wire.Problem, f) // an error means that the client has left
}

// failOf converts the error for the client. Details of internal errors go only to the log, because they may name hosts and
// accounts.
func (a *API) failOf(r *http.Request, err error) wire.Fail {
	if f, ok := errors.AsType[wire.Fail](err); ok {
		return f
	}
	_, large := errors.AsType[*largeError](err)
	if invalid, ok := errors.AsType[*store.InvalidError](err); ok {
		err = inOurWords(invalid)
	}
	f := wire.FailOf(err)
	if large {
		f.Status = http.StatusRequestEntityTooLarge
	}
	if f.Status < http.StatusInternalServerError || f.Status == http.StatusNotImplemented {
		return f
	}
	if r.Context().Err() == nil && !errors.Is(err, store.ErrClosed) {
		a.log.Error("jq: a call failed", "path", r.Pattern, "error", err)
	}
	return a.vague(f, err)
}

// vague removes the details of an internal error from its problem, except what the client can act on.
func (a *API) vague(f wire.Fail, err error) wire.Fail {
	f.Detail = ""
	if overlong, ok := errors.AsType[*store.OverlongError](err); ok {
		f.Detail = overlong.Advice()
	} else if errors.Is(err, context.DeadlineExceeded) {
		f.Detail = fmt.Sprintf("it took longer than %v", a.options.CallTimeout)
	}
	return f
}

// ourWords maps fields of the contract to their names in the API.
var ourWords = map[string]string{"ttl": "lease", "leases": "jobs", "acks": "jobs", "nacks": "jobs", "saves": "jobs"}

func inOurWords(e *store.InvalidError) error {
	if name, ok := ourWords[e.Field]; ok {
		return &store.InvalidError{Item: e.Item, Field: name, Rule: e.Rule}
	}
	return e
}

// named renames the field of an InvalidError, for a call in which the field has another name.
func named(err error, field, here string) error {
	if invalid, ok := errors.AsType[*store.InvalidError](err); ok && invalid.Field == field {
		return &store.InvalidError{Item: invalid.Item, Field: here, Rule: invalid.Rule}
	}
	return err
}

// rescue answers for a handler that has panicked. Nobody knows what the call has applied.
func (a *API) rescue(w *exchange, r *http.Request) {
	switch v := recover(); v {
	case nil:
	case http.ErrAbortHandler:
		panic(v)
	default:
		a.log.Error("jq: a call has panicked", "path", r.Pattern, "panic", v, "stack", string(debug.Stack()))
		f := wire.FailOf(errors.New(""))
		f.Detail = "the server's log says more"
		if w.act != nil {
			w.act.Problem = "panic"
		}
		if err := a.write(w, f.Status, wire.Problem, f); err != nil {
			panic(http.ErrAbortHandler) // part of an answer was written: the client must not take it for a complete one
		}
	}
}

package wire

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Fail is an error as it goes over the wire: a problem document by RFC 9457.
type Fail struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Item   *int   `json:"item,omitempty"`  // which item of the call is invalid
	Field  string `json:"field,omitempty"` // which field
	Rule   string `json:"rule,omitempty"`  // what it must be
}

// Error is what went wrong, in one line.
func (f Fail) Error() string {
	if f.Detail == "" {
		return f.Title
	}
	return f.Title + ": " + f.Detail
}

const urn = "urn:jq:"

// The types of problems by which a server does not let a client through.
const (
	Unauthorized = urn + "unauthorized"
	TokenExpired = urn + "token_expired"
	Forbidden    = urn + "forbidden"
	Busy         = urn + "busy"
)

// A problem is one kind of Fail, and what it means to a store.
type problem struct {
	name   string
	title  string
	status int
	err    error
}

// problems are tried in order. The last is for what has no name here: whoever reads it does not know what was applied.
var problems = []problem{
	{"not_found", "no such job", http.StatusNotFound, store.ErrNotFound},
	{"wrong_state", "not possible in the job's state", http.StatusConflict, store.ErrState},
	{"duplicate", "the unique key is held by another job", http.StatusConflict, store.ErrDuplicate},
	{"conflict", "the policy was changed by somebody else", http.StatusConflict, store.ErrConflict},
	{"unsupported", "this store can not do that", http.StatusNotImplemented, errors.ErrUnsupported},
	{"closed", "the server is shutting down", http.StatusServiceUnavailable, store.ErrClosed},
	{"unavailable", "the store is unavailable, nothing was applied", http.StatusServiceUnavailable, store.ErrUnavailable},
	{"unavailable", "the store is unavailable, nothing was applied", http.StatusServiceUnavailable, store.ErrDenied}, // to the server, whose fault is not the client's
	{"busy", "the server is busy, nothing was applied", http.StatusServiceUnavailable, store.ErrUnavailable},         // said by the API itself
	{"in_doubt", "the store's answer was lost, the call may have been applied", http.StatusInternalServerError, store.ErrInDoubt},
}

// FailOf is the error for the wire.
func FailOf(err error) Fail {
	if invalid, ok := errors.AsType[*store.InvalidError](err); ok {
		return failOfInvalid(invalid)
	}
	for _, p := range problems {
		if errors.Is(err, p.err) {
			return p.fail(err)
		}
	}
	return problems[len(problems)-1].fail(err)
}

func (p problem) fail(err error) Fail {
	f := Fail{Type: urn + p.name, Title: p.title, Status: p.status}
	if detail := err.Error(); detail != p.err.Error() {
		f.Detail = detail
	}
	return f
}

func failOfInvalid(e *store.InvalidError) Fail {
	f := Fail{
		Type: urn + "invalid", Title: "invalid", Status: http.StatusBadRequest,
		Field: e.Field, Rule: e.Rule, Detail: e.Field + " " + e.Rule,
	}
	if e.Field == "call" { // it has too many bytes in all
		f.Status = http.StatusRequestEntityTooLarge
	}
	if e.Item >= 0 {
		f.Item, f.Detail = &e.Item, fmt.Sprintf("item %d: %s", e.Item, f.Detail)
	}
	return f
}

// Err is the error that the store on the other side has returned, or nil where the problem is none of a store's: then it is
// one between the two sides.
func (f Fail) Err() error {
	if f.Type == urn+"invalid" {
		item := -1
		if f.Item != nil {
			item = *f.Item
		}
		return &store.InvalidError{Item: item, Field: f.Field, Rule: f.Rule}
	}
	for _, p := range problems {
		if f.Type == urn+p.name {
			return fmt.Errorf("%w (%w)", p.err, f)
		}
	}
	return nil
}

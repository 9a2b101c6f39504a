package wire

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Fail is an error as the API sends it: a problem document as in RFC 9457.
type Fail struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Item   *int   `json:"item,omitempty"`  // which item of the call is invalid
	Field  string `json:"field,omitempty"` // which field
	Rule   string `json:"rule,omitempty"`  // what the field must be
}

// Error describes the problem on one line.
func (f Fail) Error() string {
	if f.Detail == "" {
		return f.Title
	}
	return f.Title + ": " + f.Detail
}

const urn = "urn:jq:"

// The problem types for requests that the server refuses before it calls the store.
const (
	Unauthorized = urn + "unauthorized"
	TokenExpired = urn + "token_expired"
	Forbidden    = urn + "forbidden"
	Busy         = urn + "busy"
	NoSuchCall   = urn + "no_such_call"
	ReadOnly     = urn + "read_only"
)

// A problem is one type of Fail, with the error of the store that it stands for.
type problem struct {
	name   string
	title  string
	status int
	err    error
}

// problems are tried in order. The last one is for all other errors: its reader can not know whether the call was applied.
var problems = []problem{
	{"not_found", "no such job, group or schedule", http.StatusNotFound, store.ErrNotFound},
	{"wrong_state", "not possible in the job's state", http.StatusConflict, store.ErrState},
	{"duplicate", "the unique key is held by another job", http.StatusConflict, store.ErrDuplicate},
	{"stale", "the lease was lost or has ended", http.StatusConflict, store.ErrStaleLease},
	{"conflict", "somebody else has changed it", http.StatusConflict, store.ErrConflict},
	{"unsupported", "this store can not do that", http.StatusNotImplemented, errors.ErrUnsupported},
	{"closed", "the server is shutting down", http.StatusServiceUnavailable, store.ErrClosed},
	{"unavailable", "the store is unavailable, nothing was applied", http.StatusServiceUnavailable, store.ErrUnavailable},
	{"unavailable", "the store is unavailable, nothing was applied", http.StatusServiceUnavailable, store.ErrDenied}, // the store denies access to the server, which is not the client's fault
	{"read_only", "this server only reads", http.StatusForbidden, store.ErrDenied},                                   // the API itself says so, not the store
	{"busy", "the server is busy, nothing was applied", http.StatusServiceUnavailable, store.ErrUnavailable},         // the API itself says so, not the store
	{"in_doubt", "the store's answer was lost, the call may have been applied", http.StatusInternalServerError, store.ErrInDoubt},
}

// FailOf converts an error of a store.
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
	if e.Field == "call" { // the whole call is too large
		f.Status = http.StatusRequestEntityTooLarge
	}
	if e.Item >= 0 {
		f.Item, f.Detail = &e.Item, fmt.Sprintf("item %d: %s", e.Item, f.Detail)
	}
	return f
}

// Err returns the error that the store on the other side has returned, or nil if the problem did not come from the store.
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

package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// An effect says what a call does, and so whether it is audited.
type effect int

const (
	reads    effect = iota + 1 // it changes nothing
	works                      // a frequent call of producers or workers, which metrics count
	operates                   // each call is audited
)

// An act is the audit record of a call: who made it, what it requested, and how it ended. It holds no secrets: a token is
// recorded by its name, and a body only if the handler has noted it.
type act struct {
	Name      string          `json:"name,omitempty"` // the name of the token
	Address   string          `json:"address"`        // the remote address of the connection
	Operation string          `json:"operation"`
	Queue     string          `json:"queue,omitempty"`
	Worker    string          `json:"worker,omitempty"`
	Schedule  string          `json:"schedule,omitempty"`
	Job       string          `json:"job,omitempty"` // the id as it is in the path
	Request   json.RawMessage `json:"request,omitempty"`
	Changed   *int            `json:"changed,omitempty"` // the number of jobs, if known
	Status    int             `json:"status"`
	Problem   string          `json:"problem,omitempty"`
	Detail    string          `json:"detail,omitempty"` // why the token does not allow the call
}

// The maximum sizes of a request in a line of the audit, and in an event. Events have less, because a ring keeps many of
// them.
const (
	maxAuditedRequest = 64 << 10
	maxToldRequest    = 1 << 10
)

// known reports whether the caller is known. Unknown callers can not write to the audit.
func (a *API) known(x *exchange) bool { return x.bearer != nil || !a.bearers.needed() }

// begin starts the audit record of a call.
func (a *API) begin(x *exchange, r *http.Request) {
	one := &act{Address: addressOf(r), Operation: x.to.name, Job: short(r.PathValue("id"))}
	if x.bearer != nil {
		one.Name = x.bearer.Name
	}
	switch name := short(r.PathValue("name")); {
	case strings.HasPrefix(x.to.path, wire.PathWorkers):
		one.Worker = name
	case strings.HasPrefix(x.to.path, wire.PathSchedules):
		one.Schedule = name
	default:
		one.Queue = name
	}
	x.act, x.audit = one, a.audit
}

// short shortens a name for the audit. A name that is too long is invalid anyway.
func short(name string) string {
	if len(name) > store.MaxNameBytes {
		return strings.ToValidUTF8(name[:store.MaxNameBytes], "") + "…"
	}
	return name
}

// addressOf returns the address of the connection. It ignores headers with other addresses, because any client can set them.
func addressOf(r *http.Request) string {
	if _, err := netip.ParseAddrPort(r.RemoteAddr); err != nil {
		return "unix"
	}
	return r.RemoteAddr
}

// noteRequest records the request in the audit.
func (x *exchange) noteRequest(req any) {
	if x.act == nil {
		return
	}
	text, err := wire.Marshal(req)
	if err != nil {
		text = []byte("null")
	}
	x.act.Request = bounded(text, maxAuditedRequest)
}

func bounded(text json.RawMessage, most int) json.RawMessage {
	if len(text) <= most {
		return text
	}
	return json.RawMessage(fmt.Sprintf(`{"left_out_bytes":%d}`, len(text)))
}

// noteChanged records the number of changed jobs in the audit.
func (x *exchange) noteChanged(outcomes []store.Outcome) {
	if x.act == nil {
		return
	}
	n := 0
	for _, o := range outcomes {
		if o.Status == store.StatusOK {
			n++
		}
	}
	x.act.Changed = &n
}

// WriteHeader writes the line of the audit before the client gets the answer.
func (x *exchange) WriteHeader(status int) {
	if x.act != nil && x.act.Status == 0 {
		x.act.Status = status
		x.audit(*x.act)
	}
	x.ResponseWriter.WriteHeader(status)
}

// audit writes the line to the log, and publishes it as an event.
func (a *API) audit(one act) {
	attrs := []slog.Attr{slog.String("address", one.Address), slog.String("operation", one.Operation), slog.Int("status", one.Status)}
	for _, text := range []slog.Attr{
		slog.String("name", one.Name), slog.String("queue", one.Queue), slog.String("worker", one.Worker),
		slog.String("schedule", one.Schedule), slog.String("job", one.Job),
		slog.String("problem", one.Problem), slog.String("detail", one.Detail),
	} {
		if text.Value.String() != "" {
			attrs = append(attrs, text)
		}
	}
	if one.Request != nil {
		attrs = append(attrs, slog.Any("request", one.Request))
	}
	if one.Changed != nil {
		attrs = append(attrs, slog.Int("changed", *one.Changed))
	}
	a.options.Audit.LogAttrs(a.life, slog.LevelInfo, "jq: audit", attrs...)
	one.Request = bounded(one.Request, maxToldRequest)
	a.Publish(Event{act: &one})
}

// refused counts requests that are refused for lack of rights, and logs them at a bounded rate, except those in the audit.
func (a *API) refused(x *exchange, r *http.Request, f wire.Fail) {
	switch f.Status {
	case http.StatusUnauthorized:
		a.counter.Refused("unauthorized")
	case http.StatusForbidden:
		if f.Type == wire.ReadOnly {
			return // whoever asks
		}
		a.counter.Refused("forbidden")
	default:
		return
	}
	if x.act != nil {
		return // it is in the audit
	}
	attrs := []any{"reason", strings.TrimPrefix(f.Type, urn), "address", addressOf(r), "call", r.Pattern}
	if x.bearer != nil {
		attrs = append(attrs, "name", x.bearer.Name)
	}
	a.refusals.log(networkOf(r), attrs)
}

// networkOf returns the network of the connection's address, as network does. It is zero for a Unix socket.
func networkOf(r *http.Request) netip.Prefix {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	return network(from.Addr())
}

// maxRefusals is how many lines about refused requests are logged in a second.
const maxRefusals = 10

// refusals logs refused requests: at most one line a second for each network, and maxRefusals in all. It counts the lines
// that it leaves out.
type refusals struct {
	clock clock.Clock
	to    *slog.Logger

	mu      sync.Mutex // guards the fields below
	told    []refusal  // the refusals of the latest second
	leftOut int
}

type refusal struct {
	at   time.Time
	from netip.Prefix
}

const (
	requestRefused  = "jq: a request was refused"
	refusalsLeftOut = "jq: lines about refused requests were left out"
)

func (r *refusals) log(from netip.Prefix, attrs []any) {
	r.mu.Lock()
	now := r.forget()
	if len(r.told) >= maxRefusals || slices.ContainsFunc(r.told, func(one refusal) bool { return one.from == from }) {
		r.leftOut++
		r.mu.Unlock()
		return
	}
	r.told = append(r.told, refusal{now, from})
	r.mu.Unlock()
	r.to.Warn(requestRefused, attrs...)
}

// forget drops refusals that are older than a second, or in the future because the clock went back.
func (r *refusals) forget() (now time.Time) {
	now = r.clock.Now()
	r.told = slices.DeleteFunc(r.told, func(one refusal) bool { return now.Sub(one.at) >= time.Second || one.at.After(now) })
	return now
}

// tell logs how many lines were left out, if any.
func (r *refusals) tell() {
	r.mu.Lock()
	left := r.leftOut
	r.leftOut = 0
	r.mu.Unlock()
	if left > 0 {
		r.to.Warn(refusalsLeftOut, "count", left)
	}
}

// statusOf returns the status of a problem, or 0 for another error.
func statusOf(err error) int {
	f, _ := errors.AsType[wire.Fail](err)
	return f.Status
}

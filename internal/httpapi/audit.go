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

// An effect says what a call does, and with it whether the audit has a line of it.
type effect int

const (
	reads    effect = iota + 1 // it changes nothing
	works                      // what producers and workers do all the time: metrics count it
	operates                   // each call has a line in the audit
)

// An act is a call that the audit tells of: who made it, what was asked for, and how it ended. It holds no secret: of a token it has the
// name, and of a body what the handler has noted.
type act struct {
	Name      string          `json:"name,omitempty"` // of the token
	Address   string          `json:"address"`        // of the connection
	Operation string          `json:"operation"`
	Queue     string          `json:"queue,omitempty"`
	Worker    string          `json:"worker,omitempty"`
	Job       string          `json:"job,omitempty"` // as it stands in the path
	Request   json.RawMessage `json:"request,omitempty"`
	Changed   *int            `json:"changed,omitempty"` // jobs, where it is known
	Status    int             `json:"status"`
	Problem   string          `json:"problem,omitempty"`
	Detail    string          `json:"detail,omitempty"` // of what the token is not for
}

// Requests of more bytes are left out: of the line, and of the event, for a ring keeps many.
const (
	maxAuditedRequest = 64 << 10
	maxToldRequest    = 1 << 10
)

// known says whether it is known who calls: whoever is not writes no lines.
func (a *API) known(x *exchange) bool { return x.bearer != nil || !a.bearers.needed() }

// begin notes who calls, and what for.
func (a *API) begin(x *exchange, r *http.Request) {
	one := &act{Address: addressOf(r), Operation: x.to.name, Job: short(r.PathValue("id"))}
	if x.bearer != nil {
		one.Name = x.bearer.Name
	}
	if name := short(r.PathValue("name")); strings.HasPrefix(x.to.path, wire.PathWorkers) {
		one.Worker = name
	} else {
		one.Queue = name
	}
	x.act, x.audit = one, a.audit
}

// short is a name as a line can have it. One that is longer names nothing.
func short(name string) string {
	if len(name) > store.MaxNameBytes {
		return strings.ToValidUTF8(name[:store.MaxNameBytes], "") + "…"
	}
	return name
}

// addressOf is that of the connection. Headers that name another one can be written by anybody.
func addressOf(r *http.Request) string {
	if _, err := netip.ParseAddrPort(r.RemoteAddr); err != nil {
		return "unix"
	}
	return r.RemoteAddr
}

// noteRequest puts what was asked for into the line.
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

// noteChanged puts the number of changed jobs into the line.
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

// WriteHeader leaves the line of the audit before the client can know of the answer.
func (x *exchange) WriteHeader(status int) {
	if x.act != nil && x.act.Status == 0 {
		x.act.Status = status
		x.audit(*x.act)
	}
	x.ResponseWriter.WriteHeader(status)
}

// audit writes the line, and tells those who listen.
func (a *API) audit(one act) {
	attrs := []slog.Attr{slog.String("address", one.Address), slog.String("operation", one.Operation), slog.Int("status", one.Status)}
	for _, text := range []slog.Attr{
		slog.String("name", one.Name), slog.String("queue", one.Queue), slog.String("worker", one.Worker), slog.String("job", one.Job),
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

// refused counts who is not let in, and logs it at a bounded rate. What a known bearer may not do stands in the audit.
func (a *API) refused(x *exchange, r *http.Request, f wire.Fail) {
	switch f.Status {
	case http.StatusUnauthorized:
		a.counter.Refused("unauthorized")
	case http.StatusForbidden:
		a.counter.Refused("forbidden")
		if x.bearer != nil {
			return
		}
	default:
		return
	}
	attrs := []any{"reason", strings.TrimPrefix(f.Type, urn), "address", addressOf(r), "call", r.Pattern}
	if x.bearer != nil {
		attrs = append(attrs, "name", x.bearer.Name)
	}
	a.refusals.log(networkOf(r), attrs)
}

// networkOf is the address of the connection, or the network that one customer of a provider has; none for a socket of this machine.
func networkOf(r *http.Request) netip.Prefix {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	return network(from.Addr())
}

// maxRefusals is how many lines about refused requests there are in a second.
const maxRefusals = 10

// Refusals are lines about requests that were refused: in each second one of each network, and ten in all. It remembers as many.
type refusals struct {
	clock clock.Clock
	to    *slog.Logger

	mu      sync.Mutex // guards what follows
	told    []refusal  // of the latest second
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

// forget drops what is older than a second, or was written by a clock that went back.
func (r *refusals) forget() (now time.Time) {
	now = r.clock.Now()
	r.told = slices.DeleteFunc(r.told, func(one refusal) bool { return now.Sub(one.at) >= time.Second || one.at.After(now) })
	return now
}

// tell says how many lines were left out, if there are any.
func (r *refusals) tell() {
	r.mu.Lock()
	left := r.leftOut
	r.leftOut = 0
	r.mu.Unlock()
	if left > 0 {
		r.to.Warn(refusalsLeftOut, "count", left)
	}
}

// statusOf is that of a problem, or 0.
func statusOf(err error) int {
	f, _ := errors.AsType[wire.Fail](err)
	return f.Status
}

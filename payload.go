package jq

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Payload is what a job is about. Its type names the kind of the job, so that the compiler checks who enqueues and who
// handles it; its value travels as JSON.
//
//	type Welcome struct{ Name string }
//
//	func (Welcome) Kind() string { return "welcome" }
//
// The kind is kept with the job for as long as the job lives: it should outlive the name of the type.
type Payload interface {
	Kind() string
}

// A Defaulter is a payload with options of its own for each job of its kind: its queue, its retry policy.
type Defaulter interface {
	Payload
	Defaults() EnqueueOptions
}

// Raw is a payload whose kind is not known to the compiler. The document is JSON and is kept byte for byte.
type Raw struct {
	Name     string // the kind
	Document json.RawMessage
}

// Kind is the kind by name.
func (r Raw) Kind() string { return r.Name }

// EnqueueOptions say how a job is to be run. What is zero is left to the payload's own [Defaulter], then to the client's
// [ClientOptions], then to what is written here.
//
// Zero fields mean the default; new(0) is how to ask for a priority of 0 or for no retries where the default is another.
//
// A duration that is over already, as time.Until says of a moment that has passed, is no mistake: a negative Delay or Backoff
// means no wait, and a Timeout or UniqueFor of less than a microsecond is a microsecond.
type EnqueueOptions struct {
	// Queue is where the job waits: "default".
	Queue string
	// Priority is −9 to 9; the higher goes first: 0, which is in the middle.
	Priority *int
	// Tags are for people, and for filters.
	Tags []string

	// Delay makes the job due so much later by the store's clock, RunAt at a time; both together are refused.
	Delay time.Duration
	RunAt time.Time

	// MaxRetries is how many runs may follow the first: 20.
	MaxRetries *int
	// Backoff is the wait before each retry: one second, doubled each time, up to an hour, less up to 10 %. What it leaves out is
	// taken from that, field by field, so that the cap is no less than the base. A negative jitter means none.
	Backoff Backoff
	// Timeout is how long a run may take: what the server says, which is 15 minutes.
	Timeout time.Duration

	// UniqueKey keeps a second job with the same key out, whatever its queue and kind: while the first one is live, or
	// for UniqueFor from its enqueueing. It is no mutual exclusion: when the first one was cancelled or has lost its lease,
	// its handler may still run for a while.
	UniqueKey string
	UniqueFor time.Duration

	// RequestKey makes the call safe to repeat for a day: a repeat adds nothing and returns the first answer. It belongs
	// to the call: for several jobs it stands in [ManyOptions], and among defaults it means nothing.
	RequestKey string

	// Trace is the W3C traceparent of whoever enqueues. A middleware sets it.
	Trace string
}

// What EnqueueOptions are where nobody says anything.
const (
	DefaultQueue      = "default"
	DefaultMaxRetries = 20
)

// DefaultBackoff is one second, doubled each time, up to an hour, less up to 10 %.
var DefaultBackoff = Backoff{Base: time.Second, Cap: time.Hour, Jitter: 10}

var defaults = EnqueueOptions{Queue: DefaultQueue, Priority: new(0), MaxRetries: new(DefaultMaxRetries), Backoff: DefaultBackoff}

// or is the options with what they leave out taken from others.
func (o EnqueueOptions) or(other EnqueueOptions) EnqueueOptions {
	if o.Delay == 0 && o.RunAt.IsZero() {
		o.Delay, o.RunAt = other.Delay, other.RunAt
	}
	if o.UniqueKey == "" {
		o.UniqueKey = other.UniqueKey
	}
	orElse(&o.Queue, other.Queue)
	orElse(&o.Priority, other.Priority)
	orElse(&o.MaxRetries, other.MaxRetries)
	orElse(&o.Backoff.Base, other.Backoff.Base)
	orElse(&o.Backoff.Cap, other.Backoff.Cap)
	orElse(&o.Backoff.Jitter, other.Backoff.Jitter)
	orElse(&o.Timeout, other.Timeout)
	orElse(&o.UniqueFor, other.UniqueFor)
	orElse(&o.Trace, other.Trace)
	if o.Tags == nil {
		o.Tags = other.Tags
	}
	return o
}

func orElse[T comparable](field *T, other T) {
	var zero T
	if *field == zero {
		*field = other
	}
}

// newJob is the job as it goes to the store. The item is its index in the call.
func newJob(item int, p Payload, o EnqueueOptions, client EnqueueOptions) (NewJob, error) {
	if v := reflect.ValueOf(p); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return NewJob{}, &InvalidError{Item: item, Field: "payload", Rule: "must not be nil: it names the kind of the job"}
	}
	doc, err := document(p)
	if err != nil {
		return NewJob{}, &InvalidError{Item: item, Field: "payload", Rule: fmt.Sprintf("of kind %q is no JSON: %v", p.Kind(), err)}
	}
	if d, ok := p.(Defaulter); ok {
		o = o.or(d.Defaults())
	}
	o = o.or(client)
	orElse(&o.Backoff.Cap, max(DefaultBackoff.Cap, o.Backoff.Base))
	orElse(&o.Backoff.Base, min(DefaultBackoff.Base, o.Backoff.Cap))
	o = o.or(defaults)
	if !o.RunAt.IsZero() && o.Delay != 0 {
		return NewJob{}, &InvalidError{Item: item, Field: "delay", Rule: "and run_at exclude each other"}
	}
	return NewJob{
		Queue: o.Queue, Kind: p.Kind(), Payload: doc, Priority: *o.Priority, Tags: o.Tags, Trace: o.Trace,
		RunAt: o.RunAt, Delay: max(0, o.Delay), MaxRetries: *o.MaxRetries, Timeout: leastOf(o.Timeout),
		Backoff:   Backoff{Base: max(0, o.Backoff.Base), Cap: max(0, o.Backoff.Cap), Jitter: max(0, o.Backoff.Jitter)},
		UniqueKey: o.UniqueKey, UniqueFor: leastOf(o.UniqueFor),
	}, nil
}

// leastOf keeps a duration that is over, or nearly, from becoming zero: that would mean a default, which is longer.
func leastOf(d time.Duration) time.Duration {
	if d == 0 {
		return 0
	}
	return max(d, store.Resolution)
}

func document(v any) ([]byte, error) {
	switch raw := v.(type) {
	case Raw:
		return raw.Document, nil // the store refuses what is no JSON
	case *Raw:
		return raw.Document, nil
	case json.RawMessage:
		if !json.Valid(raw) {
			return nil, errors.New("it is a json.RawMessage of something else")
		}
		return raw, nil
	}
	return json.Marshal(v)
}

// kindOf is the kind of a payload type, by a value of it that is not nil.
func kindOf[P Payload]() string {
	var p P
	t := reflect.TypeFor[P]()
	switch t.Kind() {
	case reflect.Interface:
		panic(fmt.Sprintf("jq: %v is no type of payload but many: register a handler for each kind", t))
	case reflect.Pointer:
		p = reflect.New(t.Elem()).Interface().(P)
	}
	kind := p.Kind()
	if kind == "" {
		panic(fmt.Sprintf("jq: %v does not know its kind without a value: register its handler by Func", t))
	}
	return kind
}

// Result is the result of a job that has succeeded.
func Result[T any](j Job) (T, error) {
	var result T
	if j.State != Succeeded {
		return result, fmt.Errorf("jq: job %d has no result: it is %s", j.ID, j.Phase())
	}
	if err := json.Unmarshal(j.Result, &result); err != nil {
		return result, fmt.Errorf("jq: the result of job %d is no %T: %w", j.ID, result, err)
	}
	return result, nil
}

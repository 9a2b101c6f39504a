package jq

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Payload is the data of a job. Its type names the kind of the job, so that the compiler checks both the code that enqueues
// and the handler. Its value is stored as JSON.
//
//	type Welcome struct{ Name string }
//
//	func (Welcome) Kind() string { return "welcome" }
//
// The kind is stored with the job, so do not change it when you rename the type.
type Payload interface {
	Kind() string // selects the handler; Handle asks a zero value for it
}

// A Defaulter is a payload that sets options for all jobs of its kind, such as a queue or a retry policy.
type Defaulter interface {
	Payload
	Defaults() EnqueueOptions // what a call leaves open
}

// Raw is a payload whose kind is known only when the program runs. The document is JSON and is kept byte for byte.
type Raw struct {
	Name     string          // the kind
	Document json.RawMessage // the payload
}

// Kind returns the name.
func (r Raw) Kind() string { return r.Name }

// EnqueueOptions configures one job. For a field that is zero, the payload's own [Defaulter] is asked, then the client's
// [ClientOptions], then the default that stands below applies. Where zero is not the default, set a pointer to it: new(0) means
// a priority of 0, or no retries.
//
// A duration that has run out is allowed, because time.Until returns one for a moment that has passed. A negative Delay or
// Backoff means no wait, and a Timeout or UniqueFor of less than a microsecond means a microsecond.
type EnqueueOptions struct {
	// Queue is the queue of the job. Default: "default".
	Queue string
	// Priority is −9 to 9. Jobs with a higher one go first. It must be 0 for a job with a LimitKey in a queue that is Ordered. Default: 0.
	Priority *int
	// Tags are labels, for people and for filters.
	Tags []string

	// Delay makes the job due this long from now by the store's clock, RunAt at a time. If you set both, the call is refused.
	// Default: due at once.
	Delay time.Duration
	RunAt time.Time

	// ExpiresAt is the time from which on nobody may start the job: one that still waits then is cancelled, and frees its unique
	// key. A run that has begun goes on, but a retry is a start too. It must be later than the time at which the job becomes
	// due. Default: never.
	ExpiresAt time.Time

	// MaxRetries is how many runs may follow the first. Default: 20.
	MaxRetries *int
	// Backoff is the wait before each retry. Default: one second, doubled each time, up to an hour, less up to 10 %. Each field
	// has its default where it is zero, but the cap is never below the base. A negative jitter means none.
	Backoff Backoff
	// Timeout is how long a run may take. Default: the server's Timeout, 15 minutes.
	Timeout time.Duration

	// UniqueKey keeps out a second job with the same key, in any queue and of any kind: while the first one is live, or for
	// UniqueFor from its enqueueing. It is not mutual exclusion: when the first one is cancelled or loses its lease, its
	// handler may run on for a while.
	UniqueKey string
	UniqueFor time.Duration
	// Replace, with a UniqueKey, makes a job that waits take this job's place: if the one that holds the key has the same queue,
	// kind, group and limit key and is blocked, ready or retrying, it gets this one's payload, priority, due time and ExpiresAt, and
	// begins without a checkpoint. The answer says Duplicate and Replaced. If the holder runs or has ended, nothing changes.
	Replace bool

	// After are the jobs and groups that the job waits for: at most 64, a job by its ID or, in EnqueueMany, as an earlier Item. It is
	// Blocked until each of them has succeeded or, with Any, has ended. If one that it needs is cancelled, so is the job. In defaults it
	// has no effect. A [Flow] or a [Batch] sets it for you.
	After []Wait
	// Group is the group that the job is in. Others can wait for all jobs of a group. A group exists as soon as a job is in it, so each run
	// needs a name of its own. In defaults it has no effect. A [Batch] sets it for you.
	Group string

	// LimitKey is what the job counts for under a limit for each key, such as the customer whose job it is: if the policy of the queue
	// sets MaxPerKey, at most so many jobs of the queue with the same key are in flight at once, if it is Fair, the keys take turns, and
	// if it is Ordered, the jobs with the same key run one at a time, in the order of their ids. Without such a policy it has no effect.
	// A job without a key counts only for MaxInFlight, has no order, and takes turns as if all such jobs had the same key. Default: no
	// key.
	LimitKey string

	// RequestKey makes the call safe to repeat for a day: a repeat adds nothing and returns the first answer. It belongs to a
	// call: for several jobs set it in [EnqueueManyOptions]. In defaults it has no effect.
	RequestKey string

	// Trace is the W3C traceparent of the caller. A middleware sets it.
	Trace string
}

// What [EnqueueOptions] and a [Defaulter] leave open.
const (
	DefaultQueue      = "default" // the queue of a job for which nobody chose one
	DefaultMaxRetries = 20        // how often such a job is retried, before it is dead
)

// DefaultBackoff is one second, doubled each time, up to an hour, shortened by up to 10 % at random.
var DefaultBackoff = Backoff{Base: time.Second, Cap: time.Hour, Jitter: 10}

var defaults = EnqueueOptions{Queue: DefaultQueue, Priority: new(0), MaxRetries: new(DefaultMaxRetries), Backoff: DefaultBackoff}

// or returns the options, with zero fields taken from other.
func (o EnqueueOptions) or(other EnqueueOptions) EnqueueOptions {
	if o.Delay == 0 && o.RunAt.IsZero() {
		o.Delay, o.RunAt = other.Delay, other.RunAt
	}
	orElse(&o.ExpiresAt, other.ExpiresAt)
	orElse(&o.UniqueKey, other.UniqueKey)
	orElse(&o.Replace, other.Replace)
	orElse(&o.LimitKey, other.LimitKey)
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

// newJob returns the job as the store gets it. item is its index in the call.
func newJob(item int, p Payload, o EnqueueOptions, client EnqueueOptions) (NewJob, error) {
	if v := reflect.ValueOf(p); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return NewJob{}, &InvalidError{Item: item, Field: "payload", Rule: "must not be nil: it names the kind of the job"}
	}
	doc, err := document(p)
	if err != nil {
		return NewJob{}, &InvalidError{Item: item, Field: "payload", Rule: fmt.Sprintf("of kind %q is not JSON: %v", p.Kind(), err)}
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
		UniqueKey: o.UniqueKey, UniqueFor: leastOf(o.UniqueFor), Replace: o.Replace, ExpiresAt: o.ExpiresAt, After: o.After, Group: o.Group,
		LimitKey: o.LimitKey,
	}, nil
}

// leastOf keeps a duration that has passed from becoming zero, which would mean a default that is longer.
func leastOf(d time.Duration) time.Duration {
	if d == 0 {
		return 0
	}
	return max(d, store.Resolution)
}

func document(v any) ([]byte, error) {
	switch raw := v.(type) {
	case Raw:
		return raw.Document, nil // the store checks that it is JSON
	case *Raw:
		return raw.Document, nil
	case json.RawMessage:
		if !json.Valid(raw) {
			return nil, errors.New("invalid json.RawMessage")
		}
		return raw, nil
	}
	return json.Marshal(v)
}

// kindOf returns the kind of a payload type, by a non-nil value of it.
func kindOf[P Payload]() string {
	var p P
	t := reflect.TypeFor[P]()
	switch t.Kind() {
	case reflect.Interface:
		panic(fmt.Sprintf("jq: %v is an interface: register a handler for each kind", t))
	case reflect.Pointer:
		p = reflect.New(t.Elem()).Interface().(P)
	}
	kind := p.Kind()
	if kind == "" {
		panic(fmt.Sprintf("jq: %v needs a value to know its kind: register its handler by Func", t))
	}
	return kind
}

// Result returns the result of a job that has succeeded.
func Result[T any](j Job) (T, error) {
	var result T
	if j.State != Succeeded {
		return result, fmt.Errorf("jq: job %d has no result: it is %s", j.ID, j.Phase())
	}
	if err := json.Unmarshal(j.Result, &result); err != nil {
		return result, fmt.Errorf("jq: the result of job %d does not decode into %T: %w", j.ID, result, err)
	}
	return result, nil
}

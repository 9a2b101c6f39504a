package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// is reports whether the bearer has one of the roles. Without tokens there is no bearer, and everybody may do everything.
func (b *bearer) is(roles ...Role) bool {
	return b == nil || slices.ContainsFunc(roles, func(r Role) bool { return slices.Contains(b.roles, r) })
}

// limited reports whether the bearer sees only a part of the store.
func (b *bearer) limited() bool { return b != nil && (len(b.Queues) > 0 || b.KeyPrefix != "") }

// sees reports whether the bearer may see the queue.
func (b *bearer) sees(queue string) bool { return b == nil || store.QueueMatches(b.Queues, queue) }

// seesWorker reports whether the worker serves a queue that the bearer may see.
func (b *bearer) seesWorker(w store.Worker) bool {
	return b == nil || len(b.Queues) == 0 || slices.ContainsFunc(w.Queues, b.sees)
}

// tells reports whether the bearer may get the event. The queue of a job is unknown if the job was claimed, or is changed by
// its id, through another server. Audit events are for operators without limits.
func (b *bearer) tells(e Event) bool {
	if e.act != nil {
		return b.is(Operator) && !b.limited()
	}
	return b == nil || len(b.Queues) == 0 || e.Queue != "" && b.sees(e.Queue)
}

// needs refuses queues that the bearer may not use.
func (b *bearer) needs(field string, queues ...string) error {
	for _, q := range queues {
		if !b.sees(q) {
			return notYours(field, fmt.Sprintf("the token is for the queues %s", strings.Join(b.Queues, ", ")))
		}
	}
	return nil
}

// needsKey refuses a key that the bearer may not use. An empty key means no key.
func (b *bearer) needsKey(field, key string) error {
	if key == "" || strings.HasPrefix(key, b.KeyPrefix) {
		return nil
	}
	return notYours(field, fmt.Sprintf("the token is for keys that begin with %q", b.KeyPrefix))
}

// needsAll refuses a request with queues or keys that the bearer may not use.
func (b *bearer) needsAll(req store.EnqueueRequest) error {
	if !b.limited() {
		return nil
	}
	if !wire.IsRandomKey(req.RequestKey) {
		if err := b.needsKey("request_key", req.RequestKey); err != nil {
			return err
		}
	}
	for i, n := range req.Jobs {
		if err := b.needs("queue", n.Queue); err != nil {
			return atItem(err, i)
		}
		if err := b.needsKey("unique_key", n.UniqueKey); err != nil {
			return atItem(err, i)
		}
		if err := b.needsKey("limit_key", n.LimitKey); err != nil {
			return atItem(err, i)
		}
		if n.Group != "" {
			if err := b.needsGroup("group", n.Group); err != nil {
				return atItem(err, i)
			}
		}
		for _, w := range n.After {
			if w.Group == "" {
				continue
			}
			if err := b.needsGroup("after", w.Group); err != nil {
				return atItem(err, i)
			}
		}
	}
	for _, name := range req.Open {
		if err := b.needsGroup("open", name); err != nil {
			return err
		}
	}
	return nil
}

// hasGroup reports whether the bearer may use the group. A group may have jobs of every queue. So it belongs to those who may use its name
// as a key, and a bearer for certain queues needs a prefix of its own.
func (b *bearer) hasGroup(name string) bool {
	return !b.limited() || b.KeyPrefix != "" && strings.HasPrefix(name, b.KeyPrefix)
}

// needsGroup refuses a group that the bearer may not use.
func (b *bearer) needsGroup(field, name string) error {
	switch {
	case b.hasGroup(name):
		return nil
	case b.KeyPrefix == "":
		return notYours(field, "a group may have jobs of every queue: a token for certain queues needs a key_prefix for its groups")
	default:
		return notYours(field, fmt.Sprintf("the token is for groups that begin with %q", b.KeyPrefix))
	}
}

// needsSchedule refuses a schedule whose job the bearer may not enqueue.
func (b *bearer) needsSchedule(s store.Schedule) error {
	if err := b.needs("job.queue", s.Job.Queue); err != nil {
		return err
	}
	if err := b.needsKey("job.unique_key", s.Job.UniqueKey); err != nil {
		return err
	}
	return b.needsKey("job.limit_key", s.Job.LimitKey)
}

func notYours(field, rule string) error {
	f := notForThis
	f.Field, f.Detail = field, rule
	return f
}

// atItem adds to the error which item of the call it is about.
func atItem(err error, item int) error {
	if f, ok := err.(wire.Fail); ok { //nolint:errorlint // notYours has just made it
		f.Item = &item
		return f
	}
	return err
}

type bearerKey struct{}

// with adds the bearer to the request's context, if the bearer is limited.
func (b *bearer) with(r *http.Request) *http.Request {
	if !b.limited() {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), bearerKey{}, b))
}

// as returns the store, or a view of it if the caller is limited.
func (a *API) as(ctx context.Context) store.Store {
	if b, ok := ctx.Value(bearerKey{}).(*bearer); ok {
		return &view{api: a, of: a.store, bearer: b}
	}
	return a.store
}

// redact removes from an answer what its reader does not need. Documents can hold personal data, and anyone with the token of
// a lease can finish its job, so only workers and operators get them. A producer also gets results.
func (b *bearer) redact(answer any) any {
	if b.is(Operator) {
		return answer
	}
	switch answer := answer.(type) {
	case wire.Jobs:
		for i := range answer.Jobs {
			b.redactJob(&answer.Jobs[i])
		}
	case jobAnswer:
		b.redactJob(&answer.JobJSON)
		for i := range answer.History {
			answer.History[i].Token = 0
		}
		for i := range answer.Refused {
			answer.Refused[i].Token = 0
		}
		return answer
	case wire.SchedulePage:
		for i, s := range answer.Schedules {
			answer.Schedules[i] = s.Redact()
		}
	case wire.Schedule:
		return answer.Redact()
	}
	return answer
}

func (b *bearer) redactJob(j *wire.Job) {
	j.Redacted, j.Token = true, 0
	j.Payload, j.PayloadText, j.Checkpoint, j.CheckpointText = nil, nil, nil, nil
	if !b.is(Producer) {
		j.Result, j.ResultText = nil, nil
	}
}

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

// is says whether the bearer has one of the roles. Without tokens there is no bearer, and everybody may do everything.
func (b *bearer) is(roles ...Role) bool {
	return b == nil || slices.ContainsFunc(roles, func(r Role) bool { return slices.Contains(b.roles, r) })
}

// limited says whether the bearer sees a part of the store alone.
func (b *bearer) limited() bool { return b != nil && (len(b.Queues) > 0 || b.KeyPrefix != "") }

// sees says whether the queue is the bearer's.
func (b *bearer) sees(queue string) bool { return b == nil || store.QueueMatches(b.Queues, queue) }

// tells says whether the bearer may hear of the event. Of which queue a job is, the server does not know where it was claimed or is
// changed by its id elsewhere. What operators do is told to operators who see all.
func (b *bearer) tells(e Event) bool {
	if e.act != nil {
		return b.is(Operator) && !b.limited()
	}
	return b == nil || len(b.Queues) == 0 || e.Queue != "" && b.sees(e.Queue)
}

// needs refuses queues that are not the bearer's.
func (b *bearer) needs(field string, queues ...string) error {
	for _, q := range queues {
		if !b.sees(q) {
			return notYours(field, fmt.Sprintf("the token is for the queues %s", strings.Join(b.Queues, ", ")))
		}
	}
	return nil
}

// needsKey refuses keys that are not the bearer's. What is empty is no key.
func (b *bearer) needsKey(field, key string) error {
	if key == "" || strings.HasPrefix(key, b.KeyPrefix) {
		return nil
	}
	return notYours(field, fmt.Sprintf("the token is for keys that begin with %q", b.KeyPrefix))
}

// needsAll refuses jobs for queues and under keys that are not the bearer's.
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
	}
	return nil
}

func notYours(field, rule string) error {
	f := notForThis
	f.Field, f.Detail = field, rule
	return f
}

// atItem says which item of a call an error is about.
func atItem(err error, item int) error {
	if f, ok := err.(wire.Fail); ok { //nolint:errorlint // it was just made
		f.Item = &item
		return f
	}
	return err
}

type bearerKey struct{}

// with is the request of a bearer who sees a part of the store. Others need no note of who they are.
func (b *bearer) with(r *http.Request) *http.Request {
	if !b.limited() {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), bearerKey{}, b))
}

// as is the store as whoever makes the call may use it.
func (a *API) as(ctx context.Context) store.Store {
	if b, ok := ctx.Value(bearerKey{}).(*bearer); ok {
		return &view{api: a, of: a.store, bearer: b}
	}
	return a.store
}

// redact takes out of an answer what its reader does not need. Documents can hold secrets of the people whose jobs they are, and with
// the token of a lease its job can be finished: both are for who works on the job, and for operators. A producer waits for results.
func (b *bearer) redact(answer any) any {
	if b.is(Operator) {
		return answer
	}
	switch answer := answer.(type) {
	case wire.Jobs:
		for i := range answer.Jobs {
			b.redactJob(&answer.Jobs[i])
		}
	case wire.JobDetail:
		b.redactJob(&answer.Job)
		for i := range answer.History {
			answer.History[i].Token = 0
		}
		return answer
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

package conformance_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/store"
)

// unwritten is a store as authors begin with it: no method does anything yet.
type unwritten struct{}

var errUnwritten = errors.ErrUnsupported

func (unwritten) Enqueue(context.Context, store.EnqueueRequest) ([]store.Enqueued, error) {
	return nil, errUnwritten
}

func (unwritten) Ack(context.Context, []store.Ack) ([]store.Outcome, error) {
	return nil, errUnwritten
}

func (unwritten) NAck(context.Context, []store.NAck) ([]store.Outcome, error) {
	return nil, errUnwritten
}

func (unwritten) FetchAndClaim(context.Context, store.ClaimRequest) ([]store.Job, error) {
	return nil, errUnwritten
}

func (unwritten) Extend(context.Context, []store.Lease, time.Duration) ([]store.Outcome, error) {
	return nil, errUnwritten
}

func (unwritten) Save(context.Context, []store.Save) ([]store.Outcome, error) {
	return nil, errUnwritten
}

func (unwritten) RecoverExpiredLeases(context.Context, store.RecoverRequest) ([]store.Recovered, error) {
	return nil, errUnwritten
}

func (unwritten) Settle(context.Context, int) ([]store.Settled, error) { return nil, errUnwritten }

func (unwritten) Get(context.Context, int64) (store.JobDetail, error) {
	return store.JobDetail{}, errUnwritten
}

func (unwritten) List(context.Context, store.Filter, store.Page) (store.JobPage, error) {
	return store.JobPage{}, errUnwritten
}

func (unwritten) Count(context.Context, store.Filter) (store.Counts, error) {
	return store.Counts{}, errUnwritten
}

func (unwritten) Cancel(context.Context, store.Filter, int) ([]store.Outcome, error) {
	return nil, errUnwritten
}

func (unwritten) Requeue(context.Context, store.Filter, int) ([]store.Outcome, error) {
	return nil, errUnwritten
}

func (unwritten) Reschedule(context.Context, store.Filter, time.Time, int) ([]store.Outcome, error) {
	return nil, errUnwritten
}

func (unwritten) Delete(context.Context, store.Filter, int) ([]store.Outcome, error) {
	return nil, errUnwritten
}

func (unwritten) Close() error { return nil }

// Each case fails on a store that is not written yet, and ends: authors run the suite from the first day on.
func TestEachCaseFailsAnUnwrittenStoreAndEnds(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	a := conformance.Adapter{New: func(context.Context, clock.Clock) (*conformance.Instance, error) {
		return &conformance.Instance{Store: unwritten{}}, nil
	}}
	for _, k := range conformance.Cases() {
		result := conformance.Run(ctx, a, k)
		assert.True(t, result.Failed, "%s passes on a store that does nothing", k.Name)
		if !assert.False(t, result.Hung, "%s hangs on a store that does nothing", k.Name) {
			return
		}
	}
}

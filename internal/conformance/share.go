package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
)

// Fresh opens a fresh store of the adapter, whose clock begins as for a case; remove closes it and takes away what it has kept.
func Fresh(ctx context.Context, a Adapter) (s store.Store, clk *clock.Mock, remove func() error, err error) {
	clk = clock.NewMock()
	clk.Set(epoch)
	instance, err := a.New(ctx, clk)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("opening a fresh store: %w", err)
	}
	if instance.Remove == nil {
		return instance.Store, clk, instance.Store.Close, nil
	}
	return instance.Store, clk, instance.Remove, nil
}

// An Item is what is asked for under one lease.
type Item struct {
	Op store.Op
	store.Lease
	Delay    time.Duration
	Doc      []byte // result or checkpoint
	Progress []byte
	Seq      int64
	Error    string
}

// Under makes one call for all items. The operation says which; of those of NAck, each item may ask for another one.
func Under(ctx context.Context, s store.Store, op store.Op, ttl time.Duration, items []Item) ([]store.Outcome, error) {
	switch op {
	case store.OpExtend:
		return s.Extend(ctx, each(items, func(i Item) store.Lease { return i.Lease }), ttl)
	case store.OpSave:
		return s.Save(ctx, each(items, func(i Item) store.Save {
			return store.Save{Lease: i.Lease, Seq: i.Seq, Checkpoint: i.Doc, Progress: i.Progress}
		}))
	case store.OpAck:
		return s.Ack(ctx, each(items, func(i Item) store.Ack { return store.Ack{Lease: i.Lease, Result: i.Doc} }))
	default:
		return s.NAck(ctx, each(items, func(i Item) store.NAck {
			return store.NAck{Lease: i.Lease, Form: store.Form(i.Op), Delay: i.Delay, Error: i.Error}
		}))
	}
}

func each[T, U any](items []T, of func(T) U) []U {
	list := make([]U, len(items))
	for i, item := range items {
		list[i] = of(item)
	}
	return list
}

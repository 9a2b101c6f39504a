package kv_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

// An odd engine is one in memory that a test watches or breaks. What is nil stays as it is.
type odd struct {
	kv.Engine
	limits  kv.Limits
	tickets func(ctx context.Context, n int) ([]int64, error)
	view    func(ctx context.Context) (kv.View, error)
	read    func(ctx context.Context, v kv.View, ask []kv.Range) ([][]kv.Item, error)
	commit  func(ctx context.Context, v kv.View, c kv.Change) error
}

func (o *odd) Limits() kv.Limits { return o.limits }

func (o *odd) Tickets(ctx context.Context, n int) ([]int64, error) {
	if o.tickets != nil {
		return o.tickets(ctx, n)
	}
	return o.Engine.Tickets(ctx, n)
}

func (o *odd) View(ctx context.Context) (v kv.View, err error) {
	if o.view != nil {
		v, err = o.view(ctx)
	} else {
		v, err = o.Engine.View(ctx)
	}
	return &oddView{v, o}, err
}

type oddView struct {
	kv.View
	of *odd
}

func (v *oddView) Read(ctx context.Context, ask ...kv.Range) ([][]kv.Item, error) {
	if v.of.read != nil {
		return v.of.read(ctx, v.View, ask)
	}
	return v.View.Read(ctx, ask...)
}

func (v *oddView) Commit(ctx context.Context, c kv.Change) error {
	if v.of.commit != nil {
		return v.of.commit(ctx, v.View, c)
	}
	return v.View.Commit(ctx, c)
}

// A trips counts the calls of an engine.
type trips struct{ tickets, views, reads, commits atomic.Int64 }

func (t *trips) take() [4]int64 {
	return [4]int64{t.tickets.Swap(0), t.views.Swap(0), t.reads.Swap(0), t.commits.Swap(0)}
}

// counting returns an engine that counts.
func counting(db *memkv.DB) (kv.Engine, *trips) {
	t := &trips{}
	e := db.Connect()
	return &odd{
		Engine:  e,
		tickets: func(ctx context.Context, n int) ([]int64, error) { t.tickets.Add(1); return e.Tickets(ctx, n) },
		view:    func(ctx context.Context) (kv.View, error) { t.views.Add(1); return e.View(ctx) },
		read: func(ctx context.Context, v kv.View, ask []kv.Range) ([][]kv.Item, error) {
			t.reads.Add(1)
			return v.Read(ctx, ask...)
		},
		commit: func(ctx context.Context, v kv.View, c kv.Change) error { t.commits.Add(1); return v.Commit(ctx, c) },
	}, t
}

// A sometimes is true once in so many times on average.
type sometimes struct {
	mu     sync.Mutex
	every  int
	random *rand.Rand
}

func once(every int) *sometimes {
	return &sometimes{every: every, random: rand.New(rand.NewPCG(1, uint64(every)))}
}

func (s *sometimes) now() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(s.every) == 0
}

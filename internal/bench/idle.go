package bench

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/store"
)

// idling measures what an idle worker costs, and then how much memory jobs in flight take.
//
// It is a normal worker, so it stays in the list of workers for a day.
func idling(ctx context.Context, r *run) (parts []Part, err error) {
	r = r.beside("flight")
	r.o.Concurrency, r.o.Buffer = r.o.Jobs, 0
	defer func() { err = errors.Join(err, r.farewell(ctx), r.remove(ctx)) }()
	g, t := newGate(r.o.Jobs), newTally()
	w, err := r.workAs(r.store, kind, g.wait, t)
	if err != nil {
		return nil, err
	}
	defer stopped(ctx, w, &err)
	defer g.release()
	if err := w.server.Start(ctx); err != nil {
		return nil, err
	}
	idle, err := r.idle(ctx)
	if err != nil {
		return nil, err
	}
	flight, err := r.flight(ctx, g)
	if err != nil {
		return nil, err
	}
	if err := w.await(ctx, int64(r.o.Jobs)); err != nil {
		return nil, err
	}
	if err := w.stop(ctx); err != nil {
		return nil, err
	}
	return []Part{{"idle", idle}, {"in flight", flight}}, r.verify(ctx, map[jq.State]int64{jq.Succeeded: int64(r.o.Jobs)})
}

// idle measures for the duration of the run without jobs, once the worker has settled.
func (r *run) idle(ctx context.Context) ([]Figure, error) {
	if err := sleep(ctx, min(time.Second, r.o.Duration/10)); err != nil {
		return nil, err
	}
	none := func() int64 { return 0 }
	m, err := r.measure(ctx, none, ofTime("idle", none, r.o.Duration))
	if err != nil {
		return nil, err
	}
	defer m.halt()
	if err := sleep(ctx, r.o.Duration); err != nil {
		return nil, err
	}
	return m.perSecond(ctx)
}

// flight measures the memory of jobs in flight, including the stacks of their handlers. In the memory store it includes the
// jobs themselves.
func (r *run) flight(ctx context.Context, g *gate) ([]Figure, error) {
	defer g.release()
	before := memory()
	if err := r.fill(ctx, r.o.Jobs, nil); err != nil {
		return nil, err
	}
	if err := g.await(ctx); err != nil {
		return nil, err
	}
	grown := float64(memory()) - float64(before)
	return []Figure{
		{"jobs", "", float64(r.o.Jobs)},
		{"memory", "MiB/1000 jobs", grown / (1 << 20) / float64(r.o.Jobs) * 1000},
	}, nil
}

// memory returns the memory in use by the heap and the stacks.
func memory() uint64 {
	runtime.GC()
	runtime.GC() // the second one frees what pools have kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// farewell removes the stopped worker, so that nobody takes it for one that has failed.
func (r *run) farewell(ctx context.Context) error {
	registry, ok := r.store.(store.Registry)
	if !ok {
		return nil
	}
	err := registry.Beat(context.WithoutCancel(ctx), jq.Worker{Name: kind, StaleAfter: store.WorkerLife})
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// A gate holds handlers until it is opened.
type gate struct {
	room    int64
	waiting atomic.Int64
	full    chan struct{} // closed when that many are waiting
	open    chan struct{}
	release func()
}

func newGate(room int) *gate {
	g := &gate{room: int64(room), full: make(chan struct{}), open: make(chan struct{})}
	g.release = sync.OnceFunc(func() { close(g.open) })
	return g
}

// wait is the handler.
func (g *gate) wait(ctx context.Context, _ *jq.Run) error {
	if g.waiting.Add(1) == g.room {
		close(g.full)
	}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// await waits until all handlers wait.
func (g *gate) await(ctx context.Context) error {
	late := time.NewTimer(stuck)
	defer late.Stop()
	select {
	case <-g.full:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return errors.New("the run does not count: not all jobs have begun within " + stuck.String())
	}
}

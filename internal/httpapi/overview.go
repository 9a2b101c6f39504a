package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/sample"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/timeout"
	"github.com/seed-ed332417/jq/internal/wire"
)

// The times of an overview. It waits a little for a count, and so gets the quick ones. A count is reused for a moment, longer if
// it took long: counting takes at most a tenth of the time. What the store answers quickly is shared for a shorter moment, so
// that a page that reads again after an event shows what has changed.
const (
	quickCount = 25 * time.Millisecond
	countAge   = 500 * time.Millisecond
	briefAge   = 250 * time.Millisecond
	oldBrief   = 10 * time.Second // beyond this, an overview waits for a store that does not answer quickly
)

type (
	overviewAnswer struct {
		Now        wire.Time       `json:"now"`
		CountedAt  wire.Time       `json:"counted_at,omitzero"`
		CountTook  *wire.Duration  `json:"count_took,omitempty"`
		CountError string          `json:"count_error,omitempty"`
		Queues     []queueOverview `json:"queues"`
		Workers    *workerOverview `json:"workers,omitempty"`
	}
	queueOverview struct {
		Queue     string                `json:"queue"`
		Paused    *bool                 `json:"paused,omitempty"`
		OldestDue wire.Time             `json:"oldest_due,omitzero"`
		Due       *int64                `json:"due,omitempty"`
		Jobs      map[store.State]int64 `json:"jobs,omitzero"` // empty, but not nil, if the queue was counted without jobs

		MaxInFlight int       `json:"max_in_flight,omitzero"`
		MaxPerKey   int       `json:"max_per_key,omitzero"`
		Rate        wire.Rate `json:"rate,omitzero"`
		Fair        bool      `json:"fair,omitzero"`
		Ordered     bool      `json:"ordered,omitzero"`
		HeldBack    int64     `json:"held_back,omitzero"` // of Due, by MaxInFlight
	}
	workerOverview struct {
		Alive   int `json:"alive"`
		Stale   int `json:"stale"`
		Slots   int `json:"slots"`   // of those alive
		Running int `json:"running"` // likewise
	}
)

// samples are what overviews show. It is read once for all callers, and each sees the part of its token.
type samples struct {
	due     *sample.Sampler[store.Due]
	queues  *sample.Sampler[[]store.Queue]
	workers *sample.Sampler[*crew]
	counts  *sample.Sampler[fullCount]
}

// A crew is what overviews show of the workers.
type crew struct {
	all  workerOverview
	each []store.Worker // for tokens that are limited to queues, without names
}

// maxCrew is about how many bytes the workers of a crew may take up. Workers beyond that are counted only in all: whoever has the token of
// a worker can register any number, with any names.
const (
	maxCrew      = 16 << 20
	sizeOfWorker = 200 // besides its names
	sizeOfName   = 32  // besides its bytes
)

// A fullCount is a count of all jobs, with the time that the store took for it.
type fullCount struct {
	store.Counts
	took time.Duration
}

func newSamples(a *API) samples {
	brief := sample.Options{Life: a.options.CallTimeout, MaxAge: briefAge, Clock: a.clock}
	return samples{
		due:     sample.New(untilClosed(a, a.readDue), brief),
		queues:  sample.New(untilClosed(a, a.readQueues), brief),
		workers: sample.New(untilClosed(a, a.readWorkers), brief),
		counts:  sample.New(untilClosed(a, a.countAll), sample.Options{Life: a.options.CallTimeout, MaxAge: countAge, Rest: sample.Tenth, Clock: a.clock}),
	}
}

// untilClosed ends the context of a call when the API is closed.
func untilClosed[A any](a *API, do func(context.Context) (A, error)) func(context.Context) (A, error) {
	return func(ctx context.Context) (A, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(a.life, cancel)()
		return do(ctx)
	}
}

func (s *samples) close() {
	s.due.Close()
	s.queues.Close()
	s.workers.Close()
	s.counts.Close()
}

// readDue returns at least the time of the store. The queues are nil if the store is not a Monitor.
func (a *API) readDue(ctx context.Context) (store.Due, error) {
	if monitor, ok := a.store.(store.Monitor); ok {
		if due, err := monitor.OldestDue(ctx); !errors.Is(err, errors.ErrUnsupported) {
			due.Queues = wire.Listed(due.Queues)
			return due, err
		}
	}
	now, err := store.Now(ctx, a.store)
	return store.Due{Now: now}, err
}

// readQueues returns nil if the store does not list its queues.
func (a *API) readQueues(ctx context.Context) ([]store.Queue, error) {
	keeper, ok := a.store.(store.QueueKeeper)
	if !ok {
		return nil, nil
	}
	queues, err := keeper.Queues(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	return wire.Listed(queues), err
}

// readWorkers returns nil if the store does not list workers.
func (a *API) readWorkers(ctx context.Context) (*crew, error) {
	registry, ok := a.store.(store.Registry)
	if !ok {
		return nil, nil
	}
	found, room := &crew{}, maxCrew
	err := store.EachWorker(ctx, registry, func(w store.Worker) {
		found.all.add(w)
		if room -= w.Weight() + len(w.Queues)*sizeOfName + sizeOfWorker; room >= 0 {
			found.each = append(found.each, store.Worker{Queues: w.Queues, Slots: w.Slots, Running: w.Running, Stale: w.Stale})
		}
	})
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	return found, err
}

// countAll counts all jobs. It takes a turn, as every count does, and leaves the wait for it out of the time that it took.
func (a *API) countAll(ctx context.Context) (fullCount, error) {
	if err := a.all.reads.wait(ctx); err != nil {
		return fullCount{}, err
	}
	defer a.all.reads.leave()
	began := a.clock.Now()
	counts, err := a.store.Count(ctx, store.Filter{})
	if err != nil && a.life.Err() == nil {
		a.log.Warn("jq: the jobs can not be counted for the overview", "error", err)
	}
	return fullCount{counts, a.clock.Since(began)}, err
}

// overview answers how the queues and workers are, and waits for no long count. It takes no turn: the overviews of all callers
// together make one call of each kind at a time.
func (a *API) overview(w *exchange, r *http.Request) error {
	done, err := a.lasting()
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := a.within(r.Context())
	defer cancel()
	answer, err := a.survey(ctx, w.bearer)
	if err != nil {
		return err
	}
	text, err := w.encode(answer)
	if err != nil {
		return err
	}
	return a.send(w, http.StatusOK, wire.JSON, text)
}

func (a *API) survey(ctx context.Context, b *bearer) (overviewAnswer, error) {
	quick, cancel := timeout.Of(ctx, a.clock, quickCount) // before the count begins, so that the wait for it is no longer than this
	defer cancel()
	counting := a.samples.counts.Ask()
	a.samples.queues.Ask() // all calls run at the same time
	a.samples.workers.Ask()
	due, dueErr := recent(ctx, quick, a, a.samples.due)
	queues, queuesErr := recent(ctx, quick, a, a.samples.queues)
	workers, workersErr := recent(ctx, quick, a, a.samples.workers)
	if err := cmp.Or(dueErr, queuesErr, workersErr); err != nil {
		return overviewAnswer{}, err
	}
	sample.Wait(quick, counting)
	latest, counts := a.samples.counts.Answers()

	answer := overviewAnswer{
		Now:     wire.Time{Time: due.Value.Now.Add(a.clock.Since(due.Began).Truncate(store.Resolution))},
		Queues:  queuesFor(b, due.Value, queues.Value, counts.Value.Counts),
		Workers: workersFor(b, workers.Value),
	}
	if latest.Err != nil {
		answer.CountError = a.vague(wire.FailOf(latest.Err), latest.Err).Error()
	}
	if counts.Known() {
		took := wire.Duration(counts.Value.took)
		answer.CountedAt, answer.CountTook = wire.Time{Time: counts.Value.Now}, &took
	}
	return answer, nil
}

// recent returns the newest answer, or the one before if the store does not answer quickly and that is not old.
func recent[A any](ctx, quick context.Context, a *API, s *sample.Sampler[A]) (sample.Answer[A], error) {
	asked := s.Ask()
	if !sample.Wait(quick, asked) {
		if _, good := s.Answers(); good.Known() && a.clock.Since(good.Began) <= oldBrief {
			return good, nil
		}
		if !sample.Wait(ctx, asked) {
			return sample.Answer[A]{}, fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
		}
	}
	latest, _ := s.Answers()
	return latest, latest.Err
}

// queuesFor lists the queues that the bearer may see: those with jobs when they were counted, those that the store lists, and
// those with a due job now. The counts are zero if there are none yet.
func queuesFor(b *bearer, due store.Due, queues []store.Queue, counts store.Counts) []queueOverview {
	by := map[string]queueOverview{}
	of := func(queue string) (queueOverview, bool) {
		one, known := by[queue]
		if !known {
			one.Queue = queue
			if queues != nil {
				one.Paused = new(bool)
			}
			if !counts.Now.IsZero() {
				one.Due, one.Jobs = new(int64), map[store.State]int64{}
			}
		}
		return one, b.sees(queue)
	}
	for _, q := range counts.Queues {
		if one, sees := of(q.Queue); sees {
			one.Due, one.Jobs = &q.Due, q.Jobs
			if due.Queues == nil {
				one.OldestDue = wire.Time{Time: q.OldestDue}
			}
			by[q.Queue] = one
		}
	}
	for _, q := range queues {
		if one, sees := of(q.Name); sees {
			one.Paused, one.MaxInFlight, one.MaxPerKey = &q.Paused, q.Policy.MaxInFlight, q.Policy.MaxPerKey
			one.Fair, one.Ordered = q.Policy.Fair, q.Policy.Ordered
			one.Rate = wire.Rate{N: q.Policy.Rate.N, Per: wire.Duration(q.Policy.Rate.Per)}
			if one.Due != nil {
				one.HeldBack = *one.Due - int64(q.Policy.Room(int(*one.Due), int(one.Jobs[store.InFlight])))
			}
			by[q.Name] = one
		}
	}
	for _, q := range due.Queues {
		if one, sees := of(q.Queue); sees {
			one.OldestDue = wire.Time{Time: q.OldestDue}
			by[q.Queue] = one
		}
	}
	list := make([]queueOverview, 0, len(by))
	for _, name := range slices.Sorted(maps.Keys(by)) {
		list = append(list, by[name])
	}
	return list
}

// add counts the worker.
func (o *workerOverview) add(w store.Worker) {
	if w.Stale {
		o.Stale++
		return
	}
	o.Alive++
	o.Slots += w.Slots
	o.Running += w.Running
}

// workersFor counts the workers that the bearer may see. It returns nil if the store does not list workers.
func workersFor(b *bearer, workers *crew) *workerOverview {
	switch {
	case workers == nil:
		return nil
	case b == nil || len(b.Queues) == 0:
		return &workers.all
	}
	var seen workerOverview
	for _, w := range workers.each {
		if b.seesWorker(w) {
			seen.add(w)
		}
	}
	return &seen
}

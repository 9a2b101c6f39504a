// Package alone measures the goals that are about jq alone: P8 to P12, P15, P16, R91 and R95.
package alone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/bench/internal/report"
	"github.com/seed-ed332417/jq/bench/internal/site"
	"github.com/seed-ed332417/jq/internal/bench"
	"github.com/seed-ed332417/jq/postgres"
	"github.com/seed-ed332417/jq/sqlite"
)

// Options says what to measure, and for how long.
type Options struct {
	Goals    []string // some of those that the function Goals returns
	Rounds   int
	Jobs     int           // P8: how many other jobs the store has; ten times as many finished ones. P15: ten times the size of a batch. R91: how many jobs the largest key has
	Duration time.Duration // of a part; P12 takes sixty times as long, and R95 about seven times
	Progress io.Writer
}

// measures are in the order of the goals.
var measures = []struct {
	id, store string
	measure   func(context.Context, *play) ([]report.Goal, error)
}{
	{"P8", peer.Postgres, one(backlog)},
	{"P8", peer.SQLite, one(backlog)},
	{"P9", peer.Postgres, one(http)},
	{"P9", peer.SQLite, one(http)},
	{"P10", peer.Postgres, one(idle)},
	{"P10", peer.SQLite, one(idle)},
	{"P11", peer.Postgres, one(history)},
	{"P12", peer.Postgres, one(steady)},
	{"P15", peer.Postgres, flows},
	{"P15", peer.SQLite, flows},
	{"P16", peer.Postgres, stores},
	{"R91", peer.Postgres, keys},
	{"R91", peer.SQLite, keys},
	{"R95", peer.Postgres, fairness},
	{"R95", peer.SQLite, fairness},
	{"R95", peer.Memory, fairness},
}

// one is for goals with one line a store.
func one(measure func(context.Context, *play) (report.Goal, error)) func(context.Context, *play) ([]report.Goal, error) {
	return func(ctx context.Context, p *play) ([]report.Goal, error) {
		line, err := measure(ctx, p)
		return []report.Goal{line}, err
	}
}

// Goals returns the ids of all goals that this package measures.
func Goals() (ids []string) {
	for _, m := range measures {
		ids = append(ids, m.id)
	}
	return slices.Compact(ids)
}

// Run measures the goals in order, each on its stores. After an error it returns the finished ones.
func Run(ctx context.Context, s *site.Site, o Options) (lines []report.Goal, err error) {
	for _, id := range o.Goals {
		var mine []report.Goal
		for _, m := range measures {
			if m.id != id {
				continue
			}
			some, err := m.measure(ctx, &play{Options: o, site: s, store: m.store})
			if err != nil {
				return lines, fmt.Errorf("%s on %s: %w", id, m.store, err)
			}
			for _, line := range some {
				line.ID = id
				mine = append(mine, line)
				fmt.Fprintf(o.Progress, "%s on %s: %s  %s\n", id, m.store, line.JQ, line.Ratio)
			}
		}
		lines = append(lines, mine...)
	}
	return lines, nil
}

// A play is one goal on one store.
type play struct {
	Options
	site  *site.Site
	store string
}

// rounds runs the workload several times and returns the medians.
func (p *play) rounds(ctx context.Context, o bench.Options) (figures, error) {
	results, err := p.results(ctx, p.open, o)
	return figuresOf(bench.Summarize(results)), err
}

// results runs the workload several times, each time on a new store, which it deletes afterwards.
func (p *play) results(ctx context.Context, open opener, o bench.Options) (results []bench.Result, err error) {
	o.Keep = true
	for i := range p.Rounds {
		t, err := p.tryOn(ctx, open)
		if err != nil {
			return nil, err
		}
		err = t.round(func() (bench.Result, error) { return bench.Run(ctx, t.store, o) })
		if err = errors.Join(err, t.close()); err != nil {
			return nil, err
		}
		results = append(results, t.results...)
		fmt.Fprintf(p.Progress, "round %d of %d  %s on %s\n", i+1, p.Rounds, o.Workload, p.store)
	}
	return results, nil
}

// A try is rounds on one store.
type try struct {
	store   jq.Store
	close   func() error
	results []bench.Result
}

// try opens an empty store.
func (p *play) try(ctx context.Context) (*try, error) { return p.tryOn(ctx, p.open) }

// An opener opens the store of a place.
type opener func(context.Context, peer.Place) (jq.Store, error)

func (p *play) tryOn(ctx context.Context, open opener) (*try, error) {
	place, remove, err := p.site.Place(ctx, peer.Peer{Store: p.store})
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, place)
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	return &try{store: s, close: func() error { return errors.Join(s.Close(), remove()) }}, nil
}

// round measures one more round and keeps its result.
func (t *try) round(measure func() (bench.Result, error)) error {
	debug.FreeOSMemory() // from the previous run
	result, err := measure()
	if err != nil {
		return err
	}
	t.results = append(t.results, result)
	return nil
}

func (t *try) figures() figures { return figuresOf(bench.Summarize(t.results)) }

func (p *play) open(ctx context.Context, place peer.Place) (jq.Store, error) {
	switch p.store {
	case peer.Postgres:
		return postgres.Open(ctx, place.DSN, nil)
	case peer.Memory:
		return jq.NewMemory(nil), nil
	}
	return sqlite.Open(ctx, filepath.Join(place.Folder, "jobs.db"), nil)
}

// figures are medians, by part and name.
type figures map[[2]string]float64

func figuresOf(s bench.Summary) figures {
	all := figures{}
	for _, part := range s.Parts {
		for _, f := range part.Figures {
			all[[2]string{part.Name, f.Name}] = f.Median
		}
	}
	return all
}

// get returns a figure, which must exist.
func (f figures) get(part, name string) (float64, error) {
	value, ok := f[[2]string{part, name}]
	if !ok {
		return 0, fmt.Errorf("%s has no %s", part, name)
	}
	return value, nil
}

// all returns several figures, which must exist, by part and name.
func (f figures) all(names ...[2]string) (values []float64, err error) {
	for _, n := range names {
		value, err := f.get(n[0], n[1])
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

// Package alone measures what the table of goals says of jq alone: P8 to P12.
package alone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/bench/internal/report"
	"github.com/seed-ed332417/jq/bench/internal/site"
	"github.com/seed-ed332417/jq/internal/bench"
	"github.com/seed-ed332417/jq/postgres"
	"github.com/seed-ed332417/jq/sqlite"
)

// Options say what is measured, and how long that takes.
type Options struct {
	Goals    []string // P8 to P12
	Rounds   int
	Jobs     int           // P8: that lie beside those which are claimed
	Duration time.Duration // of a part; of P12 sixty times as long, and one round
	Progress io.Writer
}

// Goals are all that can be measured.
func Goals() []string { return []string{"P8", "P9", "P10", "P11", "P12"} }

// Run measures the goals in their order, on each store that they are about.
func Run(ctx context.Context, s *site.Site, o Options) ([]report.Goal, error) {
	var lines []report.Goal
	for _, id := range o.Goals {
		for _, store := range []string{peer.Postgres, peer.SQLite} {
			measure, ok := measures[id+" "+store]
			if !ok {
				continue
			}
			line, err := measure(ctx, &play{Options: o, site: s, store: store})
			if err != nil {
				return lines, fmt.Errorf("%s on %s: %w", id, store, err)
			}
			line.ID = id
			lines = append(lines, line)
			fmt.Fprintf(o.Progress, "%s on %s: %s  %s\n", id, store, line.JQ, line.Ratio)
		}
	}
	return lines, nil
}

var measures = map[string]func(context.Context, *play) (report.Goal, error){
	"P8 postgres":  backlog,
	"P8 sqlite":    backlog,
	"P9 postgres":  http,
	"P9 sqlite":    http,
	"P10 postgres": idle,
	"P10 sqlite":   idle,
	"P11 postgres": history,
	"P12 postgres": steady,
}

// A play is one goal on one store.
type play struct {
	Options
	site  *site.Site
	store string
}

// rounds runs the workload on an empty store, several times.
func (p *play) rounds(ctx context.Context, rounds int, o bench.Options) (all figures, err error) {
	t, err := p.try(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	for range rounds {
		if err := t.run(ctx, o); err != nil {
			return nil, err
		}
	}
	return t.figures(), nil
}

// A try is rounds on one store.
type try struct {
	jq.Store
	play    *play
	close   func() error
	results []bench.Result
}

// try opens an empty store.
func (p *play) try(ctx context.Context) (*try, error) {
	place, remove, err := p.site.Place(ctx, peer.Peer{Store: p.store})
	if err != nil {
		return nil, err
	}
	s, err := p.open(ctx, place)
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	return &try{Store: s, play: p, close: func() error { return errors.Join(s.Close(), remove()) }}, nil
}

// run is one more round.
func (t *try) run(ctx context.Context, o bench.Options) error {
	debug.FreeOSMemory() // of what the run before has left
	result, err := bench.Run(ctx, t.Store, o)
	if err != nil {
		return err
	}
	t.results = append(t.results, result)
	fmt.Fprintf(t.play.Progress, "round %d  %s on %s\n", len(t.results), o.Workload, t.play.store)
	return nil
}

func (t *try) figures() figures { return figuresOf(bench.Summarize(t.results)) }

func (p *play) open(ctx context.Context, place peer.Place) (jq.Store, error) {
	if p.store == peer.Postgres {
		return postgres.Open(ctx, place.DSN, nil)
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

// get is a figure, which must be there.
func (f figures) get(part, name string) (float64, error) {
	value, ok := f[[2]string{part, name}]
	if !ok {
		return 0, fmt.Errorf("%s has no %s", part, name)
	}
	return value, nil
}

// all are several figures, which must be there: part and name in turn.
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

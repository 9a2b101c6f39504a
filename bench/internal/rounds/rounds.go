// Package rounds runs the scenarios with all peers in turn, several times.
package rounds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/bench/internal/cost"
	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/bench/internal/site"
)

// Options says what to measure.
type Options struct {
	Peers     []peer.Peer
	Scenarios []Scenario
	Rounds    int
	Jobs      int           // jobs to drain
	Duration  time.Duration // of the continuous scenarios; a fifth of it for enqueueing, a half for latency
	Handlers  int           // for all peers; zero means each peer's own default
	Progress  io.Writer
}

// A Result is one run of one scenario with one peer. It counts only without an error.
type Result struct {
	Peer     string    `json:"peer"`
	Scenario string    `json:"scenario"`
	Round    int       `json:"round"`
	Jobs     int64     `json:"jobs"`
	Seconds  float64   `json:"seconds"`
	Rate     float64   `json:"rate,omitempty"`   // jobs per second
	Tenths   []float64 `json:"tenths,omitempty"` // jobs begun per second in each tenth of the run
	P50      float64   `json:"p50,omitempty"`    // milliseconds, like the next ones
	P95      float64   `json:"p95,omitempty"`
	P99      float64   `json:"p99,omitempty"`
	Max      float64   `json:"max,omitempty"`
	Again    int64     `json:"again,omitempty"` // how often a job began again
	Error    string    `json:"error,omitempty"`

	Costs   cost.Costs   `json:"costs,omitempty"`   // of a job
	Queries []cost.Query `json:"queries,omitempty"` // the statements of lone jobs
}

// Run runs everything. If a peer cannot run a scenario, or cannot run on this machine, Run says so once and leaves it out. If
// the context ends, Run returns its error with the results so far.
func Run(ctx context.Context, s *site.Site, o Options) ([]Result, error) {
	var results []Result
	absent := map[string]bool{}
	for round := range o.Rounds {
		peers := slices.Clone(o.Peers)
		if round%2 == 1 { // so that the order of the peers varies
			slices.Reverse(peers)
		}
		for _, scenario := range o.Scenarios {
			for _, p := range peers {
				if reason := scenario.Unfit(p); reason != "" || absent[p.ID()] {
					continue
				}
				r, err := one(ctx, s, p, scenario, o)
				if absence, ok := errors.AsType[*site.Absence](err); ok {
					absent[p.ID()] = true
					fmt.Fprintf(o.Progress, "%s is left out: %s\n", p.ID(), absence.Reason)
					continue
				}
				if ctx.Err() != nil {
					return results, ctx.Err()
				}
				r.Peer, r.Scenario, r.Round = p.ID(), scenario.Name, round+1
				if err != nil {
					r.Error = err.Error()
				}
				results = append(results, r)
				fmt.Fprintf(o.Progress, "round %d of %d  %-11s  %-20s %s\n", round+1, o.Rounds, scenario.Name, p.ID(), r.brief())
			}
		}
	}
	return results, nil
}

func (r Result) brief() string {
	switch {
	case r.Error != "":
		return "does not count: " + r.Error
	case r.Rate > 0:
		return fmt.Sprintf("%9.0f jobs/s (%d jobs in %.1f s)", r.Rate, r.Jobs, r.Seconds)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "p50 %.2f  p95 %.2f  p99 %.2f ms", r.P50, r.P95, r.P99)
	for _, kind := range []cost.Kind{cost.Transactions, cost.Statements, cost.Server} {
		if value, measured := r.Costs[kind]; measured {
			fmt.Fprintf(&text, "  %s %.2f", kind.Title(), value)
		}
	}
	return text.String()
}

// one runs a scenario once, on an empty store.
func one(ctx context.Context, s *site.Site, p peer.Peer, scenario Scenario, o Options) (r Result, err error) {
	o.Duration *= time.Duration(max(1, scenario.longer))
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute+2*o.Duration)
	defer cancel()
	place, remove, err := s.Place(ctx, p)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	debug.FreeOSMemory() // from the previous run
	times := scenario.times(o)
	ledger := peer.NewLedger(times)
	meter, err := cost.New(ctx, p, place, scenario.Lone())
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, meter.Close()) }()
	if scenario.Lone() && !meter.Counts() {
		fmt.Fprintln(o.Progress, "statements are not counted: the server has no pg_stat_statements")
	}
	q, err := p.Open(ctx, place, ledger.Handle)
	if err != nil {
		return Result{}, fmt.Errorf("opening: %w", err)
	}
	pl := &play{
		Options: o, peer: p, place: place, queue: q, ledger: ledger, meter: meter, shape: scenario.shape, pace: scenario.pace, times: times,
	}
	r, err = scenario.play(ctx, pl)
	if closed := q.Close(context.WithoutCancel(ctx)); err == nil && closed != nil {
		err = fmt.Errorf("closing: %w", closed)
	}
	r.Again = ledger.Again()
	if err == nil {
		r.Costs, r.Queries, err = meter.Finish(ctx, r.Jobs)
	}
	return r, err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/bench/internal/alone"
	"github.com/seed-ed332417/jq/bench/internal/compare"
	"github.com/seed-ed332417/jq/bench/internal/report"
	"github.com/seed-ed332417/jq/bench/internal/rounds"
	"github.com/seed-ed332417/jq/bench/internal/site"
)

func run(ctx context.Context, args []string, out, errs io.Writer) error {
	o, err := parse(args, errs)
	if err != nil {
		return err
	}
	switch {
	case o.alone:
		return measureAlone(ctx, o)
	case o.compare:
		return compareQueues(ctx, o, out)
	}
	r, err := measure(ctx, o)
	if err != nil {
		return err
	}
	if o.json != "" {
		if err := r.Write(o.json); err != nil {
			return err
		}
	}
	if o.plot != "" {
		if err := r.Plot(o.plot); err != nil {
			return err
		}
	}
	if o.document != "" {
		goals, err := report.ReadGoals(o.more)
		if err == nil {
			err = r.Document(o.document, goals)
		}
		if err != nil {
			return err
		}
	}
	if err := r.Print(out); err != nil {
		return err
	}
	if failed := r.Failed(); len(failed) > 0 {
		return fmt.Errorf("%d runs do not count: see above", len(failed))
	}
	return nil
}

// measure runs the rounds, or reads those of an earlier run.
func measure(ctx context.Context, o options) (r *report.Report, err error) {
	if o.from != "" {
		return report.Read(o.from)
	}
	s, err := site.New()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	results, err := rounds.Run(ctx, s, o.Options)
	if err != nil {
		if len(results) == 0 {
			return nil, err
		}
		fmt.Fprintln(o.Progress, "interrupted: these are the rounds until then")
	}
	r = report.New(o.Options, results)
	r.Cut = err != nil
	return r, nil
}

// measureAlone measures goals about jq alone and writes them to their file. Goals that were not measured stay as they are
// there.
func measureAlone(ctx context.Context, o options) (err error) {
	known, err := report.ReadGoals(o.more)
	if err != nil {
		return err
	}
	s, err := site.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	measured, err := alone.Run(ctx, s, alone.Options{
		Goals: o.goals, Rounds: o.Rounds, Jobs: 20 * o.Jobs, Duration: 2 * o.Duration, Progress: o.Progress,
	})
	kept := slices.DeleteFunc(known, func(g report.Goal) bool {
		return slices.ContainsFunc(measured, func(m report.Goal) bool { return m.ID == g.ID })
	})
	return errors.Join(err, report.WriteGoals(o.more, append(kept, measured...)))
}

// compareQueues plays accidents with jq and its peers, and prints what they did.
func compareQueues(ctx context.Context, o options, out io.Writer) (err error) {
	s, err := site.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	text, err := compare.Run(ctx, s, compare.Options{Patience: 3 * time.Minute, Jobs: 20_000, Progress: o.Progress})
	if err != nil {
		return err
	}
	if o.document != "" {
		if err := report.Put(o.document, "compare", text); err != nil {
			return err
		}
	}
	_, err = io.WriteString(out, text)
	return err
}

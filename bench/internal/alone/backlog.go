package alone

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ed332417/jq/bench/internal/report"
	"github.com/seed-ed332417/jq/internal/bench"
)

// crowd is the ratio of finished jobs to the other jobs beside a claim.
const crowd = 10

// backlog is P8: claims with many jobs in the store, compared with claims among few. Each scene has its own store and is set up
// once; then all scenes are measured in turn.
func backlog(ctx context.Context, p *play) (g report.Goal, err error) {
	var piles []*pile
	defer func() {
		for _, one := range piles {
			err = errors.Join(err, one.close())
		}
	}()
	for _, scene := range bench.Scenes() {
		one, err := p.pile(ctx, scene)
		if err != nil {
			return report.Goal{}, err
		}
		piles = append(piles, one)
		fmt.Fprintf(p.Progress, "jobs are laid out  %s on %s\n", scene, p.store)
	}
	for range p.Rounds {
		for _, one := range piles {
			if err := one.round(func() (bench.Result, error) { return one.Measure(ctx) }); err != nil {
				return report.Goal{}, err
			}
		}
		slices.Reverse(piles) // the last of one round is the first of the next
		fmt.Fprintf(p.Progress, "round %d of %d  backlog on %s\n", len(piles[0].results), p.Rounds, p.store)
	}
	return p.besideMany(ctx, piles)
}

// besideMany returns the goal's line, if all jobs have ended as they should.
func (p *play) besideMany(ctx context.Context, piles []*pile) (report.Goal, error) {
	medians, jobs := map[string]float64{}, map[string]string{}
	for _, one := range piles {
		if err := one.Verify(ctx); err != nil {
			return report.Goal{}, fmt.Errorf("%s: %w", one.scene, err)
		}
		median, err := one.figures().get(one.scene, "claim p50")
		if err != nil {
			return report.Goal{}, err
		}
		medians[one.scene], jobs[one.scene] = median, report.Thousands(float64(one.jobs))
	}
	few := medians[bench.Few]
	percent := func(scene string) string { return fmt.Sprintf("%.0f %%", 100*medians[scene]/few) }
	return report.Goal{
		Work: fmt.Sprintf("%s: claim of 100 with %s waiting, %s scheduled, %s finished, beside one with 50,000 waiting",
			p.store, jobs[bench.Waiting], jobs[bench.Scheduled], jobs[bench.Finished]),
		Target: "within 15 %",
		JQ:     fmt.Sprintf("p50 %.2f ms with 50,000", few),
		Ratio:  percent(bench.Waiting) + ", " + percent(bench.Scheduled) + ", " + percent(bench.Finished),
	}, nil
}

// A pile is a scene in a store of its own.
type pile struct {
	*try
	*bench.Pile
	scene string
	jobs  int
}

func (p *play) pile(ctx context.Context, scene string) (*pile, error) {
	t, err := p.try(ctx)
	if err != nil {
		return nil, err
	}
	one := &pile{try: t, scene: scene, jobs: p.Jobs}
	if scene == bench.Finished {
		one.jobs *= crowd
	}
	if one.Pile, err = bench.NewPile(ctx, t.store, bench.Options{Jobs: one.jobs}, scene); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return one, nil
}

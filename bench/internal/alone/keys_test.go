package alone

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/bench/internal/report"
	"github.com/seed-ed332417/jq/internal/bench"
)

func part(name string, figures ...any) bench.Part {
	p := bench.Part{Name: name}
	for i := 0; i < len(figures); i += 2 {
		p.Figures = append(p.Figures, bench.Figure{Name: figures[i].(string), Value: figures[i+1].(float64)})
	}
	return p
}

// Each claim is compared with that from the plain queue in the same round, because rounds differ more.
func TestGoalsOfKeys(t *testing.T) {
	p := &play{store: "postgres", Options: Options{Jobs: 1_000_000}}
	for scene, work := range map[string]string{
		bench.OneEach:  "claim of 10 with a job of each of 100,000 keys waiting",
		bench.FewEach:  "claim of 10 with 500,000 jobs of 100,000 keys waiting",
		bench.BigKey:   "claim that finds one job, behind 1,000,000 of a key that is full",
		bench.FullKeys: "claim that finds one job, behind those of 100,000 keys that are full",
	} {
		var rounds []bench.Result
		for _, v := range [][3]float64{{2, 1, 200}, {9, 6, 150}, {3, 2.5, 120}} {
			rounds = append(rounds, bench.Result{Parts: []bench.Part{
				part(scene, "claim p50", v[0], "plain claim p50", v[1], "claim p50 to plain", v[2]),
			}})
		}
		goal, err := p.keyGoal(figuresOf(bench.Summarize(rounds)), scene)
		require.NoError(t, err)
		require.Equal(t, report.Goal{
			Work:   "postgres, MaxPerKey: " + work + ", beside a plain queue with as many jobs",
			Target: "≤ 200 %", JQ: "p50 3.00 ms, plain 2.50 ms", Ratio: "150 %",
		}, goal)
		_, err = p.keyGoal(figuresOf(bench.Summarize(rounds)), "another")
		require.Error(t, err)
	}
}

func TestGoalsOfLimits(t *testing.T) {
	p := &play{store: "sqlite"}
	r := bench.Result{Parts: []bench.Part{
		part(bench.OneClaimer, "rate", 1000.0, "max_per_key rate", 810.0, "max_per_key to free", 81.0),
		part(bench.SomeClaimers, "rate", 4000.0, "max_per_key rate", 2000.0, "max_per_key to free", 50.0),
		part(bench.ManyClaimers, "rate", 10000.0, "max_per_key rate", 2000.0, "max_per_key to free", 20.0),
	}}
	f := figuresOf(bench.Summarize([]bench.Result{r}))
	goal, err := p.limitGoal(f, bench.MaxPerKey)
	require.NoError(t, err)
	require.Equal(t, report.Goal{
		Work:   "sqlite: claims and acks of 10 with MaxPerKey and 1,000 keys, never full, beside none: jobs/s of 1, 8 and 32 claimers",
		Target: "≥ 80 % with one claimer", JQ: "810 of 1,000; 2,000 of 4,000; 2,000 of 10,000", Ratio: "81 %; 50 %; 20 %",
	}, goal)
	_, err = p.limitGoal(f, bench.MaxInFlight)
	require.Error(t, err, "rounds without it")
}

package alone

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/bench/internal/report"
	"github.com/seed-ed332417/jq/internal/bench"
)

// The wait on a fair queue is compared with that without a flood in the same round, because rounds differ more.
func TestGoalOfFairness(t *testing.T) {
	p := &play{store: "postgres"}
	var rounds []bench.Result
	for _, v := range [][4]float64{{2, 20, 45_000, 37}, {3, 30, 40_000, 54}, {4, 14.5, 52_000, 25}} {
		rounds = append(rounds, bench.Result{Parts: []bench.Part{
			part(bench.NoFlood, "p95", v[0]), part(bench.Fair, "p95", v[1], "p95 to allowed", v[3]), part(bench.Plain, "p95", v[2]),
		}})
	}
	f := figuresOf(bench.Summarize(rounds))
	want := report.Goal{
		Work:   "postgres: how long the jobs of 49 tenants wait, p95: alone; beside one more, whose jobs are 90 % of all, on a fair queue; and on a plain queue",
		Target: "on a fair queue ≤ 2 × alone + 50ms", JQ: "3.0 ms; 20.0 ms; 45.0 s", Ratio: "37 % of the goal",
	}
	goal, err := p.fairGoal(f, nil)
	require.NoError(t, err)
	require.Equal(t, want, goal)
	goal, err = p.fairGoal(f, figuresOf(bench.Summarize([]bench.Result{{Parts: []bench.Part{part("river", "p95", 46_000.0)}}})))
	require.NoError(t, err)
	want.Peer = "river, beside the flood, 46.0 s"
	require.Equal(t, want, goal)
	_, err = p.fairGoal(figures{}, nil)
	require.Error(t, err)
	_, err = p.fairGoal(f, figures{})
	require.Error(t, err, "River was played and has no figure")
}

// The first tenth of the jobs is left out.
func TestWaitOfMostJobsOfAPeer(t *testing.T) {
	ledger := peer.NewLedger(100)
	var called []time.Time
	for i := range 100 {
		ledger.Begin(int64(i))
		wait := time.Duration(i) * time.Second
		if i < 10 {
			wait = time.Hour
		}
		called = append(called, ledger.Began(i).Add(-wait))
	}
	require.InDelta(t, 95_000, p95(called, ledger), 0.001, "milliseconds of the 86th of the 90 jobs")
}

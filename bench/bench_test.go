package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/bench/internal/compare"
	"github.com/seed-ed332417/jq/bench/internal/peers"
	"github.com/seed-ed332417/jq/bench/internal/producer"
	"github.com/seed-ed332417/jq/bench/internal/report"
	"github.com/seed-ed332417/jq/bench/internal/rounds"
)

// The producers of lone jobs are this program too.
func TestMain(m *testing.M) {
	producer.Main(peers.All())
	compare.Main()
	os.Exit(m.Run())
}

// Every peer that needs nothing installed plays every scenario, tiny, and the end of every job is found in its store.
func TestPeersFinishEveryJob(t *testing.T) {
	var ids []string
	for _, p := range peers.All() {
		if !p.Node {
			ids = append(ids, p.ID())
		}
	}
	file := filepath.Join(t.TempDir(), "rounds.json")
	var out, errs strings.Builder
	args := []string{"--peers", strings.Join(ids, ","), "--rounds", "1", "--jobs", "300", "--duration", "100ms", "--json", file}
	require.NoError(t, run(t.Context(), args, &out, &errs), "what was said:\n%s", &errs)

	r, err := report.Read(file)
	require.NoError(t, err)
	played := map[string]int64{}
	for _, one := range r.Results {
		played[one.Peer+" "+one.Scenario] = one.Jobs
	}
	for _, p := range peers.All() {
		if p.Node || strings.Contains(errs.String(), p.ID()+" is left out") {
			continue
		}
		for _, scenario := range rounds.Scenarios() {
			if scenario.Unfit(p) == "" {
				require.Positive(t, played[p.ID()+" "+scenario.Name], "jobs of %s in %s; what was said:\n%s", p.ID(), scenario.Name, &errs)
			}
		}
	}
}

// What is measured of jq alone goes into the file of goals, beside those that were measured before.
func TestGoalsAboutJQAlonePileUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "more.json")
	before := report.Goal{ID: "P12", Work: "as it was"}
	require.NoError(t, report.WriteGoals(file, []report.Goal{before, {ID: "P10", Work: "out of date"}}))
	var out, errs strings.Builder
	args := []string{"--alone", "--goals", "P8,P9,P10,P15,R91,R95", "--more", file, "--rounds", "2", "--jobs", "10", "--duration", "300ms"}
	require.NoError(t, run(t.Context(), args, &out, &errs), "what was said:\n%s", &errs)
	goals, err := report.ReadGoals(file)
	require.NoError(t, err)
	lines := map[string]int{}
	for _, g := range goals[1:] {
		lines[g.ID]++
		require.NotEmpty(t, g.JQ, "%s", g.Work)
		require.NotContains(t, g.Work, "out of date")
	}
	require.Equal(t, before, goals[0])
	require.Equal(t, map[string]int{"P8": 2, "P9": 2, "P10": 2, "P15": 12, "R91": 12, "R95": 3}, lines, "on two stores, and R95 on three")
}

func TestFlagsThatCanNotBeAreRefused(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--peers jq-postgres,sidekiq", `--peers: there is no "sidekiq": want some of `},
		{"--scenarios drian", `--scenarios: there is no "drian": want some of big, bulk, `},
		{"--alone --goals P8,P99", `--goals: there is no "P99": want some of P10, P11, P12, P15, P16, P8, P9, R91, R95`},
		{"--goals P8", "--goals are measured with --alone"},
		{"--alone --peers jq", "--alone goes with --goals, --more, --rounds, --jobs and --duration, and with nothing else"},
		{"--alone --handlers 5", "--alone goes with --goals, --more, --rounds, --jobs and --duration, and with nothing else"},
		{"--compare --alone", "--compare goes with --document, and with nothing else"},
		{"--compare --peers jq", "--compare goes with --document, and with nothing else"},
		{"--rounds 0", "--rounds and --jobs begin at 1"},
		{"--duration 1ms", "--duration 1ms is too short"},
		{"now", "bench takes no arguments"},
	} {
		var errs strings.Builder
		err := run(t.Context(), strings.Fields(c.args), &errs, &errs)
		require.ErrorContains(t, err, c.want, "bench %s", c.args)
	}
}

func TestPeersAreChosenByNameOrStore(t *testing.T) {
	var errs strings.Builder
	o, err := parse([]string{"--peers", "sqlite,river"}, &errs)
	require.NoError(t, err)
	var ids []string
	for _, p := range o.Peers {
		ids = append(ids, p.ID())
	}
	require.Contains(t, ids, "river-postgres")
	require.Contains(t, ids, "jq-sqlite")
	require.NotContains(t, ids, "jq-postgres")
}

func TestAGroupOfScenariosHasOneName(t *testing.T) {
	var errs strings.Builder
	o, err := parse([]string{"--scenarios", "lone,drain", "--peers", "river"}, &errs)
	require.NoError(t, err)
	require.Equal(t, []string{"drain", "lone-20", "lone-20-tx", "lone-300", "lone-300-tx"}, scenarioNames(o.Scenarios))
	require.Len(t, o.Peers, 2, "River with both of its settings")
}

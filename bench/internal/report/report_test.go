package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/bench/internal/rounds"
)

// sample is three peers in two scenarios, with a run that does not count.
func sample() *Report {
	r := &Report{Date: "2026-01-02", Machine: Machine{System: "linux/amd64", Cores: 2, Go: "go1"}, Rounds: 3, Jobs: 50_000, Duration: "5s"}
	for _, name := range []string{"river", "limit", "jq"} {
		r.Peers = append(r.Peers, Peer{Name: name, Store: "postgres", Handlers: 10, Settings: "as they are", Keeps: name != "limit"})
	}
	add := func(peer, scenario string, rates ...float64) {
		for i, rate := range rates {
			r.Results = append(r.Results, rounds.Result{Peer: peer, Scenario: scenario, Round: i + 1, Rate: rate})
		}
	}
	add("jq-postgres", rounds.Drain, 30_000, 10_000, 20_000)
	add("river-postgres", rounds.Drain, 4000, 5000)
	add("limit-postgres", rounds.Drain, 1_234_567)
	r.Results = append(r.Results,
		rounds.Result{Peer: "river-postgres", Scenario: rounds.Drain, Round: 3, Rate: 900_000, Error: "one job is missing"},
		rounds.Result{Peer: "jq-postgres", Scenario: rounds.Latency, P50: 1.04, P95: 2, P99: 4},
		rounds.Result{Peer: "river-postgres", Scenario: rounds.Latency, P50: 2.08, P95: 8, P99: 8})
	return r
}

func TestTableHasMediansSpreadsAndRatios(t *testing.T) {
	var b strings.Builder
	require.NoError(t, sample().Print(&b))
	want := `2 cores, linux/amd64, go1; 3 rounds: median (lowest–highest) of those in which the end of every job was checked.

postgres
  jobs/s                        jq                           river       limit   jq : best peer
  drain     20,000 (10,000–30,000)   4,500 (4,000–5,000), 1 failed   1,234,567            4.44×
  latency           1.0/2.0/4.0 ms                  2.1/8.0/8.0 ms           –            0.50×

river on postgres: as they are; handlers: 10; finished jobs are kept
limit on postgres: as they are; handlers: 10; finished jobs are deleted
jq on postgres: as they are; handlers: 10; finished jobs are kept
does not count: river-postgres, drain, round 3: one job is missing
`
	require.Equal(t, want, b.String())
}

func TestGoalsComeFromTheFigures(t *testing.T) {
	more := []Goal{{ID: "P12", Work: "measured", Ratio: "97 %"}}
	byID := map[string][]Goal{}
	for _, g := range sample().goals(more) {
		byID[g.ID] = append(byID[g.ID], g)
	}
	require.Len(t, byID, 12, "all of P1 to P12 stand there, measured or not")
	require.Equal(t, Goal{"P3", "Postgres: drain of no-op jobs", "≥ 2.5× River", "20,000", "river 4,500", "1,234,567", "4.44×"}, byID["P3"][0])
	require.Equal(t, "0.50×, 0.25×, 0.50×", byID["P5"][0].Ratio)
	require.Empty(t, byID["P1"][0].JQ, "nobody played it")
	require.Equal(t, more, byID["P12"], "what was measured elsewhere")
}

func TestDocumentIsFilledBetweenItsMarks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text.md")
	marks := "before\n"
	for _, name := range []string{"circumstances", "goals", "figures", "settings", "scenarios"} {
		marks += "<!-- bench " + name + " -->\nobsolete\n<!-- end " + name + " -->\n"
	}
	require.NoError(t, os.WriteFile(path, []byte(marks+"after\n"), 0o644))
	require.NoError(t, sample().Document(path, nil))
	first, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(first), "\n| drain | 20,000 (10,000–30,000) | 4,500 (4,000–5,000), 1 failed | 1,234,567 | 4.44× |\n")
	require.NotContains(t, string(first), "obsolete")
	require.True(t, strings.HasPrefix(string(first), "before\n") && strings.HasSuffix(string(first), "after\n"), "the rest stays")
	require.NoError(t, sample().Document(path, nil))
	second, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(first), string(second), "a second time changes nothing")

	require.NoError(t, os.WriteFile(path, []byte("no marks"), 0o644))
	require.ErrorContains(t, sample().Document(path, nil), "it has no lines")
}

// What the repository shows is what its JSON says.
func TestPerformancePageIsThatOfItsFigures(t *testing.T) {
	const docs = "../../../docs/"
	r, err := Read(docs + "performance.json")
	require.NoError(t, err)
	more, err := ReadGoals("../../more.json")
	require.NoError(t, err)
	shown, err := os.ReadFile(docs + "performance.md")
	require.NoError(t, err)
	made := filepath.Join(t.TempDir(), "performance.md")
	require.NoError(t, os.WriteFile(made, shown, 0o644))
	require.NoError(t, r.Document(made, more))
	want, err := os.ReadFile(made)
	require.NoError(t, err)
	require.Equal(t, string(want), string(shown), "write it again: make bench-docs")
}

func TestPlotsAreDrawn(t *testing.T) {
	for name, begins := range map[string]string{"plot.svg": "<?xml", "plot.png": "\x89PNG"} {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, sample().Plot(path))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(data), begins), "%s begins with %.20q", name, data)
	}
	require.ErrorContains(t, sample().Plot(filepath.Join(t.TempDir(), "plot.doc")), "name it .svg or .png")
	require.ErrorContains(t, (&Report{}).Plot(filepath.Join(t.TempDir(), "plot.svg")), "no figures")
}

func TestReportsAreReadAsTheyWereWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rounds.json")
	require.NoError(t, sample().Write(path))
	got, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, sample(), got)
}

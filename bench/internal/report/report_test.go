package report

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/bench/internal/cost"
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

// costly adds a scenario of lone jobs, with River as it is by default, and the costs of a continuous one.
func costly() *Report {
	r := sample()
	r.Peers = append(r.Peers, Peer{Name: "jq-100ms", Store: "postgres"}, Peer{Name: "river-100ms", Store: "postgres"}, Peer{Name: "jq", Store: "memory"})
	lone := func(peer string, transactions, statements, server float64) rounds.Result {
		return rounds.Result{Peer: peer, Scenario: rounds.Lone20, P50: 3, P95: 4, P99: 5,
			Costs: cost.Costs{cost.Transactions: transactions, cost.Statements: statements, cost.Server: server}}
	}
	first := lone("jq-postgres", 9, 9, 9)
	first.Queries = []cost.Query{{Text: "out of date", Calls: 1}}
	last := lone("jq-postgres", 2, 8, 1000)
	last.Queries = []cost.Query{{Text: "INSERT", Calls: 1.5}, {Text: "a heartbeat", Calls: 0.001}}
	failed := lone("jq-postgres", 50, 50, 50)
	failed.Error = "one job is missing"
	r.Results = append(r.Results, first, lone("jq-postgres", 4, 21, 2000), last, failed, lone("jq-100ms-postgres", 2, 3, 400), lone("river-100ms-postgres", 1.5, 3, 500),
		rounds.Result{Peer: "jq-postgres", Scenario: rounds.Continuous, Rate: 2000, Costs: cost.Costs{cost.WAL: 1683, cost.Dead: 2.5}},
		rounds.Result{Peer: "river-postgres", Scenario: rounds.Continuous, Rate: 1000, Costs: cost.Costs{cost.WAL: 3366, cost.Dead: 2}},
		rounds.Result{Peer: "jq-memory", Scenario: rounds.Continuous, Rate: 1000, Costs: cost.Costs{cost.Allocations: 6.2, cost.Allocated: 3300}})
	return r
}

func TestCostsHaveATableOfTheirOwn(t *testing.T) {
	var b strings.Builder
	require.NoError(t, costly().Print(&b))
	require.Contains(t, b.String(), `
postgres
  costs of a job          peer   transactions   statements   server CPU µs   WAL bytes   dead tuples                p50/p95/p99
  continuous                jq              –            –               –       1,683          2.50                          –
  continuous             river              –            –               –       3,366          2.00                          –
  lone-20                   jq           4.00         9.00           1,000           –             –   3.0/4.0/5.0 ms, 1 failed
  lone-20             jq-100ms           2.00         3.00             400           –             –             3.0/4.0/5.0 ms
  lone-20          river-100ms           1.50         3.00             500           –             –             3.0/4.0/5.0 ms

memory
  jobs/s          jq   jq : best peer
  continuous   1,000                –

memory
  costs of a job   peer   allocations   allocated bytes
  continuous         jq          6.20             3,300
`)
	require.Contains(t, b.String(), "\nstatements a job of jq-postgres in lone-20:\n    1.500  INSERT\n", "those of the last round")
	require.NotContains(t, b.String(), "out of date")
	require.NotContains(t, b.String(), "a heartbeat")
	rates, _, _ := strings.Cut(b.String(), "costs of a job")
	require.NotContains(t, rates, "lone")
	require.NotContains(t, rates, "river-100ms", "it has nothing else")
}

func TestGoalsAboutCostsCompareThem(t *testing.T) {
	byWork := map[string]Goal{}
	for _, g := range costly().goals(nil) {
		byWork[g.ID+" "+g.Target+" "+g.Work] = g
	}
	want := []Goal{
		{"P13", "Postgres, a lone job, 20 a second, empty handlers, claims at once: transactions; statements; server CPU in µs", "≤ 2.1; ≤ 8; ≤ River's",
			"4.00; 9.00; 1,000", "", "", ""},
		{"P13", "Postgres, a lone job, 20 a second, empty handlers, claims at most every 100 ms: transactions; statements; server CPU in µs",
			"≤ 2.1; ≤ 8; ≤ River's", "2.00; 3.00; 400", "river-100ms 1.50; 3.00; 500", "", "0.80×"},
		{"P14", "Postgres, continuous: WAL bytes a job", "≤ 1,250", "1,683", "river 3,366", "", "0.50×"},
		{"P14", "Postgres, continuous: dead tuples a job that are not HOT", "≤ River's + 0.3", "2.50", "river 2.00", "", "+0.50"},
		{"P7", "memory: allocations a job; allocated bytes", "≤ 3; ≤ 1,200", "6.20; 3,300", "", "", ""},
	}
	for _, g := range want {
		require.Equal(t, g, byWork[g.ID+" "+g.Target+" "+g.Work])
	}
}

// A report that was written before costs were measured is read, and its goals about costs are empty.
func TestReportsWithoutCostsAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"date": "2026-01-02", "rounds": 1,
		"peers": [{"name": "jq", "store": "postgres", "handlers": 100, "settings": "", "keeps": true}],
		"results": [{"peer": "jq-postgres", "scenario": "continuous", "round": 1, "jobs": 5, "seconds": 1, "rate": 5}]}`), 0o644))
	r, err := Read(path)
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, r.Print(&b))
	require.Contains(t, b.String(), "continuous    5")
	require.NotContains(t, b.String(), "costs")
	for _, g := range r.goals(nil) {
		require.Empty(t, g.JQ, "%v", g)
	}
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
	flows := []Goal{{ID: "P15", Work: "one"}, {ID: "P15", Work: "another"}}
	byID := map[string][]Goal{}
	var order []string
	for _, g := range sample().goals(slices.Concat(flows, more, []Goal{{ID: "P99", Work: "unknown"}})) {
		byID[g.ID] = append(byID[g.ID], g)
		order = append(order, g.ID)
	}
	require.Equal(t, []string{"P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "P12", "P13", "P14", "P15", "P16", "R91", "R95"}, slices.Compact(order),
		"all stand there by number, measured or not")
	require.Equal(t, Goal{"P3", "Postgres: drain of no-op jobs", "≥ 3× River", "20,000", "river 4,500", "1,234,567", "4.44×"}, byID["P3"][0])
	require.Equal(t, "0.50×; p99 is 3.85× of its p50", byID["P5"][0].Ratio)
	require.Empty(t, byID["P1"][0].JQ, "nobody played it")
	require.Equal(t, more, byID["P12"], "what was measured elsewhere")
	require.Equal(t, flows, byID["P15"], "in the order in which it was measured")
}

func TestPutReplacesOnePart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(path, []byte("before\n<!-- bench a -->\nold\n<!-- end a -->\nafter\n"), 0o600))
	require.NoError(t, Put(path, "a", "new\n"))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "before\n<!-- bench a -->\nnew\n<!-- end a -->\nafter\n", string(text))
	require.ErrorContains(t, Put(path, "b", "new\n"), "page.md: it has no lines")
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
		require.NoError(t, costly().Plot(path))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(data), begins), "%s begins with %.20q", name, data)
	}
	lone := costly()
	lone.Results = slices.DeleteFunc(lone.Results, func(one rounds.Result) bool { return one.Scenario != rounds.Lone20 })
	require.NoError(t, lone.Plot(filepath.Join(t.TempDir(), "lone.svg")), "a run of lone jobs alone has a picture too")
	require.ErrorContains(t, sample().Plot(filepath.Join(t.TempDir(), "plot.doc")), "name it .svg or .png")
	require.ErrorContains(t, (&Report{}).Plot(filepath.Join(t.TempDir(), "plot.svg")), "no figures")
}

func TestReportsAreReadAsTheyWereWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rounds.json")
	require.NoError(t, costly().Write(path))
	got, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, costly(), got)
}

package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/seed-ed332417/jq/bench/internal/cost"
	"github.com/seed-ed332417/jq/bench/internal/rounds"
)

// A Goal is a line of the table of goals, as text. Unknown cells are empty.
type Goal struct {
	ID     string `json:"goal"`
	Work   string `json:"work"`
	Target string `json:"target"`
	JQ     string `json:"jq"`
	Peer   string `json:"peer"`
	Limit  string `json:"limit"`
	Ratio  string `json:"ratio"`
}

// A rule says which figures a goal compares.
type rule struct {
	id, work, target string
	scenario, store  string
	own              string      // the peer that is jq with other settings, if it is not jq
	peer             string      // the peer to compare with, if any
	kinds            []cost.Kind // the costs to compare, instead of the main figure
	ratio            func(jq, other, limit figures) string
}

// figures are those of one peer: the main one, or one for each of the rule's kinds.
type figures []figure

// last returns the last figure, which the ratio is about.
func (f figures) last() figure { return f[len(f)-1] }

// known reports whether all were measured.
func (f figures) known() bool {
	return !slices.ContainsFunc(f, func(one figure) bool { return one.runs == 0 })
}

// short returns the medians alone, or the waits.
func (f figures) short() string {
	if !f.known() {
		return ""
	}
	var texts []string
	for _, one := range f {
		texts = append(texts, one.short())
	}
	return strings.Join(texts, "; ")
}

func toPeer(jq, other, _ figures) string {
	if !other.known() {
		return ""
	}
	return times(jq.last().median / other.last().median)
}

func toLimit(jq, _, limit figures) string {
	if !limit.known() {
		return ""
	}
	return percent(jq.last().median/limit.last().median) + " of the limit"
}

// toWaits compares the median wait with the peer's, and the longest waits with the median.
func toWaits(jq, other, _ figures) string {
	own := "p99 is " + times(jq.last().waits[2]/jq.last().waits[0]) + " of its p50"
	if !other.known() {
		return own
	}
	return times(jq.last().waits[0]/other.last().waits[0]) + "; " + own
}

// above returns how much more it is than the peer's.
func above(jq, other, _ figures) string {
	if !other.known() {
		return ""
	}
	return fmt.Sprintf("%+.2f", jq.last().median-other.last().median)
}

// noRatio is for goals that compare jq with nobody.
func noRatio(_, _, _ figures) string { return "" }

func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }

var rules = slices.Concat([]rule{
	{"P1", "Postgres: enqueue, work and finish for a minute, history kept", "≥ 3× River", rounds.Long, "postgres", "", "river", nil, toPeer},
	{"P2", "the same for two minutes with a snapshot held open elsewhere", "≥ 5× River", rounds.LongHeld, "postgres", "", "river", nil, toPeer},
	{"P3", "Postgres: drain of no-op jobs", "≥ 3× River", rounds.Drain, "postgres", "", "river", nil, toPeer},
	{"P4", "Postgres: single enqueues from 16 goroutines", "≥ 5× River", rounds.Enqueue16, "postgres", "", "river", nil, toPeer},
	{"P4", "Postgres: single enqueues from one", "≥ 1.2× River", rounds.Enqueue1, "postgres", "", "river", nil, toPeer},
	{"P5", "Postgres: latency when idle, p50/p95/p99", "p50 under River's, p99 under twice its own p50", rounds.Latency, "postgres", "", "river", nil, toWaits},
	{"P6", "SQLite, synced (peers are not): continuous", "≥ 40 % of the limit", rounds.Continuous, "sqlite", "", "", nil, toLimit},
	{"P6", "SQLite: drain", "≥ 3× backlite", rounds.Drain, "sqlite", "", "backlite", nil, toPeer},
	{"P6", "SQLite: drain", "≥ 10× goqite", rounds.Drain, "sqlite", "", "goqite", nil, toPeer},
	{"P6", "SQLite: single enqueues from 16 goroutines", "≥ 2× goqite", rounds.Enqueue16, "sqlite", "", "goqite", nil, toPeer},
	{"P7", "memory: end to end with goroutine handlers", "≥ 1.2× neoq", rounds.Continuous, "memory", "", "neoq", nil, toPeer},
	{"P7", "memory: allocations a job; allocated bytes", "≤ 3; ≤ 1,200", rounds.Continuous, "memory", "", "", []cost.Kind{cost.Allocations, cost.Allocated}, noRatio},
},
	lone("20 a second, empty handlers", rounds.Lone20),
	lone("20 a second, empty handlers, in the caller's transaction", rounds.Lone20Tx),
	lone("300 a second, handlers of 5 to 800 ms", rounds.Lone300),
	lone("300 a second, handlers of 5 to 800 ms, in the caller's transaction", rounds.Lone300Tx),
	[]rule{
		{"P14", "Postgres, continuous: WAL bytes a job", "≤ 1,250", rounds.Continuous, "postgres", "", "river", []cost.Kind{cost.WAL}, toPeer},
		{"P14", "Postgres, continuous: dead tuples a job that are not HOT", "≤ River's + 0.3", rounds.Continuous, "postgres", "", "river", []cost.Kind{cost.Dead}, above},
	},
)

// lone is P13: jq beside River, each pair with settings that let jobs wait equally long. River lets them wait for up to 100 ms by default.
func lone(how, scenario string) []rule {
	costs := []cost.Kind{cost.Transactions, cost.Statements, cost.Server}
	beside := func(own, peer, waits string) rule {
		return rule{
			id: "P13", work: "Postgres, a lone job, " + how + ", " + waits + ": transactions; statements; server CPU in µs",
			target: "≤ 2.1; ≤ 8; ≤ River's", scenario: scenario, store: "postgres", own: own, peer: peer, kinds: costs, ratio: toPeer,
		}
	}
	return []rule{
		beside("jq-100ms", "river-100ms", "claims at most every 100 ms"),
		beside("", "river", "claims at once"),
	}
}

// elsewhere are the goals about jq alone: they are measured separately, and bench/more.json has the results.
var elsewhere = []Goal{
	{ID: "P8", Work: "cost of a claim with 1 M waiting, 1 M scheduled for later, 10 M finished", Target: "within 15 % of 50,000 waiting"},
	{ID: "P9", Work: "through the HTTP API in batches", Target: "≥ 50 % of the same store used directly"},
	{ID: "P10", Work: "idle worker: CPU; messages on Postgres; memory per 1,000 jobs in flight", Target: "< 1 % of a core; ≤ 2 a second and queue; ≤ 10 MiB"},
	{ID: "P11", Work: "cost of the attempt history where nothing fails", Target: "≤ 10 %"},
	{ID: "P12", Work: "last third of a ten-minute run against its first", Target: "≥ 90 %"},
	{ID: "P15", Work: "a job of a batch of 100,000 with a callback, beside one without a batch: CPU time; time", Target: "< 110 %"},
	{ID: "P15", Work: "from the Ack of the last of 100,000 jobs of a batch to the claim of its callback", Target: "< 1 s"},
	{ID: "P15", Work: "from the Ack of a job to the claim of the last of 1,000 that wait for it", Target: "< 2 s"},
	{ID: "P15", Work: "cancellation of a job that 100,000 need, and of one with a chain of 10,000: the call; until all are cancelled", Target: "< 1 s; < 3 min"},
	{ID: "P15", Work: "another job meanwhile, from its enqueue to its Ack, p50/p99", Target: "≤ 200 % of those at rest"},
	{ID: "P16", Work: "Postgres alone, with a synchronous standby, and three members of etcd: jobs/s; CPU of all servers in µs", Target: "–"},
	{ID: "R91", Work: "claim from a queue with MaxPerKey: 100,000 keys, 1 M jobs of a full key, 100,000 full keys; beside a plain queue with as many jobs", Target: "≤ 200 %"},
	{ID: "R91", Work: "claims and acks of 10 with MaxInFlight or MaxPerKey, never full, beside none, with 1, 8 and 32 claimers", Target: "≥ 80 % with one claimer"},
	{ID: "R95", Work: "how long the jobs of 49 tenants wait, p95: alone; beside one more, whose jobs are 90 % of all, on a fair queue; and on a plain queue", Target: "on a fair queue ≤ 2 × alone + 50ms"},
}

// goals returns all lines by number. The goals in more replace those with the same id.
func (r *Report) goals(more []Goal) []Goal {
	var all []Goal
	for _, rule := range rules {
		all = append(all, r.goal(rule))
		if rule.id == "P2" {
			all = append(all, r.heldByOwn())
		}
	}
	is := func(id string) func(Goal) bool { return func(g Goal) bool { return g.ID == id } }
	for _, goal := range elsewhere {
		if !slices.ContainsFunc(more, is(goal.ID)) {
			all = append(all, goal)
		}
	}
	for _, goal := range more {
		if slices.ContainsFunc(elsewhere, is(goal.ID)) {
			all = append(all, goal)
		}
	}
	slices.SortStableFunc(all, func(a, b Goal) int { return cmp.Or(len(a.ID)-len(b.ID), strings.Compare(a.ID, b.ID)) })
	return all
}

func (r *Report) goal(rule rule) Goal {
	g := Goal{ID: rule.id, Work: rule.work, Target: rule.target}
	ours, bound := r.of(rule, cmp.Or(rule.own, jq)), r.of(rule, limit)
	var other figures
	if rule.peer != "" {
		other = r.of(rule, rule.peer)
		g.Peer = other.short()
		if g.Peer != "" {
			g.Peer = rule.peer + " " + g.Peer
		}
	}
	g.JQ, g.Limit = ours.short(), bound.short()
	if ours.known() {
		g.Ratio = rule.ratio(ours, other, bound)
	}
	return g
}

// of returns the figures of a peer for the rule.
func (r *Report) of(rule rule, peer string) figures {
	id := peer + "-" + rule.store
	if rule.kinds == nil {
		return figures{r.figure(id, rule.scenario)}
	}
	var all figures
	for _, kind := range rule.kinds {
		all = append(all, r.cost(id, rule.scenario, kind))
	}
	return all
}

// heldByOwn returns jq's rate under a held snapshot as a share of its normal rate.
func (r *Report) heldByOwn() Goal {
	g := Goal{ID: "P2", Work: "the same beside jq's own figure without it", Target: "≥ 90 % of its P1"}
	held, free := r.figure(jq+"-postgres", rounds.LongHeld), r.figure(jq+"-postgres", rounds.Long)
	if held.runs > 0 && free.runs > 0 {
		g.JQ, g.Ratio = held.short(), percent(held.median/free.median)
	}
	return g
}

// ReadGoals reads the goals that were measured separately.
func ReadGoals(path string) ([]Goal, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var goals []Goal
	if err := json.Unmarshal(data, &goals); err != nil {
		return nil, fmt.Errorf("%s is no list of goals: %w", path, err)
	}
	return goals, nil
}

// WriteGoals writes them for ReadGoals.
func WriteGoals(path string, goals []Goal) error {
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetEscapeHTML(false) // readable by people
	out.SetIndent("", "\t")
	if err := out.Encode(goals); err != nil {
		return err
	}
	beside := path + ".new" // written first, so that a crash does not lose an hour's figures
	if err := os.WriteFile(beside, text.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(beside, path)
}

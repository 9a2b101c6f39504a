package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

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
	peer             string // the peer to compare with, if any
	ratio            func(jq, other, limit figure) string
}

func toPeer(jq, other, _ figure) string {
	if other.runs == 0 {
		return ""
	}
	return times(jq.median / other.median)
}

func toLimit(jq, _, limit figure) string {
	if limit.runs == 0 {
		return ""
	}
	return percent(jq.median/limit.median) + " of the limit"
}

// eachWait compares three percentiles with the peer's.
func eachWait(jq, other, _ figure) string {
	if other.runs == 0 {
		return ""
	}
	return fmt.Sprintf("%s, %s, %s", times(jq.waits[0]/other.waits[0]), times(jq.waits[1]/other.waits[1]), times(jq.waits[2]/other.waits[2]))
}

func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }

var rules = []rule{
	{"P1", "Postgres: enqueue, work and finish for a minute, history kept", "≥ 3× River", rounds.Long, "postgres", "river", toPeer},
	{"P2", "the same for two minutes with a snapshot held open elsewhere", "≥ 6× River", rounds.LongHeld, "postgres", "river", toPeer},
	{"P3", "Postgres: drain of no-op jobs", "≥ 2.5× River", rounds.Drain, "postgres", "river", toPeer},
	{"P4", "Postgres: single enqueues from 16 goroutines", "≥ 5× River", rounds.Enqueue16, "postgres", "river", toPeer},
	{"P4", "Postgres: single enqueues from one", "≥ 1.5× River", rounds.Enqueue1, "postgres", "river", toPeer},
	{"P5", "Postgres: latency when idle, p50/p95/p99", "p50 ≤ 2 ms, p99 ≤ 5 ms, each under River's", rounds.Latency, "postgres", "river", eachWait},
	{"P6", "SQLite, synced (peers are not): continuous", "≥ 60 % of the limit", rounds.Continuous, "sqlite", "", toLimit},
	{"P6", "SQLite: drain", "≥ 3× backlite", rounds.Drain, "sqlite", "backlite", toPeer},
	{"P6", "SQLite: drain", "≥ 10× goqite", rounds.Drain, "sqlite", "goqite", toPeer},
	{"P6", "SQLite: single enqueues from 16 goroutines", "≥ 2× goqite", rounds.Enqueue16, "sqlite", "goqite", toPeer},
	{"P7", "memory: end to end with goroutine handlers", "≥ 1 M/s, ≥ 5× neoq", rounds.Continuous, "memory", "neoq", toPeer},
}

// elsewhere are the goals about jq alone: they are measured separately, and bench/more.json has the results.
var elsewhere = []Goal{
	{ID: "P8", Work: "cost of a claim with 1 M waiting, 1 M scheduled, 10 M finished", Target: "within 15 % of 50,000 waiting"},
	{ID: "P9", Work: "through the HTTP API in batches", Target: "≥ 50 % of the same store used directly"},
	{ID: "P10", Work: "idle worker: CPU; statements on Postgres; memory per 1,000 jobs in flight", Target: "< 1 % of a core; ≤ 2 a second and queue; ≤ 10 MiB"},
	{ID: "P11", Work: "cost of the attempt history where nothing fails", Target: "≤ 10 %"},
	{ID: "P12", Work: "last third of a ten-minute run against its first", Target: "≥ 90 %"},
}

// goals returns all lines. The goals in more replace those with the same id.
func (r *Report) goals(more []Goal) []Goal {
	var all []Goal
	for _, rule := range rules {
		all = append(all, r.goal(rule))
		if rule.id == "P2" {
			all = append(all, r.heldByOwn())
		}
	}
	for _, goal := range elsewhere {
		var measured []Goal
		for _, m := range more {
			if m.ID == goal.ID {
				measured = append(measured, m)
			}
		}
		if measured == nil {
			measured = []Goal{goal}
		}
		all = append(all, measured...)
	}
	return all
}

func (r *Report) goal(rule rule) Goal {
	g := Goal{ID: rule.id, Work: rule.work, Target: rule.target}
	ours, bound := r.figure(jq+"-"+rule.store, rule.scenario), r.figure(limit+"-"+rule.store, rule.scenario)
	var other figure
	if rule.peer != "" {
		other = r.figure(rule.peer+"-"+rule.store, rule.scenario)
		g.Peer = other.short()
		if g.Peer != "" {
			g.Peer = rule.peer + " " + g.Peer
		}
	}
	g.JQ, g.Limit = ours.short(), bound.short()
	if ours.runs > 0 {
		g.Ratio = rule.ratio(ours, other, bound)
	}
	return g
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

// short returns the median alone, or the waits.
func (f figure) short() string {
	switch {
	case f.runs == 0:
		return ""
	case f.waits != [3]float64{}:
		return f.percentiles()
	}
	return Thousands(f.median)
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

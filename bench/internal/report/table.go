package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-ed332417/jq/bench/internal/cost"
	"github.com/seed-ed332417/jq/bench/internal/rounds"
)

// A table is a heading and rows with the same number of cells.
type table struct {
	title string
	rows  [][]string
}

// tables returns the tables of each store.
func (r *Report) tables() []table {
	var all []table
	for _, store := range r.stores() {
		for _, t := range []table{r.rateTable(store), r.costTable(store)} {
			if len(t.rows) > 1 {
				all = append(all, t)
			}
		}
	}
	return all
}

// rateTable has a row for each scenario and a column for each peer, and shows rates and waits.
func (r *Report) rateTable(store string) table {
	peers := slices.DeleteFunc(r.on(store), func(p Peer) bool { return !r.rated(p) })
	head := []string{"jobs/s"}
	for _, p := range peers {
		head = append(head, p.Name)
	}
	t := table{title: store, rows: [][]string{append(head, "jq : best peer")}}
	for _, scenario := range rounds.Scenarios() {
		if scenario.Lone() {
			continue // what matters is in the other table
		}
		if row, played := r.row(scenario.Name, store, peers); played {
			t.rows = append(t.rows, row)
		}
	}
	return t
}

// rated reports whether the peer has played a scenario of the table of rates.
func (r *Report) rated(p Peer) bool {
	return slices.ContainsFunc(rounds.Scenarios(), func(s rounds.Scenario) bool {
		f := r.figure(p.ID(), s.Name)
		return !s.Lone() && f.runs+f.failed > 0
	})
}

// costTable has a row for each scenario and peer whose costs were measured, and a column for each kind of cost. It shows medians,
// and also the waits of lone jobs.
func (r *Report) costTable(store string) table {
	head := []string{"costs of a job", "peer"}
	for _, kind := range cost.Kinds() {
		head = append(head, kind.Title())
	}
	t := table{title: store, rows: [][]string{append(head, "p50/p95/p99")}}
	for _, scenario := range rounds.Scenarios() {
		for _, p := range r.on(store) {
			if !r.measured(p.ID(), scenario.Name) {
				continue
			}
			row, waits := []string{scenario.Name, p.Name}, "–"
			for _, kind := range cost.Kinds() {
				row = append(row, cmp.Or(r.cost(p.ID(), scenario.Name, kind).short(), "–"))
			}
			if scenario.Lone() {
				waits = r.figure(p.ID(), scenario.Name).String()
			}
			t.rows = append(t.rows, append(row, waits))
		}
	}
	return t.withoutEmptyColumns()
}

// measured reports whether the peer's costs in the scenario are known.
func (r *Report) measured(peer, scenario string) bool {
	return slices.ContainsFunc(r.Results, func(one rounds.Result) bool {
		return one.Peer == peer && one.Scenario == scenario && one.Error == "" && len(one.Costs) > 0
	})
}

// withoutEmptyColumns returns the table without the columns that have nothing below their heads.
func (t table) withoutEmptyColumns() table {
	full := table{title: t.title, rows: make([][]string, len(t.rows))}
	for column := range t.rows[0] {
		if !slices.ContainsFunc(t.rows[1:], func(row []string) bool { return row[column] != "–" }) {
			continue
		}
		for i, row := range t.rows {
			full.rows[i] = append(full.rows[i], row[column])
		}
	}
	return full
}

// row returns the figures of a scenario, and whether there are any.
func (r *Report) row(scenario, store string, peers []Peer) (row []string, played bool) {
	row = []string{scenario}
	for _, p := range peers {
		f := r.figure(p.ID(), scenario)
		played = played || f.runs+f.failed > 0
		row = append(row, f.String())
	}
	return append(row, r.ratio(scenario, store)), played
}

// ratio compares jq with the best peer on the store, except the limit.
func (r *Report) ratio(scenario, store string) string {
	ours, best := r.figure(jq+"-"+store, scenario), r.best(scenario, store)
	if ours.runs == 0 || best.runs == 0 {
		return "–"
	}
	return times(ours.median / best.median)
}

func times(ratio float64) string { return fmt.Sprintf("%.2f×", ratio) }

// best returns the figure of the best peer.
func (r *Report) best(scenario, store string) figure {
	var figures []figure
	for _, p := range r.on(store) {
		if f := r.figure(p.ID(), scenario); p.Name != jq && p.Name != limit && f.runs > 0 {
			figures = append(figures, f)
		}
	}
	if len(figures) == 0 {
		return figure{}
	}
	byMedian := func(a, b figure) int { return cmp.Compare(a.median, b.median) }
	if figures[0].waits != [3]float64{} {
		return slices.MinFunc(figures, byMedian)
	}
	return slices.MaxFunc(figures, byMedian)
}

// Print writes the tables and their notes for a terminal.
func (r *Report) Print(w io.Writer) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s; %d rounds: median (lowest–highest) of those in which the end of every job was checked.\n", r.Machine, r.Rounds)
	for _, t := range r.tables() {
		fmt.Fprintf(b, "\n%s\n", t.title)
		t.aligned(b)
	}
	fmt.Fprintln(b)
	for _, p := range r.Peers {
		fmt.Fprintln(b, p.note())
	}
	r.printQueries(b)
	for _, one := range r.Failed() {
		fmt.Fprintf(b, "does not count: %s, %s, round %d: %s\n", one.Peer, one.Scenario, one.Round, one.Error)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// rare is how often a job must run a statement on the average to be printed.
const rare = 0.01

// printQueries writes the statements of the last round in which they were counted.
func (r *Report) printQueries(b *strings.Builder) {
	for i, one := range r.Results {
		again := func(other rounds.Result) bool {
			return other.Peer == one.Peer && other.Scenario == one.Scenario && len(other.Queries) > 0
		}
		if len(one.Queries) == 0 || slices.ContainsFunc(r.Results[i+1:], again) {
			continue
		}
		fmt.Fprintf(b, "\nstatements a job of %s in %s:\n", one.Peer, one.Scenario)
		for _, q := range one.Queries {
			if q.Calls >= rare {
				fmt.Fprintf(b, "  %7.3f  %s\n", q.Calls, q.Text)
			}
		}
	}
}

func (p Peer) note() string {
	after := "finished jobs are deleted"
	if p.Keeps {
		after = "finished jobs are kept"
	}
	name := p.Name
	if p.Version != "" {
		name += " " + p.Version
	}
	return fmt.Sprintf("%s on %s: %s; handlers: %d; %s", name, p.Store, p.Settings, p.Handlers, after)
}

// aligned writes columns as wide as their widest cell: the first left-aligned, the others right-aligned.
func (t table) aligned(b *strings.Builder) {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range t.rows {
		for i, cell := range row {
			room := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				b.WriteString("  " + cell + room)
			} else {
				b.WriteString("   " + room + cell)
			}
		}
		b.WriteByte('\n')
	}
}

// markdown writes the table for a document.
func (t table) markdown(b *strings.Builder) {
	for i, row := range t.rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(b, "|%s\n", strings.Repeat("---|", len(row)))
		}
	}
}

package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-ed332417/jq/bench/internal/rounds"
)

// A table is a heading and rows with the same number of cells.
type table struct {
	title string
	rows  [][]string
}

// tables returns one table for each store, with a row for each scenario and a column for each peer.
func (r *Report) tables() []table {
	var all []table
	for _, store := range r.stores() {
		peers := r.on(store)
		head := []string{"jobs/s"}
		for _, p := range peers {
			head = append(head, p.Name)
		}
		t := table{title: store, rows: [][]string{append(head, "jq : best peer")}}
		for _, scenario := range rounds.Scenarios() {
			if row, played := r.row(scenario.Name, peers); played {
				t.rows = append(t.rows, row)
			}
		}
		all = append(all, t)
	}
	return all
}

// row returns the figures of a scenario, and whether there are any.
func (r *Report) row(scenario string, peers []Peer) (row []string, played bool) {
	row = []string{scenario}
	for _, p := range peers {
		f := r.figure(p.ID(), scenario)
		played = played || f.runs+f.failed > 0
		row = append(row, f.String())
	}
	return append(row, r.ratio(scenario, peers[0].Store)), played
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
	if scenario == rounds.Latency {
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
	for _, one := range r.Failed() {
		fmt.Fprintf(b, "does not count: %s, %s, round %d: %s\n", one.Peer, one.Scenario, one.Round, one.Error)
	}
	_, err := io.WriteString(w, b.String())
	return err
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

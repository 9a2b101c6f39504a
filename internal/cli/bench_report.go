package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/seed-ed332417/jq/internal/bench"
)

// printRound prints a round when it ends: all figures as JSON, or one line if there are several rounds.
func (a *app) printRound(b *benchFlags, number int, r bench.Result) error {
	switch {
	case b.asJSON:
		if err := json.NewEncoder(a.out).Encode(struct {
			Round int `json:"round"`
			bench.Result
		}{number, r}); err != nil {
			return err
		}
	case b.rounds > 1:
		var parts []string
		for _, p := range r.Parts {
			if len(p.Figures) > 0 {
				parts = append(parts, fmt.Sprintf("%s %s", p.Name, headline(p)))
			}
		}
		fmt.Fprintf(a.out, "round %d of %d: %s\n", number, b.rounds, strings.Join(parts, ", "))
	}
	if b.Keep && !b.asJSON {
		fmt.Fprintf(a.out, "kept the queues whose names begin with %s\n", r.Queue)
	}
	return a.out.Flush() // show the line before the next round starts
}

// headline returns the most important figure of a part: the time of a cancellation, the first percentile, or else the rate.
func headline(p bench.Part) string {
	for _, name := range []string{bench.Settled, bench.P50, "claim p50", bench.Rate, "cpu", "memory"} {
		if f, ok := p.Figure(name); ok {
			return strings.TrimSpace(amount(f.Value) + " " + f.Unit)
		}
	}
	return "-"
}

// tableOfFigures prints a table with a line for each figure and a column for each part.
func (a *app) tableOfFigures(s bench.Summary) error {
	table := newTable(a.out)
	heads := []any{s.Workload}
	var figures []bench.Spread // the first of each name
	cells := map[string]map[string]string{}
	for _, p := range s.Parts {
		heads = append(heads, p.Name)
		for _, f := range p.Figures {
			if cells[f.Name] == nil {
				figures, cells[f.Name] = append(figures, f), map[string]string{}
			}
			cells[f.Name][p.Name] = between(f, s.Rounds)
		}
	}
	if len(s.Parts) == 1 {
		heads[1] = "median"
		if s.Rounds == 1 {
			heads[1] = "value"
		}
	}
	row(table, append(heads, "unit")...)
	for _, f := range figures {
		line := []any{f.Name}
		for _, p := range s.Parts {
			line = append(line, cells[f.Name][p.Name])
		}
		row(table, append(line, f.Unit)...)
	}
	return table.Flush()
}

// between formats the median of a figure, with the minimum and maximum if there are several rounds.
func between(f bench.Spread, rounds int) string {
	if rounds == 1 {
		return amount(f.Median)
	}
	return fmt.Sprintf("%s (%s … %s)", amount(f.Median), amount(f.Min), amount(f.Max))
}

// amount formats a number with three significant digits, or as a whole number with commas.
func amount(v float64) string {
	if size := math.Abs(v); size < 999.5 {
		digits := 0
		for limit := 100.0; size < limit && digits < 3; limit /= 10 {
			digits++
		}
		text := strconv.FormatFloat(v, 'f', digits, 64)
		if strings.Contains(text, ".") {
			text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
		}
		return text
	}
	digits := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	var text strings.Builder
	if v < 0 {
		text.WriteByte('-')
	}
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			text.WriteByte(',')
		}
		text.WriteRune(d)
	}
	return text.String()
}

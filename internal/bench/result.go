package bench

import (
	"slices"
)

// A Result is what one round has measured.
type Result struct {
	Workload string `json:"workload"`
	Queue    string `json:"queue"`
	Parts    []Part `json:"parts"`
}

// A Part is one of the things that a round has measured.
type Part struct {
	Name    string   `json:"name"`
	Figures []Figure `json:"figures"`
}

// A Figure is a named number. Figures with the same name have the same unit.
type Figure struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
}

// Names of figures that other packages use.
const (
	Rate = "rate"
	P50  = "p50"
	P95  = "p95"
	P99  = "p99"
	Max  = "max"

	Settled = "settled"
)

// Figure returns the figure with that name, and whether there is one.
func (p Part) Figure(name string) (Figure, bool) {
	at := slices.IndexFunc(p.Figures, func(f Figure) bool { return f.Name == name })
	if at < 0 {
		return Figure{}, false
	}
	return p.Figures[at], true
}

// A Summary summarizes several rounds.
type Summary struct {
	Workload string        `json:"workload"`
	Rounds   int           `json:"rounds"`
	Parts    []PartSummary `json:"parts"`
}

// A PartSummary is one part over all rounds.
type PartSummary struct {
	Name    string   `json:"name"`
	Figures []Spread `json:"figures"`
}

// A Spread is one figure over all rounds.
type Spread struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Summarize summarizes the rounds of one workload. If a round lacks a figure, it uses the other rounds.
func Summarize(rounds []Result) Summary {
	if len(rounds) == 0 {
		return Summary{}
	}
	s := Summary{Workload: rounds[0].Workload, Rounds: len(rounds)}
	for i, part := range rounds[0].Parts {
		p := PartSummary{Name: part.Name}
		for _, name := range names(rounds, i) {
			p.Figures = append(p.Figures, spread(rounds, i, name))
		}
		s.Parts = append(s.Parts, p)
	}
	return s
}

// names returns the names of the part's figures, in the order in which they first appear.
func names(rounds []Result, part int) []string {
	var all []string
	for _, r := range rounds {
		for _, f := range r.Parts[part].Figures {
			if !slices.Contains(all, f.Name) {
				all = append(all, f.Name)
			}
		}
	}
	return all
}

func spread(rounds []Result, part int, name string) Spread {
	s := Spread{Name: name}
	var values []float64
	for _, r := range rounds {
		if f, ok := r.Parts[part].Figure(name); ok {
			s.Unit = f.Unit
			values = append(values, f.Value)
		}
	}
	slices.Sort(values)
	s.Median, s.Min, s.Max = median(values), values[0], values[len(values)-1]
	return s
}

// median returns the median of sorted values.
func median(values []float64) float64 {
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}

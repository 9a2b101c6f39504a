package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ed332417/jq/bench/internal/cost"
)

// A figure summarizes the rounds of a peer in a scenario: a rate, waits, or a cost.
type figure struct {
	runs             int // the valid runs
	failed           int
	median, low, top float64    // jobs per second, the median wait in milliseconds, or the cost of a job
	waits            [3]float64 // p50, p95 and p99: the median of each over the rounds
	cost             bool
}

// figure summarizes the rounds. A failed round is only counted as failed.
func (r *Report) figure(peer, scenario string) figure {
	var f figure
	var values []float64
	var waits [3][]float64
	for _, one := range r.Results {
		switch {
		case one.Peer != peer || one.Scenario != scenario:
			continue
		case one.Error != "":
			f.failed++
			continue
		}
		f.runs++
		if one.Rate > 0 {
			values = append(values, one.Rate)
			continue
		}
		values = append(values, one.P50)
		for i, wait := range []float64{one.P50, one.P95, one.P99} {
			waits[i] = append(waits[i], wait)
		}
	}
	if f.runs == 0 {
		return f
	}
	f.median, f.low, f.top = median(values), slices.Min(values), slices.Max(values)
	for i := range waits {
		if len(waits[i]) > 0 {
			f.waits[i] = median(waits[i])
		}
	}
	return f
}

// cost summarizes what a job has cost in the rounds in which it was measured.
func (r *Report) cost(peer, scenario string, kind cost.Kind) figure {
	f := figure{cost: true}
	var values []float64
	for _, one := range r.Results {
		if value, measured := one.Costs[kind]; measured && one.Error == "" && one.Peer == peer && one.Scenario == scenario {
			values = append(values, value)
		}
	}
	if f.runs = len(values); f.runs > 0 {
		f.median, f.low, f.top = median(values), slices.Min(values), slices.Max(values)
	}
	return f
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// String returns the median and the spread, or the waits.
func (f figure) String() string {
	text := "–"
	switch {
	case f.runs == 0 && f.failed > 0:
		return "failed"
	case f.runs == 0:
		return text
	case f.waits != [3]float64{}:
		text = f.percentiles()
	case f.runs == 1:
		text = Thousands(f.median)
	default:
		text = fmt.Sprintf("%s (%s–%s)", Thousands(f.median), Thousands(f.low), Thousands(f.top))
	}
	if f.failed > 0 {
		text += fmt.Sprintf(", %d failed", f.failed)
	}
	return text
}

// short returns the median alone, or the waits.
func (f figure) short() string {
	switch {
	case f.runs == 0:
		return ""
	case f.waits != [3]float64{}:
		return f.percentiles()
	case f.cost:
		return Amount(f.median)
	}
	return Thousands(f.median)
}

// Amount writes small costs with two digits after the point, and large ones with none.
func Amount(value float64) string {
	if value >= 100 {
		return Thousands(value)
	}
	return strconv.FormatFloat(value, 'f', 2, 64)
}

func (f figure) percentiles() string {
	return fmt.Sprintf("%s/%s/%s ms", millis(f.waits[0]), millis(f.waits[1]), millis(f.waits[2]))
}

func millis(wait float64) string {
	if wait < 1 {
		return strconv.FormatFloat(wait, 'f', 2, 64)
	}
	return strconv.FormatFloat(wait, 'f', 1, 64)
}

// Thousands writes 1234567 as 1,234,567.
func Thousands(value float64) string {
	digits := strconv.FormatFloat(value, 'f', 0, 64)
	var b strings.Builder
	for i, digit := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return b.String()
}

package bench

import (
	"slices"
	"sync"
	"time"
)

// times are how long something took. It keeps every value, so percentiles are exact.
type times struct {
	mu  sync.Mutex // guards all
	all []time.Duration
}

func (t *times) add(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, took)
}

// figures returns percentiles in milliseconds. of is a prefix for each name.
func (t *times) figures(of string) []Figure {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) == 0 {
		return nil
	}
	slices.Sort(t.all)
	var figures []Figure
	for _, p := range []struct {
		name string
		part float64
	}{{P50, 0.5}, {P95, 0.95}, {P99, 0.99}, {Max, 1}} {
		figures = append(figures, Figure{of + p.name, "ms", float64(percentile(t.all, p.part)) / float64(time.Millisecond)})
	}
	return figures
}

// percentile returns the smallest sorted value that at least that part of them does not exceed.
func percentile[T any](values []T, part float64) T {
	rank := int(part * float64(len(values)))
	if float64(rank) < part*float64(len(values)) {
		rank++
	}
	return values[max(rank, 1)-1]
}

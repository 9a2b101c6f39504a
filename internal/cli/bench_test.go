package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/bench"
)

func TestAmountIsReadable(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.0004: "0", 0.00051: "0.001", 0.25: "0.25", 3.14159: "3.14", 31.4159: "31.4", 100: "100", 314.159: "314", 999.4: "999", 999.6: "1,000",
		1000: "1,000", 31415.9: "31,416", 1234567: "1,234,567", -5.5: "-5.5", -1234: "-1,234",
	} {
		assert.Equal(t, want, amount(v), v)
	}
}

// The line of a round shows the figure that matters most for the workload.
func TestHeadlineIsThePercentileOrTheRate(t *testing.T) {
	rate, p50 := bench.Figure{Name: bench.Rate, Unit: "jobs/s", Value: 12345}, bench.Figure{Name: bench.P50, Unit: "ms", Value: 1.25}
	assert.Equal(t, "12,345 jobs/s", headline(bench.Part{Figures: []bench.Figure{rate}}))
	assert.Equal(t, "1.25 ms", headline(bench.Part{Figures: []bench.Figure{rate, p50}}))
	assert.Equal(t, "-", headline(bench.Part{}))
}

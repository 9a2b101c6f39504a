package sqlkit

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// TestRangesAreWhatPatternsChoose compares ranges with the patterns, over names that lie close together and at both ends.
func TestRangesAreWhatPatternsChoose(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	parts := []string{"a", "b", "*", "\x01", "\x7f", "\u0080", "\ud7ff", "\ue000", "\U0010ffff"}
	name := func() string {
		var b strings.Builder
		for range 1 + random.IntN(3) {
			b.WriteString(parts[random.IntN(len(parts))])
		}
		return b.String()
	}
	last := strings.Repeat("\U0010ffff", store.MaxNameBytes/4) + "\uffff" // no name is greater
	require.Len(t, last, store.MaxNameBytes)
	for range 5000 {
		var patterns []string
		for range random.IntN(6) {
			p := name()
			if random.IntN(2) == 0 {
				p += "*"
			}
			patterns = append(patterns, p)
		}
		ranges := Ranges(patterns)
		for range 20 {
			queue := name()
			if random.IntN(10) == 0 {
				queue = last
			}
			in := 0
			for _, r := range ranges {
				if r.Low <= queue && queue <= r.High {
					in++
				}
			}
			want := 0
			if store.QueueMatches(patterns, queue) {
				want = 1
			}
			if len(ranges) == 0 { // every queue
				in = 1
			}
			require.Equal(t, want, in, "ranges %q of %q in which %q lies", ranges, patterns, queue)
		}
	}
}

func TestRangesAreApart(t *testing.T) {
	assert.Empty(t, Ranges(nil))
	assert.Empty(t, Ranges([]string{"b", "*", "a*"}), "a lone * chooses every queue")
	got := Ranges([]string{"b", "ab*", "a*", "b", "a", "b-*", "a\U0010ffff*"})
	assert.Equal(t, []Range{{"a", "a" + beyond}, {"b", "b"}, {"b-", "b-" + beyond}}, got)
}

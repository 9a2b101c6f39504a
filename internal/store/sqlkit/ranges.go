package sqlkit

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Range is the queues between two names, both included, in the order of their bytes. If both names are equal, it is one
// queue.
type Range struct {
	Low, High string
}

// Ranges returns the queues that the patterns of a filter choose, or nil if they choose every queue. The ranges do not overlap.
func Ranges(patterns []string) []Range {
	var all []Range
	for _, p := range patterns {
		if beginning, open := strings.CutSuffix(p, "*"); open {
			all = append(all, Range{beginning, beginning + beyond})
		} else {
			all = append(all, Range{p, p})
		}
	}
	slices.SortFunc(all, func(a, b Range) int { return cmp.Or(cmp.Compare(a.Low, b.Low), cmp.Compare(b.High, a.High)) })
	var apart []Range
	for _, r := range all {
		if r.Low == "" {
			return nil // a lone *
		}
		if n := len(apart); n == 0 || !apart[n-1].holds(r) {
			apart = append(apart, r)
		}
	}
	return apart
}

// beyond is greater than every name. So a name lies between a prefix and that prefix followed by beyond only if it has that
// prefix.
var beyond = strings.Repeat(string(utf8.MaxRune), store.MaxNameBytes/utf8.UTFMax+1)

// holds reports whether every queue of the other range is in this one. The other range's Low must not be smaller.
func (r Range) holds(other Range) bool {
	return r == other || r.Low != r.High && strings.HasPrefix(other.Low, r.Low)
}

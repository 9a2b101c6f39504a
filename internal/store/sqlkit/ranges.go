package sqlkit

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Range is the queues between two names, both included, in the order of their bytes. Where both are the same, it is one queue.
type Range struct {
	Low, High string
}

// Ranges are the queues that the patterns of a filter choose, and none if that is every queue. No queue lies in two of them.
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

// beyond is greater than every name. Whatever lies between a beginning and the same with it behind has that beginning.
var beyond = strings.Repeat(string(utf8.MaxRune), store.MaxNameBytes/utf8.UTFMax+1)

// holds says that every queue of the other range, whose Low is no smaller, is in this one.
func (r Range) holds(other Range) bool {
	return r == other || r.Low != r.High && strings.HasPrefix(other.Low, r.Low)
}

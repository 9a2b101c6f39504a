package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/figures"
)

// report prints the sums as the table in docs/reliability.md.
func (s *session) report() {
	fmt.Fprintf(s.out, "\n| Layer | How often | Found | Lost | Command |\n|---|---|---|---|---|\n")
	var all []*sum
	for _, l := range s.layers {
		sum := s.state.of(l)
		if sum.Counts[runs] == 0 {
			continue
		}
		all = append(all, sum)
		fmt.Fprintf(s.out, "| %s | %s | %s | %s | `%s` |\n", l.name, sum.often(l), sum.found(), sum.lost(), l.again())
	}
	if len(all) == 0 {
		fmt.Fprintln(s.out, "no run is complete yet")
		return
	}
	fmt.Fprintf(s.out, "\n%s\n", period(all))
}

// often returns the goal's count first, then the others by name.
func (s *sum) often(l layer) string {
	head := fmt.Sprintf("%s runs", thousands(s.Counts[runs]))
	if l.goal != runs {
		head = fmt.Sprintf("%s %s in %s", thousands(s.Counts[l.goal]), l.goal, head)
	}
	parts := []string{fmt.Sprintf("%s, %v", head, s.Took.Round(time.Second))}
	for _, what := range slices.Sorted(maps.Keys(s.Counts)) {
		if what != l.goal && what != runs && what != figures.Lost {
			parts = append(parts, thousands(s.Counts[what])+" "+what)
		}
	}
	return strings.Join(parts, ", ")
}

func (s *sum) found() string {
	if len(s.Failures) == 0 {
		return "nothing"
	}
	var parts []string
	for _, f := range s.Failures {
		parts = append(parts, fmt.Sprintf("%s at %s", f.Log, f.Revision))
	}
	return fmt.Sprintf("failed: %d (%s)", len(parts), strings.Join(parts, ", "))
}

func (s *sum) lost() string {
	for _, f := range s.Failures {
		if f.Lost == nil {
			return fmt.Sprintf("%d, and what %s says", s.Counts[figures.Lost], f.Log)
		}
	}
	return strconv.Itoa(s.Counts[figures.Lost])
}

// period says over which time and which sources the sums are.
func period(all []*sum) string {
	since, until := all[0].Since, all[0].Until
	total := map[string]int{}
	var names []string
	for _, s := range all {
		if s.Since.Before(since) {
			since = s.Since
		}
		if s.Until.After(until) {
			until = s.Until
		}
		for _, r := range s.Revisions {
			if total[r.Name] == 0 {
				names = append(names, r.Name)
			}
			total[r.Name] += r.Runs
		}
	}
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%d of %s", total[name], name)
	}
	return fmt.Sprintf("Runs from %s to %s, by revision: %s.", since.UTC().Format("2006-01-02 15:04"), until.UTC().Format("2006-01-02 15:04"),
		strings.Join(parts, ", "))
}

func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

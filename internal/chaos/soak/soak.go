// Package soak judges and draws the measurements of a long run.
package soak

import (
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// A Series is one figure over time.
type Series struct {
	Name   string
	Unit   string
	Values []float64
	Bound  Bound
}

// A Bound limits the values of the last third.
type Bound struct {
	Times float64 // a multiple of the reference median; 0 means no limit
	Plus  float64 // an addition, for the noise of small figures
	// Late compares the two halves of the last third: for figures that grow under a snapshot and do not shrink again, and so
	// must only stop growing. Otherwise the reference is the first third.
	Late  bool
	Least bool // it is a lower limit: Times is below 1
}

// A Run is all measurements of a store.
type Run struct {
	Store  string
	Times  []time.Duration // since the beginning
	Series []Series
	Held   [2]time.Duration // when a snapshot was held open, from and to; equal means never
}

// label returns the name with the unit, if there is one.
func (s Series) label() string {
	if s.Unit == "" {
		return s.Name
	}
	return s.Name + " (" + s.Unit + ")"
}

// Judge returns a line for each figure, and whether all keep their bounds.
func (r *Run) Judge() (lines []string, ok bool) {
	ok = true
	for _, s := range r.Series {
		line, kept := s.judge()
		ok = ok && kept
		lines = append(lines, line)
	}
	return lines, ok
}

func (s Series) judge() (string, bool) {
	n := len(s.Values)
	if n < 6 {
		return fmt.Sprintf("FAIL %s: %d samples are too few to judge", s.Name, n), false
	}
	before, after := s.Values[:n/3], s.Values[n-n/3:]
	if s.Bound.Late {
		before, after = s.Values[n-n/3:n-n/6], s.Values[n-n/6:]
	}
	from, to := median(before), median(after)
	text := fmt.Sprintf("%s: %s, then %s; %s at most", s.label(), short(from), short(to), short(slices.Max(s.Values)))
	if s.Bound.Times == 0 {
		return "     " + text, true
	}
	bound := s.Bound.Times*from + s.Bound.Plus
	if s.Bound.Least && to < bound || !s.Bound.Least && to > bound {
		return fmt.Sprintf("FAIL %s, and the bound is %s", text, short(bound)), false
	}
	return "ok   " + text, true
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// short returns the number with three significant digits.
func short(v float64) string {
	if v >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// WriteCSV writes a row for each time.
func (r *Run) WriteCSV(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	w := csv.NewWriter(f)
	head := []string{"seconds"}
	for _, s := range r.Series {
		head = append(head, s.label())
	}
	rows := [][]string{head}
	for i, at := range r.Times {
		row := []string{strconv.FormatFloat(at.Seconds(), 'f', 2, 64)}
		for _, s := range r.Series {
			row = append(row, strconv.FormatFloat(s.Values[i], 'f', -1, 64))
		}
		rows = append(rows, row)
	}
	if err := w.WriteAll(rows); err != nil {
		return err
	}
	return f.Close()
}

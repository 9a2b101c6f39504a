package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A state holds the sums of all runs so far, by layer.
type state struct {
	path   string
	Layers map[string]*sum `json:"layers"`
}

// A sum is what the runs of one layer have tried.
type sum struct {
	Counts    map[string]int `json:"counts"` // of complete runs, including failed ones
	Took      time.Duration  `json:"took"`
	Since     time.Time      `json:"since"`
	Until     time.Time      `json:"until"`
	Revisions []revision     `json:"revisions"` // in the order of their first run
	Failures  []failure      `json:"failures,omitempty"`
}

// A revision is a state of the sources, and its number of runs.
type revision struct {
	Name string `json:"name"`
	Runs int    `json:"runs"`
}

// A failure is a run that has found something. It stays in the sums when the fault is fixed.
type failure struct {
	Revision string    `json:"revision"`
	At       time.Time `json:"at"`
	Log      string    `json:"log"` // a file beside the sums
	Command  string    `json:"command"`
	Lost     *int      `json:"lost,omitempty"` // nil if the test did not count it
}

func readState(path string) (state, error) {
	s := state{path: path, Layers: map[string]*sum{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}

// write replaces the old state in one step, because the command may be ended at any moment.
func (s state) write() error {
	maps.DeleteFunc(s.Layers, func(_ string, of *sum) bool { return of.Counts[runs] == 0 })
	text, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(s.path+".new", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(s.path+".new", s.path)
}

// of returns the sum of the layer, which may be empty.
func (s state) of(l layer) *sum {
	if s.Layers[l.name] == nil {
		s.Layers[l.name] = &sum{Counts: map[string]int{}}
	}
	return s.Layers[l.name]
}

// add adds a complete run.
func (s *sum) add(rev string, counts map[string]int, began, ended time.Time) {
	if s.Counts[runs] == 0 {
		s.Since = began
	}
	s.Until = ended
	s.Took += ended.Sub(began)
	s.Counts[runs]++
	for what, n := range counts {
		s.Counts[what] += n
	}
	i := slices.IndexFunc(s.Revisions, func(r revision) bool { return r.Name == rev })
	if i < 0 {
		s.Revisions = append(s.Revisions, revision{Name: rev})
		i = len(s.Revisions) - 1
	}
	s.Revisions[i].Runs++
}

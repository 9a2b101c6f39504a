package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The possible outcomes of a mutant.
const (
	killed     = "killed"
	hung       = "hung"       // the tests did not end in time, which somebody would notice too
	survived   = "survived"   // all tests pass
	unreached  = "unreached"  // no test runs the line
	uncompiled = "uncompiled" // does not compile
	equivalent = "equivalent" // somebody has explained why no test can notice
)

// A result is the outcome of a mutant.
type result struct {
	mutation
	Folder  string        `json:"folder"` // of its target
	Outcome string        `json:"outcome"`
	By      string        `json:"by,omitempty"` // the test that has failed
	Took    time.Duration `json:"took"`
}

// counts reports whether the mutant counts towards the wanted number.
func (r result) counts() bool { return r.Outcome != uncompiled && r.Outcome != equivalent }

func (r result) by() string {
	if r.By == "" {
		return ""
	}
	return " (" + r.By + ")"
}

// A state is what is known about the mutants of one seed and one state of the sources.
type state struct {
	path    string
	Results map[string]result `json:"results"`
}

func readState(path string) (state, error) {
	s := state{path: path, Results: map[string]result{}}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil
	case err != nil:
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}

func (s state) write() error { return writeJSON(s.path, s) }

// writeJSON replaces the file in one step, so that nobody reads half of it.
func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// excuses is the list of mutants that no test can notice, with four lines each: the file, the line before and after, and why.
const excuses = "internal/mutants/equivalent.txt"

// An excuse says why a mutant need not be killed.
type excuse struct{ file, was, is, why string }

func (e excuse) covers(m mutation) bool { return e.file == m.File && e.was == m.Was && e.is == m.Is }

func readExcuses(path string) ([]excuse, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	var all []excuse
	var block []string
	lines := bufio.NewScanner(f)
	for end := false; !end; {
		end = !lines.Scan()
		text := strings.TrimSpace(lines.Text())
		switch {
		case strings.HasPrefix(text, "#"):
		case text != "" && !end:
			block = append(block, text)
		case len(block) == 4:
			all = append(all, excuse{block[0], strings.TrimPrefix(block[1], "- "), strings.TrimPrefix(block[2], "+ "), block[3]})
			block = nil
		case len(block) > 0:
			return nil, fmt.Errorf("%s: want the file, - and the line, + and the line with the fault, and why, and find %q", path, block)
		}
	}
	return all, lines.Err()
}

// A summary is the outcome of the mutants of a package.
type summary struct {
	Package    string   `json:"package"`
	Drawn      int      `json:"drawn"`
	Killed     int      `json:"killed"` // including those that hung
	Hung       int      `json:"hung"`
	Equivalent int      `json:"equivalent"`
	Left       []result `json:"left"` // survived or unreached
}

func (s summary) share() float64 { return 100 * float64(s.Killed) / float64(max(s.Drawn, 1)) }

// report prints the share of killed mutants of each package, and every mutant that was not killed.
func (s *session) report() error {
	var all []summary
	total := summary{Package: "all"}
	for _, t := range s.targets {
		one := s.summary(t)
		all = append(all, one)
		total.Drawn, total.Killed, total.Hung = total.Drawn+one.Drawn, total.Killed+one.Killed, total.Hung+one.Hung
	}
	fmt.Fprintln(s.out)
	for _, one := range append(slices.Clone(all), total) {
		fmt.Fprintf(s.out, "%-34s %3.0f %%: %d of %d killed, %d of them by hanging\n", one.Package, one.share(), one.Killed, one.Drawn, one.Hung)
	}
	for _, one := range all {
		for _, r := range one.Left {
			fmt.Fprintf(s.out, "\n%s:%d: %s: %s\n\t- %s\n\t+ %s\n", r.File, r.Line, r.Outcome, r.Kind, r.Was, r.Is)
		}
	}
	if s.json == "" {
		return nil
	}
	return writeJSON(s.json, map[string]any{"seed": s.seed, "packages": all})
}

func (s *session) summary(t target) summary {
	one := summary{Package: t.folder, Left: []result{}}
	for _, id := range slices.Sorted(maps.Keys(s.state.Results)) {
		r := s.state.Results[id]
		if r.Folder != t.folder {
			continue
		}
		switch r.Outcome {
		case killed:
			one.Killed++
		case hung:
			one.Killed++
			one.Hung++
		case equivalent:
			one.Equivalent++
		case survived, unreached:
			one.Left = append(one.Left, r)
		}
		if r.counts() {
			one.Drawn++
		}
	}
	slices.SortFunc(one.Left, func(a, b result) int { return cmp.Or(cmp.Compare(a.File, b.File), a.Line-b.Line) })
	return one
}

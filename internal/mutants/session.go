package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A session is one run of the command.
type session struct {
	options
	out     io.Writer
	module  string // its path
	scratch string // a folder for binaries
	until   time.Time
	state   state
	excused []excuse
}

func newSession(ctx context.Context, o options, out io.Writer) (*session, error) {
	s := &session{options: o, out: out, until: time.Now().Add(o.lasting)}
	output, err := s.command(ctx, ".", "", "go", "list", "-m").Output()
	if err != nil {
		return nil, fmt.Errorf("%s is no module: %w", o.root, err)
	}
	s.module = strings.TrimSpace(string(output))
	if s.excused, err = readExcuses(filepath.Join(o.root, excuses)); err != nil {
		return nil, err
	}
	if s.scratch, err = os.MkdirTemp("", "mutants"); err != nil {
		return nil, err
	}
	sources, err := sumOf(o.root, ".")
	if err == nil {
		s.state, err = readState(filepath.Join(o.root, ".cache", "mutants", fmt.Sprintf("%s-seed-%d.json", sources, o.seed)))
	}
	return s, errors.Join(err, ctx.Err())
}

func (s *session) close() { _ = os.RemoveAll(s.scratch) }

func (s *session) importPath(folder string) string {
	if folder == "." {
		return s.module
	}
	return s.module + "/" + folder
}

// all tries a mutant of each target in turn, until each target has as many as wanted or time is up.
func (s *session) all(ctx context.Context) error {
	lines := make([]*line, len(s.targets))
	for i, t := range s.targets {
		one, err := s.line(ctx, t)
		if err != nil {
			return err
		}
		lines[i] = one
	}
	for more := true; more; {
		more = false
		for _, l := range lines {
			if time.Now().After(s.until) {
				fmt.Fprintln(s.out, "time is up: run it again to continue from here")
				return nil
			}
			tried, err := s.next(ctx, l)
			if err != nil {
				return err
			}
			more = more || tried
		}
	}
	return nil
}

// A line is the mutations of a target, in the order in which they are tried.
type line struct {
	target
	left  []mutation
	units []unit // quickest first; nil before they are needed
	done  int
}

func (s *session) line(ctx context.Context, t target) (*line, error) {
	output, err := s.command(ctx, t.folder, "", "go", "list", "-f", `{{join .GoFiles "\n"}}`).Output()
	if err != nil {
		return nil, fmt.Errorf("%s is no package: %w", t.folder, err)
	}
	l := &line{target: t}
	for name := range strings.FieldsSeq(string(output)) {
		file := filepath.ToSlash(filepath.Join(t.folder, name))
		source, err := os.ReadFile(filepath.Join(s.root, file))
		if err != nil {
			return nil, err
		}
		found, err := find(file, source)
		if err != nil {
			return nil, err
		}
		l.left = append(l.left, found...)
	}
	named := fnv.New64()
	_, _ = io.WriteString(named, t.folder) // never fails
	rand.New(rand.NewPCG(s.seed, named.Sum64())).Shuffle(len(l.left), func(i, j int) { l.left[i], l.left[j] = l.left[j], l.left[i] })
	return l, nil
}

// next tries one mutant that counts. It returns false if there is none left or none needed.
func (s *session) next(ctx context.Context, l *line) (bool, error) {
	for l.done < s.each && len(l.left) > 0 {
		m := l.left[0]
		l.left = l.left[1:]
		r, known := s.state.Results[m.id()]
		if !known {
			var err error
			if r, err = s.try(ctx, l, m); err != nil {
				return false, err
			}
			r.mutation, r.Folder = m, l.folder
			s.state.Results[m.id()] = r
			if err := s.state.write(); err != nil {
				return false, err
			}
			fmt.Fprintf(s.out, "%-10s %s:%d: %s%s\n", r.Outcome, m.File, m.Line, m.Kind, r.by())
		}
		if r.counts() {
			l.done++
			return true, nil
		}
	}
	return false, nil
}

// try plants the fault and runs the tests that reach it.
func (s *session) try(ctx context.Context, l *line, m mutation) (result, error) {
	if slices.ContainsFunc(s.excused, func(e excuse) bool { return e.covers(m) }) {
		return result{Outcome: equivalent}, nil
	}
	if l.units == nil {
		if err := s.units(ctx, l); err != nil {
			return result{}, err
		}
	}
	overlay, err := s.overlay(m)
	if err != nil {
		return result{}, err
	}
	reaching := slices.DeleteFunc(slices.Clone(l.units), func(u unit) bool { return !u.reaches(m) })
	if len(reaching) == 0 {
		output, err := s.command(ctx, l.folder, overlay, "go", "build", "-o", os.DevNull, ".").CombinedOutput()
		if err != nil {
			return result{Outcome: uncompiled, By: firstLine(output)}, ctx.Err()
		}
		return result{Outcome: unreached}, nil
	}
	var flags []string
	slower := time.Duration(1)
	if m.Kind == noLock {
		flags, slower = []string{"-race"}, 20 // how many times as long tests take under the race detector
	}
	built := map[string]string{}
	for _, group := range together(reaching) {
		folder := group[0].Folder
		if built[folder] == "" {
			built[folder] = filepath.Join(s.scratch, strings.ReplaceAll(folder, "/", "_")+".test")
			if output, err := s.build(ctx, folder, built[folder], overlay, flags...); err != nil {
				return result{Outcome: uncompiled, By: firstLine(output)}, ctx.Err()
			}
		}
		r, err := s.runGroup(ctx, built[folder], overlay, group, slower)
		if err != nil || r.Outcome != survived {
			return r, err
		}
	}
	return result{Outcome: survived}, nil
}

// units measures the tests of the target, or reads an earlier measurement of the same sources.
func (s *session) units(ctx context.Context, l *line) error {
	for _, folder := range l.tests {
		both, err := sumOf(s.root, l.folder, folder)
		if err != nil {
			return err
		}
		kept := filepath.Join(s.root, ".cache", "mutants", "reach-"+both+".json")
		var units []unit
		if text, err := os.ReadFile(kept); err == nil && json.Unmarshal(text, &units) == nil {
			l.units = append(l.units, units...)
			continue
		}
		fmt.Fprintf(s.out, "measuring what the tests of %s reach in %s\n", folder, l.folder)
		if units, err = s.measure(ctx, l.target, folder); err != nil {
			return err
		}
		if err := writeJSON(kept, units); err != nil {
			return err
		}
		l.units = append(l.units, units...)
	}
	slices.SortStableFunc(l.units, func(a, b unit) int { return int(a.Took - b.Took) })
	quick := slices.IndexFunc(l.units, func(u unit) bool { return u.Took > s.longest })
	if quick >= 0 {
		for _, u := range l.units[quick:] {
			fmt.Fprintf(s.out, "%s of %s takes %v, and is left out\n", u.Name, u.Folder, u.Took.Round(time.Second))
		}
		l.units = l.units[:quick]
	}
	if l.units == nil {
		l.units = []unit{}
	}
	return nil
}

// together groups tests to run in one process: quick ones of the same folder.
func together(units []unit) [][]unit {
	const most = 10 * time.Second
	var groups [][]unit
	open := map[string]int{} // the group of a folder that has room
	room := map[string]time.Duration{}
	for _, u := range units {
		i, ok := open[u.Folder]
		if ok && !strings.Contains(u.Name, "/") && u.Took <= room[u.Folder] {
			groups[i] = append(groups[i], u)
			room[u.Folder] -= u.Took
			continue
		}
		groups = append(groups, []unit{u})
		if !strings.Contains(u.Name, "/") {
			open[u.Folder], room[u.Folder] = len(groups)-1, most-u.Took
		}
	}
	return groups
}

// runGroup runs the tests with the fault. Their time limit depends on how long they took without it.
func (s *session) runGroup(ctx context.Context, binary, overlay string, group []unit, slower time.Duration) (result, error) {
	patterns := make([]string, len(group))
	took := time.Duration(0)
	for i, u := range group {
		patterns[i] = u.pattern()
		took += slower * u.Took
	}
	pattern := strings.Join(patterns, "|")
	limit := 4*took + s.grace
	began := time.Now()
	output, err := s.test(ctx, group[0].Folder, binary, limit, overlay, "-test.failfast", "-test.run="+pattern)
	r := result{Outcome: killed, Took: time.Since(began)}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return result{}, ctx.Err()
	case err == nil:
		r.Outcome = survived
	case r.Took >= limit:
		r.Outcome, r.By = hung, pattern
	case errors.As(err, &exit):
		r.By = failed(output)
	default:
		return result{}, err
	}
	return r, nil
}

// failed returns the name of the failed test.
func failed(output []byte) string {
	last := ""
	for text := range strings.Lines(string(output)) {
		if _, name, ok := strings.Cut(text, "--- FAIL: "); ok {
			last, _, _ = strings.Cut(name, " ")
		}
	}
	if last == "" {
		return firstLine(output)
	}
	return last
}

func firstLine(output []byte) string {
	for text := range strings.Lines(string(output)) {
		if text = strings.TrimSpace(text); text != "" && !strings.HasPrefix(text, "#") {
			return text
		}
	}
	return ""
}

// overlay writes the file with the fault, and the overlay file that makes go read it.
func (s *session) overlay(m mutation) (string, error) {
	path := filepath.Join(s.root, filepath.FromSlash(m.File))
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	faulty := filepath.Join(s.scratch, "faulty.go")
	if err := os.WriteFile(faulty, m.apply(source), 0o600); err != nil {
		return "", err
	}
	overlay := filepath.Join(s.scratch, "overlay.json")
	return overlay, writeJSON(overlay, map[string]map[string]string{"Replace": {path: faulty}})
}

// build builds the binary of a folder's tests.
func (s *session) build(ctx context.Context, folder, binary, overlay string, flags ...string) ([]byte, error) {
	_ = os.Remove(binary) // of the previous build
	return s.command(ctx, folder, overlay, "go", append([]string{"test", "-c", "-vet=off", "-o", binary}, append(flags, ".")...)...).CombinedOutput()
}

// test runs a binary in the folder in which go test would.
func (s *session) test(ctx context.Context, folder, binary string, limit time.Duration, overlay string, flags ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return s.command(ctx, folder, overlay, binary, append(flags, "-test.timeout=0")...).CombinedOutput()
}

// command returns a command that ends with its context, together with all that it starts. Programs that it builds have the
// fault too.
func (s *session) command(ctx context.Context, folder, overlay, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = filepath.Join(s.root, filepath.FromSlash(folder))
	cmd.Env = os.Environ()
	if overlay != "" {
		cmd.Env = append(cmd.Env, strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	cmd.WaitDelay = 10 * time.Second
	grouped(cmd)
	return cmd
}

// sumOf returns a checksum of all sources below the folders, without hidden files.
func sumOf(root string, folders ...string) (string, error) {
	sum := sha256.New()
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".":
				return fs.SkipDir
			case entry.IsDir() || !slices.Contains([]string{".go", ".sql", ".mod"}, filepath.Ext(path)):
				return nil
			}
			text, err := os.ReadFile(path)
			name, _ := filepath.Rel(root, path)
			fmt.Fprintf(sum, "%s %d\n", name, len(text))
			_, _ = io.Copy(sum, bytes.NewReader(text)) // neither fails
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8]), nil
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A unit is a test that can run by itself, and the lines of a target that it reaches.
type unit struct {
	Folder  string            `json:"folder"`
	Name    string            `json:"name"` // TestX, or TestX/Y
	Took    time.Duration     `json:"took"`
	Reaches map[string][]span `json:"reaches"` // by file
}

// A span is the lines of a block.
type span struct{ From, To int }

// reaches reports whether the unit runs the line of the mutation. For code outside of functions this is unknown.
func (u unit) reaches(m mutation) bool {
	if m.outside {
		return true
	}
	return slices.ContainsFunc(u.Reaches[m.File], func(s span) bool { return s.From <= m.Line && m.Line <= s.To })
}

// pattern returns the unit's name for -test.run.
func (u unit) pattern() string {
	parts := strings.Split(u.Name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// long is how long a test may take before its subtests run separately.
const long = 5 * time.Second

// measure runs the tests of the folder one by one, and finds out what they reach of the target and how long they take.
func (s *session) measure(ctx context.Context, t target, folder string) ([]unit, error) {
	binary := filepath.Join(s.scratch, "coverage.test")
	if output, err := s.build(ctx, folder, binary, "", "-coverpkg="+s.importPath(t.folder)); err != nil {
		return nil, fmt.Errorf("the tests of %s do not build: %w\n%s", folder, err, output)
	}
	if _, err := os.Stat(binary); err != nil {
		return nil, nil // there are no tests
	}
	listed, err := s.test(ctx, folder, binary, time.Minute, "", "-test.list=^(Test|Example|Fuzz)")
	if err != nil {
		return nil, fmt.Errorf("the tests of %s can not be listed: %w\n%s", folder, err, listed)
	}
	var units []unit
	for name := range strings.FieldsSeq(string(listed)) {
		found, err := s.split(ctx, folder, binary, name)
		if err != nil {
			return nil, err
		}
		units = append(units, found...)
	}
	return units, nil
}

// split runs a test or, if it takes long, its subtests one by one.
func (s *session) split(ctx context.Context, folder, binary, name string) ([]unit, error) {
	whole, subtests, err := s.reach(ctx, folder, binary, name)
	switch {
	case err != nil:
		return nil, err
	case whole.Took > long && len(subtests) > 0:
	case whole.Name == "":
		if whole.Took > long {
			fmt.Fprintf(s.out, "%s of %s takes more than %v, and is left out\n", name, folder, whole.Took.Round(time.Second))
		}
		return nil, nil
	default:
		return []unit{whole}, nil
	}
	var units []unit
	for _, name := range subtests {
		found, err := s.split(ctx, folder, binary, name)
		if err != nil {
			return nil, err
		}
		units = append(units, found...)
	}
	return units, nil
}

var begun = regexp.MustCompile(`(?m)^=== RUN +(\S+)$`)

// subtests returns the next name elements of the subtests that the test has run.
func subtests(name string, output []byte) []string {
	var found []string
	for _, line := range begun.FindAllSubmatch(output, -1) {
		rest, below := strings.CutPrefix(string(line[1]), name+"/")
		element, _, _ := strings.Cut(rest, "/")
		if below && !slices.Contains(found, name+"/"+element) {
			found = append(found, name+"/"+element)
		}
	}
	return found
}

// reach runs one test. If the test fails or takes too long, reach says so and returns a unit without a name.
func (s *session) reach(ctx context.Context, folder, binary, name string) (unit, []string, error) {
	profile := filepath.Join(s.scratch, "profile")
	if err := os.RemoveAll(profile); err != nil {
		return unit{}, nil, err
	}
	u := unit{Folder: folder, Name: name}
	began := time.Now()
	output, err := s.test(ctx, folder, binary, 3*s.longest+time.Second, "", "-test.v", "-test.run="+u.pattern(), "-test.coverprofile="+profile)
	u.Took = time.Since(began)
	switch {
	case ctx.Err() != nil:
		return unit{}, nil, ctx.Err()
	case u.Took > 3*s.longest:
		return unit{Took: u.Took}, subtests(name, output), nil
	case err != nil:
		fmt.Fprintf(s.out, "%s of %s fails by itself, and is left out: %v\n", name, folder, err)
		return unit{}, nil, nil
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return unit{}, nil, err
	}
	u.Reaches, err = s.reached(text)
	return u, subtests(name, output), err
}

// reached returns the executed blocks of a profile, by file.
func (s *session) reached(profile []byte) (map[string][]span, error) {
	found := map[string][]span{}
	lines := bufio.NewScanner(bytes.NewReader(profile))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, rest, ok := strings.Cut(lines.Text(), ".go:")
		if !ok || strings.HasSuffix(rest, " 0") {
			continue
		}
		place, _, _ := strings.Cut(rest, " ")
		from, to, _ := strings.Cut(place, ",")
		first, err := lineOf(from)
		if err != nil {
			return nil, err
		}
		last, err := lineOf(to)
		if err != nil {
			return nil, err
		}
		file := strings.TrimPrefix(strings.TrimPrefix(path.Clean(name+".go"), s.module), "/")
		found[file] = append(found[file], span{first, last})
	}
	return found, lines.Err()
}

func lineOf(place string) (int, error) {
	line, _, _ := strings.Cut(place, ".")
	return strconv.Atoi(line)
}

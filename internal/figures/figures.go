// Package figures lets tests say what they tried, so that a run of the whole suite can end with the sum of it.
package figures

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed-ed332417/jq/internal/race"
)

// The environment variables that name the files to which figures and counts are added.
const (
	file   = "JQ_FIGURES"
	counts = "JQ_COUNTS"
)

// A logger is the part of testing.T that is needed here.
type logger interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Print logs a figure of the test, and adds it to the file named by JQ_FIGURES if that is set.
func Print(t logger, format string, args ...any) {
	t.Helper()
	line := fmt.Sprintf(format, args...)
	t.Logf("%s", line)
	name := os.Getenv(file)
	if name == "" {
		return
	}
	if err := appendLine(name, folder()+pass()+": "+line); err != nil {
		t.Errorf("writing a figure to the file that %s names: %v", file, err)
	}
}

// Lost is the count that must stay 0: what was acknowledged and is not there.
const Lost = "lost"

// A count is one line of the file of counts.
type count struct {
	What string `json:"what"`
	N    int    `json:"n"`
}

// Count adds to a count of what the test tried or found, in the file named by JQ_COUNTS if that is set. make chaos sums them up.
func Count(t logger, what string, n int) {
	t.Helper()
	name := os.Getenv(counts)
	if name == "" {
		return
	}
	line, err := json.Marshal(count{what, n})
	if err == nil {
		err = appendLine(name, string(line))
	}
	if err != nil {
		t.Errorf("writing a count to the file that %s names: %v", counts, err)
	}
}

// CountsInto is the setting of the environment by which tests add their counts to the file.
func CountsInto(name string) string { return counts + "=" + name }

// Counts are the sums of the counts in the file, by what they count. A file that is not there has none.
func Counts(name string) (map[string]int, error) {
	sums := map[string]int{}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return sums, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var c count
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("%s: %q is no count: %w", name, lines.Text(), err)
		}
		sums[c.What] += c.N
	}
	return sums, lines.Err()
}

// pass tells the run under the race detector from the one without, where both have figures of one test.
func pass() string {
	if race.Enabled {
		return " (race)"
	}
	return ""
}

// folder is the name of the package under test, in whose folder go test runs it.
func folder() string {
	path, err := os.Getwd()
	if err != nil {
		return "?"
	}
	return filepath.Base(path)
}

// appendLine writes in one piece, for packages are tested at the same time.
func appendLine(name, line string) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(line + "\n"); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// Package figures lets tests report what they tried, so that a run of the whole suite can end with a summary.
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

// The environment variables with the names of the files for figures and counts.
const (
	file   = "JQ_FIGURES"
	counts = "JQ_COUNTS"
)

// A logger is the part of testing.T that this package needs.
type logger interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Print logs a figure of the test, and adds it to the file in JQ_FIGURES if that is set.
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

// Lost is the count of acknowledged things that are gone. It must stay 0.
const Lost = "lost"

// A count is one line of the file of counts.
type count struct {
	What string `json:"what"`
	N    int    `json:"n"`
}

// Count adds to a count of what the test tried or found, in the file in JQ_COUNTS if that is set. make chaos sums them up.
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

// CountsInto returns the environment setting that makes tests add their counts to the file.
func CountsInto(name string) string { return counts + "=" + name }

// Counts returns the sums of the counts in the file, by name. A missing file has none.
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

// pass distinguishes the run with the race detector from the one without it, for tests with figures in both.
func pass() string {
	if race.Enabled {
		return " (race)"
	}
	return ""
}

// folder returns the name of the package under test: go test runs it in that folder.
func folder() string {
	path, err := os.Getwd()
	if err != nil {
		return "?"
	}
	return filepath.Base(path)
}

// appendLine writes the line at once, because packages are tested concurrently.
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

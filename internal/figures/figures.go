// Package figures lets tests say what they tried, so that a run of the whole suite can end with the sum of it.
package figures

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed-ed332417/jq/internal/race"
)

// file is the environment variable that names the file to which figures are added.
const file = "JQ_FIGURES"

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

package browser

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/seed-ed332417/jq/internal/pgtest"
)

// folder is removed when the tests end.
var folder string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if folder, err = os.MkdirTemp("", "jq-browser-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(folder) }()
	defer browser.end()
	return pgtest.Main(m)
}

// jobq returns the path of the command, which it builds once.
var jobq = sync.OnceValues(func() (string, error) {
	path := filepath.Join(folder, "jobq")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/jobq")
	cmd.Dir = filepath.Join("..", "..")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, said)
	}
	return path, nil
})

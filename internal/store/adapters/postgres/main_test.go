package postgres

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// childRole tells a process that was started by a test what to do: the same binary is both.
const childRole = "JQ_POSTGRES_CHILD"

var roles = map[string]func(dsn, schema string, in io.Reader, out io.Writer) error{"share": share, "write": writeOn, "migrate": migrate, "last": lastTwo}

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		if err := roles[role](os.Args[1], os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(pgtest.Main(m))
}

// A child is a process that a test has started.
type child struct {
	*exec.Cmd
	in  io.Writer
	out *bufio.Scanner
}

func start(t *testing.T, role, dsn, schema string) *child {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	c := &child{Cmd: exec.CommandContext(t.Context(), exe, dsn, schema)}
	c.Env = append(os.Environ(), childRole+"="+role)
	c.Stderr = os.Stderr
	c.in, err = c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	c.out = bufio.NewScanner(out)
	require.NoError(t, c.Start())
	return c
}

// countIn is how many jobs are in the phase.
func countIn(t testing.TB, s *Store, phase store.State) int64 {
	t.Helper()
	counts, err := s.Count(t.Context(), store.Filter{States: []store.State{phase}})
	require.NoError(t, err)
	sum := int64(0)
	for _, q := range counts.Queues {
		sum += q.Jobs[phase]
	}
	return sum
}

func newClock() *clock.Mock {
	clk := clock.NewMock()
	clk.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	return clk
}

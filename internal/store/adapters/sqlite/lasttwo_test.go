package sqlite

import (
	"context"
	"io"
	"testing"

	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store/waittest"
)

func lastTwo(path string, _ io.Reader, out io.Writer) error {
	s, err := Open(context.Background(), path, nil)
	if err != nil {
		return err
	}
	return waittest.EndTogether(context.Background(), s, s.DB(), out)
}

// The last two jobs that others wait for end at the same moment, and processes are killed anywhere in between. What waits becomes ready
// once.
func TestTheLastTwoAtOnce(t *testing.T) {
	rounds, jobs := 10, 1000
	if race.Enabled {
		rounds, jobs = 3, 60
	}
	path := newPath(t)
	seen := waittest.Killed(t, func() waittest.Child {
		c := start(t, "last", path)
		return waittest.Child{Cmd: c.Cmd, Out: c.out}
	}, rounds, jobs)
	s := openAt(t, path, nil)
	waittest.Check(t, s, seen)
	intact(t, s)
}

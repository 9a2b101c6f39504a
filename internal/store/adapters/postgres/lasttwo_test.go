package postgres

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store/waittest"
)

func lastTwo(dsn, schema string, _ io.Reader, out io.Writer) error {
	s, err := Open(context.Background(), dsn, &Options{Schema: schema})
	if err != nil {
		return err
	}
	return waittest.EndTogether(context.Background(), s, s.DB(), out)
}

// The last two jobs that others wait for end at the same moment, and processes are killed anywhere in between. What waits becomes ready
// once.
func TestTheLastTwoAtOnce(t *testing.T) {
	t.Parallel()
	rounds, jobs := 10, 1000
	if race.Enabled {
		rounds, jobs = 3, 60
	}
	dsn := pgtest.DSN(t)
	schema := pgtest.Schema(t, dsn)
	s := openStore(t, Options{Schema: schema})
	seen := waittest.Killed(t, func() waittest.Child {
		c := start(t, "last", dsn, schema)
		return waittest.Child{Cmd: c.Cmd, Out: c.out}
	}, rounds, jobs)
	waittest.Check(t, s, seen)
	assert.Zero(t, left(t, s, "looks")+left(t, s, "ends"))
}

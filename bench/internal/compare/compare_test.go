package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/bench/internal/site"
)

// The workers are this program too.
func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// quick are the subjects whose settings let them find a dead worker within seconds. It says which are left out.
func quick(t *testing.T) (some []subject) {
	t.Helper()
	for _, s := range subjects() {
		if s.own == "" {
			t.Logf("%s is left out: it has no setting to find a dead worker within seconds; make compare waits for it", s.name)
			continue
		}
		some = append(some, s)
	}
	return some
}

func place(t *testing.T, s subject) peer.Place {
	t.Helper()
	at, err := site.New()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, at.Close()) })
	p, _, err := at.Place(t.Context(), peer.Peer{Store: s.store})
	if absence, ok := errors.AsType[*site.Absence](err); ok {
		t.Skip(absence.Reason)
	}
	require.NoError(t, err)
	return p
}

func TestTheJobOfADeadWorkerGoesToAnother(t *testing.T) {
	for _, s := range quick(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			after, err := death(t.Context(), s, place(t, s), true, s.within)
			require.NoError(t, err)
			assert.Greater(t, after, time.Second, "not before the settings allow it")
			t.Logf("after %v", after)
		})
	}
}

// jq refuses the late report, and River, in the version of go.mod, takes it.
func TestALateReport(t *testing.T) {
	want := map[string]Late{"jq": {After: running, End: waiting}, "River": {After: finished, End: finished}}
	for _, s := range quick(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			got, err := late(t.Context(), s, place(t, s))
			require.NoError(t, err)
			assert.Equal(t, want[s.name], got)
		})
	}
}

// With default settings no queue finds a dead worker within a second, so this is quick, and asynq takes part if Redis is there.
func TestADeathIsNotFoundAtOnceByDefault(t *testing.T) {
	for _, s := range subjects() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			_, err := death(t.Context(), s, place(t, s), false, time.Second)
			require.ErrorIs(t, err, errSilent)
		})
	}
}

// What a job of jq costs does not grow with the jobs that ran since a snapshot was taken. What one of River costs does.
func TestTheCostOfAJobUnderAHeldSnapshot(t *testing.T) {
	at, err := site.New()
	require.NoError(t, err)
	defer func() { assert.NoError(t, at.Close()) }()
	grown := func(id string) float64 {
		h, err := held(t.Context(), at, id, 6000, true)
		if absence, ok := errors.AsType[*site.Absence](err); ok {
			t.Skip(absence.Reason)
		}
		require.NoError(t, err)
		require.Positive(t, h.First)
		t.Logf("%s: %.0f blocks, then %.0f", id, h.First, h.Last)
		return h.Last / h.First
	}
	assert.Less(t, grown("jq-postgres"), 1.5)
	assert.Greater(t, grown("river-postgres"), 1.5)
}

func TestEachQueueAnswersInItsColumn(t *testing.T) {
	at, err := site.New()
	require.NoError(t, err)
	defer func() { assert.NoError(t, at.Close()) }()
	answers, err := each(t.Context(), at, io.Discard, subjects(), func(_ context.Context, s subject, p peer.Place) (string, error) {
		return s.name, placed(s, p)
	})
	require.NoError(t, err)
	require.Len(t, answers, 3)
	assert.Equal(t, []string{"jq", "River"}, answers[:2])
	assert.Regexp(t, "^asynq$|^not tried: redis-server is not installed$", answers[2])
}

func placed(s subject, p peer.Place) error {
	if (s.store == peer.Postgres) != (p.DSN != "") || (s.store == peer.Redis) != (p.Redis != "") {
		return fmt.Errorf("%s got the place %+v", s.name, p)
	}
	return nil
}

func TestLateReportsInWords(t *testing.T) {
	assert.Equal(t, "refuses the late report: the job counts as running until its second run fails, then as waiting for its next run",
		Late{After: running, End: waiting}.String())
	assert.Equal(t, "takes the late report: the job counts as succeeded while its second run is under way, and as succeeded when that fails",
		Late{After: finished, End: finished}.String())
}

func TestTheTableHasAColumnForEachQueue(t *testing.T) {
	got := table(subjects(), []row{{"Why?", []string{"a", "b", "c"}}})
	assert.Equal(t, "| | jq | River | asynq |\n|---|---|---|---|\n| Why? | a | b | c |\n", got)
}

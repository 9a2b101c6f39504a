package schedule

import (
	"context"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// A bench is a store whose clock the test moves.
type bench struct {
	*testing.T
	store *memory.Store
	clock *clock.Mock
}

func newBench(t *testing.T) *bench {
	t.Helper()
	clk := clock.NewMock()
	clk.Set(winter)
	s := memory.New(memory.Options{Clock: clk})
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return &bench{t, s, clk}
}

func nightly(change ...func(*store.Schedule)) store.Schedule {
	s := store.Schedule{Name: "nightly", Cron: "0 2 * * *", Job: store.NewJob{Queue: "q", Kind: "k", Payload: []byte("null")}}
	for _, f := range change {
		f(&s)
	}
	return s
}

func (b *bench) put(s store.Schedule) store.Schedule {
	b.Helper()
	kept, err := Put(b.Context(), b.store, s)
	require.NoError(b, err)
	return kept
}

// jobs has for which times the schedule has enqueued, the latest first.
func (b *bench) jobs() []time.Time {
	b.Helper()
	page, err := b.store.List(b.Context(), store.Filter{}, store.Page{Limit: store.MaxItems})
	require.NoError(b, err)
	var times []time.Time
	for _, j := range page.Jobs {
		times = append(times, j.Scheduled().For)
	}
	return times
}

func TestPutThatChangesNothingChangesNothing(t *testing.T) {
	b := newBench(t)
	first := b.put(nightly(func(s *store.Schedule) { s.Cron = "@every 6h" }))
	assert.Equal(t, winter.Add(6*time.Hour), first.NextAt)
	b.clock.Add(5 * time.Hour)
	assert.Equal(t, first, b.put(nightly(func(s *store.Schedule) { s.Cron = "@every 6h" })), "a deploy each five hours does not keep it from firing")
	b.clock.Add(time.Hour)
	b.put(nightly(func(s *store.Schedule) { s.Cron, s.Job.Priority = "@every 6h", 1 }))
	assert.Equal(t, []time.Time{first.NextAt}, b.jobs(), "another job for the same times: what was due fires first")
}

func TestChangeOfExpressionSettlesWhatIsDue(t *testing.T) {
	b := newBench(t)
	first := b.put(nightly())
	b.clock.Add(3 * time.Hour)
	second := b.put(nightly(func(s *store.Schedule) { s.Cron, s.Timezone = "0 2 * * *", "Asia/Kolkata" }))
	assert.Equal(t, []time.Time{first.NextAt}, b.jobs())
	assert.Equal(t, winter.Add(20*time.Hour+30*time.Minute), second.NextAt)
	assert.Equal(t, first.NextAt, second.LastAt)
}

func TestDeclarationsCarryOwnerAndVersion(t *testing.T) {
	b := newBench(t)
	declared := func(owner string, version int64, cron string) (store.Schedule, error) {
		return Put(t.Context(), b.store, nightly(func(s *store.Schedule) { s.Owner, s.Version, s.Cron = owner, version, cron }))
	}
	_, err := declared("billing", 2, "0 2 * * *")
	require.NoError(t, err)
	kept, err := declared("billing", 1, "0 3 * * *")
	require.NoError(t, err)
	assert.Equal(t, "0 2 * * *", kept.Cron, "a lower version overwrites nothing")
	_, err = declared("shop", 3, "0 3 * * *")
	require.ErrorIs(t, err, store.ErrConflict)
	assert.ErrorContains(t, err, `belongs to "billing"`)

	byHand := b.put(nightly(func(s *store.Schedule) { s.Cron = "0 4 * * *" }))
	assert.Equal(t, "billing", byHand.Owner)
	kept, err = declared("billing", 2, "0 2 * * *")
	require.NoError(t, err)
	assert.Equal(t, byHand, kept, "what a person changed stays until a higher version")
	_, err = SetPaused(t.Context(), b.store, "nightly", true)
	require.NoError(t, err)
	kept, err = declared("billing", 3, "0 2 * * *")
	require.NoError(t, err)
	assert.Equal(t, "0 2 * * *", kept.Cron)
	assert.True(t, kept.Paused, "a declaration does not resume")
	assert.Zero(t, kept.NextAt)
}

func TestTimesOfAPauseAreNotMissed(t *testing.T) {
	b := newBench(t)
	first := b.put(nightly())
	b.clock.Add(3 * time.Hour)
	paused, err := SetPaused(t.Context(), b.store, "nightly", true)
	require.NoError(t, err)
	assert.Equal(t, []time.Time{first.NextAt}, b.jobs(), "what was due before the pause fires")
	assert.Zero(t, paused.NextAt)
	b.clock.Add(10 * 24 * time.Hour)
	resumed, err := SetPaused(t.Context(), b.store, "nightly", false)
	require.NoError(t, err)
	assert.Equal(t, winter.Add(11*24*time.Hour+2*time.Hour), resumed.NextAt)
	again, err := SetPaused(t.Context(), b.store, "nightly", false)
	require.NoError(t, err)
	assert.Equal(t, resumed, again)
	assert.Len(t, b.jobs(), 1)
}

// A schedule may come from a newer program: whoever cannot read its expression can pause it all the same, and not resume it.
func TestScheduleThatCannotBeReadIsPaused(t *testing.T) {
	b := newBench(t)
	_, err := b.store.SetSchedule(t.Context(), nightly(func(s *store.Schedule) { s.Cron, s.NextAt = "@someday", winter.Add(time.Hour) }))
	require.NoError(t, err)
	paused, err := SetPaused(t.Context(), b.store, "nightly", true)
	require.NoError(t, err)
	assert.True(t, paused.Paused)
	assert.Zero(t, paused.NextAt)
	_, err = SetPaused(t.Context(), b.store, "nightly", false)
	require.ErrorContains(t, err, "must have five fields")
}

func TestRunEnqueuesAtOnce(t *testing.T) {
	b := newBench(t)
	first := b.put(nightly())
	job, err := Run(t.Context(), b.store, "nightly")
	require.NoError(t, err)
	assert.Equal(t, store.Enqueued{ID: 1, State: store.Ready}, job)
	assert.Equal(t, []time.Time{winter}, b.jobs())
	now, _, err := Get(t.Context(), b.store, "nightly")
	require.NoError(t, err)
	assert.Equal(t, first.NextAt, now.NextAt, "its times stay")
	_, err = SetPaused(t.Context(), b.store, "nightly", true)
	require.NoError(t, err)
	_, err = Run(t.Context(), b.store, "nightly")
	require.NoError(t, err, "a paused schedule too")
	assert.Len(t, b.jobs(), 2)
	b.put(nightly(func(s *store.Schedule) { s.Overlap = store.OverlapSkip }))
	_, err = Run(t.Context(), b.store, "nightly")
	require.ErrorIs(t, err, store.ErrState)
	assert.Len(t, b.jobs(), 2)
}

func TestResetMendsATimeFarAhead(t *testing.T) {
	b := newBench(t)
	first := b.put(nightly())
	b.clock.Add(10 * 365 * 24 * time.Hour) // the clock jumps ahead, and back
	f, due, err := Due(first, b.clock.Now())
	require.NoError(t, err)
	require.True(t, due)
	_, err = b.store.Fire(t.Context(), []store.Firing{f})
	require.NoError(t, err)
	b.clock.Set(winter.Add(time.Hour))
	reset, err := Reset(t.Context(), b.store, "nightly")
	require.NoError(t, err)
	assert.Equal(t, first.NextAt, reset.NextAt)
}

func TestUnknownSchedules(t *testing.T) {
	b := newBench(t)
	for what, call := range map[string]func(name string) error{
		"Get":       func(name string) error { _, _, err := Get(t.Context(), b.store, name); return err },
		"SetPaused": func(name string) error { _, err := SetPaused(t.Context(), b.store, name, true); return err },
		"Reset":     func(name string) error { _, err := Reset(t.Context(), b.store, name); return err },
		"Run":       func(name string) error { _, err := Run(t.Context(), b.store, name); return err },
	} {
		require.ErrorIs(t, call("nobody"), store.ErrNotFound, what)
		require.ErrorIs(t, call(""), store.ErrInvalid, what)
	}
}

// TestPutRefuses: nothing is applied, and the error names the field.
func TestPutRefuses(t *testing.T) {
	b := newBench(t)
	b.put(nightly())
	for field, change := range map[string]func(*store.Schedule){
		"cron":       func(s *store.Schedule) { s.Cron = "0 0 31 2 *" },
		"timezone":   func(s *store.Schedule) { s.Timezone = "Mars/Olympus" },
		"job.run_at": func(s *store.Schedule) { s.Job.RunAt = winter },
		"job.kind":   func(s *store.Schedule) { s.Job.Kind = "" },
		"overlap":    func(s *store.Schedule) { s.Overlap = "queue" },
	} {
		_, err := Put(t.Context(), b.store, nightly(change))
		var invalid *store.InvalidError
		require.ErrorAs(t, err, &invalid, field)
		assert.Equal(t, field, invalid.Field)
	}
	now, _, err := Get(t.Context(), b.store, "nightly")
	require.NoError(t, err)
	assert.Equal(t, "0 2 * * *", now.Cron)
}

// A contested store lets another change the schedule before each SetSchedule.
type contested struct {
	*memory.Store
	others int
}

func (c *contested) SetSchedule(ctx context.Context, s store.Schedule) (store.Schedule, error) {
	if c.others > 0 {
		c.others--
		current, _, err := Get(ctx, c.Store, s.Name)
		if err != nil {
			return store.Schedule{}, err
		}
		current.Job.Priority = c.others%8 + 1
		if _, err := c.Store.SetSchedule(ctx, current); err != nil {
			return store.Schedule{}, err
		}
	}
	return c.Store.SetSchedule(ctx, s)
}

func TestPutIsTriedAgainWhereOthersChangeTheSchedule(t *testing.T) {
	b := newBench(t)
	b.put(nightly())
	keeper := &contested{b.store, 3}
	kept, err := Put(t.Context(), keeper, nightly(func(s *store.Schedule) { s.Cron = "@daily" }))
	require.NoError(t, err)
	assert.Equal(t, "@daily", kept.Cron)
	keeper.others = 1000
	_, err = Put(t.Context(), keeper, nightly(func(s *store.Schedule) { s.Cron = "@weekly" }))
	require.ErrorIs(t, err, store.ErrConflict)
}

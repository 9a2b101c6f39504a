package postgres

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
)

const (
	never = 1000 * time.Hour // no sweep gets so old
	often = 50 * time.Millisecond
)

// A hiding place is a queue whose mark one store has brought to the present of its clock, so that jobs can hide before it.
type hidingPlace struct {
	s, other *Store // the other one has a clock of its own
	shown    *clock.Mock
	others   *clock.Mock
}

func newHidingPlace(t *testing.T) hidingPlace {
	t.Helper()
	h := hidingPlace{shown: clock.NewMock(), others: clock.NewMock()}
	for _, c := range []*clock.Mock{h.shown, h.others} {
		c.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	}
	h.s = openStore(t, Options{Clock: h.shown})
	h.other = openStore(t, Options{Clock: h.others, Schema: h.s.options.Schema})
	return h
}

// pass brings the marks of the store beyond a time, which is a minute later. The clock moves on in small steps, because the row of a lease is due
// within another minute, and nothing hides the lease then.
func (h hidingPlace) pass(t *testing.T) (passed time.Time) {
	t.Helper()
	h.others.Add(time.Minute)
	h.shown.Add(time.Minute)
	passed = h.shown.Now()
	for began := time.Now(); ; h.shown.Add(20 * time.Millisecond) {
		h.others.Set(h.shown.Now())
		require.Empty(t, claimN(t, h.s, 1))
		done, err := h.s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 1})
		require.NoError(t, err)
		require.Empty(t, done)
		leases := h.s.leases()
		if h.s.cursors.Get("q").Lanes[cursor.Fresh].Mark[cursor.LevelOf(0)].At.After(passed) && h.s.cursors.Get("q").Lanes[cursor.Retries].Mark[cursor.LevelOf(0)].At.After(passed) && leases.At.After(passed) {
			return passed
		}
		require.Less(t, time.Since(began), time.Minute, "the marks do not move")
	}
}

// A hidden job is one that a call takes, as soon as it is found.
type hidden struct {
	id   int64
	take func() []int64
}

// claimed is hidden from claims.
func (h hidingPlace) claimed(t *testing.T, id int64) hidden {
	return hidden{id, func() (ids []int64) {
		for _, j := range claimN(t, h.s, 1) {
			ids = append(ids, j.ID)
		}
		return ids
	}}
}

// recovered is hidden from recovery.
func (h hidingPlace) recovered(t *testing.T, id int64) hidden {
	return hidden{id, func() (ids []int64) {
		done, err := h.s.RecoverExpiredLeases(t.Context(), store.RecoverRequest{Limit: 1})
		require.NoError(t, err)
		for _, r := range done {
			ids = append(ids, r.ID)
		}
		return ids
	}}
}

// finds lets the store sweep, and wants the jobs to be found, which are not before.
func (h hidingPlace) finds(t *testing.T, all ...hidden) {
	t.Helper()
	for range 3 {
		h.shown.Add(time.Second)
		for _, one := range all {
			require.Empty(t, one.take(), "without a sweep, the job is hidden: the test is about nothing")
		}
	}
	h.s.sweeper.pace(often)
	for _, one := range all {
		var got []int64
		require.Eventually(t, func() bool {
			got = one.take()
			return len(got) > 0
		}, time.Minute, 10*time.Millisecond, "the job stays hidden")
		require.Equal(t, []int64{one.id}, got)
	}
}

func (h hidingPlace) run(t *testing.T, text string, args ...any) {
	t.Helper()
	result, err := h.s.callers.ExecContext(t.Context(), h.s.sql(text), args...)
	require.NoError(t, err)
	changed, err := result.RowsAffected()
	require.NoError(t, err)
	require.EqualValues(t, 1, changed)
}

// checked lets the store check, and says whether it has swept.
func checked(t *testing.T, s *Store) bool {
	t.Helper()
	swept, err := s.check(t.Context())
	require.NoError(t, err)
	return swept
}

// The database's clock was ten minutes back for a moment, between two transactions of one store. Another one has enqueued
// meanwhile, and has claimed for a minute.
func TestJobsOfAClockSetBackAreFound(t *testing.T) {
	t.Parallel()
	h := newHidingPlace(t)
	h.pass(t)
	h.others.Set(h.shown.Now().Add(-10 * time.Minute))
	late := openStore(t, Options{Clock: h.others, Schema: h.s.options.Schema}) // whose now has not been later
	ids := enqueue(t, late, 2)
	require.Equal(t, ids[0], claimN(t, late, 1)[0].ID)
	h.finds(t, h.claimed(t, ids[1]), h.recovered(t, ids[0]))
}

// Somebody has changed rows by hand.
func TestRowsMadeReadyByHandAreFound(t *testing.T) {
	t.Parallel()
	h := newHidingPlace(t)
	ids := enqueue(t, h.s, 3)
	req := claimOf(3)
	req.TTL = time.Hour
	jobs, err := h.s.FetchAndClaim(t.Context(), req)
	require.NoError(t, err)
	require.Len(t, jobs, 3)
	_, err = h.s.Ack(t.Context(), acksOf(jobs[:1]))
	require.NoError(t, err)
	_, err = h.s.NAck(t.Context(), []store.NAck{{Lease: jobs[1].Lease(), Form: store.After, Delay: 24 * time.Hour}})
	require.NoError(t, err)
	h.pass(t)
	past := h.shown.Now().Add(-time.Hour)
	h.run(t, `UPDATE {schema}.jobs SET unleased_state = 'ready', finished_at = NULL, run_at = $2 WHERE id = $1`, ids[0], past)
	h.run(t, `UPDATE {schema}.jobs SET lease_expires_at = $2 WHERE id = $1 AND lease_expires_at IS NOT NULL`, ids[2], past)
	h.finds(t, h.claimed(t, ids[0]), h.recovered(t, ids[2]))
	h.s.sweeper.pace(never)
	_, err = h.s.Cancel(t.Context(), store.Filter{IDs: []int64{ids[0], ids[2]}}, 2) // which would be due again soon
	require.NoError(t, err)
	h.pass(t)
	h.run(t, `UPDATE {schema}.jobs SET retry_at = $2 WHERE id = $1 AND unleased_state = 'failed'`, ids[1], past)
	h.finds(t, h.claimed(t, ids[1]))
}

// The store that has the turn knows nothing of other stores' marks, and has none of its own.
func TestWhatOneStoreSweepsAllFind(t *testing.T) {
	t.Parallel()
	h := newHidingPlace(t)
	id := enqueue(t, h.s, 1)[0]
	_, err := h.s.Ack(t.Context(), acksOf(claimN(t, h.s, 1)))
	require.NoError(t, err)
	h.pass(t)
	h.run(t, `UPDATE {schema}.jobs SET unleased_state = 'ready', finished_at = NULL, run_at = $2 WHERE id = $1`, id, h.shown.Now().Add(-time.Hour))
	checked(t, h.s) // says what it claims from
	h.other.sweeper.pace(often)
	require.Eventually(t, func() bool {
		checked(t, h.other)
		var swept bool
		require.NoError(t, h.s.callers.GetContext(t.Context(), &swept, h.s.sql(`
			SELECT EXISTS (SELECT 1 FROM {schema}.sweeps WHERE queue = 'q' AND heads = ARRAY[$1::bigint])`), id))
		return swept
	}, time.Minute, time.Millisecond)
	require.Empty(t, h.claimed(t, id).take(), "it is still hidden")
	require.False(t, checked(t, h.s), "it has not swept itself: its sweeps never get old")
	assert.Equal(t, []int64{id}, h.claimed(t, id).take())
}

// Jobs come and go all the time, and each is the first of its queue for a while: that proves nothing.
func TestASweepLeavesGoodMarksAlone(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	enqueue(t, s, 300)
	sweep := func() {
		_, err := s.callers.ExecContext(t.Context(), s.sql(`UPDATE {schema}.sweeps SET swept_at = NULL, turn_at = NULL`))
		require.NoError(t, err)
		require.True(t, checked(t, s))
	}
	first := claimN(t, s, 1)[0]
	awaitHorizon(t, s, first.RunAt.Add(cursor.Slack+store.Resolution))
	for range 2 {
		inQueue(s, func(q *cursor.Queue) { q.Looked = time.Time{} })
		claimN(t, s, 1)
	}
	require.Greater(t, s.cursors.Get("q").Lanes[cursor.Fresh].Mark[cursor.LevelOf(0)].ID, first.ID, "the mark has not moved: the test is about nothing")
	checked(t, s)
	age := s.cursors.Get("q").Age
	for range 20 {
		sweep()
		jobs := claimN(t, s, 10)
		require.NotEmpty(t, jobs)
		inQueue(s, func(q *cursor.Queue) { q.Looked = time.Time{} })
		claimN(t, s, 1)
		checked(t, s)
	}
	assert.Equal(t, age, s.cursors.Get("q").Age, "a mark was brought back")
}

// A sweep that takes too long goes on in slices, and comes to the end also where all jobs have one due time.
func TestSlicesComeToTheEnd(t *testing.T) {
	t.Parallel()
	horizon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	moment := horizon.Add(-time.Hour)
	const lives = 3_000_000 // the one entry that is alive: the ids below are dead entries at one moment
	cost := func(from, to cursor.Position) (entries int64) {
		if !from.At.After(moment) && to.At.After(moment) || from.At.Equal(moment) && to.At.Equal(moment) {
			low, high := int64(0), int64(lives)
			if from.At.Equal(moment) {
				low = min(from.ID, lives)
			}
			if to.At.Equal(moment) {
				high = min(to.ID, lives)
			}
			return high - low
		}
		return 0
	}
	p, cancelled, slices := place{}, 0, 0
	for ; p.Range == 0; slices++ {
		require.Less(t, slices, 10_000)
		to := p.to(horizon)
		from := cursor.Position{At: p.At, ID: p.ID}
		require.True(t, from.Before(to), "a slice is not empty: %+v", p)
		switch entries := cost(from, to); {
		case entries > 50_000:
			cancelled++
			p = p.tooLong(horizon)
		case from.Before(cursor.Position{At: moment, ID: lives}) && cursor.Position{At: moment, ID: lives}.Before(to):
			p = p.next()
		default:
			p = p.passed(to, horizon, entries < 10_000)
		}
	}
	assert.Positive(t, cancelled)
	t.Logf("%d slices, %d of them cancelled", slices, cancelled)
	last := place{At: moment, ID: math.MaxInt64 - 5, Step: 1 << 40, ByID: true}
	assert.Equal(t, place{At: moment.Add(store.Resolution), Step: 1}, last.passed(last.to(horizon), horizon, false))
}

// The same on a real server, whose statements are cancelled: dead entries are kept by a snapshot.
func TestSlicesFindWhatHidesBehindTheDead(t *testing.T) {
	t.Parallel()
	h := newHidingPlace(t)
	release := holdSnapshot(t, h.s)
	defer release()
	crowd{queue: "q", state: store.Ready, due: "-400 days"}.add(t, h.s, 150_000) // before the time that the store is shown
	_, err := h.s.callers.ExecContext(t.Context(), h.s.sql(`UPDATE {schema}.jobs SET unleased_state = 'succeeded', finished_at = run_at`))
	require.NoError(t, err)
	id := enqueue(t, h.s, 1)[0]
	_, err = h.s.Ack(t.Context(), acksOf(claimN(t, h.s, 1)))
	require.NoError(t, err)
	passed := h.pass(t)
	h.run(t, `UPDATE {schema}.jobs SET unleased_state = 'ready', finished_at = NULL, run_at = $2 WHERE id = $1`, id, passed.Add(-time.Second))
	checked(t, h.s)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h.s.sweeper.limit = 50 * time.Millisecond
	turns, swept := 0, false
	for ; !swept; turns++ { // each turn is as if it was due
		require.NoError(t, ctx.Err(), "a round comes to no end")
		_, err := h.s.callers.ExecContext(ctx, h.s.sql(`UPDATE {schema}.sweeps SET swept_at = swept_at - interval '9 years', turn_at = NULL`))
		require.NoError(t, err)
		require.True(t, checked(t, h.s))
		require.NoError(t, h.s.callers.GetContext(ctx, &swept, h.s.sql(`
			SELECT $1 = ANY (heads || found)
			FROM {schema}.sweeps
			WHERE queue = 'q'`), id))
	}
	t.Logf("%d turns", turns)
	var place string
	require.NoError(t, h.s.callers.GetContext(ctx, &place, h.s.sql(`SELECT place FROM {schema}.sweeps WHERE queue = 'q'`)))
	require.NotEmpty(t, place, "the queue was swept as a whole: the test is about nothing")
	require.Empty(t, h.claimed(t, id).take(), "it is still hidden")
	checked(t, h.s)
	assert.Equal(t, []int64{id}, h.claimed(t, id).take())
}

// pace changes how old a sweep gets.
func (w *sweeper) pace(every time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.every = every
}

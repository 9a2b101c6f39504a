package server

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/schedule"
	"github.com/seed-ed332417/jq/internal/store"
)

// put adds a schedule.
func (w *world) put(name, cron string, change ...func(*store.Schedule)) store.Schedule {
	w.Helper()
	one := store.Schedule{Name: name, Cron: cron, Job: store.NewJob{Queue: "scheduled", Kind: "job", Payload: []byte("null")}}
	for _, f := range change {
		f(&one)
	}
	kept, err := schedule.Put(w.Context(), w.store, one)
	require.NoError(w, err)
	return kept
}

// times has the times for which the schedule has enqueued, each as often as it has.
func (w *world) times(name string) []time.Time {
	w.Helper()
	var times []time.Time
	for page := (store.Page{Limit: store.MaxItems}); ; {
		found, err := w.store.List(w.Context(), store.Filter{Queue: "scheduled"}, page)
		require.NoError(w, err)
		for _, j := range found.Jobs {
			if j.Scheduled() != nil && j.Scheduled().Name == name {
				times = append(times, j.Scheduled().For)
			}
		}
		if page.Cursor = found.Next; page.Cursor == "" {
			slices.SortFunc(times, time.Time.Compare)
			return times
		}
	}
}

// Three servers come and go for a year, and one of them is always there: each time enqueues once, on time. Under the race detector, the year
// has two months.
func TestEachTimeOfAYearEnqueuesOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		expressions := map[string]string{"hourly": "0 * * * *", "nightly": "30 2 * * *", "each 100 minutes": "@every 100m", "weekly": "@weekly"}
		want := map[string][]time.Time{}
		months := 12
		if race.Enabled {
			months = 2
		}
		end := time.Now().AddDate(0, months, 0)
		for name, cron := range expressions {
			kept := w.put(name, cron, func(s *store.Schedule) { s.Timezone = "Europe/Berlin" })
			times, err := schedule.Parse(cron, "Europe/Berlin", time.Now())
			require.NoError(w, err)
			for at := kept.NextAt; !at.After(end); at = times.Next(at) {
				want[name] = append(want[name], at)
			}
		}
		options := rare(-1)
		options.Queues = map[string]QueueOptions{}
		options.Schedules.Interval = 10 * time.Minute
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test repeats itself
		running := []*Server{w.start(options)}
		changes := 0
		for time.Now().Before(end) {
			w.wait(min(time.Duration(random.IntN(100))*time.Hour, time.Until(end)))
			switch {
			case len(running) < 3 && random.IntN(2) == 0:
				running = append(running, w.start(options))
				changes++
			case len(running) > 1:
				w.stop(running[0])
				running = running[1:]
				changes++
			}
		}
		for _, s := range running {
			w.stop(s)
		}
		for name, times := range want {
			assert.Equal(w, times, w.times(name), name)
		}
		assert.Greater(w, changes, 4*months, "servers came and went")
	})
}

// While no server runs, times pass: the latest of them enqueues late, or none, as the schedule says.
func TestMissedTimes(t *testing.T) {
	inWorld(t, func(w *world) {
		one := w.put("one", "0 * * * *")
		w.put("skip", "0 * * * *", func(s *store.Schedule) { s.CatchUp = store.CatchUpSkip })
		w.wait(time.Until(one.NextAt) + 5*time.Hour + 10*time.Minute)
		s := w.start(Options{})
		w.wait(time.Second)
		assert.Equal(w, []time.Time{one.NextAt.Add(5 * time.Hour)}, w.times("one"))
		assert.Empty(w, w.times("skip"))
		assert.Equal(w, 1, w.log.said("jq: schedule left out times that were missed"))
		w.wait(time.Hour)
		assert.Len(w, w.times("one"), 2)
		assert.Equal(w, []time.Time{one.NextAt.Add(6 * time.Hour)}, w.times("skip"))
		w.stop(s)
	})
}

// Servers look each second while a schedule is due soon, so that each second enqueues once, whichever of them is first.
func TestEachSecondEnqueuesOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.put("each second", "* * * * * *").NextAt
		servers := []*Server{w.start(Options{}), w.start(Options{}), w.start(Options{})}
		w.wait(30*time.Second + 500*time.Millisecond)
		w.stop(servers[0])
		w.wait(30 * time.Second)
		var want []time.Time
		for at := first; !at.After(time.Now()); at = at.Add(time.Second) {
			want = append(want, at)
		}
		assert.Equal(w, want, w.times("each second"))
		w.stop(servers[1])
		w.stop(servers[2])
	})
}

// A store that takes its time delays each look a little. The delays do not add up until a look finds two times due.
func TestSlowStoreLeavesNoTimeOut(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.put("each second", "* * * * * *").NextAt
		h := w.hook()
		h.delay(20 * time.Millisecond)
		s := w.start(Options{}, h)
		w.wait(5*time.Minute + 500*time.Millisecond)
		times := w.times("each second")
		assert.Equal(w, first, times[0])
		assert.Len(w, times, int(time.Since(first)/time.Second)+1)
		w.stop(s)
	})
}

// A schedule that cannot be read is logged, and delays no other.
func TestUnreadableScheduleDelaysNoOther(t *testing.T) {
	inWorld(t, func(w *world) {
		_, err := w.store.SetSchedule(w.Context(), store.Schedule{
			Name: "broken", Cron: "by the moon", Job: store.NewJob{Queue: "scheduled", Kind: "job", Payload: []byte("null")}, NextAt: time.Now(),
		})
		require.NoError(w, err)
		w.put("good", "* * * * * *")
		s := w.start(Options{})
		w.wait(10 * time.Second)
		assert.Len(w, w.times("good"), 10)
		assert.Empty(w, w.times("broken"))
		assert.Equal(w, 1, w.log.said("jq: schedule cannot be read; set it again"))
		w.stop(s)
	})
}

// A store that fails for a while delays the times, and loses the latest of none.
func TestScheduleOutlastsAnOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.put("each minute", "* * * * *").NextAt
		h := w.hook()
		s := w.start(Options{}, h)
		w.wait(time.Until(first) - time.Second)
		h.every(func(_ context.Context, method string) error {
			if method == "fire" || method == "schedules" {
				return store.ErrUnavailable
			}
			return nil
		})
		w.wait(10 * time.Second)
		assert.Empty(w, w.times("each minute"))
		h.let()
		w.wait(2 * time.Second)
		assert.Equal(w, []time.Time{first}, w.times("each minute"))
		w.stop(s)
	})
}

func TestSchedulesCanBeLeftToOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.put("each second", "* * * * * *")
		h := w.hook()
		s := w.start(Options{Schedules: ScheduleOptions{Interval: -1}}, h)
		w.wait(time.Minute)
		assert.Zero(w, h.count("schedules"))
		assert.Empty(w, w.times("each second"))
		assert.Equal(w, 1, w.log.said("jq: schedules are off: their jobs are enqueued by other servers"))
		w.stop(s)
	})
}

// The longest interval that the options allow asks the store for nothing that it refuses.
func TestLongestIntervalIsOneThatTheStoreTakes(t *testing.T) {
	inWorld(t, func(w *world) {
		h := w.hook()
		s := w.start(Options{Schedules: ScheduleOptions{Interval: store.MaxDuration}}, h)
		w.wait(time.Second)
		assert.Equal(w, 1, h.count("schedules"))
		assert.Zero(w, w.log.said("jq: the store refused a call"))
		w.stop(s)
	})
}

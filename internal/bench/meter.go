package bench

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A meter measures what jobs cost between its start and its stop: time, CPU, allocations, and what the store reports of its own
// costs.
type meter struct {
	run   *run
	count func() int64 // how many jobs are done
	pace  *pace

	began, at expense
	first     int64 // how many were done at the start
	jobs      int64 // how many were done since
	store     []store.Cost
	unprofile func() error
	profiled  error
}

// An expense is what the process has used.
type expense struct {
	time    time.Time
	cpu     time.Duration
	objects uint64
	bytes   uint64
}

func spent() expense {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return expense{time.Now(), cpuTime(), m.Mallocs, m.TotalAlloc}
}

// measure begins to measure and to report progress.
func (r *run) measure(ctx context.Context, count func() int64, progress func() Progress) (*meter, error) {
	m := &meter{run: r, count: count, first: count()}
	var err error
	if m.store, err = r.spent(ctx); err != nil {
		return nil, err
	}
	runtime.GC() // of earlier garbage
	if m.unprofile, err = r.o.Profile(); err != nil {
		return nil, err
	}
	m.began = spent()
	m.pace = &pace{began: m.began.time}
	m.pace.end = every(often, func() {
		m.pace.note(count() - m.first)
		r.o.Progress(progress())
	})
	return m, nil
}

// stop ends the measurement and returns the figures.
func (m *meter) stop(ctx context.Context) ([]Figure, error) {
	m.halt()
	figures := []Figure{
		{"jobs", "", float64(m.jobs)},
		{"time", "s", m.at.time.Sub(m.began.time).Seconds()},
		{Rate, "jobs/s", float64(m.jobs) / m.at.time.Sub(m.began.time).Seconds()},
	}
	figures = append(figures, m.pace.figures(m.at.time, m.jobs)...)
	figures = append(figures, m.perJob()...)
	costs, err := m.costs(ctx)
	for _, c := range costs {
		figures = append(figures, Figure{c.Name, c.Unit + "/job", float64(c.Total) / float64(max(m.jobs, 1))})
	}
	return figures, err
}

// perSecond ends the measurement and returns costs per second, not per job.
func (m *meter) perSecond(ctx context.Context) ([]Figure, error) {
	m.halt()
	seconds := m.at.time.Sub(m.began.time).Seconds()
	figures := []Figure{
		{"time", "s", seconds},
		{"cpu", "% of a core", 100 * (m.at.cpu - m.began.cpu).Seconds() / seconds},
		{"allocations", "/s", float64(m.at.objects-m.began.objects) / seconds},
	}
	costs, err := m.costs(ctx)
	for _, c := range costs {
		figures = append(figures, Figure{c.Name, c.Unit + "/s", float64(c.Total) / seconds})
	}
	return figures, err
}

// costs returns the store's costs since the measurement began.
func (m *meter) costs(ctx context.Context) ([]store.Cost, error) {
	if m.profiled != nil {
		return nil, m.profiled
	}
	after, err := m.run.spent(ctx)
	if err != nil || len(after) != len(m.store) {
		return nil, err
	}
	for i := range after {
		after[i].Total -= m.store[i].Total
	}
	return after, nil
}

// halt ends the measurement. It may be called twice.
func (m *meter) halt() {
	if !m.at.time.IsZero() {
		return
	}
	m.at, m.jobs = spent(), m.count()-m.first
	m.pace.end()
	m.profiled = m.unprofile()
}

func (m *meter) perJob() []Figure {
	jobs := float64(max(m.jobs, 1))
	return []Figure{
		{"cpu", "µs/job", float64((m.at.cpu - m.began.cpu).Nanoseconds()) / 1e3 / jobs},
		{"allocations", "/job", float64(m.at.objects-m.began.objects) / jobs},
		{"allocated", "B/job", float64(m.at.bytes-m.began.bytes) / jobs},
	}
}

// spent returns what the store has cost its database so far, if it can tell.
func (r *run) spent(ctx context.Context) ([]store.Cost, error) {
	accountant, ok := r.counted.(store.Accountant)
	if !ok {
		return nil, nil
	}
	return accountant.Spent(ctx)
}

// A pace records how many jobs were done at which time.
type pace struct {
	began time.Time
	end   func() // stops recording
	marks []mark
}

type mark struct {
	after time.Duration
	done  int64
}

func (p *pace) note(done int64) { p.marks = append(p.marks, mark{time.Since(p.began), done}) }

// leastMarks is how many marks are needed to distinguish thirds.
const leastMarks = 9

// figures returns the rates in the three thirds of the time, and the ratio of the last to the first.
func (p *pace) figures(end time.Time, jobs int64) []Figure {
	if len(p.marks) < leastMarks {
		return nil
	}
	whole := end.Sub(p.began)
	marks := append(slices.Clone(p.marks), mark{whole, jobs})
	third := whole.Seconds() / 3
	one, two := doneAt(marks, whole/3), doneAt(marks, 2*whole/3)
	first, middle, last := one/third, (two-one)/third, (float64(jobs)-two)/third
	figures := []Figure{{"first third", "jobs/s", first}, {"middle third", "jobs/s", middle}, {"last third", "jobs/s", last}}
	if first > 0 {
		figures = append(figures, Figure{"last to first", "%", 100 * last / first})
	}
	return figures
}

// doneAt returns how many jobs were done at that time, interpolating linearly between the marks.
func doneAt(marks []mark, at time.Duration) float64 {
	var before mark
	for _, m := range marks {
		if m.after >= at {
			part := float64(at-before.after) / float64(max(m.after-before.after, 1))
			return float64(before.done) + part*float64(m.done-before.done)
		}
		before = m
	}
	return float64(before.done)
}

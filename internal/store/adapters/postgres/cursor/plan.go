package cursor

import (
	"iter"
	"slices"
	"time"
)

// A Plan says where one claim or one recovery begins, and keeps what it learns. It belongs to one goroutine.
type Plan struct {
	cursors *Cursors
	queue   string
	kept    Queue   // as remembered when the plan was made
	horizon Horizon // as known before the look
	lanes   [Lanes]lane
}

// A lane is what the claim does in one lane, by level.
type lane struct {
	from [Levels]Position // where it begins
	seen [Levels]Position // the first job from the mark on, due or not
	none [Levels]bool     // nothing is due in the level
	last [Levels]Position // just after the last job that it took
}

// Plan returns a plan for a claim from the queue, or for a recovery of [Leases].
func (c *Cursors) Plan(queue string) *Plan {
	p := &Plan{cursors: c, queue: queue}
	p.make()
	return p
}

// make begins the plan. It reads the horizon last: the marks must not be newer than it.
func (p *Plan) make() {
	p.kept, p.lanes = p.cursors.Get(p.queue), [Lanes]lane{}
	p.horizon = Horizon{At: p.cursors.Horizon()}
	for i := range p.lanes {
		at := &p.kept.Lanes[i]
		for level := range Levels {
			p.lanes[i].from[level] = Later(at.Mark[level], at.Cursor[level])
		}
	}
}

// Open tells the plan what the opening of the transaction has shown, and whether the look was sent with it. It reports whether
// that look counts. It does not count if this or another transaction has made the store forget positions since the plan was
// made; Open then makes the plan again. A look that is sent later may rely on all that the opening has shown. One that was sent
// with the opening knows nothing about transactions that have ended since.
func (p *Plan) Open(now Horizon, looked bool) bool {
	if p.cursors.Get(p.queue).Age != p.kept.Age {
		p.make()
		looked = false
	} else if !looked {
		p.horizon.At = now.At
	}
	p.horizon.Stuck = now.Stuck
	return looked
}

// MustLook reports whether the claim must begin with a look.
func (p *Plan) MustLook() bool { return p.kept.Short || p.Stale() }

// Stale reports whether the marks have not moved for a while.
func (p *Plan) Stale() bool { return time.Since(p.kept.Looked) > LookEvery }

// ExpectsFew reports whether the latest claim took all that was due.
func (p *Plan) ExpectsFew() bool { return p.kept.Short }

// ExpectsNothing reports whether the look will probably find nothing due.
func (p *Plan) ExpectsNothing() bool { return p.kept.Short && !p.kept.Told }

// Mark returns where a look begins in a level.
func (p *Plan) Mark(lane Lane, priority int) Position {
	return p.kept.Lanes[lane].Mark[LevelOf(priority)]
}

// Marks yields where a look begins in each level of the lane, by priority.
func (p *Plan) Marks(lane Lane) iter.Seq2[int, Position] {
	return func(yield func(int, Position) bool) {
		for level, mark := range p.kept.Lanes[lane].Mark {
			if !yield(PriorityOf(level), mark) {
				return
			}
		}
	}
}

// Starts yields, by priority, where the claim begins in each level of the lane that may have something due.
func (p *Plan) Starts(lane Lane) iter.Seq2[int, Position] {
	return func(yield func(int, Position) bool) {
		for level, from := range p.lanes[lane].from {
			if !p.lanes[lane].none[level] && !yield(PriorityOf(level), from) {
				return
			}
		}
	}
}

// Saw notes the first job of a level from the mark on, due or not. Levels without a call to Saw are empty.
func (p *Plan) Saw(lane Lane, priority int, first Position) {
	p.lanes[lane].seen[LevelOf(priority)] = first
}

// Looked ends the look, at now. It moves the marks to the first jobs, and the claim begins again at the first due jobs.
func (p *Plan) Looked(now time.Time) {
	for i := range p.lanes {
		l := &p.lanes[i]
		l.from = l.seen
		for level, first := range l.seen {
			l.none[level] = first == Position{} || first.At.After(now)
		}
		p.kept.Lanes[i].Mark = moved(p.kept.Lanes[i].Mark, l.seen, p.horizon.At)
	}
	p.change(func(q *Queue) {
		for i := range q.Lanes {
			for level, mark := range p.kept.Lanes[i].Mark {
				q.Lanes[i].Mark[level] = Later(q.Lanes[i].Mark[level], mark)
			}
		}
		q.Looked, q.Told = time.Now(), false
	})
}

// moved returns the marks after a look that has seen these first jobs. An empty level has the zero position.
func moved(marks, seen [Levels]Position, horizon time.Time) [Levels]Position {
	if horizon.IsZero() {
		return marks
	}
	limit := Position{At: horizon.Add(-Slack)}
	for level, first := range seen {
		if first == (Position{}) {
			first = limit
		}
		marks[level] = Later(marks[level], Earlier(first, limit))
	}
	return marks
}

// Empty reports whether nothing can be due in the lane.
func (p *Plan) Empty(lane Lane) bool { return !slices.Contains(p.lanes[lane].none[:], false) }

// Took notes that the claim has taken the job.
func (p *Plan) Took(lane Lane, priority int, job Position) {
	last := &p.lanes[lane].last[LevelOf(priority)]
	*last = Later(*last, Position{job.At, job.ID + 1})
}

// Done moves the cursors to where the claim ended. Call it after the commit. short says that the claim found less than it asked
// for.
func (p *Plan) Done(short bool) {
	p.change(func(q *Queue) {
		q.Short = short
		for i := range q.Lanes {
			for level, last := range p.lanes[i].last {
				if !p.horizon.Stuck {
					last = Earlier(last, Position{At: p.horizon.At})
				}
				q.Lanes[i].Cursor[level] = Later(q.Lanes[i].Cursor[level], last)
			}
		}
	})
}

// Answered notes that the claim has found, from the marks on, all that the store was told of.
func (p *Plan) Answered() { p.change(func(q *Queue) { q.Told = false }) }

// Failed makes the next claim look, because this one may not have been committed.
func (p *Plan) Failed() { p.change(func(q *Queue) { q.Looked = time.Time{} }) }

func (p *Plan) change(f func(*Queue)) { p.cursors.Change(p.queue, p.kept, f) }

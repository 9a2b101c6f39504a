//go:build unix

package chaos

import (
	"maps"
	"slices"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/store"
)

// orderedQueue has a fifth of the jobs, which stand in a few lines: its limit keys.
const orderedQueue = "ordered"

var lines = []string{"device a", "device b", "device c", "device d"}

// seeLine judges the live jobs of one line at one moment, of which only the first one may be in flight: see checkOrder. They come newest first. A job that
// was committed late may be in flight behind others that were claimed before, but never beside them.
func (s *storm) seeLine(line string, jobs []jq.Job, seen *sighting) {
	var running []int64
	for _, j := range jobs {
		if j.State == jq.InFlight {
			running = append(running, j.ID)
		}
	}
	if len(running) > 1 {
		s.ledger.blame("jobs %d of %s are in flight at once", running, line)
		return
	}
	jobs = slices.DeleteFunc(jobs, func(j jq.Job) bool { return s.ledger.isLate(j.ID) })
	if len(jobs) == 0 {
		return
	}
	first := jobs[len(jobs)-1]
	for _, j := range jobs[:len(jobs)-1] {
		if j.State == jq.InFlight {
			s.ledger.blame("job %d of %s is in flight, although job %d before it is %s", j.ID, line, first.ID, first.Phase())
		}
	}
	if len(jobs) > 1 && first.Phase() == jq.Retrying {
		seen.heldUp++
	}
}

// checkOrder: each run of a job in a line began when all earlier jobs of the line had ended.
//
// The contract says this of the claim: no other live job of the line has a smaller id then. A job that was committed after a later one was claimed is an
// exception, and so would be one that was requeued. The producer begins a call when it knows the answer to the one before, and repeats what is in doubt with the
// request key of the call, so its jobs are committed in the order of their ids, and nobody requeues any. The others are left to checkLate.
//
// The ledger learns of a run after its claim, and of the end of a run before the store does. So an earlier job was still live when a later one was
// claimed if the ledger has heard of the run first, and of the end of the earlier job's last run then.
func (j *judge) checkOrder() {
	latest := map[string]life{}
	for _, id := range slices.Sorted(maps.Keys(j.rows)) {
		page, row := j.ledger.jobs[id], j.rows[id]
		if page == nil || page.plan.queue != orderedQueue || page.plan.n >= firstLate {
			continue
		}
		before := latest[page.plan.limitKey]
		for _, r := range page.runs {
			switch {
			case !ranUnder(row, r.token): // what the database has lost, it has not ordered
			case r.moment < before.moment:
				j.ledger.problem("job %d of %s was run under token %d before job %d had ended", id, page.plan.limitKey, r.token, before.id)
			case before.moment > 0:
				j.inOrder++
			}
		}
		for _, a := range row.History {
			// One process after the other writes to a file, and reads the time when it is its turn. On Postgres, a claim reads it before it locks a key.
			if j.server == nil && a.StartedAt.Before(before.ended) {
				j.ledger.problem("job %d of %s was claimed at %v, and one before it ended at %v", id, page.plan.limitKey, a.StartedAt, before.ended)
			}
		}
		own := lifeOf(page, row)
		if own.moment < before.moment {
			own.id, own.moment = before.id, before.moment
		}
		own.ended = later(own.ended, before.ended)
		latest[page.plan.limitKey] = own
	}
}

// A life is how long a job, or one before it in its line, was live for certain.
type life struct {
	id     int64
	moment int       // by the ledger
	ended  time.Time // by the store
}

// lifeOf finds the last run that ended the lease which it had: the job was live until then, whatever the ledger has heard of runs that had lost theirs.
func lifeOf(p *page, row jq.JobDetail) life {
	l := life{id: row.ID, ended: row.FinishedAt}
	for _, r := range holders(p, row) {
		l.moment = max(l.moment, r.ended)
	}
	return l
}

// holders are the runs that ended the lease which they had, each with the last moment at which it had it for certain. A run in a transaction tells of its
// end when that is committed, so what counts is its beginning.
func holders(p *page, row jq.JobDetail) (all []run) {
	for _, r := range p.runs {
		i := slices.IndexFunc(row.History, func(a jq.Attempt) bool { return a.Token == r.token })
		if i < 0 || !slices.Contains([]store.Ending{store.EndSucceeded, store.EndFailed, store.EndSnoozed}, row.History[i].Ending) {
			continue
		}
		if p.plan.kind == within {
			r.ended = 0
		}
		r.ended = max(r.ended, r.moment)
		all = append(all, r)
	}
	return all
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

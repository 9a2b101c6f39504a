//go:build unix

package chaos

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/seed-ed332417/jq"
)

const (
	firstLate = 1 << 30 // the number of the first job that is committed late
	unknown   = math.MaxInt
	lateness  = 3 * time.Second // after which a job is committed though no other was run meanwhile
)

func latePlan(n int) plan {
	return plan{n: n, kind: polite, queue: orderedQueue, limitKey: lines[n%len(lines)], pause: 20 * time.Millisecond, maxRetries: 30}
}

// canComeLate says whether other jobs can be added while a transaction with a job is open: a file has one writer at a time. A transaction through PgBouncer
// would hold up the failover.
func (s *storm) canComeLate() bool { return s.server != nil && s.group == nil }

// comeLate commits jobs of the ordered queue, one of each line at a time, when later ones have begun to run. What it returns ends that.
func (s *storm) comeLate() (stay func()) {
	ctx, cancel := context.WithCancel(s.Context())
	var coming sync.WaitGroup
	for i := range lines {
		if !s.canComeLate() {
			break
		}
		coming.Go(func() {
			for n := firstLate + i; ctx.Err() == nil; n += len(lines) {
				if err := s.addLate(ctx, planOf(s.role.seed, n)); err != nil {
					<-time.After(50 * time.Millisecond) // the server may be away
				}
			}
		})
	}
	return func() {
		cancel()
		coming.Wait()
	}
}

func (s *storm) addLate(until context.Context, p plan) error {
	tx, err := s.store.DB().BeginTxx(s.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(s.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
		return err
	}
	item := p.item()
	added, err := jq.NewClient(s.store, nil).EnqueueTx(s.Context(), tx, item.Payload, item.Options)
	if err != nil {
		return err
	}
	s.ledger.expect(added.ID, p)
	s.ledger.until(lateness, func() bool { return until.Err() != nil || s.ledger.hasRunBehind(added.ID) })
	if err := tx.Commit(); err != nil {
		return err // it may be there nevertheless
	}
	s.ledger.arrived(added.ID)
	return nil
}

// expect notes a job before it is committed.
func (l *ledger) expect(id int64, p plan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.page(id, p)
	l.late[id] = unknown
}

// arrived notes that it is committed.
func (l *ledger) arrived(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late[id] = l.moment
	l.note()
}

func (l *ledger) isLate(id int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, late := l.late[id]
	return late
}

// hasRunBehind says whether a later job of the line was run. The caller holds the lock.
func (l *ledger) hasRunBehind(id int64) bool {
	for other, page := range l.jobs {
		if other > id && page.plan.queue == orderedQueue && page.plan.limitKey == l.jobs[id].plan.limitKey && len(page.runs) > 0 {
			return true
		}
	}
	return false
}

// checkLate: a job that was committed late goes next. The run of a later job of its line must not begin before it has ended, if that one was claimed after
// the commit. It surely was if a run of the line had its lease after the commit, and before that run: one of them is in flight at a time.
func (j *judge) checkLate() {
	for id, committed := range j.ledger.late {
		row, there := j.rows[id]
		if !there || committed == unknown {
			continue
		}
		line := j.ledger.jobs[id].plan.limitKey
		ended := lifeOf(j.ledger.jobs[id], row).moment
		overtaken, next := false, false
		held := unknown // the first moment after the commit at which a run of the line surely had its lease
		later := map[int64][]run{}
		for other, page := range j.ledger.jobs {
			if page.plan.queue != orderedQueue || page.plan.limitKey != line {
				continue
			}
			for _, r := range holders(page, j.rows[other]) {
				if r.ended >= committed {
					held = min(held, r.ended)
				}
				if other > id {
					later[other] = append(later[other], r)
				}
			}
		}
		for other, runs := range later {
			for _, r := range runs {
				switch {
				case r.moment < committed:
					overtaken = true
				case r.moment > held && r.moment < ended:
					j.ledger.problem("job %d of %s was run under token %d, while job %d before it waited, which had been committed late", other, line, r.token, id)
				case r.moment > ended:
					next = true
				}
			}
		}
		if overtaken && next {
			j.wentNext++
		}
	}
}

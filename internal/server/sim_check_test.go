package server_test

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// check compares everything at the end: the store's rows, the records of the witness, the answers to producers, and the effects outside.
func (s *simulation) check(ctx context.Context) {
	s.witness.mu.Lock()
	defer s.witness.mu.Unlock()
	page, err := s.witness.backend.List(ctx, store.Filter{}, store.Page{Limit: store.MaxItems})
	if err != nil || page.Next != "" {
		s.problem(0, "the rows can not be listed: %v", err)
	}
	s.checkKept(page.Jobs)
	for _, row := range page.Jobs {
		r := s.witness.records[row.ID]
		if r == nil {
			s.problem(row.ID, "a row that nobody enqueued")
			continue
		}
		detail, err := s.witness.backend.Get(ctx, row.ID)
		if err != nil {
			s.problem(row.ID, "its history can not be read: %v", err)
		}
		s.checkRow(r, row)
		s.checkEnd(r, row)
		s.checkHistory(r, detail.History)
	}
	for _, p := range s.plans {
		if _, ok := s.answers.Load(p.n); !ok && !p.added {
			s.problem(0, "job %d was never acknowledged", p.n)
		}
	}
}

// checkKept compares the answers to producers with the rows: no job is lost, and none was added twice.
func (s *simulation) checkKept(rows []store.Job) {
	kept := map[int64]int{} // the number of each job, by its id
	told := map[int64]bool{}
	for _, row := range rows {
		kept[row.ID] = numberOf(row.Payload)
	}
	for _, p := range s.plans {
		v, ok := s.answers.Load(p.n)
		if !ok {
			continue
		}
		a := v.(store.Enqueued)
		n, there := kept[a.ID]
		switch {
		case !there:
			s.lost(a.ID, "a job that was acknowledged is gone")
		case a.Duplicate && p.UniqueKey != s.plans[n].UniqueKey:
			s.problem(a.ID, "job %d was called a duplicate of job %d, which has another key", p.n, n)
		case !a.Duplicate && n != p.n:
			s.problem(a.ID, "job %d was acknowledged with the id of job %d", p.n, n)
		case !a.Duplicate:
			told[a.ID] = true
		}
	}
	for id, n := range kept {
		if !told[id] && !s.plans[n].added {
			s.problem(id, "job %d was added although its producer was not told so", n)
		}
	}
}

// lost reports a job that is lost, and counts it.
func (s *simulation) lost(id int64, text string) {
	s.countNamed(jobsLost)
	s.problem(id, "%s", text)
}

const jobsLost = "jobs lost"

// checkRow compares a row with the record of the witness.
func (s *simulation) checkRow(r *record, row store.Job) {
	if !slices.Contains(terminal, row.Phase()) {
		s.checkWaits(r, row.Phase())
		return
	}
	if row.Phase() != r.state || row.Token != r.token || row.Attempts != r.attempts || row.Retries != r.retries {
		s.problem(r.id, "the row is %s, token %d, attempts %d, retries %d, and has to be %s, %d, %d, %d",
			row.Phase(), row.Token, row.Attempts, row.Retries, r.state, r.token, r.attempts, r.retries)
	}
	if r.runs > r.plan.MaxRetries+1 {
		s.problem(r.id, "a job was run %d times that may be retried %d times", r.runs, r.plan.MaxRetries)
	}
	if row.FinishedAt.IsZero() || !row.LeaseExpiresAt.IsZero() {
		s.problem(r.id, "the row of a job that has ended has no end, or a lease")
	}
}

// checkEnd checks whether a job could end as it did.
func (s *simulation) checkEnd(r *record, row store.Job) {
	switch row.Phase() {
	case store.Succeeded:
		last := r.claims[len(r.claims)-1]
		if !r.plan.wellBehaved() {
			s.problem(r.id, "a job of the kind %s has succeeded", r.plan.Kind)
		}
		if want := string(resultOf(last.Token)); string(row.Result) != want || last.result != want {
			s.problem(r.id, "the result is %s, of another run than the one that has succeeded: %s", row.Result, want)
		}
		if seen := s.effects.latest[r.id]; seen != last.Token {
			s.problem(r.id, "the latest effect outside is of token %d, but %d has succeeded", seen, last.Token)
		}
	case store.Dead:
		if row.Error == "" {
			s.problem(r.id, "a dead job has no error")
		}
		if r.retries <= r.plan.MaxRetries && r.plan.Kind != never && r.plan.Kind != garbled {
			s.problem(r.id, "a job is dead that had retries left: %s", row.Error)
		}
		if s.calm && r.plan.mustSucceed() {
			s.problem(r.id, "a job is dead though nothing went wrong: %s", row.Error)
		}
	case store.Cancelled:
		if !r.cancelledFor(row) && !slices.ContainsFunc(s.events, func(e event) bool { return e.what == jobCancelled && s.idOf(e.who) == r.id }) {
			s.problem(r.id, "a job is cancelled that nobody has cancelled")
		}
	}
}

// mustSucceed returns whether nothing but a fault can keep the job from success: it misbehaves less often than it may be retried.
func (p *plan) mustSucceed() bool { return p.wellBehaved() && p.times <= p.MaxRetries }

// putOff is why jobs of a kind are put off.
var putOff = map[string]string{snoozing: "not today", rare: "no handler for kind rare"}

// checkHistory compares the attempts with the claims.
func (s *simulation) checkHistory(r *record, history []store.Attempt) {
	claims := r.claims[max(0, len(r.claims)-store.MaxAttemptsKept):]
	if len(history) != len(claims) {
		s.problem(r.id, "the history has %d attempts, but there were %d", len(history), len(claims))
		return
	}
	for i, a := range history {
		c := claims[i]
		want := store.Attempt{Token: c.Token, Worker: c.worker, StartedAt: c.from, EndedAt: c.ended, Ending: c.ending, Error: a.Error}
		if !sameTimes(a, want) || a.Token != want.Token || a.Worker != want.Worker || a.Ending != want.Ending {
			s.problem(r.id, "attempt %d is %+v in the history, and was %+v", i, a, want)
		}
		if a.Ending == store.EndSnoozed {
			if a.Error != putOff[r.plan.Kind] {
				s.problem(r.id, "attempt %d was put off for the reason %q, not %q", i, a.Error, putOff[r.plan.Kind])
			}
		} else if failed := a.Ending == store.EndFailed || a.Ending == store.EndExpired; failed != (a.Error != "") {
			s.problem(r.id, "attempt %d has %s with the error %q", i, a.Ending, a.Error)
		}
	}
}

func sameTimes(a, b store.Attempt) bool {
	same := func(a, b time.Time) bool { return a.Equal(b) }
	return same(a.StartedAt, b.StartedAt) && same(a.EndedAt, b.EndedAt)
}

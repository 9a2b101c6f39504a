package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

func (s *story) enqueue(ctx context.Context) error {
	var req jq.EnqueueRequest
	for _, name := range []string{"ada", "grace", "edsger"} {
		req.Jobs = append(req.Jobs, jq.NewJob{
			Queue: demoQueue, Kind: "welcome", Payload: fmt.Appendf(nil, `{"name":%q}`, name), MaxRetries: 3,
			Backoff: jq.Backoff{Base: demoBackoff, Cap: time.Minute},
		})
	}
	answers, err := s.store.Enqueue(ctx, req)
	if err != nil {
		return err
	}
	if err := expect("jobs enqueued", len(answers), len(req.Jobs)); err != nil {
		return err
	}
	for i, a := range answers {
		s.say("producer", "enqueues job %d, %s %s: %s", a.ID, req.Jobs[i].Kind, req.Jobs[i].Payload, a.State)
	}
	return nil
}

func (s *story) claimByA(ctx context.Context) error {
	jobs, err := s.claim(ctx, "A", 1)
	if err != nil {
		return err
	}
	if err := expect("jobs claimed by A", len(jobs), 1); err != nil {
		return err
	}
	s.lost = jobs[0]
	return expect("token of A's lease", s.lost.Token, 1)
}

func (s *story) crashOfA(ctx context.Context) error {
	job, err := s.store.Get(ctx, s.lost.ID)
	if err != nil {
		return err
	}
	s.say("worker A", "crashes; the store cannot know: job %d is %s until %s",
		job.ID, job.Phase(), clockTime(job.LeaseExpiresAt))
	return expect("state of the job during the crash", job.Phase(), jq.InFlight)
}

func (s *story) recoverTooEarly(ctx context.Context) error {
	recovered, err := s.store.RecoverExpiredLeases(ctx, contract.RecoverRequest{Limit: 10})
	if err != nil {
		return err
	}
	s.say("recovery", "looks for expired leases and finds %d", len(recovered))
	return expect("leases recovered too early", len(recovered), 0)
}

func (s *story) recoverLease(ctx context.Context) error {
	recovered, err := s.store.RecoverExpiredLeases(ctx, contract.RecoverRequest{Limit: 10})
	if err != nil {
		return err
	}
	if err := expect("leases recovered", len(recovered), 1); err != nil {
		return err
	}
	r := recovered[0]
	s.say("recovery", "ends the expired lease of worker %s: job %d is due at %s, under token %d",
		r.Worker, r.ID, clockTime(r.Next), r.Token)
	return cmp.Or(
		expect("job recovered", r.ID, s.lost.ID),
		expect("token after the recovery", r.Token, 2),
		expect("wait before the retry", r.Next.Sub(s.clock.Now()), demoBackoff),
	)
}

func (s *story) claimByB(ctx context.Context) error {
	jobs, err := s.claim(ctx, "B", 10)
	if err != nil {
		return err
	}
	if err := expect("jobs claimed by B", len(jobs), 3); err != nil {
		return err
	}
	s.again, s.last = jobs[0], jobs[1:]
	return cmp.Or(expect("first job claimed by B", s.again.ID, s.lost.ID), expect("token of B's lease", s.again.Token, 3))
}

// claim claims jobs from the demo's queue and prints each one.
func (s *story) claim(ctx context.Context, worker string, limit int) ([]jq.Job, error) {
	jobs, err := s.store.FetchAndClaim(ctx, contract.ClaimRequest{
		Queue: demoQueue, Limit: limit, RetryQuota: 1, Worker: worker, TTL: demoLease,
	})
	for _, j := range jobs {
		s.say("worker "+worker, "claims job %d: %s under token %d, leased until %s",
			j.ID, j.Phase(), j.Token, clockTime(j.LeaseExpiresAt))
	}
	return jobs, err
}

func (s *story) ackByB(ctx context.Context) error {
	for _, j := range append([]jq.Job{s.again}, s.last...) {
		outcome, err := s.ack(ctx, "B", j)
		if err != nil {
			return err
		}
		s.say("worker B", "acks job %d under token %d: %s, %s", outcome.ID, j.Token, outcome.Status, outcome.State)
		if err := expect("B's Ack", outcome.Status, contract.StatusOK); err != nil {
			return err
		}
	}
	return nil
}

// lateAckByA is the point of the demo: the store must refuse a write of A after A lost its lease.
func (s *story) lateAckByA(ctx context.Context) error {
	before, err := s.store.Get(ctx, s.lost.ID)
	if err != nil {
		return err
	}
	outcome, err := s.ack(ctx, "A", s.lost)
	if err != nil {
		return err
	}
	after, err := s.store.Get(ctx, s.lost.ID)
	if err != nil {
		return err
	}
	s.say("worker A", "wakes up and acks job %d under token %d: %s", outcome.ID, s.lost.Token, outcome.Status)
	s.say("store", "keeps job %d as worker B left it: token %d, result %s", after.ID, after.Token, after.Result)
	return cmp.Or(
		expect("A's late Ack", outcome.Status, contract.StatusStale),
		expect("the job after A's late Ack", fmt.Sprint(after), fmt.Sprint(before)),
	)
}

func (s *story) ack(ctx context.Context, worker string, j jq.Job) (jq.Outcome, error) {
	outcomes, err := s.store.Ack(ctx, []contract.Ack{{Lease: j.Lease(), Result: resultOf(worker)}})
	if err != nil {
		return jq.Outcome{}, err
	}
	if err := expect("outcomes of one Ack", len(outcomes), 1); err != nil {
		return jq.Outcome{}, err
	}
	return outcomes[0], nil
}

func resultOf(worker string) []byte { return fmt.Appendf(nil, `{"sent_by":%q}`, worker) }

func (s *story) printJobs(ctx context.Context) error {
	page, err := s.store.List(ctx, jq.Filter{Queue: demoQueue}, jq.Page{Limit: 10})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "\nThe jobs, newest first:\n\n")
	table := newTable(s.out)
	fmt.Fprintln(table, "  job\tstate\ttoken\tattempts\tretries\tresult")
	for _, j := range page.Jobs {
		fmt.Fprintf(table, "  %d\t%s\t%d\t%d\t%d\t%s\n", j.ID, j.Phase(), j.Token, j.Attempts, j.Retries, j.Result)
	}
	return cmp.Or(table.Flush(), expect("jobs listed", len(page.Jobs), 3))
}

func (s *story) printHistory(ctx context.Context) error {
	job, err := s.store.Get(ctx, s.lost.ID)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "\nThe attempts of job %d:\n\n", job.ID)
	table := newTable(s.out)
	fmt.Fprintln(table, "  token\tworker\tfrom\tto\tending")
	for _, a := range job.History {
		fmt.Fprintf(table, "  %d\t%s\t%s\t%s\t%s\n", a.Token, a.Worker, clockTime(a.StartedAt), clockTime(a.EndedAt), a.Ending)
	}
	if err := cmp.Or(table.Flush(), expect("attempts in the history", len(job.History), 2)); err != nil {
		return err
	}
	lost := job.History[0]
	fmt.Fprintf(s.out, "\nUnder token %d: %s.\n", lost.Token, lost.Error)
	return expect("ending of the lost attempt", lost.Ending, contract.EndExpired)
}

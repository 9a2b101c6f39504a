package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/sqlite"
)

// seed creates a store with a job in every phase, at fixed times. With workers as another argument it adds workers instead, at the
// current time, and with policy it declares policies.
func seed(path string, more ...string) int {
	do := map[string]func(context.Context, string) error{"": seedJobs, "workers": seedWorkers, "policy": seedPolicy}
	if err := do[strings.Join(more, " ")](context.Background(), path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

var seeded = time.Date(2020, 1, 1, 12, 0, 0, 0, time.UTC)

func seedJobs(ctx context.Context, path string) (err error) {
	clk := clock.NewMock()
	clk.Set(seeded)
	s, err := sqlite.Open(ctx, path, &sqlite.Options{Clock: clk})
	if err != nil {
		return err
	}
	defer func() {
		if closed := s.Close(); err == nil {
			err = closed
		}
	}()
	for _, do := range []func(context.Context, *sqlite.Store, *clock.Mock) error{seedMail, seedReports, seedOdd} {
		if err := do(ctx, s, clk); err != nil {
			return err
		}
	}
	return nil
}

// seedWorkers adds anna, who is alive, and berta, who is stale.
func seedWorkers(ctx context.Context, path string) error {
	s, err := sqlite.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	for _, w := range []jq.Worker{
		{Name: "anna", Host: "one", PID: 17, Queues: []string{"mail", "reports"}, Slots: 8, Running: 3, StaleAfter: time.Hour},
		{Name: "berta", Host: "two", PID: 18, Queues: []string{"reports"}, Slots: 2, StaleAfter: time.Microsecond},
	} {
		if err := s.Beat(ctx, w); err != nil {
			return err
		}
	}
	return s.Close()
}

// seedPolicy declares the policies of two queues, the second as a program with a control character in its name.
func seedPolicy(ctx context.Context, path string) error {
	s, err := sqlite.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	for queue, owner := range map[string]string{"mail": "billing", "odd": "bill\ting"} {
		if _, err := jq.NewClient(s, nil).DeclarePolicy(ctx, queue, jq.Policy{MaxInFlight: 10, Owner: owner, Declared: 3}); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	return s.Close()
}

func ready(queue, kind, payload string) jq.NewJob {
	return jq.NewJob{Queue: queue, Kind: kind, Payload: []byte(payload), MaxRetries: 1, Backoff: jq.Backoff{Base: time.Minute, Cap: time.Hour}}
}

// seedMail adds jobs: 1 has succeeded, 2 is retrying, 3 is dead after two attempts, 4 is not due yet.
func seedMail(ctx context.Context, s *sqlite.Store, clk *clock.Mock) error {
	jobs := []jq.NewJob{
		ready("mail", "welcome", `{"name":"ada"}`), ready("mail", "welcome", `{"name":"grace"}`),
		ready("mail", "welcome", `{"name":"edsger"}`), ready("mail", "digest", `{"to":["ada","grace"],"week":1}`),
	}
	jobs[0].Tags = []string{"vip", "first"}
	jobs[2].MaxRetries = 0
	jobs[3].Delay, jobs[3].UniqueKey, jobs[3].Priority = 24*time.Hour, "digest-1", 5
	if _, err := s.Enqueue(ctx, jq.EnqueueRequest{Jobs: jobs}); err != nil {
		return err
	}
	clk.Add(time.Second)
	claimed, err := s.FetchAndClaim(ctx, contract.ClaimRequest{Queue: "mail", Limit: 3, Worker: "anna", TTL: time.Minute})
	if err != nil {
		return err
	}
	if _, err := s.Save(ctx, []contract.Save{{Lease: claimed[1].Lease(), Seq: 1, Checkpoint: []byte(`{"page":2}`), Progress: []byte(`0.5`)}}); err != nil {
		return err
	}
	clk.Add(1500 * time.Millisecond)
	if _, err := s.Ack(ctx, []contract.Ack{{Lease: claimed[0].Lease(), Result: []byte(`{"sent":true}`)}}); err != nil {
		return err
	}
	_, err = s.NAck(ctx, []contract.NAck{
		{Lease: claimed[1].Lease(), Form: contract.Fail, Error: "the mail server is away"},
		{Lease: claimed[2].Lease(), Form: contract.Never, Error: "no such address\nstack: line 1\n\tline 2"},
	})
	return err
}

// seedReports adds jobs: 5 is in flight, 6 is cancelled.
func seedReports(ctx context.Context, s *sqlite.Store, clk *clock.Mock) error {
	if _, err := s.Enqueue(ctx, jq.EnqueueRequest{Jobs: []jq.NewJob{ready("reports", "pdf", `[1,2]`), ready("reports", "pdf", `null`)}}); err != nil {
		return err
	}
	clk.Add(time.Second)
	if _, err := s.FetchAndClaim(ctx, contract.ClaimRequest{Queue: "reports", Limit: 1, Worker: "berta", TTL: time.Hour}); err != nil {
		return err
	}
	_, err := s.Cancel(ctx, jq.Filter{IDs: []int64{6}}, 1)
	return err
}

// seedOdd adds job 7, which is ready and has control characters in its names.
func seedOdd(ctx context.Context, s *sqlite.Store, _ *clock.Mock) error {
	odd := ready("odd\tqueue", "\x1b[31mred\n", `"a\u001b[31m"`)
	_, err := s.Enqueue(ctx, jq.EnqueueRequest{Jobs: []jq.NewJob{odd}})
	return err
}

package jq_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/seed-ed332417/jq"
)

// Greet is what the jobs of these examples are about.
type Greet struct{ Name string }

func (Greet) Kind() string { return "greet" }

// must keeps the examples short.
func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// serve works until a handler, or the test, calls the function that it is given.
func serve(store jq.Store, register func(handlers *jq.Handlers, enough func())) {
	ctx, enough := context.WithCancel(context.Background())
	var handlers jq.Handlers
	register(&handlers, enough)
	server := must(jq.NewServer(store, &handlers, nil))
	if err := server.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// A worker in ten lines.
func Example() {
	store := jq.NewMemory(nil)
	client := jq.NewClient(store, nil)
	must(client.Enqueue(context.Background(), Greet{Name: "Ada"}, nil))

	ctx, enough := context.WithCancel(context.Background())
	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, g Greet) error {
		fmt.Println("Hello,", g.Name)
		enough()
		return nil
	})
	server := must(jq.NewServer(store, &handlers, nil))
	if err := server.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: Hello, Ada
}

// What one call, or each job of a kind, may choose.
func ExampleClient_Enqueue() {
	ctx := context.Background()
	client := jq.NewClient(jq.NewMemory(nil), nil)
	options := &jq.EnqueueOptions{Queue: "mail", Delay: time.Hour, MaxRetries: new(5), UniqueKey: "greet/ada"}

	first := must(client.Enqueue(ctx, Greet{Name: "Ada"}, options))
	second := must(client.Enqueue(ctx, Greet{Name: "Ada"}, options))
	fmt.Println(first.Duplicate, second.Duplicate, first.ID == second.ID)
	// Output: false true true
}

// Whoever needs the result waits for it. The worker may be anywhere: here it is in the same process.
func ExampleClient_Wait() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	store := jq.NewMemory(nil)
	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, g Greet) error { return run.SetResult("Hello, " + g.Name) })
	server := must(jq.NewServer(store, &handlers, nil))
	if err := server.Start(ctx); err != nil {
		log.Fatal(err)
	}

	client := jq.NewClient(store, nil)
	added := must(client.Enqueue(ctx, Greet{Name: "Ada"}, nil))
	job, err := client.Wait(ctx, added.ID)
	switch {
	case err != nil:
		log.Fatal(err)
	case job.Phase() != jq.Succeeded:
		log.Fatal(job.Error)
	}
	fmt.Println(job.Phase(), string(job.Result))
	if err := server.Stop(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: succeeded "Hello, Ada"
}

// A request key makes an enqueueing safe to repeat, whatever became of the first try.
func ExampleEnqueueOptions_requestKey() {
	ctx := context.Background()
	client := jq.NewClient(jq.NewMemory(nil), nil)
	order := func() (jq.Enqueued, error) {
		return client.Enqueue(ctx, Greet{Name: "Ada"}, &jq.EnqueueOptions{RequestKey: "order 4711"})
	}
	added, err := order()
	for errors.Is(err, jq.ErrInDoubt) || errors.Is(err, jq.ErrUnavailable) {
		added, err = order()
	}
	again := must(order())
	fmt.Println(err, added.ID == again.ID)
	// Output: <nil> true
}

// At most three jobs of a customer are in flight at once, in all processes together.
func ExampleEnqueueOptions_limitKey() {
	ctx := context.Background()
	client := jq.NewClient(jq.NewMemory(nil), nil)
	policy := must(client.Policy(ctx, "mail"))
	policy.MaxPerKey = 3
	must(client.SetPolicy(ctx, "mail", policy))
	for _, customer := range []string{"customer-7", "customer-7", "customer-8"} {
		must(client.Enqueue(ctx, Greet{Name: "Ada"}, &jq.EnqueueOptions{Queue: "mail", LimitKey: customer}))
	}
	for job, err := range client.Jobs(ctx, jq.Filter{LimitKey: "customer-7"}) {
		fmt.Println(job.ID, job.LimitKey(), err)
	}
	// Output:
	// 2 customer-7 <nil>
	// 1 customer-7 <nil>
}

// A program declares the policy of its queue before it claims. What a person changes later stays until the program declares a higher version.
func ExampleQueueOptions_policy() {
	store := jq.NewMemory(nil)
	client := jq.NewClient(store, nil)
	ctx, enough := context.WithCancel(context.Background())
	var handlers jq.Handlers
	jq.Handle(&handlers, func(_ context.Context, _ *jq.Run, g Greet) error {
		fmt.Println("Hello,", g.Name)
		enough()
		return nil
	})
	must(client.Enqueue(ctx, Greet{Name: "Ada"}, &jq.EnqueueOptions{Queue: "mail"}))

	server, err := jq.NewServer(store, &handlers, &jq.ServerOptions{Queues: map[string]jq.QueueOptions{
		"mail": {Policy: &jq.Policy{
			Owner: "billing", Declared: 1, // raise Declared with each change
			MaxInFlight: 10, Rate: jq.Rate{N: 100, Per: time.Minute},
		}},
	}})
	if err != nil {
		log.Fatal(err)
	}
	if err := server.Run(ctx); err != nil {
		log.Fatal(err)
	}

	policy := must(client.Policy(context.Background(), "mail"))
	fmt.Println(policy.MaxInFlight, policy.Owner, policy.Declared)
	// Output:
	// Hello, Ada
	// 10 billing 1
}

func ExampleClient_EnqueueMany() {
	client := jq.NewClient(jq.NewMemory(nil), nil)
	added := must(client.EnqueueMany(context.Background(), []jq.Item{
		{Payload: Greet{Name: "Ada"}},
		{Payload: Greet{Name: "Grace"}, Options: &jq.EnqueueOptions{Delay: time.Minute}},
	}, nil))
	fmt.Println(len(added))
	// Output: 2
}

// Jobs can stand or fall with other writes of a transaction. The store in memory has transactions too, for tests.
func ExampleClient_EnqueueTx() {
	ctx := context.Background()
	store := jq.NewMemory(nil)
	client := jq.NewClient(store, nil)

	tx := must(store.DB().BeginTx(ctx, nil))
	must(client.EnqueueTx(ctx, tx, Greet{Name: "Ada"}, nil))
	fmt.Println(tx.Rollback(), len(must(client.Count(ctx, jq.Filter{})).Queues))
	// Output: <nil> 0
}

// A handler that writes to the database of the jobs can do its work exactly once.
func ExampleRun_FinishTx() {
	ctx := context.Background()
	store := jq.NewMemory(nil)
	client := jq.NewClient(store, nil)
	id := must(client.Enqueue(ctx, Greet{Name: "Ada"}, nil)).ID

	serve(store, func(handlers *jq.Handlers, enough func()) {
		jq.Handle(handlers, func(ctx context.Context, run *jq.Run, g Greet) error {
			defer enough()
			tx, err := store.DB().BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }() // does nothing after the commit
			// ... write something in tx ...
			if err := run.FinishTx(ctx, tx); err != nil {
				return err // the lease was lost: another run does the work
			}
			return tx.Commit()
		})
	})
	fmt.Println(must(client.Get(ctx, id)).State)
	// Output: succeeded
}

// What a handler returns decides what becomes of its job.
func ExampleHandlerFunc() {
	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, g Greet) error {
		switch {
		case g.Name == "":
			return jq.Never(errors.New("nobody to greet"))
		case time.Now().Hour() < 7:
			return jq.Snooze(time.Hour)
		case run.Retries > 3:
			return jq.RetryAfter(time.Hour, errors.New("still no answer"))
		}
		return nil
	})
}

// A long job goes on where its last run has stopped.
func ExampleRun_SaveCheckpoint() {
	ctx := context.Background()
	store := jq.NewMemory(nil)
	client := jq.NewClient(store, nil)
	must(client.Enqueue(ctx, Greet{Name: "everybody"}, &jq.EnqueueOptions{Backoff: jq.Backoff{Base: time.Millisecond, Cap: time.Millisecond}}))

	serve(store, func(handlers *jq.Handlers, enough func()) {
		jq.Handle(handlers, func(ctx context.Context, run *jq.Run, g Greet) error {
			page := 1
			if _, err := run.LoadCheckpoint(&page); err != nil {
				return err
			}
			for ; page <= 3; page++ {
				fmt.Println("page", page)
				if err := run.SaveCheckpoint(ctx, page+1); err != nil {
					return err
				}
				if page == 2 && run.Attempts == 1 {
					return errors.New("interrupted")
				}
			}
			enough()
			return nil
		})
	})
	// Output:
	// page 1
	// page 2
	// page 3
}

func ExampleResult() {
	ctx := context.Background()
	store := jq.NewMemory(nil)
	client := jq.NewClient(store, nil)
	id := must(client.Enqueue(ctx, Greet{Name: "Ada"}, nil)).ID

	serve(store, func(handlers *jq.Handlers, enough func()) {
		jq.Handle(handlers, func(ctx context.Context, run *jq.Run, g Greet) error {
			defer enough()
			return run.SetResult(len(g.Name))
		})
	})
	fmt.Println(must(jq.Result[int](must(client.Get(ctx, id)).Job)))
	// Output: 3
}

// Middleware stands around every handler.
func ExampleHandlers_Use() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	store := jq.NewMemory(nil)
	must(jq.NewClient(store, nil).Enqueue(context.Background(), Greet{Name: "Ada"}, nil))

	serve(store, func(handlers *jq.Handlers, enough func()) {
		handlers.Use(func(next jq.HandlerFunc) jq.HandlerFunc {
			return func(ctx context.Context, run *jq.Run) error {
				err := next(ctx, run)
				logger.Info("ran", "kind", run.Kind, "job", run.ID, "attempt", run.Attempts, "error", err)
				return err
			}
		})
		jq.Handle(handlers, func(ctx context.Context, run *jq.Run, g Greet) error {
			enough()
			return nil
		})
	})
	// Output: level=INFO msg=ran kind=greet job=1 attempt=1 error=<nil>
}

// Report has a queue and a retry policy for every job of its kind.
type Report struct{ Month time.Month }

func (Report) Kind() string { return "report" }

func (Report) Defaults() jq.EnqueueOptions {
	return jq.EnqueueOptions{Queue: "reports", MaxRetries: new(3), Timeout: time.Hour, Backoff: jq.Backoff{Base: time.Minute, Cap: time.Hour}}
}

func ExampleDefaulter() {
	ctx := context.Background()
	client := jq.NewClient(jq.NewMemory(nil), nil)
	id := must(client.Enqueue(ctx, Report{Month: time.March}, nil)).ID
	job := must(client.Get(ctx, id))
	fmt.Println(job.Queue, job.MaxRetries, job.Timeout)
	// Output: reports 3 1h0m0s
}

// Dead jobs stay until somebody looks at them.
func ExampleClient_RequeueAll() {
	ctx := context.Background()
	client := jq.NewClient(jq.NewMemory(nil), nil)
	n, err := client.RequeueAll(ctx, jq.Filter{States: []jq.State{jq.Dead}, Kind: "greet"})
	fmt.Println(n, err)
	// Output: 0 <nil>
}

// A program puts its schedules each time it starts.
func ExampleClient_PutSchedule() {
	ctx := context.Background()
	client := jq.NewClient(jq.NewMemory(nil), nil)
	job := must(client.NewJob(Report{Month: time.March}, nil))
	put := must(client.PutSchedule(ctx, jq.Schedule{
		Name: "monthly", Cron: "0 8 1 * *", Timezone: "Europe/Berlin", Job: job, Owner: "billing", Version: 1,
	}))
	fmt.Println(put.Name, put.Job.Queue, put.NextAt.After(time.Now()))
	// Output: monthly reports true
}

func ExampleClient_PutSchedule_nightly() {
	client := jq.NewClient(jq.NewMemory(nil), nil)
	put := func(ctx context.Context) error {
		job, err := client.NewJob(Report{Month: time.March}, &jq.EnqueueOptions{Queue: "reports"})
		if err != nil {
			return err
		}
		_, err = client.PutSchedule(ctx, jq.Schedule{
			Name: "nightly-report", Cron: "0 2 * * *", Timezone: "Europe/Berlin", Job: job,
			Owner: "billing", Version: 1,
		})
		return err
	}
	fmt.Println(put(context.Background()))
	// Output: <nil>
}

// At most three bills of a customer are in flight at once.
func ExampleClient_SetPolicy_maxPerKey() {
	client := jq.NewClient(jq.NewMemory(nil), nil)
	limit := func(ctx context.Context) error {
		policy, err := client.Policy(ctx, "bills")
		if err != nil {
			return err
		}
		policy.MaxPerKey = 3
		if _, err = client.SetPolicy(ctx, "bills", policy); err != nil {
			return err
		}
		_, err = client.Enqueue(ctx, Report{Month: time.March}, &jq.EnqueueOptions{Queue: "bills", LimitKey: "customer-7"})
		return err
	}
	fmt.Println(limit(context.Background()))
	// Output: <nil>
}

// A time that the clock skips becomes the moment when it goes forward.
func ExamplePreviewSchedule() {
	berlin := must(time.LoadLocation("Europe/Berlin"))
	for _, at := range must(jq.PreviewSchedule("30 2 * * *", "Europe/Berlin", time.Date(2026, 3, 28, 12, 0, 0, 0, berlin), 2)) {
		fmt.Println(at.In(berlin))
	}
	// Output:
	// 2026-03-29 03:00:00 +0200 CEST
	// 2026-03-30 02:30:00 +0200 CEST
}

// A server that is told to stop lets its handlers finish.
func ExampleServer_Run() {
	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, g Greet) error { return nil })
	server := must(jq.NewServer(jq.NewMemory(nil), &handlers, &jq.ServerOptions{
		Queues:   map[string]jq.QueueOptions{"mail": {Weight: 3}, "default": {}},
		Slots:    50,
		Shutdown: jq.ShutdownOptions{DrainTimeout: time.Minute},
	}))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := server.Run(ctx); err != nil {
		log.Print(err) // some jobs will run again
	}
}

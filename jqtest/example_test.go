package jqtest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/jqtest"
)

// signUp is code under test: it enqueues, and knows nothing of tests.
func signUp(ctx context.Context, store jq.Store, name string) error {
	_, err := jq.NewClient(store, nil).Enqueue(ctx, welcome{Name: name}, &jq.EnqueueOptions{Delay: time.Hour})
	return err
}

// t stands for the t of a test.
var t testing.TB = exampleT{}

// A test in three steps: call the code, look for its jobs, and run them.
func Example() {
	store := jqtest.NewStore(t)
	if err := signUp(t.Context(), store, "Ada"); err != nil {
		t.Fatal(err)
	}
	jqtest.RequireEnqueued(t, store, jqtest.Want{Payload: welcome{Name: "Ada"}})

	var handlers jq.Handlers
	jq.Handle(&handlers, func(_ context.Context, _ *jq.Run, w welcome) error {
		fmt.Println("Welcome,", w.Name)
		return nil
	})
	ran := jqtest.Drain(t, store, &handlers, nil) // moves the clock by the hour that the job is delayed
	fmt.Println(ran[0].After.Phase(), ran[0].At.Sub(jqtest.Epoch))
	// Output:
	// Welcome, Ada
	// succeeded 1h0m0s
}

func ExampleRequireEnqueued() {
	store := jqtest.NewStore(t)
	if err := signUp(t.Context(), store, "Ada"); err != nil {
		t.Fatal(err)
	}
	jobs := jqtest.RequireEnqueued(t, store, jqtest.Want{Payload: welcome{Name: "Ada"}, Delay: time.Hour})
	fmt.Println(len(jobs))

	jqtest.RefuteEnqueued(t, store, jqtest.Want{Kind: "reminder"})
	// Output: 1
}

func ExampleDrain() {
	store := jqtest.NewStore(t)
	if err := signUp(t.Context(), store, "Ada"); err != nil {
		t.Fatal(err)
	}
	var handlers jq.Handlers
	jq.Handle(&handlers, func(_ context.Context, run *jq.Run, _ welcome) error {
		if run.Attempts == 1 {
			return jq.RetryAfter(time.Minute, errors.New("mail server away"))
		}
		return nil
	})
	for _, ran := range jqtest.Drain(t, store, &handlers, nil) {
		fmt.Println(ran)
	}
	// Output:
	// 2026-01-01 13:00:00  job 1, welcome {"Name":"Ada"}, attempt 1: retrying: mail server away
	// 2026-01-01 13:01:00  job 1, welcome {"Name":"Ada"}, attempt 2: succeeded
}

// exampleT is a test as far as examples need one.
type exampleT struct{ testing.TB }

func (exampleT) Helper()                           {}
func (exampleT) Context() context.Context          { return context.Background() }
func (exampleT) Cleanup(func())                    {}
func (exampleT) Fatal(args ...any)                 { log.Fatal(args...) }
func (exampleT) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }

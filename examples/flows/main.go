// Flows enqueues five jobs that wait for each other, runs them, and ends. The jobs are in the file flows.db.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/sqlite"
)

// Step is the payload of every job here. In your program, each kind of work has a type of its own.
type Step struct{ Do string }

func (Step) Kind() string { return "step" }

// after returns options of a job that waits until the items of the same call have succeeded.
func after(items ...int) *jq.EnqueueOptions {
	var o jq.EnqueueOptions
	for _, item := range items {
		o.After = append(o.After, jq.Wait{Item: item})
	}
	return &o
}

func work(ctx context.Context) error {
	store, err := sqlite.Open(ctx, "flows.db", nil)
	if err != nil {
		return err
	}
	defer store.Close()

	client := jq.NewClient(store, nil)
	jobs, err := client.EnqueueMany(ctx, []jq.Item{
		0: {Payload: Step{"download the picture"}},
		1: {Payload: Step{"make the small one"}, Options: after(0)},
		2: {Payload: Step{"make the large one"}, Options: after(0)},
		3: {Payload: Step{"publish both"}, Options: after(1, 2)},
		4: {Payload: Step{"remove the download"}, Options: &jq.EnqueueOptions{After: []jq.Wait{{Item: 3, Any: true}}}},
	}, nil)
	if err != nil {
		return err
	}
	for _, job := range jobs {
		fmt.Printf("job %d is %s\n", job.ID, job.State)
	}

	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, s Step) error {
		fmt.Printf("job %d: %s\n", run.ID, s.Do)
		return nil
	})
	server, err := jq.NewServer(store, &handlers, &jq.ServerOptions{Slots: 1}) // one after the other, for the same output each time
	if err != nil {
		return err
	}
	if err := server.Start(ctx); err != nil {
		return err
	}
	last, err := client.Wait(ctx, jobs[4].ID)
	if err != nil {
		return err
	}
	fmt.Printf("job %d has %s\n", last.ID, last.State)
	return server.Stop(ctx)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := work(ctx); err != nil {
		log.Fatal(err)
	}
}

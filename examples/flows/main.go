// Flows enqueues a flow, a chain and a batch of jobs, runs them, and ends. The jobs are in the file flows.db.
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
type Step struct{ Do, File string }

func (Step) Kind() string { return "step" }

// handle gets the results of the jobs that its job has waited for.
func handle(ctx context.Context, run *jq.Run, s Step) error {
	others, err := run.WaitedFor(ctx)
	if err != nil {
		return err
	}
	for other, err := range run.WaitedForGroups(ctx) { // the jobs of a batch
		if err != nil {
			return err
		}
		others = append(others, other)
	}
	var files []string
	for _, other := range others {
		file, err := jq.Result[string](other)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	fmt.Printf("job %d: %s %v\n", run.ID, s.Do, files)
	return run.SetResult(s.File)
}

func work(ctx context.Context) error {
	store, err := sqlite.Open(ctx, "flows.db", nil)
	if err != nil {
		return err
	}
	defer store.Close()

	var flow jq.Flow
	download := flow.Add(Step{"download", "a.png"}, nil)
	small := flow.Add(Step{"shrink", "small.png"}, nil, download)
	large := flow.Add(Step{"enlarge", "large.png"}, nil, download)
	publish := flow.Add(Step{"publish", "page.html"}, nil, small, large)
	report := flow.Add(Step{Do: "report"}, nil, publish.Any())

	client := jq.NewClient(store, nil)
	jobs, err := client.EnqueueFlow(ctx, &flow, nil)
	if err != nil {
		return err
	}
	for _, job := range jobs {
		fmt.Printf("job %d is %s\n", job.ID, job.State)
	}

	scan, read := jq.Item{Payload: Step{"scan", "text.png"}}, jq.Item{Payload: Step{"read", "text.txt"}}
	if _, err := client.EnqueueFlow(ctx, jq.Chain(scan, read), nil); err != nil {
		return err
	}

	var handlers jq.Handlers
	jq.Handle(&handlers, handle)
	server, err := jq.NewServer(store, &handlers, &jq.ServerOptions{Slots: 1}) // one after the other, for the same output each time
	if err != nil {
		return err
	}
	if err := server.Start(ctx); err != nil {
		return err
	}
	if err := wait(ctx, client, jobs[report.Index].ID); err != nil {
		return err
	}

	batch := jq.Batch{OnSuccess: &jq.Item{Payload: Step{Do: "album"}}}
	for _, file := range []string{"1.png", "2.png", "3.png"} {
		batch.Items = append(batch.Items, jq.Item{Payload: Step{"frame", file}})
	}
	added, err := client.EnqueueBatch(ctx, &batch, nil)
	if err != nil {
		return err
	}

	if err := wait(ctx, client, added.OnSuccess.ID); err != nil {
		return err
	}
	return server.Stop(ctx)
}

// wait waits until the job has ended.
func wait(ctx context.Context, client *jq.Client, id int64) error {
	last, err := client.Wait(ctx, id)
	if err == nil {
		fmt.Printf("job %d has %s\n", last.ID, last.State)
	}
	return err
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := work(ctx); err != nil {
		log.Fatal(err)
	}
}

// Firstjob adds a job for each name that it is given. Without names, it runs the jobs. They are in the file jobs.db.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/sqlite"
)

// Welcome is the payload of a job. Its kind selects the handler.
type Welcome struct{ Name string }

func (Welcome) Kind() string { return "welcome" }

// welcome takes ten seconds, so that you have the time to kill the program.
func welcome(ctx context.Context, run *jq.Run, w Welcome) error {
	fmt.Printf("job %d, attempt %d: welcoming %s\n", run.ID, run.Attempts, w.Name)
	select {
	case <-time.After(10 * time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	fmt.Printf("job %d, attempt %d: done\n", run.ID, run.Attempts)
	return nil
}

func work(ctx context.Context, store jq.Store) error {
	var handlers jq.Handlers
	jq.Handle(&handlers, welcome)
	server, err := jq.NewServer(store, &handlers, nil)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

func enqueue(ctx context.Context, store jq.Store, names []string) error {
	client := jq.NewClient(store, nil)
	for _, name := range names {
		added, err := client.Enqueue(ctx, Welcome{Name: name}, nil)
		if err != nil {
			return err
		}
		fmt.Println("added job", added.ID)
	}
	return nil
}

func run(ctx context.Context, names []string) error {
	store, err := sqlite.Open(ctx, "jobs.db", nil)
	if err != nil {
		return err
	}
	defer store.Close()
	if len(names) > 0 {
		return enqueue(ctx, store, names)
	}
	return work(ctx, store)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

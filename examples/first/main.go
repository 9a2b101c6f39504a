// First enqueues one job and runs it. Ctrl-C stops it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/seed-ed332417/jq"
)

// Welcome is the payload of the job. Its kind selects the handler.
type Welcome struct{ Name string }

func (Welcome) Kind() string { return "welcome" }

func open(ctx context.Context) (jq.Store, error) {
	return jq.NewMemory(nil), nil
}

func work(ctx context.Context) error {
	store, err := open(ctx)
	if err != nil {
		return err
	}
	defer store.Close()

	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, w Welcome) error {
		fmt.Printf("Welcome, %s! (job %d, token %d)\n", w.Name, run.ID, run.Token)
		return nil
	})
	server, err := jq.NewServer(store, &handlers, nil)
	if err != nil {
		return err
	}
	if _, err := jq.NewClient(store, nil).Enqueue(ctx, Welcome{Name: "Ada"}, nil); err != nil {
		return err
	}
	return server.Run(ctx)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := work(ctx); err != nil {
		log.Fatal(err)
	}
}

package bbolt_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/examples/bbolt"
)

// Welcome is the payload of the job.
type Welcome struct{ Name string }

func (Welcome) Kind() string { return "welcome" }

// A program that uses the store differs from the first program of the README in one line.
func ExampleOpen() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	folder, err := os.MkdirTemp("", "jq")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()

	store, err := bbolt.Open(ctx, filepath.Join(folder, "jobs.bolt"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	var handlers jq.Handlers
	jq.Handle(&handlers, func(_ context.Context, run *jq.Run, w Welcome) error {
		fmt.Printf("Welcome, %s! (job %d, token %d)\n", w.Name, run.ID, run.Token)
		stop()
		return nil
	})
	if _, err := jq.NewClient(store, nil).Enqueue(ctx, Welcome{Name: "Ada"}, nil); err != nil {
		log.Fatal(err)
	}
	server, err := jq.NewServer(store, &handlers, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := server.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: Welcome, Ada! (job 1, token 1)
}

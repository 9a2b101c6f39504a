package sqlite_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/sqlite"
)

// Greet is the payload of a job.
type Greet struct{ Name string }

func (Greet) Kind() string { return "greet" }

// One program enqueues a job and ends. Another one opens the same file and runs it.
func Example() {
	ctx, enough := context.WithCancel(context.Background())
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	file := filepath.Join(folder, "jobs.db")

	store, err := sqlite.Open(ctx, file, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := jq.NewClient(store, nil).Enqueue(ctx, Greet{Name: "Ada"}, nil); err != nil {
		log.Fatal(err)
	}
	if err := store.Close(); err != nil {
		log.Fatal(err)
	}

	store, err = sqlite.Open(ctx, file, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, g Greet) error {
		fmt.Println("Hello,", g.Name)
		enough()
		return nil
	})
	server, err := jq.NewServer(store, &handlers, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := server.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: Hello, Ada
}

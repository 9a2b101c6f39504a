package jqpebble_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/seed-ed332417/jq"
	jqpebble "github.com/seed-ed332417/jq/examples/pebble"
)

// Welcome is the payload of the job.
type Welcome struct{ Name string }

func (Welcome) Kind() string { return "welcome" }

func ExampleOpen() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "jq")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	store, err := jqpebble.Open(ctx, filepath.Join(folder, "jobs"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }()

	client := jq.NewClient(store, nil)
	added, err := client.Enqueue(ctx, Welcome{Name: "Ada"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	job, err := client.Get(ctx, added.ID)
	fmt.Println(job.State, string(job.Payload), err)
	// Output: ready {"Name":"Ada"} <nil>
}

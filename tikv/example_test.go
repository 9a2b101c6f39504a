package tikv_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tikv/client-go/v2/txnkv"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/tikv"
	"github.com/seed-ed332417/jq/tikv/internal/tikvtest"
)

// Welcome is the payload of the job.
type Welcome struct{ Name string }

func (Welcome) Kind() string { return "welcome" }

// This is the first program of the README but for the lines that open the store. Any number of programs can open the same store.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := tikv.New(client(), "jobs") // or tikv.Open, with a URL
	if err != nil {
		log.Fatal(err)
	}
	store, err := kv.Open(ctx, engine, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }()

	var handlers jq.Handlers
	jq.Handle(&handlers, func(_ context.Context, run *jq.Run, w Welcome) error {
		fmt.Printf("Welcome, %s! (token %d)\n", w.Name, run.Token)
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
	// Output: Welcome, Ada! (token 1)
}

// shown is the cluster of the example, which TestMain stops.
var shown *tikvtest.Cluster

// client returns what txnkv.NewClient does, of a cluster inside the process.
func client() *txnkv.Client {
	var err error
	if shown, err = tikvtest.Start(); err != nil {
		log.Fatal(err)
	}
	client, err := shown.Client(nil)
	if err != nil {
		log.Fatal(err)
	}
	return client
}

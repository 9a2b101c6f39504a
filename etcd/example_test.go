//go:build unix

package etcd_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/etcd"
)

// Welcome is the payload of the job.
type Welcome struct{ Name string }

func (Welcome) Kind() string { return "welcome" }

// This is the first program of the README but for the line that opens the store. Any number of programs can open the same store.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, err := etcd.Open(ctx, address("/jobs"), nil) // such as etcd://a:2379,b:2379,c:2379/jobs
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

// address returns the URL of a store in the tests' cluster.
func address(path string) string {
	c, err := shared.start()
	if err != nil {
		log.Fatal(err)
	}
	return "etcd://" + strings.ReplaceAll(strings.Join(c.Endpoints(), ","), "http://", "") + path
}

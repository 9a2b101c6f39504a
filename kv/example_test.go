package kv_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/kv"
)

// Two stores on the same keys, as two processes would have. Here connect stands for what makes an engine, once for each store. Yours may be
// etcd.New of the module github.com/seed-ed332417/jq/etcd, or an engine that you write: in jq's repository, the folders examples/pebble and examples/bbolt
// have one each, for a single process.
func Example() {
	ctx := context.Background()
	open := func() *kv.Store {
		store, err := kv.Open(ctx, connect(), nil)
		if err != nil {
			panic(err)
		}
		return store
	}
	producer, worker := open(), open()

	job := contract.NewJob{Queue: "mail", Kind: "welcome", Payload: []byte(`{"name":"ada"}`)}
	if _, err := producer.Enqueue(ctx, contract.EnqueueRequest{Jobs: []contract.NewJob{job}}); err != nil {
		panic(err)
	}
	jobs, err := worker.FetchAndClaim(ctx, contract.ClaimRequest{Queue: "mail", Limit: 1, Worker: "w", TTL: time.Minute})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s %s under token %d\n", jobs[0].Kind, jobs[0].Payload, jobs[0].Token)
	fmt.Println(producer.Close(), worker.Close())
	// Output:
	// welcome {"name":"ada"} under token 1
	// <nil> <nil>
}

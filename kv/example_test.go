package kv_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/kv/internal/memkv"
)

// Two stores on the same keys, as two processes would have. This engine keeps them in memory.
func Example() {
	ctx := context.Background()
	db := memkv.New()
	producer, err := kv.Open(ctx, db.Connect(), nil)
	if err != nil {
		panic(err)
	}
	worker, err := kv.Open(ctx, db.Connect(), nil)
	if err != nil {
		panic(err)
	}

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

package contract_test

import (
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// A store finds the record of a job under its lock, lets it decide what the call does, and keeps it. Here a worker is silent for longer than
// its lease, and then too late.
func Example() {
	now := time.Date(2026, time.January, 2, 12, 0, 0, 0, time.UTC) // the store's clock, truncated
	job := contract.NewJob{Queue: "mail", Kind: "welcome", Payload: []byte(`{}`), MaxRetries: 3}
	record := &contract.Record{Job: job.Row(1, now)}
	claim := func(worker string) contract.Lease {
		record.Claim(contract.ClaimRequest{Queue: "mail", Limit: 1, Worker: worker, TTL: 30 * time.Second}, now)
		return contract.Lease{ID: record.ID, Token: record.Token}
	}

	first := claim("A")
	now = now.Add(30 * time.Second)
	fmt.Println("recovered from", record.Recover(now).Worker)
	now = record.Next()
	second := claim("B")

	for _, ack := range []contract.Ack{{Lease: first}, {Lease: second}} {
		fmt.Println(record.Ack(ack, ack.Refused(), now).Status)
	}
	fmt.Println(record.Phase(), record.Worker)
	// Output:
	// recovered from A
	// stale
	// ok
	// succeeded B
}

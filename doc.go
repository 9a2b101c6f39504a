// Package jq is a durable job queue whose storage can be exchanged: memory for unit tests, SQLite for a single node,
// Postgres for production, and adapters of your own that jqtest proves.
//
// # Work
//
// The type of a payload names the kind of its jobs:
//
//	type Welcome struct{ Name string }
//
//	func (Welcome) Kind() string { return "welcome" }
//
// A [Client] enqueues them, in a store that any process may open:
//
//	store := jq.NewMemory(nil) // or sqlite.Open, or postgres.Open
//	client := jq.NewClient(store, nil)
//	_, err := client.Enqueue(ctx, Welcome{Name: "Ada"}, nil)
//
// A [Server] claims them and runs their handlers, in the same process or in others:
//
//	var handlers jq.Handlers
//	jq.Handle(&handlers, func(ctx context.Context, run *jq.Run, w Welcome) error {
//		return mail.Send(ctx, w.Name)
//	})
//	server, err := jq.NewServer(store, &handlers, nil)
//	err = server.Run(ctx)
//
// Run works until the context ends, then lets its handlers finish. Close the store after it has returned. [Client.Wait] waits for
// the end of a job and returns it with its result.
//
// # Promises
//
// A job is run at least once. Once it was enqueued it is never lost and never silently stuck: it ends as succeeded, as dead
// with its error, or as cancelled. A worker claims a job under a lease and gets a token with it; it finishes the job with
// that token. When the worker dies, the lease runs out and the job goes to another worker under a new token; when the first
// one comes back, its late write is refused. So a finished job is finished once, by the worker that held it last.
//
// # Fail
//
// An error sends the job back: it is tried again after a backoff, and dead when its retries are used up. [Never],
// [RetryAfter] and [Snooze] say something else; [HandlerFunc] has the list. A panic is an error, and a process that dies is
// noticed when the lease of its jobs runs out: 30 seconds by default, and recovery looks every ten. A dead job stays, with
// its error and the history of its attempts, until [Client.Requeue] or [Client.Delete].
//
// The handler's context is cancelled when it has to stop; context.Cause says why. A long job saves checkpoints, and goes on
// from there: [Run.SaveCheckpoint].
//
// # Once
//
// A handler may run more than once, also at the same time as its successor if it does not notice that its lease was lost. What
// it does outside the queue should be safe to repeat, or be done exactly once in one of two ways. Where the jobs stand in the
// database that the handler writes to, [Run.FinishTx] lets the effect and the end of the job stand or fall together. Any other
// store can remember the greatest token that it has seen for a job, and refuse the older run: the token is in [Run], and by
// [RunFrom] in the context.
//
// In the same way [Client.EnqueueTx] adds jobs in a transaction of yours. A unique key keeps duplicates out, and a request key
// makes an enqueueing safe to repeat: see [EnqueueOptions].
//
// # Test
//
// The store in memory runs the real client and server in a unit test. Under testing/synctest hours of retries pass in no time;
// package jqtest drains a queue in the caller's goroutine, and asserts what was enqueued.
//
// # The contract
//
// The promises of every store are the documentation of one package: go doc github.com/seed-ed332417/jq/internal/store. Package
// contract has its types for authors of stores. The types that applications need have the same names here.
//
// Jobs, queues and the other types look in JSON as in the HTTP API.
package jq

//go:generate go run ./internal/apidoc

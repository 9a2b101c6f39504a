// Package jq is a durable job queue whose storage can be exchanged: memory for unit tests, SQLite for a single node,
// Postgres for production, and adapters of your own that jqtest proves.
//
// # Promises
//
// A job is run at least once. Once it was enqueued it is never lost and never silently stuck: it ends as succeeded, as dead
// with its error, or as cancelled. A worker claims a job under a lease and gets a token with it; it finishes the job with
// that token. When the worker dies, the lease runs out and the job goes to another worker under a new token; when the first
// one comes back, its late write is refused. So a finished job is finished once, by the worker that held it last.
//
// # Caveats
//
// A handler may run more than once, also at the same time as its successor if it does not notice that its lease was lost.
// What it does outside the queue should be safe to repeat, or be refused by the token: a store of yours that remembers the
// greatest token it has seen for a job can refuse the older run.
//
// # The contract
//
// What every store promises stands in the package of the contract: go doc github.com/seed-ed332417/jq/internal/store. The
// types here are the same ones under names that any module can use.
package jq

// Package kv is a store on any ordered key-value engine: bbolt, etcd, or another that has snapshots and guarded commits.
// It is for authors of stores. You write an [Engine], and Open makes a store of it that follows the whole contract
// of package contract, except callers' transactions.
//
//	store, err := kv.Open(ctx, engine, nil)
//
// The guide at https://github.com/seed-ed332417/jq/blob/main/docs/guides/write-an-engine.md has an engine on Pebble, and says how to test yours.
//
// # How a call works
//
// A call takes a view of the engine, reads in it, decides, and commits its writes with guards: the versions of the keys on which
// it has decided. If one of these keys has changed since, the commit fails with [ErrConflict], nothing is written, and the call starts again with a new
// view. So several stores, in several processes, can use the same keys at once. A call gives up after 8 seconds or when its
// context ends, with contract.ErrUnavailable.
//
// No key is written by every call, and no counter is read and written by every call: two calls conflict only if they are about the same job, unique key,
// request key, limit key or queue with a limit, or if both end the last jobs of a group. Ids come from [Engine.Tickets].
//
// Small calls that come at once, from many goroutines of a process, share a commit. If it is known that nothing was applied, each is made by itself.
//
// A call that ends a job for which others wait notes that in the same commit, and tells the others in commits of its own. If its process ends between these,
// Settle goes on in any other process. The design is in
// https://github.com/seed-ed332417/jq/blob/main/docs/design.md#a-kit-for-ordered-engines.
//
// # Several processes
//
// If the engine is a [Watcher] or a [Sharer], several processes may use it, and the jobs of a queue stand in 16 shards. Claims of several processes on one queue would all
// take its first jobs, and conflict. So for a second after claims have met, each store takes jobs of a shard of its own first, and of others if that has too
// few: among jobs of the same priority, later ones may come earlier, by some seconds. A higher priority still comes first, and no job is left out.
//
// # Time
//
// All stores of an engine have one time, although the clocks of their machines differ. If its views are a [Timer], it is that of the engine. Else, if the engine is a [Watcher] or a
// [Sharer], one of the open stores keeps the time: it writes each second what time it is, and the others go by that, a few milliseconds behind on a Watcher and up to a second on others. If it is closed or silent for
// two seconds, another one goes on. So a machine whose clock is wrong ends no lease early, while other stores are open. The machine of the store that keeps the time draws it by at most
// five milliseconds a second. A store that is alone follows at once if the clock of its machine is set.
//
// A store that opens when no other one is open begins with the time of its machine. If its machine disagrees with the last time that was written, it waits for the next one, or, after
// all stores have crashed, for ten seconds.
package kv

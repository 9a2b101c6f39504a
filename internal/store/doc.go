// Package store is the contract between jq and the place where its jobs are kept.
//
// A store keeps jobs durably, hands each of them to one worker at a time under a lease, and refuses what a worker writes
// after its lease was ended. [Store] is what every adapter implements; the small interfaces [Transactor], [Notifier],
// [QueueKeeper], [PolicyKeeper], [Registry], [Fencer] and [Monitor] are abilities beyond it. Each sentence above a method is a
// promise to the caller and a duty of the adapter, and a case of the conformance suite quotes it.
//
// # The life of a job
//
//	 Enqueue                                       Ack
//	    │                                    ┌────────────▶ succeeded
//	    ▼          FetchAndClaim, token+1    │
//	┌───────┐ ─────────────────────────▶ ┌───────────┐
//	│ ready │                            │ in_flight │
//	└───────┘ ◀───────────────────────── └───────────┘
//	    ▲             Snooze, Release      ▲  │   │
//	    │                                  │  │   └───────▶ dead
//	    │          FetchAndClaim, token+1  │  │     NAck or an expired lease, no retries left; NAck never
//	    │                                  │  ▼
//	    │                              ┌──────────┐
//	    │                              │ retrying │   NAck or an expired lease, retries left
//	    │                              └──────────┘
//	    └── Requeue, token+1: from succeeded, dead and cancelled
//
//	Cancel, token+1: from ready, in_flight and retrying to cancelled.
//	The recovery of an expired lease: token+1.
//	Delete: from succeeded, dead and cancelled to nothing.
//	Extend and Save leave the state as it is.
//
// Retrying and dead are the two faces of the state failed: a retrying job has a RetryAt, a dead one has none. [Transitions]
// is the same picture as data.
//
// # Lease and token
//
// A claim gives a lease: the right to finish the job, until LeaseExpiresAt. The lease is named by the job's id and its
// token. The token grows with every transition but the holder's own, and never shrinks or restarts, so a token that is not
// the job's own is one that was overtaken: what is written with it is refused as stale. The token is no counter of attempts,
// and the worker's name is no part of any check.
//
// A lease that ran out goes on being good until somebody ends it: RecoverExpiredLeases, Cancel, or Fence with EndLeases. The
// holder ends it by Ack, by NAck in one of its forms, or not at all.
//
// A job that is not in flight and still has the token of a lease was finished by the holder of that lease. The store
// remembers how: by Ack, by failing (NAck with Fail, Never or After), by Snooze or by Release. The same again answers ok and
// changes nothing, so that a lost reply can be repeated; another way of finishing answers stale. This holds until the next
// claim, cancel, requeue or deletion. Of a job that is not in flight its own token is stale, unless the holder of
// that lease finished the job.
//
// # Time
//
// Now is the store's own: an injected clock, or the clock of the process or the database where none was injected. A call has
// one now. Within an open store, now stands still while its clock is behind by at most 5 s. If the clock is behind by more, now
// follows it at once. Times have a resolution of one microsecond: times and durations that come in are truncated to it, and
// times that come out are in UTC. A time that is not set is the zero time.
//
// What a clock that was ahead has written stays as it was written: a job waits for its time, a window and a request key stand
// until theirs, each for as long as the clock was ahead in addition to its own length. Leases are brought back by recovery.
//
// Due means at or before now; expired means LeaseExpiresAt at or before now.
//
// # Limits
//
// Queue, kind, unique key, request key, tag and worker are 1 to 255 bytes of valid UTF-8 without NUL; trace and host may
// also be empty. Payload, result, checkpoint and progress are JSON documents of at most 1 MiB in valid UTF-8, kept byte for
// byte; all but the payload may be left out. A job has at most 16 tags. A priority is −9 to 9. MaxRetries is 0 to 1,000,000.
// A duration is 0 to ten years, a lease or a window at least a microsecond, a jitter 0 to 100 percent, a cap no less than
// its base, and no time that is asked for lies after the year 9999. A retention is an hour to ten years, or for ever. A call
// has at most 1,000 items and 8 MiB in all, counted over its strings and documents, its request key aside. A lease is at most as
// long as the store's MaxLease, which is an hour unless the store was opened with another. An error text is never refused: what is not valid UTF-8, and NUL, becomes U+FFFD, and what
// is longer than 16 KiB is cut.
//
// The checks are methods of the requests, so that all adapters refuse the same things in the same words:
// [EnqueueRequest.Check], [ClaimRequest.Check] and their siblings.
package store

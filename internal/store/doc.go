// Package store defines the contract between jq and the storage that keeps its jobs.
//
// A store keeps jobs durably, leases each job to one worker at a time, and rejects every write that a worker makes after its
// lease was ended. Every adapter implements [Store]. The small interfaces [Transactor], [Notifier], [QueueKeeper],
// [PolicyKeeper], [Registry], [ScheduleKeeper], [GroupKeeper], [Fencer], [Monitor], [ActivityReader] and [ActivityKeeper] are
// optional abilities. Each sentence above a method is a promise to the caller and a duty of the adapter, and a case of the
// conformance suite quotes it.
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
//	Enqueue of a job that waits for others makes it blocked. Settle makes it ready when every wait is met; its token stays.
//
//	Cancel, token+1: from blocked, ready, in_flight and retrying to cancelled.
//	Settle, token+1: from blocked, ready and retrying to cancelled, if the job has expired; from blocked to cancelled, if a job
//	that it needs was cancelled or deleted.
//	Reschedule, token+1: a ready or retrying job gets another due time.
//	Enqueue with Replace, token+1: a blocked, ready or retrying job gets another payload, priority and due time.
//	The recovery of an expired lease: token+1.
//	Delete: from succeeded, dead and cancelled to nothing.
//	Extend and Save leave the state as it is.
//
// The state failed covers two phases, retrying and dead: a retrying job has a RetryAt, and a dead job has none. [Transitions]
// holds the same life cycle as data.
//
// # Lease and token
//
// A claim grants a lease: the right to finish the job until LeaseExpiresAt. The job's id and its token identify the lease. The
// token grows with every transition except those that the holder of the lease makes and that from blocked to ready, and it never
// shrinks or restarts. So any
// token other than the job's current one has been superseded, and the store must reject a write with it as stale. The token
// does not count attempts, and no check uses the worker's name.
//
// An expired lease stays valid until it is ended by RecoverExpiredLeases, by Cancel, or by Fence with EndLeases. The holder of
// a lease can end it only with Ack or with one of the forms of NAck.
//
// If a job is not in flight and still has the token of a lease, the holder of that lease finished the job. The store must
// remember how the holder finished it: by Ack, by failing (NAck with Fail, Never or After), by Snooze or by Release. If the
// holder finishes the job in the same way again, the store must answer ok and change nothing, so that a caller can repeat a
// call whose reply was lost. If the holder tries to finish the job in another way, the store must answer stale. The store must
// remember this until the token grows again or the job is deleted. If a job is not in flight, even its current token is stale,
// unless the holder of the lease with that token finished the job.
//
// # Time
//
// The store decides what now is: it reads the injected clock or, if none was injected, the clock of the process or of the
// database. Each call uses one value of now throughout. An open store must keep using the latest time it has seen while its
// clock is behind that time by at most 5 s. If the clock is behind by more than 5 s, the store must use the time of the clock
// at once. Times have a resolution of one microsecond. The store must truncate every incoming time and duration to that
// resolution, and must return times in UTC. A time that is not set is the zero time.
//
// Times that a store wrote while its clock was ahead stay as they were written. A job waits for its due time, and the window of
// a unique key and a request key last until their ends. So each of them lasts longer than its own length by as much as the
// clock was ahead. RecoverExpiredLeases corrects the leases that such a clock granted.
//
// Due means at or before now. A lease has expired if its LeaseExpiresAt is at or before now. A job has expired if it is
// blocked, ready or retrying and its ExpiresAt is at or before now. A job in flight does not expire, but it may expire when its
// attempt ends.
//
// # Limits
//
// Queue, kind, group, limit key, unique key, request key, tag and worker are 1 to 255 bytes of valid UTF-8 without NUL; trace and host may
// also be empty. A job has at most 64 waits, and a call at most 4,000. A call opens at most 100 groups, and none without a job.
// Payload, result, checkpoint and progress are JSON documents of at most 1 MiB in valid UTF-8, and the store must keep them byte
// for byte. Only the payload is required. A job has at most 16 tags. A priority is −9 to 9. MaxRetries is 0 to 1,000,000. A
// duration is 0 to ten years, a lease or the window of a unique key is at least one microsecond, a jitter is 0 to 100 percent,
// and a cap is no less than its base. No requested time may lie after the year 9999. A retention is an hour to ten years, or for
// ever. A schedule's name and expression are names as well; its time zone and its owner may also be empty, and its job has a
// payload of at most 64 KiB, no due time, no ExpiresAt, no Replace, no waits and no group. The queue and the kind of an activity
// may be empty as well, and its numbers are 0 to 1,000,000,000. An answer of Activity goes back a minute to 7 days; its Step is
// whole minutes and at most Last, whole hours if Last is longer than 24 hours, and zero with By. A call has at most 1,000 items,
// and a call of Fire at most 100. Its strings and documents, without the request key, have at most 8 MiB in all. A lease is at
// most as long as the store's MaxLease. MaxLease is one hour unless the store was opened with another value. The store must not
// reject any error text. It replaces invalid UTF-8 and NUL with U+FFFD, and it cuts a text that is longer than 16 KiB.
//
// The requests have methods that check these limits, so that all adapters reject the same requests with the same messages:
// [EnqueueRequest.Check], [ClaimRequest.Check] and the others.
package store

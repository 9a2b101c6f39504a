package store

import (
	"context"
	"database/sql"
	"time"
)

// A Store keeps jobs. The following rules apply to every method, including the methods of the optional abilities.
//
// Any goroutine may call any method at any time, even while other goroutines make calls for the same job. A call takes effect
// as a whole, at one moment between its start and its return, or not at all. When a call returns without an error, its effect
// is committed and is as durable as the adapter promises.
//
// If a call takes several items, its outcomes are positional: one per item, as if the items were applied in order. One bad item
// must not affect the other items. An invalid item gets the outcome invalid, whether its lease is valid or not. A call without
// items does nothing. If nothing matches, the call returns an empty answer and no error.
//
// A store must not keep a slice that it was given, and must not return a slice that it keeps. No method waits for work to
// appear. A call may wait for other calls and for open transactions, but only until its context ends.
//
// Every error must match, by errors.Is, one of the following errors or one that the method itself names. ErrInvalid: the
// request breaks a limit and nothing was applied. ErrClosed: the store was closed, and nothing was applied. ErrUnavailable: the
// store could not serve the call, and nothing was applied. ErrDenied: the caller may not do this, and nothing was applied.
// Repeating the call does not help until somebody has granted the right. ErrInDoubt: the call was applied as a whole, may still
// be applied as a whole shortly, or was not applied at all. For a full disk, a lost connection or an unreachable database, the
// error is ErrUnavailable if it is known that nothing was committed, and ErrInDoubt if the answer to the commit was lost.
//
// If the context has ended before the call, the store must not apply the call: the error is ErrUnavailable and matches the
// context's own error. If the context ends during the call, the call stops waiting and does not affect other calls: the error
// is ErrUnavailable or ErrInDoubt, and matches the context's own error.
type Store interface {
	Writer

	// FetchAndClaim claims due jobs of one queue, leases each of them to the worker, and returns them as they are stored.
	//
	// A job is claimable when it is ready and its RunAt is due, or retrying and its RetryAt is due, and it has not expired. A
	// claim takes jobs only from the queue that it names. Once SetPaused(true) has returned, new claims on the queue return no
	// jobs until the queue is resumed. A dead job is never claimed.
	//
	// Each claimed job becomes in_flight, and its token and its attempts grow by one. Its ClaimedAt is now, its lease runs
	// until now plus TTL, its worker is the one that the request names, its RetryAt is cleared, and the numbers of its saves
	// start again at 0. The job's checkpoint, progress, retries and error do not change. The store must not hand out a job
	// twice with the same token.
	//
	// A claim fills two lanes: retries, which are the retrying jobs, and fresh jobs, which are the ready ones. It takes up to
	// RetryQuota retries and then fresh jobs up to Limit. If one lane has too few jobs, the other lane fills the places that
	// are left. In each lane, jobs with a higher priority come first, then jobs with an earlier due time, then jobs with a
	// smaller id. If the adapter says so, claims take jobs of the same lane and priority in another order for a second after claims of
	// several processes have met. A lane ends before the first job that would raise the total size of the lane's documents above
	// MaxAnswerBytes. The answer lists the retries before the fresh jobs.
	//
	// If the queue's policy sets MaxInFlight, a claim takes at most as many jobs as that number is greater than that of the queue's
	// jobs in flight, whatever other calls do at the same time. A job is in flight until its lease is ended, so a job whose lease
	// has expired counts until it is recovered, and one that is finished in a caller's transaction counts until that is committed.
	//
	// If the policy sets MaxPerKey, a claim takes a job with a LimitKey only if, with it, at most that number of the queue's jobs with the
	// same key are in flight, whatever other calls do at the same time. It passes over the others: a key that has no room holds back
	// neither other keys nor jobs without a key.
	//
	// If the policy is Fair, the limit keys of the queue take turns in each lane, and jobs without a key are those of one key. Jobs with a higher
	// priority still come first. Among the keys that have jobs of the same priority to take, that one comes first from which claims have taken
	// no such job for the longest time, with the first of its jobs by due time and id. A key that had no such job in between, or no room, may
	// come later, but before those from which claims take such a job once it has both. Turns count from when the policy
	// becomes Fair, or from when another of its limits changes.
	//
	// If the policy is Ordered, a claim takes a job with a LimitKey only if no other live job of the queue with the same key has a smaller id or
	// is in flight, whatever other calls do at the same time. So a job holds back the later ones of its key while it is in flight, not yet due,
	// blocked, or expired but not yet cancelled. One that has ended holds back none, and goes next if it is requeued. A retrying job with a
	// key is in the lane of fresh jobs there, so that no RetryQuota holds up its key.
	//
	// If the policy sets Rate, a claim takes at most as many jobs as Rate.N is greater than the number of jobs that were claimed from the
	// queue later than now minus Rate.Per, whatever other calls do at the same time. Each claim of a job counts, whatever became of the job.
	// A claim that was made later than now plus 5 s comes from a clock that was ahead, and counts as one that was made when a later claim
	// finds it. Claims count from when the policy sets a rate. If another rate replaces that one, the claims that count then go on counting.
	//
	// A claim that overlaps no other call takes every claimable job of its queue, up to these limits. A claim that overlaps
	// other calls may leave out jobs that those calls hold. Some claim must still find every committed, claimable job within a
	// bound: at once, or within one second if the adapter says so.
	//
	// Changes that bypass the store must not hide anything for good, whether a database was restored or failed over and lost
	// its latest changes, a clock was set back for a moment, or rows were changed by hand. Stores that keep claiming and
	// recovering must find a job that is claimable after such a change, or a lease that has expired, within 30 seconds. If one
	// round of the store's own sweep through everything that waits takes longer, they must find it within one round.
	//
	// If the answer to a claim is lost, repeat the claim: the jobs of the lost answer come back when their leases expire. If
	// the store can tell that the caller of a claim is gone, it releases the claimed jobs.
	FetchAndClaim(ctx context.Context, req ClaimRequest) ([]Job, error)

	// Extend is the heartbeat: it makes the lease of each job run until now plus ttl, even if that is earlier than before.
	//
	//	ok         the job is in flight under this token; Next is the end of its lease;
	//	busy       an open transaction locks the job; the lease was neither extended nor lost, so ask again;
	//	finished   the holder of this lease has finished the job;
	//	cancelled  the job is cancelled, whatever the token;
	//	stale      the lease was ended by someone else;
	//	not_found  the job does not exist, or no longer exists.
	//
	// A lease that has expired but was not recovered yet can still be extended. Extend never brings back a job that is not in
	// flight. It is safe to repeat an Extend.
	Extend(ctx context.Context, leases []Lease, ttl time.Duration) ([]Outcome, error)

	// Save stores a checkpoint, a progress document, or both, for each job that is in flight under the token.
	//
	// An empty document leaves the stored one as it is. Save ignores a document if an earlier save of this lease wrote that
	// document with a greater Seq, and writes it otherwise. The outcome is ok in both cases. The checkpoint survives the end of
	// the attempt, whatever ended it.
	//
	//	ok         the job is in flight under this token;
	//	stale      the job is not in flight under this token;
	//	invalid    a document or Seq breaks a limit, and Reason has the message of Check; nothing of this item was kept;
	//	not_found  the job does not exist, or no longer exists.
	//
	// It is safe to repeat a Save.
	Save(ctx context.Context, saves []Save) ([]Outcome, error)

	// RecoverExpiredLeases ends at most Limit expired leases: the oldest expiry first, then the smaller id.
	//
	// It ends a lease only if the job is in flight and the lease expired at or before now minus Grace. Each of these jobs fails
	// as by NAck, with the reason "lease expired" and with a new token. Its attempts do not change. So if every worker of a job
	// dies, the job is dead after MaxRetries plus one claims.
	//
	// A lease that was granted or extended later than now plus 5 s comes from a clock that was ahead. RecoverExpiredLeases
	// makes such a lease run for its own length from now, under the same token. A holder that is alive can go on, and the job
	// of a dead holder is recovered soon. In addition to the leases that it ends, a call corrects at most Limit of these
	// leases, the latest end first. The store looks for them in the first call after it was opened or saw its clock go back,
	// and then in every call until it has found all of them. Otherwise it looks every 30 s.
	//
	// Each expired lease is recovered once, even if several callers recover at the same time. A pause does not stop recovery.
	// It is safe to repeat a recovery.
	RecoverExpiredLeases(ctx context.Context, req RecoverRequest) ([]Recovered, error)

	// Settle cancels at most limit jobs that have expired: the earliest ExpiresAt first, then the smaller id. Then it applies what
	// follows for others from the ends of jobs. It changes at most limit jobs in all, and returns them.
	//
	// It cancels a job as Cancel does. Each expired job is cancelled once, even if several callers settle at the same time. A
	// pause does not stop it. It is safe to repeat a Settle.
	//
	// A blocked job becomes ready when its last wait is met, and is due at the later of that now and the time that was asked for. A
	// wait is met when its job succeeds or, with Any, when its job ends in whatever way or is deleted. A wait for a job that was met stays
	// met, whatever becomes of its job. A job that is dead ends nothing: what needs its success stays blocked, and becomes ready if
	// the job is requeued and succeeds. A blocked job that needs the success of a job that is cancelled, or that is dead and deleted,
	// is cancelled as by Cancel, and its Error names that job. So are those that need its own success in turn.
	//
	// The waits of a job for groups are looked at together, once its waits for jobs are met: it becomes ready at a moment when each of
	// them is met. What becomes of the groups later does not matter to it. A blocked job that needs the success of a group is
	// cancelled as by Cancel when the group is spoiled, and its Error names the group. If the job needs the one that spoils the group
	// too, its Error names that one.
	//
	// A call that ends jobs applies this to at most 1,000 others before it returns. It leaves the rest to Settle, and may also leave
	// jobs that were added or ended in a caller's transaction, or that an open transaction locks. A Settle that changes fewer than
	// limit jobs has applied the ends of all jobs that were committed before it began, except to jobs that an open transaction locks.
	// The outcomes of a call are only about the jobs that it was asked to change.
	Settle(ctx context.Context, limit int) ([]Settled, error)

	// Get returns the job and its history, the oldest attempt first, or ErrNotFound if the job does not exist.
	//
	// Every claim is an attempt in the history, with its token, worker, start, end, ending and error. The store must write it
	// together with the change that it records. The store keeps the latest 100 attempts of each job. A released claim stays in
	// the history, although it does not count as an attempt. The answer has the waits of the job in the order in which they were
	// enqueued, with whether each is met and the phase of the other job or of the group.
	Get(ctx context.Context, id int64) (JobDetail, error)

	// List returns the jobs that match, the newest first: in descending order of id. An empty filter matches every job. A filter with
	// WaitsFor matches jobs that wait for the job with this id, or have waited for it, whether that job still exists or not. A filter with
	// WaitsForGroup matches jobs that wait for the group with this name, or have waited for it. A filter with
	// Unneeded matches jobs for which no job waits or has waited, except jobs that have ended; a wait for its group counts like one for the
	// job. A call looks at waits before it changes
	// any job, and may overlook one that was not committed when the call began.
	//
	// The pages neither skip nor repeat a job if it was committed before the first page was read and if its match did not
	// change. The last page has an empty Next. A page ends early before the first job that would raise the total size of the
	// page's documents above MaxAnswerBytes. The call returns ErrInvalid for a cursor from another filter.
	List(ctx context.Context, filter Filter, page Page) (JobPage, error)

	// Count counts the jobs that match, by queue and phase. An empty filter matches every job.
	//
	// Due is how many of these jobs a claim could take now if no queue were paused or limited. OldestDue is the earliest due time among
	// them.
	//
	// A List or a Count that takes longer than the store allows returns an OverlongError, which matches ErrUnavailable.
	Count(ctx context.Context, filter Filter) (Counts, error)

	// Cancel ends jobs that are not terminal, including jobs in flight: their leases are stale from then on.
	//
	// The call returns ErrInvalid for an empty filter. If the filter has IDs, the answer has one outcome per id, in the order
	// of the filter's IDs, whatever the limit. A job that does not match the rest of the filter is not_found. If the filter has
	// no IDs, the answer has one outcome per job that was changed: the first jobs that match and can be changed, in ascending
	// order of id, and at most limit of them. To continue, set the filter's After to the last id of the answer.
	//
	//	ok           the job is cancelled now, or was before;
	//	wrong_state  the job has succeeded or is dead;
	//	not_found    the job does not exist, or no longer exists.
	//
	// Cancel fences a job in flight but does not stop its handler. The worker learns of the cancellation at its next Extend, and
	// until then the handler may run at the same time as a new job with the same unique key. The wake-up of a Notifier tells
	// the worker to call Extend at once. It is safe to repeat a Cancel.
	Cancel(ctx context.Context, filter Filter, limit int) ([]Outcome, error)

	// Requeue makes terminal jobs ready again: they are due now, and their retries are 0. Filter, limit and order work as in
	// Cancel.
	//
	// The token grows, and the attempts do not change. Error, result and ExpiresAt are cleared. Checkpoint and progress stay,
	// unless the job had succeeded: then they and their numbers are cleared too. A job does not change if another job holds its
	// unique key. Otherwise a job without a window takes its key again. A call never requeues a job twice.
	//
	// Jobs that had waits are looked at after all jobs of the call, by rising id. Such a job is blocked if one of its waits is not met
	// as the jobs and groups are now. A wait for a job that no longer exists stays as it was or, with Any, is met. What was cancelled,
	// deleted or spoiled before does not cancel the job again: it stays blocked.
	//
	//	ok           the job is ready or blocked now;
	//	duplicate    another job, which Reason names, holds the unique key; this job does not change;
	//	wrong_state  the job is not terminal;
	//	not_found    the job does not exist, or no longer exists.
	//
	// It is safe to repeat a Requeue after a lost answer as long as the jobs cannot have finished in between. Jobs that have
	// finished would run once more. Without IDs, the outcomes include duplicates, and duplicates count toward the limit.
	Requeue(ctx context.Context, filter Filter, limit int) ([]Outcome, error)

	// Reschedule gives jobs that are ready or retrying another due time: the later of now and at, or now if at is the zero time.
	// Filter, limit and order work as in Cancel.
	//
	// A ready job gets the due time as its RunAt. A retrying job gets it as its RetryAt and stays retrying. The token grows, and
	// nothing else changes. A job does not change if it is due at that time already, or if that time is now and it is due.
	//
	//	ok           the job is due at that time now, or was before;
	//	wrong_state  the job is blocked, in flight or terminal;
	//	not_found    the job does not exist, or no longer exists.
	//
	// It is safe to repeat a Reschedule. Without IDs, the outcomes include jobs that do not change, and these jobs count toward
	// the limit.
	Reschedule(ctx context.Context, filter Filter, at time.Time, limit int) ([]Outcome, error)

	// Delete removes terminal jobs and their history. Filter, limit and order work as in Cancel. The store must never use an id
	// again.
	//
	//	ok           the job is gone;
	//	wrong_state  the job is not terminal;
	//	not_found    the job does not exist, or no longer exists.
	//
	// It is safe to repeat a Delete.
	Delete(ctx context.Context, filter Filter, limit int) ([]Outcome, error)

	// Close releases everything that the store holds. Every later call returns ErrClosed. Calls in progress finish or fail. It
	// is fine to call Close twice.
	Close() error
}

// A Writer is the part of a store that can also write in a caller's own transaction.
type Writer interface {
	// Enqueue adds all of the jobs or none of them, and returns one answer per job, in order. If a job is invalid, Enqueue adds
	// none and returns an InvalidError with the index of the first invalid job. A job with a LimitKey must have no priority if the policy of
	// its queue is Ordered. Those of schedules, and those that are there already, keep theirs: it counts between keys.
	//
	// Each job becomes ready, unless it has to wait for others, and is due at the later of now and the requested time. Its token,
	// attempts and retries are 0. Ids
	// grow in the order of the items, and from one call to the next if the calls do not overlap.
	//
	// A unique key applies across all queues and kinds, and at most one job holds it. If UniqueFor is zero, the job holds its
	// key while it is blocked, ready, in flight or retrying. Otherwise the job holds its key for a window of UniqueFor from now,
	// whatever becomes of the job, and no longer. A job whose key is held is a duplicate. The store does not add it, answers
	// with the id of the holder, and leaves all other items unaffected. This also applies to two items of one call. A window
	// ends when now reaches its end.
	//
	// An expired job does not hold its key, unless it holds it for a window. A call that needs the key cancels the expired job
	// first, as Settle does.
	//
	// A duplicate with Replace changes the holder of its key, if that is blocked, ready or retrying, has not expired, and has the
	// queue, the kind, the group and the limit key of the duplicate. The holder gets the duplicate's payload, priority and ExpiresAt, and its due time: as
	// RetryAt if it is retrying, otherwise as RunAt. Its checkpoint and progress and their numbers are cleared, and its token grows.
	// Nothing else changes, and a window stays as it is. The answer says replaced. A holder that an earlier item of the call has
	// added or changed is changed as well. Any other duplicate with Replace changes nothing. A job with Replace but without a
	// unique key is invalid.
	//
	// A job with After waits for jobs that exist, named by their ids, or for earlier items of the call, named by their indices. It is
	// blocked until every wait is met, see Settle. What has succeeded meets a wait at once and, with Any, so does what has ended. A
	// job that needs the success of a job that is cancelled or gone is added as cancelled. If a job that is named by its id does not exist,
	// Enqueue adds none, and returns an InvalidError with the index of the item and the field after. A wait for an item that is a
	// duplicate is one for the job that holds its key. The waits of a duplicate are checked and not kept. A wait for a job that was
	// requeued is for its next end.
	//
	// A job with Group is in this group; a duplicate is in none. Open opens groups, which are open from then on until SealGroup seals
	// them. It is no error if a group is open already. A wait for a group is met while the group is not open, no job in it is
	// live and, without Any, none is dead and the group is not spoiled. A job in a group spoils it when it is cancelled, or is deleted
	// when it is dead. The group stays spoiled until no job is in it, and none waits or has waited for it. A job that needs the success
	// of a spoiled group is added as cancelled. A job that waits for its own group is invalid, and so is one that waits for a group
	// whose jobs wait for it, as far as the call shows it.
	//
	// A job whose ExpiresAt is not later than its due time is invalid, unless the call is a repeat under its request key.
	//
	// A request key makes the call safe to repeat. For 24 hours, the same request with the same key adds nothing and returns
	// the first answer, even after its jobs are gone. A request for other jobs under the same request key returns ErrInvalid.
	// Jobs that differ only in their trace do not count as other jobs. Without a request key, a repeated call adds the jobs
	// once more.
	//
	// An Enqueue may wait for an open transaction that has written the same unique key or request key, or has opened or sealed the
	// same group.
	Enqueue(ctx context.Context, req EnqueueRequest) ([]Enqueued, error)

	// Ack finishes jobs whose work is done: each job becomes succeeded, its lease ends, and its result is kept.
	//
	//	ok         the job was in flight under this token, or an earlier Ack finished it under this token;
	//	stale      the lease was ended by someone else, or by its holder in another way; nothing changed;
	//	not_found  the job does not exist, or no longer exists.
	//
	// A lease that has expired but was not recovered yet is still valid. The store does not keep a result that breaks a limit.
	// The job becomes dead, its error says why, and the outcome is ok with the state failed. Such a job still counts as
	// finished by Ack.
	//
	// It is safe to repeat an Ack.
	Ack(ctx context.Context, acks []Ack) ([]Outcome, error)

	// NAck ends leases without success. Fail, Never and After count one more retry and keep the error. With Fail, the job waits
	// for its backoff; with After, it waits for the given delay. With Never, or if it has more retries than MaxRetries, the job
	// is dead. Snooze makes the job ready again after the delay. Release makes the job ready at once and lowers its attempts by
	// one. None of the forms changes the token.
	//
	// The error of a Snooze is its reason. The attempt keeps it, and the job's Error does not change.
	//
	//	ok         the job was in flight under this token, or its holder ended the lease in the same way before;
	//	stale      the lease was ended by someone else, or by its holder in another way; nothing changed;
	//	invalid    the form or the delay breaks a limit, and Reason has the message of Check; nothing changed;
	//	not_found  the job does not exist, or no longer exists.
	//
	// Fail, Never and After count as one way of ending a lease. A lease that has expired but was not recovered yet is still
	// valid. It is safe to repeat a NAck: a repeat counts nothing twice and takes nothing back twice.
	NAck(ctx context.Context, nacks []NAck) ([]Outcome, error)
}

// A Tx is a caller's transaction, such as a *sql.Tx or a *sqlx.Tx.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// A Transactor writes in a caller's own transaction, so that jobs and the caller's rows are committed or rolled back together.
type Transactor interface {
	// InTx returns a Writer that writes in tx: others see its effect when tx is committed, and never if tx is rolled back.
	//
	// tx must be an open transaction. If tx is nil, a *sql.DB or a *sql.Conn, a type that passes its calls on to one of them,
	// or a transaction that has ended, each call returns ErrInvalid: the InvalidError has the field tx, and nothing is written.
	// A type that passes its calls on to a *sql.Tx works as well as a *sql.Tx.
	//
	// In a transaction, Ack and NAck are strict. They return ErrStaleLease for a stale lease, ErrAlreadyFinished for a job that
	// its holder has already finished, and ErrNotFound for a job that is gone. They return ErrInvalid for an item that breaks a
	// limit, including the limit of a result: the InvalidError has the item's index. After an error, the caller must roll back
	// the transaction. A job that was finished in a transaction stays locked until the transaction ends, so finish jobs last,
	// and then commit. Meanwhile Extend answers busy or waits, and recovery leaves the job alone or waits.
	//
	// If the store is a ScheduleKeeper, the Writer is one as well: the schedules that it sets, deletes and fires are part of the
	// transaction. If it is a GroupKeeper, so is the Writer: the groups that it seals are part of the transaction.
	//
	// Calls outside the transaction may wait until it ends. So a caller that holds tx open and calls the store directly may
	// wait for itself.
	InTx(tx Tx) Writer
}

// A Notifier tells callers when to look for jobs and when to extend their leases, so that they need not do it often.
type Notifier interface {
	// Subscribe returns a channel of wake-ups for the named queues, or for all queues if none is named.
	//
	// The store sends a wake-up after each commit that makes a job of the queue claimable immediately, and after a call that ends a
	// lease if a claim on the queue has left out jobs because of MaxInFlight, MaxPerKey or Ordered. When a claim has taken all that Rate let it take,
	// and asked for more, the store sends a wake-up once there is room again. After a Cancel that has
	// ended leases, it sends a wake-up with Cancelled for each queue of their jobs. After a call that has left something to Settle,
	// it sends a wake-up with Settle to every subscriber. A wake-up may come late, be lost, or come for nothing, so it replaces neither polling nor heartbeats. A slow reader loses wake-ups and blocks nobody. The channel is
	// closed when the context ends or the store is closed.
	Subscribe(ctx context.Context, queues []string) (<-chan Wakeup, error)
}

// A QueueKeeper lists the queues and can pause them.
type QueueKeeper interface {
	// Queues returns every queue that has a job, is paused, or has a policy that sets something, in bytewise order of name.
	// Each queue comes with its policy.
	Queues(ctx context.Context) ([]Queue, error)

	// SetPaused pauses a queue or resumes it. While a queue is paused, claims on it return no jobs, but enqueueing, finishing
	// and recovery go on. A queue can be paused before it has a job. It is safe to repeat a pause.
	SetPaused(ctx context.Context, queue string, paused bool) error
}

// A PolicyKeeper keeps a policy for each queue, so that all programs that use the store follow the same settings. It changes no
// jobs: servers read from the policies how long to keep finished jobs, and delete those that are older. Claims keep to its limits.
type PolicyKeeper interface {
	QueueKeeper

	// Policy returns the policy of the queue. If no policy was ever set, the returned policy sets nothing and has version 0.
	Policy(ctx context.Context, queue string) (Policy, error)

	// SetPolicy replaces the queue's policy as a whole with p, and returns it with the next version.
	//
	// The version of p must be the version of the policy to replace, or 0 if none was ever set. If the queue's policy has
	// another version, SetPolicy returns ErrConflict and changes nothing. A policy can be set before its queue has a job, and
	// it stays when the queue's last job is gone. Versions never restart, even if a policy no longer sets anything.
	//
	// Owner and Declared are kept for programs that declare policies, and change nothing in the store.
	//
	// A claim that begins after SetPolicy has returned keeps to the new limits. Jobs that were in flight before count as well,
	// and go on if there are more of them.
	//
	// It is safe to repeat a SetPolicy: the repeat returns the same answer and changes nothing, or returns ErrConflict if
	// others have set the policy since.
	SetPolicy(ctx context.Context, queue string, p Policy) (Policy, error)
}

// A Registry lists workers. It is for people: nothing in it affects jobs.
type Registry interface {
	// Beat writes the worker's row under its name, with the store's now as the time of the beat.
	Beat(ctx context.Context, w Worker) error

	// Leave removes the row of a worker that shuts down, so that nobody takes it for a worker that died. If there is no such
	// row, Leave does nothing. A later Beat writes the row again. It is safe to repeat a Leave.
	Leave(ctx context.Context, name string) error

	// Workers returns the workers in bytewise order of name. A filter with a name selects the worker with that name, and an
	// empty filter selects every worker. A worker is stale once StaleAfter has passed since its last beat, and the store
	// forgets it 24 hours after its last beat.
	//
	// The pages neither skip nor repeat a worker that was listed the whole time. The last page has an empty Next. A page ends
	// early before the first worker that would raise the total size of the page's queue names above MaxPageNames bytes. The
	// call returns ErrInvalid for a cursor that does not come from a page of the same filter.
	Workers(ctx context.Context, filter WorkerFilter, page Page) (WorkerPage, error)
}

// A ScheduleKeeper keeps schedules, and enqueues their jobs. It does not read expressions: servers compute the times.
type ScheduleKeeper interface {
	// SetSchedule replaces the schedule of that name as a whole with s, or adds it, and returns it as it is kept.
	//
	// The Revision of s must be the revision of the schedule to replace, or 0 if there is none by that name. If the schedule
	// has another revision, or is gone, SetSchedule returns ErrConflict and changes nothing. LastAt and LastJob stay as they
	// were. Each change of a schedule, by SetSchedule or by Fire, gives it a revision that no schedule of the store had before.
	//
	// If the schedule already is as s says, but for LastAt, LastJob and Revision, SetSchedule returns it, changes nothing and
	// compares no revision. So it is safe to repeat a SetSchedule.
	SetSchedule(ctx context.Context, s Schedule) (Schedule, error)

	// DeleteSchedule removes the schedule. Its jobs stay. If there is no such schedule, DeleteSchedule does nothing. It is safe
	// to repeat a DeleteSchedule.
	DeleteSchedule(ctx context.Context, name string) error

	// Schedules returns the schedules that match the filter, in bytewise order of name. A filter with Due selects the schedules
	// whose NextAt is set and lies at most Within after the store's now.
	//
	// The pages neither skip nor repeat a schedule that matched the whole time. The last page has an empty Next. A page ends
	// early before the first schedule that would raise the total size of the page's payloads above MaxPageTemplates bytes. The
	// call returns ErrInvalid for a cursor that does not come from a page of the same filter.
	Schedules(ctx context.Context, filter ScheduleFilter, page Page) (SchedulePage, error)

	// Fire moves schedules to their next times and enqueues their jobs. Each item takes effect as a whole or not at all, and
	// the outcomes have the order of the items.
	//
	// If a schedule has the Revision of its item, Fire sets its NextAt to Next. If For is set, Fire also enqueues the job of
	// the schedule, with the schedule's name as Schedule and For as ScheduledFor, and keeps For as LastAt and the job's id as
	// LastJob. If another job holds the unique key, no job is enqueued, and LastJob is that job. If Overlap is OverlapSkip and
	// LastJob exists and has not ended, no job is enqueued, and LastAt and LastJob stay as they were.
	//
	//	ok           the schedule has its new NextAt; Job has the job, if one was enqueued or holds the unique key;
	//	stale        the schedule has another revision; nothing changed;
	//	wrong_state  For is not due yet; nothing changed;
	//	invalid      Next lies before the schedule's NextAt, or is set although the schedule has none; nothing changed;
	//	not_found    there is no such schedule.
	//
	// It is safe to repeat a Fire: an item that took effect is stale from then on.
	Fire(ctx context.Context, firings []Firing) ([]Fired, error)
}

// A GroupKeeper keeps groups of jobs, for which others can wait as a whole.
type GroupKeeper interface {
	// SealGroup seals a group that an Enqueue has opened: it has all its jobs, and waits for it can be met. The call returns ErrInvalid
	// with the field group if the group is not open. So a repeat after a lost answer may find that the group is sealed already.
	SealGroup(ctx context.Context, name string) error

	// Groups returns the groups that match the filter, in bytewise order of name. A group exists while it is open, a job is in it, or
	// a job waits or has waited for it. A filter with OpenFor selects the groups that were opened at least this long ago and
	// are still open.
	//
	// The pages neither skip nor repeat a group that matched the whole time. The last page has an empty Next. The call returns
	// ErrInvalid for a cursor that does not come from a page of the same filter.
	Groups(ctx context.Context, filter GroupFilter, page Page) (GroupPage, error)
}

// A Fencer makes a store safe to use after it was restored from a backup, or after a failover that lost data.
type Fencer interface {
	// Fence raises the store's epoch by one, or to the requested epoch if that is higher, and returns the new epoch. The epoch
	// of a new store is 0.
	//
	// Once Fence has returned, each change that raises a token raises it to at least epoch·2³²+1, and each new job gets an id
	// of at least epoch·2³²+1. So the store never again gives out a pair of id and token that it gave out before and lost.
	// Nothing else changes: a lease in force stays valid, and the store still remembers how each lease was ended.
	//
	// With EndLeases, Fence also raises the tokens of the jobs in flight: their leases are stale from then on, and the jobs are
	// recovered when these leases expire. Use EndLeases for a copy that workers went on using before it was fenced. These
	// workers must be stopped.
	//
	// Fence returns ErrInvalid for an epoch above MaxEpoch. It is safe to repeat a Fence: it raises the epoch once more.
	Fence(ctx context.Context, req FenceRequest) (epoch int64, err error)
}

// A Monitor answers the questions that probes and metrics ask every few seconds. The cost of an answer grows with the number of
// queues, not with the number of their jobs.
type Monitor interface {
	// Ping checks that the store answers, and that it contains what this program keeps in it. It does not wait for other calls.
	Ping(ctx context.Context) error

	// OldestDue returns the queues from which a claim could take a job now if no queue were paused or limited, in bytewise order of name.
	// Each queue comes with the earliest due time of those jobs.
	OldestDue(ctx context.Context) (Due, error)
}

// An ActivityReader adds up what happened to jobs within the last hours or days. It is for people: nothing in it affects jobs.
type ActivityReader interface {
	// Activity adds up what AddActivity was given for the minutes that the filter selects, and returns the sums by span.
	//
	// Spans begin at multiples of Step since the beginning of 1970 in UTC. The answer has the spans that begin later than now
	// minus Last. Without a Step, it has one span, which begins with the first minute that is later than now minus Last, or with
	// the first such hour if Last is longer than MaxFineActivity. From is the begin of the first span.
	//
	// A span is one row, or one for each queue, or one for each queue and kind, as By says. A row adds up what matches Queues and
	// Kind. The answer leaves out rows in which nothing happened. It is in order of At, then in bytewise order of queue and kind.
	Activity(ctx context.Context, filter ActivityFilter) (ActivityPage, error)
}

// An ActivityKeeper keeps the sums of what all servers did, by minute, queue and kind. Each server adds up its own work and hands
// it over from time to time, so no job costs a write.
type ActivityKeeper interface {
	ActivityReader

	// AddActivity adds the numbers of the items to those of the minute of the store's now. The At of an item is ignored.
	//
	// Items with the same queue and kind are added together, and calls at the same time lose no numbers. If one item breaks a
	// limit, nothing is added. The store keeps the sums for MaxActivity.
	//
	// It is not safe to repeat an AddActivity: the repeat adds the numbers once more. After ErrInDoubt, a caller that must not
	// count twice forgets them.
	AddActivity(ctx context.Context, items []Activity) error
}

// Ping checks that a store answers, even if the store is not a Monitor.
func Ping(ctx context.Context, s Store) error {
	if m, ok := s.(Monitor); ok {
		return m.Ping(ctx)
	}
	_, err := Now(ctx, s)
	return err
}

// Now asks a store for its time: it counts no jobs, and returns the time of that count.
func Now(ctx context.Context, s Store) (time.Time, error) {
	counts, err := s.Count(ctx, Filter{IDs: []int64{0}})
	return counts.Now, err
}

// Missing names the optional abilities that the store does not have, so that a program can report their absence.
func Missing(s Store) []string {
	var missing []string
	if _, ok := s.(Transactor); !ok {
		missing = append(missing, "Transactor")
	}
	if _, ok := s.(Notifier); !ok {
		missing = append(missing, "Notifier")
	}
	if _, ok := s.(QueueKeeper); !ok {
		missing = append(missing, "QueueKeeper")
	}
	if _, ok := s.(PolicyKeeper); !ok {
		missing = append(missing, "PolicyKeeper")
	}
	if _, ok := s.(Registry); !ok {
		missing = append(missing, "Registry")
	}
	if _, ok := s.(ScheduleKeeper); !ok {
		missing = append(missing, "ScheduleKeeper")
	}
	if _, ok := s.(GroupKeeper); !ok {
		missing = append(missing, "GroupKeeper")
	}
	if _, ok := s.(Fencer); !ok {
		missing = append(missing, "Fencer")
	}
	if _, ok := s.(Monitor); !ok {
		missing = append(missing, "Monitor")
	}
	if _, ok := s.(ActivityReader); !ok {
		missing = append(missing, "ActivityReader")
	}
	return missing
}

package store

import (
	"context"
	"database/sql"
	"time"
)

// A Store keeps jobs. What follows holds for every method, those of the abilities included.
//
// Any method may be called at any time, from any goroutine, also for one job. A call takes effect as a whole, at one moment
// between its start and its return, or not at all. When it returns without an error, its effect is committed: as durable as
// the adapter says it is.
//
// Where a call takes several items, outcomes are positional, one per item, as if the items were applied in order. One bad
// item spoils no other. An invalid item is invalid whatever its lease. A call without items does nothing. Where nothing
// matches, the answer is empty and there is no error.
//
// A store keeps no slice that it was given and hands out none that it keeps. No method waits for work to appear; a call may
// wait for other calls and for open transactions, until its context ends.
//
// An error is one of these, by errors.Is, or one that the method itself names. ErrInvalid: the request breaks a limit and
// nothing was applied. ErrClosed: the store was closed, and nothing was applied. ErrUnavailable: the store could not serve
// the call, and nothing was applied. ErrDenied: the caller may not do this, and nothing was applied; a repeat is no use until
// somebody has given the right. ErrInDoubt: the call was applied as a whole, may still be in a moment, or was not at all. A
// full disk, a lost connection and a database that is away are ErrUnavailable where it is known that nothing was
// committed, and ErrInDoubt where the answer to the commit was lost.
//
// A context that has ended before the call keeps it from being applied: the error is ErrUnavailable and matches the
// context's own. A context that ends during the call ends the waiting and spoils no other call: the error is ErrUnavailable
// or ErrInDoubt and matches the context's own.
type Store interface {
	Writer

	// FetchAndClaim takes due jobs of one queue, gives each a lease for the worker, and returns them as they are stored.
	//
	// A job is claimable when it is ready and its RunAt is due, or retrying and its RetryAt is due. A claim takes only from
	// its queue. A claim that begins after its queue was paused takes nothing. A dead job is never claimed.
	//
	// Each claimed job becomes in_flight: its token and its attempts grow by one, its lease runs until now plus TTL, its
	// worker is the caller, its RetryAt is cleared, and the numbers of its saves begin at 0 again. Its checkpoint, progress,
	// retries and error stay. No job is handed out twice with one token.
	//
	// There are two lanes: retries are the retrying jobs, fresh are the ready ones. Up to RetryQuota retries are taken, then
	// fresh jobs for the rest, and each lane fills what the other leaves. Within each lane the higher priority goes first,
	// then the earlier due time, then the smaller id. A lane ends before the first job with which its documents would weigh
	// more than MaxAnswerBytes. The answer holds the retries first.
	//
	// A claim that overlaps no other call takes as many as there are, up to these limits. A claim that overlaps others may
	// leave out jobs that they hold, but a job that is committed and claimable is found by some claim within a bound: at
	// once, or within a second where the adapter says so.
	//
	// What happens behind the store's back hides nothing for good: a database that was restored or failed over and has lost
	// its latest changes, a clock that was set back for a moment, rows that were changed by hand. A job that is claimable
	// after it, or a lease that has expired, is found within 30 seconds by stores that go on claiming and recovering, or
	// within one round of the store's own look at all that waits if that takes longer.
	//
	// To repeat: what a lost answer claimed comes back when its leases expire. A claim whose caller is gone is released
	// where the store can tell.
	FetchAndClaim(ctx context.Context, req ClaimRequest) ([]Job, error)

	// Extend is the heartbeat: the lease of each job runs until now plus ttl, also where that is earlier than before.
	//
	//	ok         the job is in flight under this token; Next is the end of its lease;
	//	busy       the job is locked by an open transaction: it was neither extended nor lost, ask again;
	//	finished   the holder of this lease has finished the job;
	//	cancelled  the job is cancelled, whatever the token;
	//	stale      the lease was ended by someone else;
	//	not_found  there is no such job, or no longer.
	//
	// A lease that has run out but was not recovered yet can be extended. Extend never brings back a job that is not in
	// flight. To repeat an Extend is safe.
	Extend(ctx context.Context, leases []Lease, ttl time.Duration) ([]Outcome, error)

	// Save keeps a checkpoint, a progress or both for each job that is in flight under the token.
	//
	// What is empty is left as it is. A document is written if no save of this lease with a greater Seq has written it
	// before, otherwise ignored; the outcome is ok either way. A checkpoint survives whatever ended the attempt.
	//
	//	ok         the job is in flight under this token;
	//	stale      it is not;
	//	invalid    a document or the number breaks a limit, as Reason says in the words of Check; nothing of this item was kept;
	//	not_found  there is no such job, or no longer.
	//
	// To repeat a Save is safe.
	Save(ctx context.Context, saves []Save) ([]Outcome, error)

	// RecoverExpiredLeases ends leases that have expired, at most Limit of them, the oldest expiry first, then the smaller
	// id.
	//
	// Only jobs in flight whose lease expired at or before now minus Grace are touched. Each fails as by NAck, with the
	// reason "lease expired", and with a new token; attempts stay as they are. So a job whose every worker dies ends as
	// dead, after MaxRetries and one claims.
	//
	// A lease that was given or extended later than now plus 5 s was given by a clock that was ahead. Recovery lets it run for
	// its own length from now, under the same token, so that its holder goes on if it lives, and the job is recovered soon if
	// not. It takes at most Limit of these as well, the latest end first. It looks for them in the first call after the store
	// was opened or has seen its clock go back, until it has found all, and otherwise every 30 s.
	//
	// Each expired lease is recovered once, also by callers that recover at the same time. A pause does not stop recovery.
	// To repeat a recovery is safe.
	RecoverExpiredLeases(ctx context.Context, req RecoverRequest) ([]Recovered, error)

	// Get returns the job and its history, the oldest attempt first, or ErrNotFound.
	//
	// Every claim is an attempt, with its token, worker, start, end, ending and error, written together with the change that
	// it records. The latest 100 are kept. A released claim stays in the history although it does not count.
	Get(ctx context.Context, id int64) (JobDetail, error)

	// List returns the jobs that match, the newest first: by falling id. An empty filter means every job.
	//
	// A page skips and repeats nothing that was committed before the first page was read and whose match did not change.
	// Next is empty after the last page. A page ends early, before the first job with which its documents would weigh more
	// than MaxAnswerBytes. A cursor of another filter is ErrInvalid.
	List(ctx context.Context, filter Filter, page Page) (JobPage, error)

	// Count counts the jobs that match, by queue and phase. An empty filter means every job.
	//
	// Due is how many of them a claim could take now, were no queue paused, and OldestDue the earliest due time among those.
	//
	// A List or a Count that lasts for longer than the store lets it is an OverlongError, which is ErrUnavailable.
	Count(ctx context.Context, filter Filter) (Counts, error)

	// Cancel ends jobs that are not terminal, also those in flight: their leases are stale from then on.
	//
	// An empty filter is ErrInvalid. With IDs, the answer has one outcome per id, in their order, whatever the limit; a job
	// that does not match the rest of the filter is not_found. Without, it has one per job that was changed: the first ones
	// that match and can be changed, by rising id, at most limit. Continue with After.
	//
	//	ok           the job is cancelled now, or was before;
	//	wrong_state  it has succeeded or is dead;
	//	not_found    there is no such job, or no longer.
	//
	// A cancelled job is fenced, not stopped: its handler learns of it at its next Extend, and until then may run beside a
	// new job with the same unique key. To repeat a Cancel is safe.
	Cancel(ctx context.Context, filter Filter, limit int) ([]Outcome, error)

	// Requeue makes terminal jobs ready again: due now, with no retries counted. Filter, limit and order are as for Cancel.
	//
	// The token grows and attempts stay. Error and result are cleared; checkpoint and progress stay, unless the job had
	// succeeded: then they go too, with their numbers. A job whose unique key another one holds stays as it was; a job
	// without a window takes its key again. A call requeues no job twice.
	//
	//	ok           the job is ready now;
	//	duplicate    another job, which Reason names, holds its unique key; this one stays as it was;
	//	wrong_state  the job is not terminal;
	//	not_found    there is no such job, or no longer.
	//
	// To repeat after a lost answer is safe as long as the jobs can not have finished in between: then they would run once
	// more. Without IDs, duplicates are among the outcomes and count for the limit.
	Requeue(ctx context.Context, filter Filter, limit int) ([]Outcome, error)

	// Delete removes terminal jobs with their history. Filter, limit and order are as for Cancel. Ids are never used again.
	//
	//	ok           the job is gone;
	//	wrong_state  the job is not terminal;
	//	not_found    there is no such job, or no longer.
	//
	// To repeat a Delete is safe.
	Delete(ctx context.Context, filter Filter, limit int) ([]Outcome, error)

	// Close lets go of what the store holds. Every later call is ErrClosed. Calls under way are finished or fail. To close
	// twice is fine.
	Close() error
}

// A Writer is the part of a store that can also stand in a caller's own transaction.
type Writer interface {
	// Enqueue adds jobs, all or none of them, and answers for each in order. An invalid one refuses the call: the
	// InvalidError has the index of the first.
	//
	// Each becomes ready, due at the later of now and what was asked, with token, attempts and retries 0. Ids grow in the
	// order of the items, and from call to call where calls do not overlap.
	//
	// A unique key is its own scope, over all queues and kinds, and has at most one holder. With UniqueFor zero the job
	// holds its key while it is ready, in flight or retrying. Otherwise it holds it for that long from now, whatever becomes
	// of it, and not beyond. A job whose key is held is a duplicate: it is not added, the answer has the id of the holder,
	// and no other item is touched by it. That goes for two items of one call as well. A window ends when now reaches it.
	//
	// A request key makes the call safe to repeat: for 24 hours the same request with the same key adds nothing and returns
	// the first answer, also after its jobs are gone. Other jobs under the key are ErrInvalid; another trace does not make
	// them others. Without a key, a repeat adds the jobs once more.
	//
	// An Enqueue may wait for an open transaction that has written the same unique key or request key.
	Enqueue(ctx context.Context, req EnqueueRequest) ([]Enqueued, error)

	// Ack finishes jobs whose work is done: each becomes succeeded, its lease ends and its result is kept.
	//
	//	ok         the job was in flight under this token, or an Ack had finished it under this token before;
	//	stale      the lease was ended by someone else, or by its holder in another way; nothing changed;
	//	not_found  there is no such job, or no longer.
	//
	// A lease that has run out but was not recovered yet is still good. A result that breaks a limit is not kept: the job
	// fails for good, with a reason that says so, and the outcome is ok with the state failed. It was finished by Ack all
	// the same.
	//
	// To repeat an Ack is safe.
	Ack(ctx context.Context, acks []Ack) ([]Outcome, error)

	// NAck ends leases without success. Fail, Never and After count one more retry, and keep the error: Fail waits the job's
	// backoff, After the given delay, and beyond MaxRetries or with Never the job is dead. Snooze makes the job ready again
	// after the delay. Release makes it ready at once and takes the attempt back. The token stays.
	//
	//	ok         the job was in flight under this token, or had been ended under it in the same way before;
	//	stale      the lease was ended by someone else, or by its holder in another way; nothing changed;
	//	invalid    the form or the delay breaks a limit, as Reason says in the words of Check; nothing changed;
	//	not_found  there is no such job, or no longer.
	//
	// Fail, Never and After are one way of ending. A lease that has run out but was not recovered yet is still good. To
	// repeat a NAck is safe: nothing is counted or taken back twice.
	NAck(ctx context.Context, nacks []NAck) ([]Outcome, error)
}

// A Tx is a caller's transaction, as *sql.Tx and *sqlx.Tx are.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// A Transactor writes in a caller's own transaction, so that jobs and the caller's rows stand or fall together.
type Transactor interface {
	// InTx returns a Writer whose effect is seen by others when tx is committed, and never if it is rolled back.
	//
	// tx must be an open transaction. In nil, in a *sql.DB or a *sql.Conn, in a type that passes its calls on to one of them,
	// and in a transaction that has ended, each call is ErrInvalid: the InvalidError has the field tx, and nothing is
	// written. A type that passes its calls on to a *sql.Tx is as good as that.
	//
	// In it Ack and NAck are strict. A lease that is stale is ErrStaleLease, a job that its holder has finished already is
	// ErrAlreadyFinished, one that is gone is ErrNotFound, and an item that breaks a limit, a result included, is
	// ErrInvalid: the InvalidError has the item's index. After an error the transaction must be rolled back. A job that was
	// finished in a transaction stays locked until its end, so finish last, then commit: meanwhile Extend answers busy or
	// waits, and recovery leaves the job alone or waits.
	//
	// Outside the transaction the store may wait for its end: to call the store itself while holding tx open can wait for
	// oneself.
	InTx(tx Tx) Writer
}

// A Notifier tells when to look for jobs, so that nobody need look often.
type Notifier interface {
	// Subscribe returns a channel of wake-ups for the queues, or for all queues where none is named.
	//
	// A wake-up follows each commit that makes a job of the queue claimable at once. It may be late, be lost or come for
	// nothing, so it replaces no poll. A reader that is slow loses wake-ups and holds up nobody. The channel is closed when
	// the context ends or the store is closed.
	Subscribe(ctx context.Context, queues []string) (<-chan Wakeup, error)
}

// A QueueKeeper knows the queues and can pause them.
type QueueKeeper interface {
	// Queues returns every queue that has a job, is paused, or has a policy that sets something, by name, byte by byte. Each
	// comes with its policy.
	Queues(ctx context.Context) ([]Queue, error)

	// SetPaused pauses a queue or lets it go on. Claims stop; enqueueing, finishing and recovery go on. A queue can be
	// paused before it has a job. To repeat a pause is safe.
	SetPaused(ctx context.Context, queue string, paused bool) error
}

// A PolicyKeeper keeps a policy for each queue, so that all programs that use the store go by the same settings. It changes no
// job: servers read from the policies for how long finished jobs are kept, and delete the others.
type PolicyKeeper interface {
	QueueKeeper

	// Policy returns the policy of the queue. Where none was ever set, it sets nothing and its version is 0.
	Policy(ctx context.Context, queue string) (Policy, error)

	// SetPolicy puts p in the place of the queue's policy, as a whole, and returns it with the next version.
	//
	// The version of p is that of the policy to replace: 0 where none was ever set. If another one stands there, the error is
	// ErrConflict and nothing changed. A policy can be set before its queue has a job, and stays when the last one is gone.
	// Versions never begin again, also where a policy sets nothing any more.
	//
	// To repeat a SetPolicy is safe: it answers the same and changes nothing, or is ErrConflict if others have set the policy
	// since.
	SetPolicy(ctx context.Context, queue string, p Policy) (Policy, error)
}

// A Registry lists workers. It is for people: nothing in it has any effect on jobs.
type Registry interface {
	// Beat writes the worker's row, under its name, with the store's now.
	Beat(ctx context.Context, w Worker) error

	// Leave removes the row of a worker that ends, so that nobody takes it for one that died. If there is no such row, nothing
	// happens. A later Beat writes the row anew. To repeat a Leave is safe.
	Leave(ctx context.Context, name string) error

	// Workers returns the workers by name, byte by byte. A filter with a name chooses the worker that has it, and an empty one
	// every worker. A worker is stale when StaleAfter has passed since its last beat, and forgotten after 24 hours.
	//
	// A page skips and repeats no worker that was there all the time. Next is empty after the last page. A page ends early,
	// before the first worker with which the names of their queues would have more bytes than MaxPageNames. A cursor that comes
	// from no page of the filter is ErrInvalid.
	Workers(ctx context.Context, filter WorkerFilter, page Page) (WorkerPage, error)
}

// A Fencer makes a store safe to use after it was restored from a backup, or failed over with a loss of data.
type Fencer interface {
	// Fence raises the store's epoch by one, or to the epoch that was asked for if that is higher, and returns it. The epoch
	// of a new store is 0.
	//
	// Once Fence has returned, each change that raises a token raises it to epoch·2³²+1 at least, and the ids of new jobs are
	// no less than that. So no pair of id and token that was given and lost is given again. Nothing else changes: a lease in
	// force goes on being good, and how a lease was ended is remembered.
	//
	// With EndLeases it raises the tokens of the jobs in flight as well: their leases are stale from then on, and they are
	// recovered when these expire. That is for a copy with which workers have gone on before it was fenced, and needs them
	// stopped.
	//
	// An epoch above MaxEpoch is ErrInvalid. To repeat a Fence is safe: it raises the epoch once more.
	Fence(ctx context.Context, req FenceRequest) (epoch int64, err error)
}

// A Monitor answers what probes and metrics ask every few seconds. What that costs grows with the queues, and not with their jobs.
type Monitor interface {
	// Ping says whether the store answers, and has what this program keeps in it. It waits for no other call.
	Ping(ctx context.Context) error

	// OldestDue returns the queues from which a claim could take a job now, were no queue paused, by name, byte by byte. Each
	// comes with the earliest due time of those jobs.
	OldestDue(ctx context.Context) (Due, error)
}

// Ping asks a store whether it answers, also one that is no Monitor.
func Ping(ctx context.Context, s Store) error {
	if m, ok := s.(Monitor); ok {
		return m.Ping(ctx)
	}
	_, err := Now(ctx, s)
	return err
}

// Now asks a store for its time: that of a count of no job.
func Now(ctx context.Context, s Store) (time.Time, error) {
	counts, err := s.Count(ctx, Filter{IDs: []int64{0}})
	return counts.Now, err
}

// Missing names the abilities beyond the core that the store does not have, so that their absence can be said aloud.
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
	if _, ok := s.(Fencer); !ok {
		missing = append(missing, "Fencer")
	}
	if _, ok := s.(Monitor); !ok {
		missing = append(missing, "Monitor")
	}
	return missing
}

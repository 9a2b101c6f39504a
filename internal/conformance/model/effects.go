package model

import (
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// spoil lets the faults at what the operation is about to write.
func (s *Store) spoil(op store.Op, before job, after *job) {
	for _, e := range effects {
		if s.broken(e.fault) && slices.Contains(e.ops, op) {
			e.spoil(before, after)
		}
	}
}

// What a fault of a guard lets through, by the operation it guards.
var (
	tokenUnchecked = map[store.Op]Fault{
		store.OpAck: AckWithoutToken, store.OpExtend: ExtendWithoutToken, store.OpSave: SaveWithoutToken,
		store.OpFail: FailWithoutToken, store.OpNever: FailWithoutToken, store.OpAfter: FailWithoutToken,
		store.OpSnooze: SnoozeWithoutToken, store.OpRelease: ReleaseWithoutToken,
	}
	stateUnchecked = map[store.Op]Fault{
		store.OpAck: AckWithoutState, store.OpExtend: ExtendRevives, store.OpSave: SaveAfterFinish,
		store.OpFail: FailWithoutState, store.OpNever: FailWithoutState, store.OpAfter: FailWithoutState,
		store.OpSnooze: SnoozeWithoutState, store.OpRelease: ReleaseWithoutState,
	}
	lateRefused = map[store.Op]Fault{
		store.OpAck: LateAckRefused, store.OpExtend: LateExtendRefused,
		store.OpFail: LateFailRefused, store.OpNever: LateFailRefused, store.OpAfter: LateFailRefused,
		store.OpSnooze: LateFailRefused, store.OpRelease: LateFailRefused,
	}
)

// An effect is what a fault does to a row that is written.
type effect struct {
	fault Fault
	ops   []store.Op
	spoil func(before job, after *job)
}

// spoils declares a fault by what it does to a row: nothing else asks for it.
func spoils(name Fault, group, breaks string, ops []store.Op, spoil func(before job, after *job)) effect {
	return effect{fault(name, group, breaks), ops, spoil}
}

func on(ops ...store.Op) []store.Op { return ops }

var (
	failing = on(store.OpFail, store.OpNever, store.OpAfter)
	failed  = append(on(store.OpRecover), failing...)
	leaving = append(on(store.OpAck, store.OpSnooze, store.OpRelease, store.OpCancel), failed...)
)

// opReplace is what an Enqueue with Replace does to the holder of a key.
const opReplace store.Op = "replace"

var effects = []effect{
	spoils("claim-keeps-token", "Claim", "Only the first claim of a job raises its token.", on(store.OpClaim), func(before job, after *job) { after.Token = max(before.Token, 1) }),
	spoils("token-is-attempts", "Stale", "The token is the number of attempts, which a release takes back.", on(store.OpClaim), func(_ job, after *job) { after.Token = int64(after.Attempts) }),
	spoils("claim-uncounted", "Claim", "A claim is no attempt.", on(store.OpClaim), func(before job, after *job) { after.Attempts = before.Attempts }),
	spoils("claim-keeps-retry-at", "Claim", "A claimed retry keeps its RetryAt.", on(store.OpClaim), func(before job, after *job) { after.RetryAt = before.RetryAt }),
	spoils("claim-keeps-claimed-at", "Claim", "ClaimedAt is when the job was claimed first.", on(store.OpClaim), func(before job, after *job) {
		if !before.ClaimedAt.IsZero() {
			after.ClaimedAt = before.ClaimedAt
		}
	}),
	spoils("claim-keeps-save-numbers", "Matrix", "The numbers of saves go on from the lease before.", on(store.OpClaim), func(before job, after *job) {
		after.CheckpointSeq, after.ProgressSeq = before.CheckpointSeq, before.ProgressSeq
	}),
	spoils("claim-drops-checkpoint", "Claim", "A claim clears the checkpoint.", on(store.OpClaim), dropCheckpoint),

	spoils("unblock-raises-token", "Waits", "A job that becomes ready gets another token.", on(store.OpUnblock), func(_ job, after *job) { after.Token++ }),

	{RecoverKeepsToken, on(store.OpRecover), keepToken},
	spoils("recover-uncounted", "Recover", "An expiry is no retry, so that a job may crash for ever.", on(store.OpRecover), func(before job, after *job) {
		revive(after)
		after.Retries = before.Retries
	}),
	spoils("recover-counts-attempt", "Recover", "Recovery counts an attempt.", on(store.OpRecover), func(_ job, after *job) { after.Attempts++ }),
	spoils("recover-kills", "Recover", "A recovered job is dead at once.", on(store.OpRecover), func(_ job, after *job) { kill(after) }),
	spoils("recover-without-backoff", "Recover", "A recovered job is due at once.", on(store.OpRecover), func(_ job, after *job) { retryAfter(after, 0) }),
	spoils("recover-drops-checkpoint", "Recover", "Recovery clears the checkpoint.", on(store.OpRecover), dropCheckpoint),
	spoils("recover-without-reason", "Recover", "Recovery does not write its reason.", on(store.OpRecover), func(before job, after *job) { after.Error = before.Error }),
	spoils("recover-leaves-attempt-running", "Recover", "In the history, a recovered attempt goes on running.", on(store.OpRecover), keepHistory),

	spoils("ack-keeps-error", "Matrix", "A succeeded job keeps the error of an earlier attempt.", on(store.OpAck), func(before job, after *job) { after.Error = before.Error }),
	spoils("ack-drops-result", "Matrix", "The result is not kept.", on(store.OpAck), func(_ job, after *job) { after.Result = nil }),
	spoils("ack-raises-token", "Finish", "Ack raises the token, so that a repeat is stale.", on(store.OpAck), func(_ job, after *job) { after.Token++ }),
	spoils("refused-result-retried", "Finish", "A job whose result is refused is tried again.", on(store.OpAck), func(_ job, after *job) {
		if after.State == store.Failed && after.Retries <= after.MaxRetries {
			revive(after)
		}
	}),
	spoils("fail-drops-error", "Matrix", "A failing NAck does not keep its error.", failing, func(before job, after *job) { after.Error = before.Error }),
	spoils("fail-keeps-lease", "Matrix", "A failing NAck leaves the end of the lease in the row.", failing, func(before job, after *job) { after.LeaseExpiresAt = before.LeaseExpiresAt }),
	spoils("fail-drops-checkpoint", "Save", "A failing NAck clears the checkpoint.", failing, dropCheckpoint),
	spoils("fail-uncounted", "Retry", "A failing NAck is no retry.", failing, func(before job, after *job) { after.Retries = before.Retries }),
	spoils("max-retries-one-less", "Retry", "A job is dead after MaxRetries failures.", failed, func(_ job, after *job) {
		if after.Retries == after.MaxRetries {
			kill(after)
		}
	}),
	spoils("max-retries-one-more", "Retry", "A job is dead only after MaxRetries and two failures.", on(store.OpFail, store.OpRecover), func(_ job, after *job) {
		if after.Retries == after.MaxRetries+1 {
			revive(after)
		}
	}),
	spoils("backoff-uncapped", "Retry", "The backoff goes beyond its cap.", on(store.OpFail, store.OpRecover), func(_ job, after *job) {
		uncapped := after.Backoff
		uncapped.Cap = store.MaxDuration
		retryAfter(after, uncapped.Delay(after.ID, after.Retries))
	}),
	spoils("backoff-constant", "Retry", "The backoff does not grow.", on(store.OpFail, store.OpRecover), func(_ job, after *job) {
		retryAfter(after, after.Backoff.Delay(after.ID, 1))
	}),
	spoils("jitter-ignored", "Retry", "The backoff has no jitter.", on(store.OpFail, store.OpRecover), func(_ job, after *job) {
		plain := after.Backoff
		plain.Jitter = 0
		retryAfter(after, plain.Delay(after.ID, after.Retries))
	}),
	spoils("never-is-retried", "Matrix", "NAck with Never is tried again.", on(store.OpNever), func(_ job, after *job) {
		if after.Retries <= after.MaxRetries {
			revive(after)
		}
	}),
	spoils("after-ignores-delay", "Retry", "NAck with After waits the backoff.", on(store.OpAfter), func(_ job, after *job) {
		retryAfter(after, after.Backoff.Delay(after.ID, after.Retries))
	}),
	spoils("after-ignores-limit", "Retry", "NAck with After is tried again beyond MaxRetries.", on(store.OpAfter), func(_ job, after *job) { revive(after) }),
	spoils("snooze-counts-retry", "Retry", "Snooze is a retry.", on(store.OpSnooze), func(_ job, after *job) { after.Retries++ }),
	spoils("snooze-refunds-attempt", "Retry", "Snooze takes the attempt back.", on(store.OpSnooze), func(_ job, after *job) { after.Attempts-- }),
	spoils("snooze-ignores-delay", "Retry", "A snoozed job is due at once.", on(store.OpSnooze), func(_ job, after *job) { after.RunAt = leftAt(after) }),
	spoils("snooze-drops-reason", "History", "Snooze does not keep its reason.", on(store.OpSnooze), func(_ job, after *job) { after.history[len(after.history)-1].Error = "" }),
	spoils("snooze-reason-is-error", "History", "The reason of a snooze becomes the job's error.", on(store.OpSnooze), func(_ job, after *job) { after.Error = after.history[len(after.history)-1].Error }),
	spoils("snooze-repeats-reason", "History", "A snooze without a reason has that of the attempt before.", on(store.OpSnooze), func(_ job, after *job) {
		if n := len(after.history); n > 1 && after.history[n-1].Error == "" {
			after.history[n-1].Error = after.history[n-2].Error
		}
	}),
	spoils("claim-drops-reason", "History", "A claim drops the reason of the attempt before.", on(store.OpClaim), func(_ job, after *job) {
		if n := len(after.history); n > 1 && after.history[n-2].Ending == store.EndSnoozed {
			after.history[n-2].Error = ""
		}
	}),
	spoils("release-keeps-attempt", "Retry", "Release does not take the attempt back.", on(store.OpRelease), func(before job, after *job) { after.Attempts = before.Attempts }),
	spoils("release-keeps-run-at", "Retry", "A released job keeps its RunAt.", on(store.OpRelease), func(before job, after *job) { after.RunAt = before.RunAt }),
	spoils("release-restores-token", "Stale", "Release takes the token back with the attempt.", on(store.OpRelease), func(_ job, after *job) { after.Token-- }),
	spoils("release-drops-history", "History", "A released claim leaves the history.", on(store.OpRelease), func(_ job, after *job) {
		after.history = after.history[:max(len(after.history), 1)-1]
	}),
	spoils("history-without-errors", "History", "The history has no errors.", failed, func(_ job, after *job) {
		if n := len(after.history); n > 0 {
			after.history[n-1].Error = ""
		}
	}),
	spoils("history-of-last-only", "History", "The history has the latest attempt only.", on(store.OpClaim), func(_ job, after *job) { after.history = after.history[len(after.history)-1:] }),
	spoils("history-without-endings", "History", "The history does not say how attempts ended.", leaving, keepHistory),

	{ExtendRevives, on(store.OpExtend), func(_ job, after *job) {
		after.State, after.RetryAt, after.FinishedAt = store.InFlight, time.Time{}, time.Time{}
	}},
	spoils("extend-never-shortens", "Extend", "Extend leaves a later end of the lease as it is.", on(store.OpExtend), func(before job, after *job) {
		if after.LeaseExpiresAt.Before(before.LeaseExpiresAt) {
			after.LeaseExpiresAt = before.LeaseExpiresAt
		}
	}),

	spoils("cancel-keeps-token", "Cancel", "Cancel leaves the token as it is.", on(store.OpCancel), keepToken),
	spoils("cancel-leaves-attempt-running", "Cancel", "In the history, a cancelled attempt goes on running.", on(store.OpCancel), keepHistory),
	spoils("requeue-keeps-retries", "Requeue", "Requeue leaves the retries as they are.", on(store.OpRequeue), func(before job, after *job) { after.Retries = before.Retries }),
	spoils("requeue-keeps-token", "Requeue", "Requeue leaves the token as it is.", on(store.OpRequeue), keepToken),
	spoils("requeue-resets-token", "Requeue", "Requeue sets the token back to zero.", on(store.OpRequeue), func(_ job, after *job) { after.Token = 0 }),
	spoils("requeue-resets-attempts", "Requeue", "Requeue sets the attempts back to zero.", on(store.OpRequeue), func(_ job, after *job) { after.Attempts = 0 }),
	spoils("requeue-drops-dead-checkpoint", "Requeue", "Requeue clears the checkpoint of a dead job.", on(store.OpRequeue), dropCheckpoint),
	spoils("requeue-keeps-finished-progress", "Requeue", "Requeue keeps the checkpoint and progress of a job that had succeeded.", on(store.OpRequeue), func(before job, after *job) {
		after.Checkpoint, after.CheckpointSeq = before.Checkpoint, before.CheckpointSeq
		after.Progress, after.ProgressSeq = before.Progress, before.ProgressSeq
	}),
	spoils("requeue-keeps-run-at", "Requeue", "A requeued job keeps its RunAt.", on(store.OpRequeue), func(before job, after *job) { after.RunAt = before.RunAt }),
	spoils("reschedule-keeps-token", "Reschedule", "Reschedule leaves the token as it is.", on(store.OpReschedule), keepToken),
	spoils("reschedule-resets-retries", "Reschedule", "Reschedule sets the retries back to zero.", on(store.OpReschedule), func(_ job, after *job) { after.Retries = 0 }),
	spoils("reschedule-drops-error", "Reschedule", "Reschedule clears the error.", on(store.OpReschedule), func(_ job, after *job) { after.Error = "" }),
	spoils("reschedule-makes-ready", "Reschedule", "A retrying job that is rescheduled becomes ready.", on(store.OpReschedule), func(_ job, after *job) {
		if after.State == store.Failed {
			after.State, after.RunAt, after.RetryAt = store.Ready, after.RetryAt, time.Time{}
		}
	}),
	spoils("reschedule-spares-retries", "Reschedule", "A retrying job keeps its RetryAt.", on(store.OpReschedule), func(before job, after *job) { after.RetryAt = before.RetryAt }),
	spoils("replace-keeps-payload", "Unique", "A job that is replaced keeps its payload.", on(opReplace), func(before job, after *job) { after.Payload = before.Payload }),
	spoils("replace-keeps-priority", "Unique", "A job that is replaced keeps its priority.", on(opReplace), func(before job, after *job) { after.Priority = before.Priority }),
	spoils("replace-keeps-due", "Unique", "A job that is replaced keeps its due time.", on(opReplace), func(before job, after *job) { after.RunAt, after.RetryAt = before.RunAt, before.RetryAt }),
	spoils("replace-keeps-expiry", "Unique", "A job that is replaced keeps its ExpiresAt.", on(opReplace), func(before job, after *job) { after.Extras = before.Extras }),
	spoils("replace-keeps-checkpoint", "Unique", "A job that is replaced keeps its checkpoint.", on(opReplace), func(before job, after *job) {
		after.Checkpoint, after.CheckpointSeq = before.Checkpoint, before.CheckpointSeq
	}),
	spoils("replace-keeps-progress", "Unique", "A job that is replaced keeps its progress.", on(opReplace), func(before job, after *job) { after.Progress, after.ProgressSeq = before.Progress, before.ProgressSeq }),
	spoils("replace-keeps-seqs", "Unique", "A job that is replaced keeps the numbers of its checkpoint and progress.", on(opReplace), func(before job, after *job) {
		after.CheckpointSeq, after.ProgressSeq = before.CheckpointSeq, before.ProgressSeq
	}),
	spoils("replace-keeps-token", "Unique", "A job that is replaced keeps its token.", on(opReplace), keepToken),
	spoils("replace-keeps-ending", "Unique", "A job that is replaced counts as finished under its new token.", on(opReplace), func(before job, after *job) { after.endedBy = before.endedBy }),
	spoils("replace-resets-retries", "Unique", "The retries of a job that is replaced are back to zero.", on(opReplace), func(_ job, after *job) { after.Retries = 0 }),
	spoils("replace-drops-error", "Unique", "A job that is replaced loses its error.", on(opReplace), func(_ job, after *job) { after.Error = "" }),
	spoils("replace-drops-limit-key", "Limits", "A job that is replaced loses its limit key.", on(opReplace), dropLimitKey),
	spoils("requeue-drops-limit-key", "Limits", "A requeued job loses its limit key.", on(store.OpRequeue), dropLimitKey),
	spoils("replace-makes-ready", "Unique", "A retrying job that is replaced becomes ready.", on(opReplace), func(_ job, after *job) {
		if after.State == store.Failed {
			after.State, after.RunAt, after.RetryAt = store.Ready, after.RetryAt, time.Time{}
		}
	}),
	spoils("requeue-forgets-claim", "Requeue", "Requeue clears ClaimedAt.", on(store.OpRequeue), func(_ job, after *job) { after.ClaimedAt = time.Time{} }),
}

func keepToken(before job, after *job) { after.Token = before.Token }

func keepHistory(before job, after *job) { after.history = before.history }

func dropCheckpoint(_ job, after *job) {
	after.Checkpoint, after.CheckpointSeq = nil, 0
}

func dropLimitKey(_ job, after *job) { after.Extras = after.Extras.WithLimitKey("") }

// leftAt is when the attempt ended that the job is just leaving.
func leftAt(after *job) time.Time { return after.history[len(after.history)-1].EndedAt }

// kill makes a retrying job dead.
func kill(after *job) {
	if after.Phase() == store.Retrying {
		after.RetryAt, after.FinishedAt = time.Time{}, leftAt(after)
	}
}

// revive makes a dead job retrying, due at once.
func revive(after *job) {
	if after.Phase() == store.Dead {
		after.RetryAt, after.FinishedAt = leftAt(after), time.Time{}
	}
}

// retryAfter gives a retrying job another delay.
func retryAfter(after *job, delay time.Duration) {
	if after.Phase() == store.Retrying {
		after.RetryAt = leftAt(after).Add(delay)
	}
}

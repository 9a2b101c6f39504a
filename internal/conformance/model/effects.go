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

func on(ops ...store.Op) []store.Op { return ops }

var (
	failing = on(store.OpFail, store.OpNever, store.OpAfter)
	failed  = append(on(store.OpRecover), failing...)
	leaving = append(on(store.OpAck, store.OpSnooze, store.OpRelease, store.OpCancel), failed...)
)

// opReplace is what an Enqueue with Replace does to the holder of a key.
const opReplace store.Op = "replace"

var effects = []effect{
	{ClaimKeepsToken, on(store.OpClaim), func(before job, after *job) { after.Token = max(before.Token, 1) }},
	{TokenIsAttempts, on(store.OpClaim), func(_ job, after *job) { after.Token = int64(after.Attempts) }},
	{ClaimUncounted, on(store.OpClaim), func(before job, after *job) { after.Attempts = before.Attempts }},
	{ClaimKeepsRetryAt, on(store.OpClaim), func(before job, after *job) { after.RetryAt = before.RetryAt }},
	{ClaimKeepsClaimedAt, on(store.OpClaim), func(before job, after *job) {
		if !before.ClaimedAt.IsZero() {
			after.ClaimedAt = before.ClaimedAt
		}
	}},
	{ClaimKeepsSaveNumbers, on(store.OpClaim), func(before job, after *job) {
		after.CheckpointSeq, after.ProgressSeq = before.CheckpointSeq, before.ProgressSeq
	}},
	{ClaimDropsCheckpoint, on(store.OpClaim), dropCheckpoint},

	{RecoverKeepsToken, on(store.OpRecover), keepToken},
	{RecoverUncounted, on(store.OpRecover), func(before job, after *job) {
		revive(after)
		after.Retries = before.Retries
	}},
	{RecoverCountsAttempt, on(store.OpRecover), func(_ job, after *job) { after.Attempts++ }},
	{RecoverKills, on(store.OpRecover), func(_ job, after *job) { kill(after) }},
	{RecoverWithoutBackoff, on(store.OpRecover), func(_ job, after *job) { retryAfter(after, 0) }},
	{RecoverDropsCheckpoint, on(store.OpRecover), dropCheckpoint},
	{RecoverWithoutReason, on(store.OpRecover), func(before job, after *job) { after.Error = before.Error }},
	{RecoverLeavesAttemptRun, on(store.OpRecover), keepHistory},

	{AckKeepsError, on(store.OpAck), func(before job, after *job) { after.Error = before.Error }},
	{AckDropsResult, on(store.OpAck), func(_ job, after *job) { after.Result = nil }},
	{AckRaisesToken, on(store.OpAck), func(_ job, after *job) { after.Token++ }},
	{RefusedResultRetried, on(store.OpAck), func(_ job, after *job) {
		if after.State == store.Failed && after.Retries <= after.MaxRetries {
			revive(after)
		}
	}},
	{FailDropsError, failing, func(before job, after *job) { after.Error = before.Error }},
	{FailKeepsLease, failing, func(before job, after *job) { after.LeaseExpiresAt = before.LeaseExpiresAt }},
	{FailDropsCheckpoint, failing, dropCheckpoint},
	{FailUncounted, failing, func(before job, after *job) { after.Retries = before.Retries }},
	{MaxRetriesOneLess, failed, func(_ job, after *job) {
		if after.Retries == after.MaxRetries {
			kill(after)
		}
	}},
	{MaxRetriesOneMore, on(store.OpFail, store.OpRecover), func(_ job, after *job) {
		if after.Retries == after.MaxRetries+1 {
			revive(after)
		}
	}},
	{BackoffUncapped, on(store.OpFail, store.OpRecover), func(_ job, after *job) {
		uncapped := after.Backoff
		uncapped.Cap = store.MaxDuration
		retryAfter(after, uncapped.Delay(after.ID, after.Retries))
	}},
	{BackoffConstant, on(store.OpFail, store.OpRecover), func(_ job, after *job) {
		retryAfter(after, after.Backoff.Delay(after.ID, 1))
	}},
	{JitterIgnored, on(store.OpFail, store.OpRecover), func(_ job, after *job) {
		plain := after.Backoff
		plain.Jitter = 0
		retryAfter(after, plain.Delay(after.ID, after.Retries))
	}},
	{NeverIsRetried, on(store.OpNever), func(_ job, after *job) {
		if after.Retries <= after.MaxRetries {
			revive(after)
		}
	}},
	{AfterIgnoresDelay, on(store.OpAfter), func(_ job, after *job) {
		retryAfter(after, after.Backoff.Delay(after.ID, after.Retries))
	}},
	{AfterIgnoresLimit, on(store.OpAfter), func(_ job, after *job) { revive(after) }},
	{SnoozeCountsRetry, on(store.OpSnooze), func(_ job, after *job) { after.Retries++ }},
	{SnoozeRefundsAttempt, on(store.OpSnooze), func(_ job, after *job) { after.Attempts-- }},
	{SnoozeIgnoresDelay, on(store.OpSnooze), func(_ job, after *job) { after.RunAt = leftAt(after) }},
	{SnoozeDropsReason, on(store.OpSnooze), func(_ job, after *job) { after.history[len(after.history)-1].Error = "" }},
	{SnoozeReasonIsError, on(store.OpSnooze), func(_ job, after *job) { after.Error = after.history[len(after.history)-1].Error }},
	{SnoozeRepeatsReason, on(store.OpSnooze), func(_ job, after *job) {
		if n := len(after.history); n > 1 && after.history[n-1].Error == "" {
			after.history[n-1].Error = after.history[n-2].Error
		}
	}},
	{ClaimDropsReason, on(store.OpClaim), func(_ job, after *job) {
		if n := len(after.history); n > 1 && after.history[n-2].Ending == store.EndSnoozed {
			after.history[n-2].Error = ""
		}
	}},
	{ReleaseKeepsAttempt, on(store.OpRelease), func(before job, after *job) { after.Attempts = before.Attempts }},
	{ReleaseKeepsRunAt, on(store.OpRelease), func(before job, after *job) { after.RunAt = before.RunAt }},
	{ReleaseRestoresToken, on(store.OpRelease), func(_ job, after *job) { after.Token-- }},
	{ReleaseDropsHistory, on(store.OpRelease), func(_ job, after *job) {
		after.history = after.history[:max(len(after.history), 1)-1]
	}},
	{HistoryWithoutErrors, failed, func(_ job, after *job) {
		if n := len(after.history); n > 0 {
			after.history[n-1].Error = ""
		}
	}},
	{HistoryOfLastOnly, on(store.OpClaim), func(_ job, after *job) { after.history = after.history[len(after.history)-1:] }},
	{HistoryWithoutEndings, leaving, keepHistory},

	{ExtendRevives, on(store.OpExtend), func(_ job, after *job) {
		after.State, after.RetryAt, after.FinishedAt = store.InFlight, time.Time{}, time.Time{}
	}},
	{ExtendNeverShortens, on(store.OpExtend), func(before job, after *job) {
		if after.LeaseExpiresAt.Before(before.LeaseExpiresAt) {
			after.LeaseExpiresAt = before.LeaseExpiresAt
		}
	}},

	{CancelKeepsToken, on(store.OpCancel), keepToken},
	{CancelLeavesAttemptRun, on(store.OpCancel), keepHistory},
	{RequeueKeepsRetries, on(store.OpRequeue), func(before job, after *job) { after.Retries = before.Retries }},
	{RequeueKeepsToken, on(store.OpRequeue), keepToken},
	{RequeueResetsToken, on(store.OpRequeue), func(_ job, after *job) { after.Token = 0 }},
	{RequeueResetsAttempts, on(store.OpRequeue), func(_ job, after *job) { after.Attempts = 0 }},
	{RequeueDropsDeadCheckpoint, on(store.OpRequeue), dropCheckpoint},
	{RequeueKeepsFinishedProgress, on(store.OpRequeue), func(before job, after *job) {
		after.Checkpoint, after.CheckpointSeq = before.Checkpoint, before.CheckpointSeq
		after.Progress, after.ProgressSeq = before.Progress, before.ProgressSeq
	}},
	{RequeueKeepsRunAt, on(store.OpRequeue), func(before job, after *job) { after.RunAt = before.RunAt }},
	{RescheduleKeepsToken, on(store.OpReschedule), keepToken},
	{RescheduleResetsRetries, on(store.OpReschedule), func(_ job, after *job) { after.Retries = 0 }},
	{RescheduleDropsError, on(store.OpReschedule), func(_ job, after *job) { after.Error = "" }},
	{RescheduleMakesReady, on(store.OpReschedule), func(_ job, after *job) {
		if after.State == store.Failed {
			after.State, after.RunAt, after.RetryAt = store.Ready, after.RetryAt, time.Time{}
		}
	}},
	{RescheduleSparesRetries, on(store.OpReschedule), func(before job, after *job) { after.RetryAt = before.RetryAt }},
	{ReplaceKeepsPayload, on(opReplace), func(before job, after *job) { after.Payload = before.Payload }},
	{ReplaceKeepsPriority, on(opReplace), func(before job, after *job) { after.Priority = before.Priority }},
	{ReplaceKeepsDue, on(opReplace), func(before job, after *job) { after.RunAt, after.RetryAt = before.RunAt, before.RetryAt }},
	{ReplaceKeepsExpiry, on(opReplace), func(before job, after *job) { after.Extras = before.Extras }},
	{ReplaceKeepsCheckpoint, on(opReplace), func(before job, after *job) {
		after.Checkpoint, after.CheckpointSeq = before.Checkpoint, before.CheckpointSeq
	}},
	{ReplaceKeepsProgress, on(opReplace), func(before job, after *job) { after.Progress, after.ProgressSeq = before.Progress, before.ProgressSeq }},
	{ReplaceKeepsSeqs, on(opReplace), func(before job, after *job) {
		after.CheckpointSeq, after.ProgressSeq = before.CheckpointSeq, before.ProgressSeq
	}},
	{ReplaceKeepsToken, on(opReplace), keepToken},
	{ReplaceKeepsEnding, on(opReplace), func(before job, after *job) { after.endedBy = before.endedBy }},
	{ReplaceResetsRetries, on(opReplace), func(_ job, after *job) { after.Retries = 0 }},
	{ReplaceDropsError, on(opReplace), func(_ job, after *job) { after.Error = "" }},
	{ReplaceMakesReady, on(opReplace), func(_ job, after *job) {
		if after.State == store.Failed {
			after.State, after.RunAt, after.RetryAt = store.Ready, after.RetryAt, time.Time{}
		}
	}},
	{RequeueForgetsClaim, on(store.OpRequeue), func(_ job, after *job) { after.ClaimedAt = time.Time{} }},
}

func keepToken(before job, after *job) { after.Token = before.Token }

func keepHistory(before job, after *job) { after.history = before.history }

func dropCheckpoint(_ job, after *job) {
	after.Checkpoint, after.CheckpointSeq = nil, 0
}

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

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/wire"
)

// An operation changes many jobs at once.
type operation struct {
	verb string     // requeue
	does string     // requeue, for sentences
	done string     // requeued
	from []jq.State // the phases in which it applies to a job
	hint string     // why it does not apply in other phases
	call func(jq.Store, context.Context, jq.Filter, int) ([]jq.Outcome, error)
}

var (
	requeueing = operation{
		verb: "requeue", does: "requeue", done: "requeued", from: []jq.State{jq.Succeeded, jq.Dead, jq.Cancelled},
		hint: "it has not finished", call: jq.Store.Requeue,
	}
	cancelling = operation{
		verb: "cancel", does: "cancel", done: "cancelled", from: []jq.State{jq.Ready, jq.InFlight, jq.Retrying, jq.Blocked},
		hint: "it has already finished", call: jq.Store.Cancel,
	}
	rescheduling = operation{
		verb: "reschedule", does: "reschedule", done: "rescheduled", from: []jq.State{jq.Ready, jq.Retrying},
		hint: "it is neither ready nor retrying",
	}
	removing = operation{
		verb: "rm", does: "remove", done: "removed", from: []jq.State{jq.Succeeded, jq.Dead, jq.Cancelled},
		hint: "it has not finished: cancel it first", call: jq.Store.Delete,
	}
)

func (a *app) jobsRequeue() *cobra.Command {
	return a.bulk(requeueing, "make finished jobs ready again, by id or by filter",
		"Make finished jobs ready again and reset their count of retries. With a filter, you must give --state, because jobs that\n"+
			"have succeeded would run again. A job that was to wait for others is blocked again if they have not succeeded, or ended.\n"+
			"A filter leaves out jobs that finish after the command has started.")
}

func (a *app) jobsCancel() *cobra.Command {
	return a.bulk(cancelling, "cancel jobs that have not finished, by id or by filter",
		"Cancel jobs that have not finished. If a job is running, its worker learns of the cancellation within about a second, or\n"+
			"with its next heartbeat, and stops it. The store refuses everything the worker writes to the job from now on.")
}

func (a *app) jobsReschedule() *cobra.Command {
	return a.bulk(rescheduling, "make waiting jobs due now, or at another time, by id or by filter",
		"Make jobs that are ready or retrying due now or, with --run-at or --delay, at another time. A retrying job keeps its count of\n"+
			"retries. A job that is due by then already stays as it is.")
}

func (a *app) jobsRm() *cobra.Command {
	return a.bulk(removing, "remove finished jobs and their history, by id or by filter",
		"Remove finished jobs and their history. You cannot undo this.")
}

// A selection holds the flags of a bulk operation.
type selection struct {
	filterFlags
	due    dueFlags // for reschedule
	yes    bool
	asJSON bool
}

func (a *app) bulk(op operation, short, long string) *cobra.Command {
	var sel selection
	cmd := &cobra.Command{
		Use:     op.verb + " [ID...]",
		Short:   short,
		Long:    long,
		Args:    takes(0, -1, ""),
		Example: fmt.Sprintf("  SELF jobs %s 17 18\n  SELF jobs %s --queue mail --state %s", op.verb, op.verb, op.from[1]),
	}
	sel.add(cmd)
	switch op.verb {
	case cancelling.verb: // finished jobs cannot be cancelled
	case rescheduling.verb:
		sel.due.add(cmd)
	default:
		sel.addOlderThan(cmd)
	}
	cmd.Flags().BoolVar(&sel.yes, "yes", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&sel.asJSON, "json", false, "print the outcomes as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		filter, err := sel.choose(op, args)
		if err != nil {
			return err
		}
		at, err := sel.due.time()
		if err != nil {
			return err
		}
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			if op.verb == rescheduling.verb {
				if op.call, err = sel.due.call(cmd.Context(), s, at); err != nil {
					return err
				}
			}
			if len(filter.IDs) > 0 {
				return a.operateOnIDs(cmd.Context(), s, op, filter.IDs, sel.asJSON)
			}
			return a.operateOnMatches(cmd.Context(), s, op, filter, sel)
		})
	}
	return cmd
}

// dueFlags say when jobs become due.
type dueFlags struct {
	runAt string
	delay time.Duration
}

func (d *dueFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.runAt, "run-at", "", "`TIME` when the jobs become due, such as "+exampleTime+"; the default is now")
	cmd.Flags().DurationVar(&d.delay, "delay", 0, "how long to wait before the jobs are due, such as 90s or 1h30m")
}

// time returns the time of --run-at, or the zero time.
func (d *dueFlags) time() (at time.Time, err error) {
	switch {
	case d.delay < 0:
		return at, misuse("--delay %s: want a duration that is not negative", d.delay)
	case d.runAt == "":
		return at, nil
	case d.delay > 0:
		return at, misuse("give --run-at or --delay, not both")
	}
	return timeOf("--run-at", d.runAt)
}

// call returns the call that makes jobs due at the time. A delay begins now, by the store's clock, for all batches.
func (d *dueFlags) call(
	ctx context.Context, s jq.Store, at time.Time,
) (func(jq.Store, context.Context, jq.Filter, int) ([]jq.Outcome, error), error) {
	if d.delay > 0 {
		now, err := contract.Now(ctx, s)
		if err != nil {
			return nil, err
		}
		at = now.Add(d.delay)
	}
	return func(s jq.Store, ctx context.Context, filter jq.Filter, limit int) ([]jq.Outcome, error) {
		return s.Reschedule(ctx, filter, at, limit)
	}, nil
}

// choose returns a filter from ids or from flags. It returns an error for a selection that is probably a mistake.
func (sel *selection) choose(op operation, args []string) (jq.Filter, error) {
	filter, err := sel.filter()
	if err != nil {
		return filter, err
	}
	switch {
	case len(args) > 0 && !filter.Empty():
		return filter, misuse("select jobs by id or by flags, not by both")
	case len(args) > 0:
		filter.IDs, err = parseIDs(args)
		return filter, err
	case filter.Empty():
		return filter, misuse("no jobs selected: give ids, or flags such as --state %s", op.from[1])
	case op.verb == requeueing.verb && len(filter.States) == 0:
		return filter, misuse("give --state dead, cancelled or succeeded; jobs that have succeeded would run again")
	}
	for _, s := range filter.States {
		if !slices.Contains(op.from, s) && s != jq.Failed {
			return filter, misuse("a job that is %s cannot be %s: %s", s, op.done, op.hint)
		}
	}
	return filter, nil
}

// operateOnIDs changes the jobs and prints the outcome of each.
func (a *app) operateOnIDs(ctx context.Context, s jq.Store, op operation, ids []int64, asJSON bool) error {
	var outcomes []jq.Outcome
	for part := range slices.Chunk(ids, contract.MaxItems) {
		some, err := op.call(s, ctx, jq.Filter{IDs: part}, contract.MaxItems)
		if err != nil {
			return fmt.Errorf("%w (tried %d of %d jobs)", err, len(outcomes), len(ids))
		}
		outcomes = append(outcomes, some...)
	}
	if asJSON {
		return cmp.Or(wire.Encode(a.out, wire.ResultsOf(outcomes)), notDone(op, outcomes))
	}
	for _, o := range outcomes {
		fmt.Fprintf(a.out, "job %d: %s\n", o.ID, printable(outcomeText(op, o)))
	}
	return notDone(op, outcomes)
}

// outcomeText describes an outcome.
func outcomeText(op operation, o jq.Outcome) string {
	phase := contract.Job{State: o.State, RetryAt: o.Next}.Phase()
	switch o.Status {
	case contract.StatusOK:
		if o.State == jq.Blocked {
			return op.done + "; it is blocked, because it waits for other jobs"
		}
		return op.done
	case contract.StatusNotFound:
		return "not found"
	case contract.StatusWrongState:
		return fmt.Sprintf("stays %s: %s", phase, op.hint)
	case contract.StatusDuplicate:
		return "unchanged, because another job holds its unique key" + withReason(o.Reason)
	default:
		return string(o.Status) + withReason(o.Reason)
	}
}

func withReason(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// notDone returns an error if any job was not changed.
func notDone(op operation, outcomes []jq.Outcome) error {
	left := failures(outcomes)
	if left == 0 {
		return nil
	}
	return fmt.Errorf("%d of %s not %s", left, plural(int64(len(outcomes))), op.done)
}

// operateOnMatches counts the matching jobs, asks for confirmation, and changes the jobs in batches.
func (a *app) operateOnMatches(ctx context.Context, s jq.Store, op operation, filter jq.Filter, sel selection) error {
	began, count, split, err := matching(ctx, s, op, filter)
	if err != nil {
		return err
	}
	if count == 0 {
		if sel.asJSON {
			return wire.Encode(a.out, wire.ResultsOf(nil))
		}
		_, err := fmt.Fprintf(a.out, "no matching job can be %s\n", op.done)
		return err
	}
	sure, err := a.confirm(fmt.Sprintf("%s %s (%s)", op.does, plural(count), split), sel.yes)
	if err != nil || !sure {
		return err
	}
	outcomes, err := a.inBatches(ctx, s, op, filter, began, count)
	done := len(outcomes) - failures(outcomes)
	if sel.asJSON {
		err = cmp.Or(err, wire.Encode(a.out, wire.ResultsOf(outcomes)))
	} else {
		for _, o := range outcomes {
			if o.Err() != nil {
				fmt.Fprintf(a.out, "job %d: %s\n", o.ID, printable(outcomeText(op, o)))
			}
		}
		fmt.Fprintf(a.out, "%s %s\n", plural(int64(done)), op.done)
	}
	return cmp.Or(err, notDone(op, outcomes))
}

func failures(outcomes []jq.Outcome) int {
	n := 0
	for _, o := range outcomes {
		if o.Err() != nil {
			n++
		}
	}
	return n
}

// matching counts the jobs that the operation would change, and returns the store's time of the count.
func matching(ctx context.Context, s jq.Store, op operation, filter jq.Filter) (now time.Time, count int64, split string, err error) {
	counts, err := s.Count(ctx, filter)
	if err != nil {
		return now, 0, "", err
	}
	var parts []string
	for _, phase := range op.from {
		of := int64(0)
		for _, q := range counts.Queues {
			of += q.Jobs[phase]
		}
		if of > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", of, phase))
		}
		count += of
	}
	return counts.Now, count, strings.Join(parts, ", "), nil
}

// inBatches changes the matching jobs in ascending order of their ids. A requeued job may finish again during the command, so it
// requeues only jobs that had finished before the command began.
func (a *app) inBatches(ctx context.Context, s jq.Store, op operation, filter jq.Filter, began time.Time, count int64) ([]jq.Outcome, error) {
	const batch = 500
	var outcomes []jq.Outcome
	bar := a.progress()
	defer bar.end()
	for finishedFor := filter.FinishedFor; ; {
		if op.verb == requeueing.verb {
			now, err := contract.Now(ctx, s)
			if err != nil {
				return outcomes, err
			}
			filter.FinishedFor = max(finishedFor, now.Sub(began))
		}
		some, err := op.call(s, ctx, filter, batch)
		if err != nil {
			return outcomes, err
		}
		outcomes = append(outcomes, some...)
		if len(some) < batch {
			return outcomes, nil
		}
		filter.After = some[len(some)-1].ID
		bar.show(int64(len(outcomes)), count, "%d of %d %s", len(outcomes), count, op.done)
	}
}

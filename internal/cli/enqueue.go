package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/wire"
	"github.com/seed-ed332417/jq/sqlite"
)

// An order holds the flags of enqueue.
type order struct {
	job        jq.NewJob
	runAt      string
	expiresAt  string
	after      []string // ids of the jobs that must succeed first
	afterAny   []string // ids of the jobs that must end first
	groups     []string // names of the groups whose jobs must all succeed first
	groupsAny  []string // names of the groups whose jobs must all end first
	open       []string // names of groups to open
	requestKey string
	lines      string
	asJSON     bool
}

func (a *app) enqueue() *cobra.Command {
	o := order{job: jq.NewJob{Backoff: jq.DefaultBackoff}}
	cmd := &cobra.Command{
		Use:   "enqueue KIND [PAYLOAD]",
		Short: "add one job, or many from JSON lines",
		Long: "Add a job. The payload is a JSON document; - reads it from standard input. The default is null.\n\n" +
			"With --after or --after-any, the job waits for other jobs and is blocked meanwhile. If a job that must succeed is cancelled,\n" +
			"this one is cancelled too. If it is dead, this one stays blocked: requeue the dead job, or remove it, which cancels this one.\n" +
			"With --after-group it waits for all jobs of a group; --group adds it to one. If jobs are still to come, open the group with\n" +
			"--open, and seal it with flows seal after the last.\n\n" +
			"With --lines, add one job for each line of a file, or of standard input with --lines -. A line is a JSON object. It must\n" +
			"have a kind, and may have payload, queue, priority, tags, run_at or delay, max_retries, backoff, timeout, unique_key,\n" +
			"unique_for, replace, group, limit_key and after. A backoff is such as {\"base\":\"1m\",\"cap\":\"30m\"}. after lists what to\n" +
			"wait for, such as [{\"id\":\"17\"},{\"group\":\"g\",\"any\":true}]. The command adds jobs in batches of up to 1,000; each batch\n" +
			"is added as a whole or not at all.",
		Example: "  SELF enqueue welcome '{\"name\":\"Ada\"}'\n" +
			"  SELF enqueue report --queue slow --delay 1h --unique-key report-17\n" +
			"  SELF enqueue summary --after 17 --after 18\n" +
			"  SELF enqueue --lines jobs.jsonl --request-key import-17",
		Args: takes(0, 2, ""),
	}
	o.flags(cmd)
	a.noMigrate(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("lines") {
			return a.enqueueLines(cmd, o, args)
		}
		req, err := o.request(a, args)
		if err != nil {
			return err
		}
		return a.using(cmd.Context(), toFill, func(s jq.Store) error {
			added, err := enqueueRetrying(cmd.Context(), s, req)
			switch {
			case err != nil:
				return fieldError(err)
			case o.asJSON:
				return wire.Encode(a.out, added[0])
			}
			_, err = fmt.Fprintln(a.out, printable(enqueuedText(added[0], req.Jobs[0])))
			return err
		})
	}
	return cmd
}

const exampleTime = "2026-12-31T23:59:00Z"

func (o *order) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	o.jobFlags(f)
	f.BoolVar(&o.job.Replace, "replace", false, "if a waiting job of this queue, kind and limit key holds the unique key, give it this payload,\npriority and due time")
	f.StringVar(&o.runAt, "run-at", "", "`TIME` when the job is due, such as "+exampleTime)
	f.StringVar(&o.expiresAt, "expires-at", "", "`TIME` from when on nobody may start the job: it is cancelled")
	f.StringArrayVar(&o.after, "after", nil, "wait until job `ID` has succeeded; may be repeated")
	f.StringArrayVar(&o.afterAny, "after-any", nil, "wait until job `ID` has ended in whatever way; may be repeated")
	f.StringArrayVar(&o.groups, "after-group", nil, "wait until all jobs of the group `NAME` have succeeded; may be repeated")
	f.StringArrayVar(&o.groupsAny, "after-any-group", nil, "wait until all jobs of the group `NAME` have ended in whatever way; may be repeated")
	f.StringVar(&o.job.Group, "group", "", "`NAME` of the group that the job is in")
	f.StringArrayVar(&o.open, "open", nil, "open the group `NAME`, for which nothing goes on before flows seal; may be repeated")
	f.StringVar(&o.requestKey, "request-key", "", "idempotency `KEY`: repeating the command with the same key within a day adds nothing twice")
	f.StringVar(&o.lines, "lines", "", "add one job for each JSON line of `FILE`, or of standard input if it is -; --queue,\n--max-retries, --backoff and --backoff-cap then apply to lines that do not set their own")
	f.BoolVar(&o.asJSON, "json", false, "print JSON; with --lines, one line for each job")
}

// jobFlags adds the flags of a job, whoever enqueues it.
func (o *order) jobFlags(f *pflag.FlagSet) {
	f.StringVar(&o.job.Queue, "queue", jq.DefaultQueue, "`QUEUE` to add the job to")
	f.IntVar(&o.job.Priority, "priority", 0, "priority from -9 to 9; higher values run first")
	f.DurationVar(&o.job.Delay, "delay", 0, "how long to wait before the job is due, such as 90s or 1h30m")
	f.IntVar(&o.job.MaxRetries, "max-retries", jq.DefaultMaxRetries, "maximum number of retries after the first run")
	f.DurationVar(&o.job.Backoff.Base, "backoff", jq.DefaultBackoff.Base, "pause before the first retry, such as 1m; it doubles with each further retry")
	f.DurationVar(&o.job.Backoff.Cap, "backoff-cap", jq.DefaultBackoff.Cap, "longest pause before a retry; each pause is up to 10 % shorter, at random")
	f.DurationVar(&o.job.Timeout, "timeout", 0, "maximum time of one run; 0 means the worker's default")
	f.StringVar(&o.job.UniqueKey, "unique-key", "", "unique `KEY`: until this job finishes, no second job with the same key is added")
	f.DurationVar(&o.job.UniqueFor, "unique-for", 0, "hold the unique key for this long, instead of until the job finishes")
	f.StringVar(&o.job.LimitKey, "limit-key", "", "limit `KEY`, such as a customer: see queues set --max-per-key")
	f.StringArrayVar(&o.job.Tags, "tag", nil, "`TAG` to find the job by; may be repeated")
}

// request returns the request for the job on the command line. It checks the job before the store is opened, so that an invalid
// job does not create a store.
func (o *order) request(a *app, args []string) (jq.EnqueueRequest, error) {
	if len(args) == 0 {
		return jq.EnqueueRequest{}, misuse("missing argument: the kind of the job")
	}
	n := o.job
	n.Kind, n.Payload = args[0], []byte("null")
	if len(args) == 2 {
		n.Payload = []byte(args[1])
	}
	var err error
	if n.RunAt, err = timeOf("--run-at", o.runAt); err != nil {
		return jq.EnqueueRequest{}, err
	}
	if n.ExpiresAt, err = timeOf("--expires-at", o.expiresAt); err != nil {
		return jq.EnqueueRequest{}, err
	}
	if n.After, err = o.waits(); err != nil {
		return jq.EnqueueRequest{}, err
	}
	if string(n.Payload) == "-" {
		doc, err := readAtMost(a.in, contract.MaxDocBytes)
		if err != nil {
			return jq.EnqueueRequest{}, fmt.Errorf("reading the payload from standard input: %w", err)
		}
		n.Payload = doc
	}
	if !json.Valid(n.Payload) {
		return jq.EnqueueRequest{}, usageError{badPayload(n.Payload)}
	}
	req := jq.EnqueueRequest{Jobs: []jq.NewJob{n}, Open: o.open, RequestKey: o.requestKey}
	if err := req.Check(); err != nil {
		return req, usageError{fieldError(err)}
	}
	return req, nil
}

// waits returns what the job waits for.
func (o *order) waits() ([]jq.Wait, error) {
	var waits []jq.Wait
	for _, flag := range []struct {
		name string
		ids  []string
		any  bool
	}{{"--after", o.after, false}, {"--after-any", o.afterAny, true}} {
		ids, err := parseIDs(flag.ids)
		if err != nil {
			return nil, misuse("%s: %w", flag.name, err)
		}
		for _, id := range ids {
			waits = append(waits, jq.Wait{ID: id, Any: flag.any})
		}
	}
	for _, flag := range []struct {
		name  string
		names []string
		any   bool
	}{{"--after-group", o.groups, false}, {"--after-any-group", o.groupsAny, true}} {
		for _, name := range flag.names {
			if name == "" {
				return nil, misuse("%s: want the name of a group", flag.name)
			}
			waits = append(waits, jq.Wait{Group: name, Any: flag.any})
		}
	}
	return waits, nil
}

// timeOf returns the time of a flag, or the zero time if the flag is not set.
func timeOf(flag, text string) (at time.Time, err error) {
	if text == "" {
		return at, nil
	}
	if at, err = time.Parse(time.RFC3339, text); err != nil {
		return at, misuse("%s %s: want a time such as %s", flag, text, exampleTime)
	}
	return at, nil
}

// badPayload returns an error that explains how to quote JSON in a shell.
func badPayload(doc []byte) error {
	switch {
	case len(doc) == 0:
		return errors.New("the payload is empty: omit it, or give a JSON document")
	case doc[0] == '{' || doc[0] == '[' || doc[0] == '"':
		return errors.New("the payload is not JSON: put it in single quotes, such as '{\"name\":\"Ada\"}'")
	default:
		return errors.New("the payload is not JSON: put a string in double quotes inside single quotes, such as '\"Ada\"'")
	}
}

// fieldError returns an error that names the invalid field of a job.
func fieldError(err error) error {
	if invalid, ok := errors.AsType[*jq.InvalidError](err); ok {
		return fmt.Errorf("%s %s", invalid.Field, invalid.Rule)
	}
	return err
}

// enqueuedText describes the answer for a job.
func enqueuedText(e jq.Enqueued, n jq.NewJob) string {
	switch {
	case e.Replaced:
		return fmt.Sprintf("added nothing: job %d, which is %s and holds the unique key %s, was replaced", e.ID, e.State, n.UniqueKey)
	case e.Duplicate && e.State == "":
		return fmt.Sprintf("added nothing: job %d, which was removed, still holds the unique key %s", e.ID, n.UniqueKey)
	case e.Duplicate:
		return fmt.Sprintf("added nothing: job %d, which is %s, holds the unique key %s", e.ID, e.State, n.UniqueKey)
	}
	text := fmt.Sprintf("added job %d to queue %s", e.ID, n.Queue)
	switch e.State {
	case jq.Blocked:
		text += "; it is blocked, because it waits for other jobs"
	case jq.Cancelled:
		text += "; it is cancelled, because what it needs was cancelled"
	}
	return text
}

const (
	maxRepeats  = 6
	firstRepeat = 100 * time.Millisecond    // doubles each time: six seconds in total
	repeatFor   = sqlite.DefaultBusyTimeout // do not repeat a call that already waited this long for another process
)

// enqueueRetrying enqueues, and repeats the call while the store is unavailable. If an answer was lost, it repeats the call only
// with a request key, because without one it could add the jobs twice.
func enqueueRetrying(ctx context.Context, s jq.Store, req jq.EnqueueRequest) ([]jq.Enqueued, error) {
	pause, begin := firstRepeat, time.Now()
	for tries := 1; ; tries++ {
		added, err := s.Enqueue(ctx, req)
		lost := errors.Is(err, jq.ErrInDoubt)
		switch {
		case err == nil:
			return added, nil
		case tries > maxRepeats, time.Since(begin) >= repeatFor, ctx.Err() != nil, !lost && !errors.Is(err, jq.ErrUnavailable):
			return nil, err
		case lost && req.RequestKey == "":
			return nil, fmt.Errorf("%w: check jobs ls before you repeat the command, or use --request-key", err)
		}
		if err := wait(ctx, pause); err != nil {
			return nil, err
		}
		pause *= 2
	}
}

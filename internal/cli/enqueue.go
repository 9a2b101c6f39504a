package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/wire"
	"github.com/seed-ed332417/jq/sqlite"
)

// An order is what enqueue was asked for.
type order struct {
	job        jq.NewJob
	runAt      string
	requestKey string
	lines      string
	asJSON     bool
}

func (a *app) enqueue() *cobra.Command {
	o := order{job: jq.NewJob{Backoff: jq.DefaultBackoff}}
	cmd := &cobra.Command{
		Use:   "enqueue KIND [PAYLOAD]",
		Short: "add one job, or many from JSON lines",
		Long: "Add a job. The payload is a JSON document; - reads it from stdin, and without one it is null.\n\n" +
			"With --lines add a job for each line of a file, or of stdin with --lines -. A line is a JSON object with kind and, if\n" +
			"wanted, payload, queue, priority, tags, run_at or delay, max_retries, timeout, unique_key, unique_for. Jobs are added\n" +
			"up to 1,000 at a time, all or none of these.",
		Example: "  SELF enqueue welcome '{\"name\":\"Ada\"}'\n" +
			"  SELF enqueue report --queue slow --delay 1h --unique-key report-17\n" +
			"  SELF enqueue --lines jobs.jsonl --request-key import-17",
		Args: takes(0, 2, ""),
	}
	o.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("lines") {
			return a.enqueueLines(cmd, o, args)
		}
		req, err := o.request(a, args)
		if err != nil {
			return err
		}
		return a.using(cmd.Context(), toFill, func(s jq.Store) error {
			added, err := surely(cmd.Context(), s, req)
			switch {
			case err != nil:
				return flawOf(err)
			case o.asJSON:
				return wire.Encode(a.out, wire.EnqueuedOf(added).Jobs[0])
			}
			_, err = fmt.Fprintln(a.out, printable(toldOf(added[0], req.Jobs[0])))
			return err
		})
	}
	return cmd
}

const aTime = "2026-12-31T23:59:00Z"

func (o *order) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.job.Queue, "queue", jq.DefaultQueue, "where the job waits")
	f.IntVar(&o.job.Priority, "priority", 0, "-9 to 9, the higher goes first")
	f.DurationVar(&o.job.Delay, "delay", 0, "due so much later: 90s, 1h30m")
	f.StringVar(&o.runAt, "run-at", "", "due at this `TIME`: "+aTime)
	f.IntVar(&o.job.MaxRetries, "max-retries", jq.DefaultMaxRetries, "how many runs may follow the first")
	f.DurationVar(&o.job.Timeout, "timeout", 0, "how long a run may take; 0 leaves that to the worker")
	f.StringVar(&o.job.UniqueKey, "unique-key", "", "no second job with this `KEY` while this one is live,")
	f.DurationVar(&o.job.UniqueFor, "unique-for", 0, "or for so long")
	f.StringArrayVar(&o.job.Tags, "tag", nil, "a `TAG` for people and filters; may be repeated")
	f.StringVar(&o.requestKey, "request-key", "", "makes the command safe to repeat for a day, under the same `KEY`")
	f.StringVar(&o.lines, "lines", "", "add a job for each JSON line of this `FILE`, or of stdin if it is -; --queue and\n--max-retries are then for lines without their own")
	f.BoolVar(&o.asJSON, "json", false, "the answer as JSON; with --lines a line for each job")
}

// request is the job of the command line. It is checked before there is a store, so that nonsense makes none.
func (o *order) request(a *app, args []string) (jq.EnqueueRequest, error) {
	if len(args) == 0 {
		return jq.EnqueueRequest{}, misuse("name the kind of the job")
	}
	n := o.job
	n.Kind, n.Payload = args[0], []byte("null")
	if len(args) == 2 {
		n.Payload = []byte(args[1])
	}
	if o.runAt != "" {
		at, err := time.Parse(time.RFC3339, o.runAt)
		if err != nil {
			return jq.EnqueueRequest{}, misuse("--run-at %s is no time: want one such as %s", o.runAt, aTime)
		}
		n.RunAt = at
	}
	if string(n.Payload) == "-" {
		doc, err := readAtMost(a.in, contract.MaxDocBytes)
		if err != nil {
			return jq.EnqueueRequest{}, fmt.Errorf("reading the payload from stdin: %w", err)
		}
		n.Payload = doc
	}
	if !json.Valid(n.Payload) {
		return jq.EnqueueRequest{}, usageError{badPayload(n.Payload)}
	}
	req := jq.EnqueueRequest{Jobs: []jq.NewJob{n}, RequestKey: o.requestKey}
	if err := req.Check(); err != nil {
		return req, usageError{flawOf(err)}
	}
	return req, nil
}

// badPayload helps with what a shell makes of quotes.
func badPayload(doc []byte) error {
	switch {
	case len(doc) == 0:
		return errors.New("the payload is empty: leave it out, or write a JSON document")
	case doc[0] == '{' || doc[0] == '[' || doc[0] == '"':
		return errors.New("the payload is no JSON: put it in single quotes, as '{\"name\":\"Ada\"}'")
	default:
		return errors.New("the payload is no JSON: a text stands in double quotes within single ones, as '\"Ada\"'")
	}
}

// flawOf names what is wrong with a request of one job.
func flawOf(err error) error {
	if invalid, ok := errors.AsType[*jq.InvalidError](err); ok {
		return fmt.Errorf("%s %s", invalid.Field, invalid.Rule)
	}
	return err
}

// toldOf is what became of the job, in words.
func toldOf(e jq.Enqueued, n jq.NewJob) string {
	switch {
	case e.Duplicate && e.State == "":
		return fmt.Sprintf("added nothing: job %d, which is no longer there, holds the unique key %s", e.ID, n.UniqueKey)
	case e.Duplicate:
		return fmt.Sprintf("added nothing: job %d, which is %s, holds the unique key %s", e.ID, e.State, n.UniqueKey)
	default:
		return fmt.Sprintf("added job %d to queue %s", e.ID, n.Queue)
	}
}

const (
	repeats     = 6
	firstRepeat = 100 * time.Millisecond    // doubled each time: six seconds in all
	repeatFor   = sqlite.DefaultBusyTimeout // a try that has waited for another process is the last: nobody waits twice
)

// surely enqueues, and repeats what the store could not serve. Where the answer was lost it repeats only under a request key,
// for without one the jobs might be added twice.
func surely(ctx context.Context, s jq.Store, req jq.EnqueueRequest) ([]jq.Enqueued, error) {
	pause, begin := firstRepeat, time.Now()
	for tries := 1; ; tries++ {
		added, err := s.Enqueue(ctx, req)
		lost := errors.Is(err, jq.ErrInDoubt)
		switch {
		case err == nil:
			return added, nil
		case tries > repeats, time.Since(begin) >= repeatFor, ctx.Err() != nil, !lost && !errors.Is(err, jq.ErrUnavailable):
			return nil, err
		case lost && req.RequestKey == "":
			return nil, fmt.Errorf("%w: look at jobs ls before you repeat it, or use --request-key", err)
		}
		if err := wait(ctx, pause); err != nil {
			return nil, err
		}
		pause *= 2
	}
}

package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/wire"
)

// exported is one line of an export.
type exported struct {
	wire.Job
	History    []jq.Attempt `json:"history,omitempty"`
	Waits      []jq.Waiting `json:"waits,omitempty"`
	ExportedAt wire.Time    `json:"exported_at"`     // in the store's time
	Phase      jq.State     `json:"phase,omitempty"` // in lines of jobs show, which an import also takes
}

func (a *app) jobsExport() *cobra.Command {
	var chosen filterFlags
	var history bool
	cmd := &cobra.Command{
		Use:   "export",
		Short: "write jobs as JSON lines, for an archive or another store",
		Long: "Write jobs as JSON lines, oldest first. A line holds everything the store knows about a job, in the form of\n" +
			"jobs show --json. Without a filter, the command exports all jobs. It leaves out jobs that are enqueued during the export,\n" +
			"and the pauses and policies of queues; it names the queues that have any.\n\n" +
			"To move jobs to another store, stop the workers first, and then import the lines there. Jobs that workers continue here\n" +
			"would run twice. An import leaves out blocked jobs.",
		Args:    takesNone(),
		Example: "  SELF jobs export > jobs.jsonl\n  SELF jobs import jobs.jsonl --store postgres://user@host/database",
	}
	chosen.add(cmd)
	cmd.Flags().BoolVar(&history, "history", false, "include the attempts of each job, and the jobs that it has waited for")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		filter, err := chosen.filter()
		if err != nil {
			return err
		}
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			e := export{app: a, store: s, history: history, bar: a.progress()}
			defer e.bar.end()
			return e.run(cmd.Context(), filter)
		})
	}
	return cmd
}

// An export writes the jobs of a store, oldest first, so that an import keeps their order. Listings return the newest job first,
// so the export collects all ids before it writes.
type export struct {
	app     *app
	store   jq.Store
	history bool
	bar     *progress

	at      time.Time
	written int64
	running int64
	blocked int64
}

// exportedAtOnce is the number of jobs to read at once. Each may be up to four MiB.
const exportedAtOnce = 100

func (e *export) run(ctx context.Context, filter jq.Filter) error {
	counts, err := e.store.Count(ctx, jq.Filter{IDs: []int64{1}}) // only for the store's time
	if err != nil {
		return err
	}
	e.at = counts.Now
	var ids []int64
	for job, err := range jq.NewClient(e.store, nil).Jobs(ctx, filter) {
		if err != nil {
			return err
		}
		ids = append(ids, job.ID)
	}
	if redacted(e.store) {
		return errors.New("your token may not read payloads, which an export needs: use the token of an operator")
	}
	slices.Reverse(ids)
	for some := range slices.Chunk(ids, exportedAtOnce) {
		if err := e.write(ctx, filter, some); err != nil {
			return err
		}
		e.bar.show(e.written, int64(len(ids)), "%s exported", plural(e.written))
	}
	e.bar.end()
	fmt.Fprintf(e.app.std.err, "exported %s\n", plural(e.written))
	if e.running > 0 {
		fmt.Fprintf(e.app.std.err, "%s in flight: stop the workers before you import the lines\n", plural(e.running))
	}
	if e.blocked > 0 {
		fmt.Fprintf(e.app.std.err, "%s blocked: an import leaves out jobs that wait for others\n", plural(e.blocked))
	}
	return e.reportSettings(ctx, filter.Queue)
}

// redacted reports whether the server left out the documents of jobs.
func redacted(s jq.Store) bool {
	r, ok := s.(interface{ Redacted() bool })
	return ok && r.Redacted()
}

// reportSettings prints the pauses and policies of the queue, or of all queues, because the export does not contain them.
func (e *export) reportSettings(ctx context.Context, queue string) error {
	queues, err := jq.NewClient(e.store, nil).Queues(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	for _, q := range queues {
		if queue != "" && q.Name != queue {
			continue
		}
		name := printable(q.Name)
		if q.Paused {
			fmt.Fprintf(e.app.std.err, "queue %s is paused, which the export does not contain: pause it in the other store before you start workers\n", name)
		}
		if q.Policy.Sets() {
			fmt.Fprintf(e.app.std.err, "queue %s has a policy, which the export does not contain: set it in the other store (queues set)\n", name)
		}
	}
	return err
}

// write writes the jobs with these ids that still match.
func (e *export) write(ctx context.Context, filter jq.Filter, ids []int64) error {
	filter.IDs = ids
	var found []jq.Job
	for job, err := range jq.NewClient(e.store, nil).Jobs(ctx, filter) {
		if err != nil {
			return err
		}
		found = append(found, job)
	}
	for _, job := range slices.Backward(found) {
		line, err := e.line(ctx, job)
		if errors.Is(err, jq.ErrNotFound) {
			continue // removed during the export
		}
		if err == nil {
			err = wire.Encode(e.app.out, line)
		}
		if err != nil {
			return err
		}
		e.written++
		switch line.Job.State {
		case jq.InFlight:
			e.running++
		case jq.Blocked:
			e.blocked++
		}
	}
	return nil
}

// line returns the line of a job. That of a blocked job has its waits: an import by a version that does not know them then fails,
// instead of running the job at once.
func (e *export) line(ctx context.Context, job jq.Job) (exported, error) {
	line := exported{Job: wire.JobOf(job), ExportedAt: wire.Time{Time: e.at}}
	if !e.history && job.State != jq.Blocked {
		return line, nil
	}
	detail, err := e.store.Get(ctx, job.ID)
	if err != nil {
		return line, err
	}
	whole := wire.DetailOf(detail)
	line.Job, line.Waits = whole.JobJSON, whole.Waits
	if e.history {
		line.History = whole.History
	}
	return line, nil
}

func (a *app) jobsImport() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "enqueue the unfinished jobs of an export",
		Long: "Enqueue the jobs of an export that are ready, retrying or in flight, in the same order; - reads the export from standard\n" +
			"input. The jobs get new ids. They keep queue, kind, payload, priority, tags, trace, due time, backoff, timeout and\n" +
			"remaining retries. They also keep the time when they expire, and their unique keys: until they finish, or for the rest of\n" +
			"their window.\n\n" +
			"The command does not import finished and expired jobs, past attempts, leases, checkpoints, progress and latest errors. It also\n" +
			"does not import blocked jobs: the jobs that they wait for have other ids in this store. It prints how many jobs had finished, were\n" +
			"blocked, were in flight, or had a checkpoint. Jobs with a checkpoint start from the beginning. The command also does not import\n" +
			"pauses and policies of queues, request keys, and unique keys whose window outlasts a finished job. Set pauses and policies\n" +
			"before you start workers.\n\n" +
			"You can repeat the command: within a day, the same lines add nothing twice.",
		Args: takes(1, 1, "a file written by jobs export, or - for standard input"),
	}
	cmd.Flags().StringVar(&key, "request-key", "", "idempotency `KEY`; give another one to import the same lines again")
	a.noMigrate(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		from, size, err := a.openLines(args[0])
		if err != nil {
			return err
		}
		defer func() { _ = from.Close() }()
		return a.using(cmd.Context(), toFill, func(s jq.Store) error {
			l, i := a.importing(s, key, size)
			defer l.bar.end()
			if err := l.run(cmd.Context(), from); err != nil {
				return err
			}
			return i.printLeftOut(a.out)
		})
	}
	return cmd
}

// importing returns a load of an export's lines into the store. Without a key of the caller's, the lines give the calls their keys.
func (a *app) importing(s jq.Store, key string, size int64) (*load, *imported) {
	i := &imported{lines: sha256.New()}
	l := newLoad(a, s, order{requestKey: key}, size)
	l.parse, l.longest, l.expired = i.parse, longestExported, &i.expired
	if key == "" {
		l.keyOf, l.again = i.key, ""
	}
	return l, i
}

// longestExported is the maximum length of a line: four documents and a hundred errors, with every byte escaped.
const longestExported = 64 << 20

// imported counts what an import has read.
type imported struct {
	lines       hash.Hash // hash of all lines so far
	finished    int64
	blocked     int64
	running     int64
	checkpoints int64
	expired     int64
}

// errLeftOut means that the job of a line is not imported: it has finished or expired, or is blocked.
var errLeftOut = errors.New("the job is left out")

// parse parses a line. The result depends only on the line, so a repeated import sends identical requests. What has expired since
// the export, the store says.
func (i *imported) parse(line []byte) (jq.NewJob, error) {
	var e exported
	if err := wire.Decode(line, &e); err != nil {
		return jq.NewJob{}, fmt.Errorf("%s", strings.TrimPrefix(fieldError(err).Error(), "body "))
	}
	j := e.Job.Store()
	if j.State == "" {
		return jq.NewJob{}, errors.New("state is missing: want a line written by jobs export; to add new jobs, use enqueue --lines")
	}
	_, _ = i.lines.Write(line) // a hash never fails
	if j.Terminal() {
		i.finished++
		return jq.NewJob{}, errLeftOut
	}
	if j.State == jq.Blocked { // without its waits, it would run at once
		i.blocked++
		return jq.NewJob{}, errLeftOut
	}
	n := unfinishedJob(j, e.ExportedAt.Time)
	if !n.ExpiresAt.IsZero() && !n.ExpiresAt.After(n.RunAt) {
		i.expired++
		return jq.NewJob{}, errLeftOut
	}
	if j.State == jq.InFlight {
		i.running++
	}
	if len(j.Checkpoint) > 0 {
		i.checkpoints++
	}
	return n, nil
}

// unfinishedJob returns the new job to enqueue for an unfinished one.
func unfinishedJob(j jq.Job, at time.Time) jq.NewJob {
	n := jq.NewJob{
		Queue: j.Queue, Kind: j.Kind, Payload: j.Payload, Priority: j.Priority, Tags: j.Tags, Trace: j.Trace, RunAt: j.RunAt, ExpiresAt: j.ExpiresAt(),
		MaxRetries: max(j.MaxRetries-j.Retries, 0), Backoff: j.Backoff, Timeout: j.Timeout, UniqueKey: j.UniqueKey,
		LimitKey: j.LimitKey(),
	}
	if j.Phase() == jq.Retrying {
		n.RunAt = j.RetryAt
	}
	if n.UniqueFor = j.UniqueFor; n.UniqueFor > 0 && !at.IsZero() {
		n.UniqueFor = j.EnqueuedAt.Add(j.UniqueFor).Sub(at)
	}
	if j.UniqueFor > 0 && n.UniqueFor <= 0 { // the window has ended, and another job may hold the key
		n.UniqueKey, n.UniqueFor = "", 0
	}
	return n
}

// key returns the request key of a call, from a hash of all lines so far. The hash already includes the line that did not fit
// into this call. If that line is the last one, its own call has the same hash and differs only by its number.
func (i *imported) key(call int) string {
	return fmt.Sprintf("import/%x/%d", i.lines.Sum(nil)[:16], call)
}

func (i *imported) printLeftOut(out io.Writer) error {
	for _, line := range []struct {
		n    int64
		text string
	}{
		{i.running, "in flight at the export, ready now"},
		{i.checkpoints, "with a checkpoint, which was not imported: they start from the beginning"},
		{i.finished, "finished, not imported"},
		{i.blocked, "blocked, not imported: the jobs that they wait for have other ids now"},
		{i.expired, "expired, not imported"},
	} {
		if line.n > 0 {
			if _, err := fmt.Fprintf(out, "%s: %s\n", plural(line.n), line.text); err != nil {
				return err
			}
		}
	}
	return nil
}

package cli

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/wire"
)

// A listing holds the flags of jobs ls.
type listing struct {
	filterFlags
	limit  int
	all    bool
	asJSON bool
}

// phaseHelp is a part of the help of jobs ls and jobs show.
const phaseHelp = "In JSON, state is what the store keeps and HTTP answers: a retrying job and a dead job are both failed. phase tells them apart\n" +
	"and is otherwise the same as state. To count dead jobs, use stats --json."

func (a *app) jobsLs() *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "list jobs, newest first",
		Long:  "List jobs, newest first.\n\n" + phaseHelp,
		Args:  takesNone(),
		Example: "  SELF jobs ls --state dead\n" +
			"  SELF jobs ls --queue mail --state retrying --all --json",
	}
	l.add(cmd)
	cmd.Flags().StringVar(&l.worker, "worker", "", "only jobs that `WORKER` claimed last")
	cmd.Flags().IntVar(&l.limit, "limit", 50, "maximum number of jobs to list")
	cmd.Flags().BoolVar(&l.all, "all", false, "list all matching jobs, without a limit")
	cmd.Flags().BoolVar(&l.asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if l.limit < 1 {
			return misuse("--limit must be at least 1; use --all for no limit")
		}
		filter, err := l.filter()
		if err != nil {
			return err
		}
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			return a.list(cmd, s, filter, l)
		})
	}
	return cmd
}

// list prints each job as it is read, so memory does not limit the number of jobs.
func (a *app) list(cmd *cobra.Command, s jq.Store, filter jq.Filter, l listing) error {
	show := a.tableOfJobs()
	if l.asJSON {
		show = a.arrayOfJobs()
	}
	shown := 0
	for job, err := range jq.NewClient(s, nil).Jobs(cmd.Context(), filter) {
		if err != nil {
			return err
		}
		if !l.all && shown == l.limit {
			fmt.Fprintf(a.std.err, "more than %d jobs match: use --limit or --all to list the others\n", shown)
			break
		}
		if err := show(&job); err != nil {
			return err
		}
		shown++
	}
	return show(nil)
}

// linesAligned is the number of table lines that are aligned together.
const linesAligned = 1000

// tableOfJobs returns a function that prints one job. Call it with nil after the last job. The table has a column of limit keys from the lines on
// among which one has a key.
func (a *app) tableOfJobs() func(*jq.Job) error {
	t := tableOfJobs{out: a.out}
	return func(j *jq.Job) error {
		if j != nil {
			t.add(j)
		}
		if j == nil || len(t.lines) == linesAligned {
			return t.flush(j == nil)
		}
		return nil
	}
}

type tableOfJobs struct {
	out           io.Writer
	lines         [][]any // those that are not printed yet
	keyed, headed bool    // one of the jobs had a limit key; a head with that column was printed
	printed       bool    // there were lines before these
}

// keyColumn is where the limit keys stand, if they are shown.
const keyColumn = 4

func (t *tableOfJobs) add(j *jq.Job) {
	t.keyed = t.keyed || j.LimitKey() != ""
	t.lines = append(t.lines, []any{j.ID, j.Phase(), j.Queue, j.Kind, j.LimitKey(), j.Attempts, moment(j.EnqueuedAt), when(*j), cut(j.Error, 60)})
}

func (t *tableOfJobs) flush(last bool) error {
	if last && len(t.lines) == 0 && !t.printed {
		_, err := fmt.Fprintln(t.out, "no jobs match")
		return err
	}
	table := newTable(t.out)
	if len(t.lines) > 0 && (!t.printed || t.keyed && !t.headed) {
		t.headed = t.keyed
		t.row(table, []any{"job", "state", "queue", "kind", "limit key", "attempts", "enqueued", "when", "error"})
	}
	for _, line := range t.lines {
		t.row(table, line)
	}
	t.lines, t.printed = t.lines[:0], true
	return table.Flush()
}

func (t *tableOfJobs) row(table io.Writer, cells []any) {
	if !t.keyed {
		cells = slices.Delete(cells, keyColumn, keyColumn+1)
	}
	row(table, cells...)
}

// when returns the time of the job's next event, or when it finished.
func when(j jq.Job) string {
	switch at := moment(j.Next()); j.Phase() {
	case jq.InFlight:
		return "leased until " + at
	case jq.Blocked, jq.Ready, jq.Retrying:
		switch {
		case contract.ExpiredOf(&j, time.Now()):
			return "expired " + moment(j.ExpiresAt()) // a server cancels it at its next recovery
		case j.State == jq.Blocked:
			return "waits for other jobs"
		}
		return "due " + at
	default:
		return "finished " + moment(j.FinishedAt)
	}
}

// arrayOfJobs returns a function that writes one job of a JSON document. Call it with nil after the last job.
func (a *app) arrayOfJobs() func(*jq.Job) error {
	before := `{"jobs":[` + "\n"
	return func(j *jq.Job) error {
		if j == nil {
			if before != ",\n" {
				fmt.Fprint(a.out, `{"jobs":[`)
			}
			_, err := fmt.Fprintln(a.out, "\n]}")
			return err
		}
		text, err := wire.Marshal(struct {
			wire.Job
			Phase jq.State `json:"phase"`
		}{wire.JobOf(*j), j.Phase()})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.out, "%s%s", before, text)
		before = ",\n"
		return err
	}
}

func took(from, to time.Time) string {
	if to.IsZero() {
		return ""
	}
	return span(to.Sub(from))
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/doctor"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *app) jobsShow() *cobra.Command {
	var asJSON bool
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "show a job with its payload, result and attempts",
		Long: "Show a job with its payload, result and attempts.\n\n" +
			"For a due job, it also says what holds it back: its queue is paused or full, its limit key has no room, or an earlier job of its key\n" +
			"goes first in an ordered queue.\n\n" +
			"With --wait, the command first waits until the job has succeeded, is dead or is cancelled, and exits with 0 whichever it is.\n" +
			"If the job goes on for longer, the command shows it as it is then, and exits with 1.\n\n" + phaseHelp,
		Args: takes(1, 1, "the id of a job"),
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait up to `TIME` for the end of the job, such as 30s")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := parseIDs(args)
		if err != nil {
			return err
		}
		if wait < 0 {
			return misuse("--wait %v: want more than nothing", wait)
		}
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			job, err := getAfter(cmd.Context(), s, ids[0], wait)
			if errors.Is(err, jq.ErrNotFound) {
				return fmt.Errorf("job %d not found", ids[0])
			} else if err != nil {
				return err
			}
			if err := a.show(cmd.Context(), s, job, asJSON); err != nil {
				return err
			}
			if wait > 0 && !job.Terminal() {
				return fmt.Errorf("job %d has not ended within %v", job.ID, wait)
			}
			return nil
		})
	}
	return cmd
}

// getAfter returns the job once it has ended, or as it is after the wait.
func getAfter(ctx context.Context, s jq.Store, id int64, wait time.Duration) (jq.JobDetail, error) {
	if wait > 0 {
		waiting, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		job, err := jq.NewClient(s, nil).Wait(waiting, id)
		if waiting.Err() == nil || err == nil {
			return job, err
		}
	}
	return s.Get(ctx, id)
}

func (a *app) show(ctx context.Context, s jq.Store, job jq.JobDetail, asJSON bool) error {
	if asJSON {
		detail := wire.DetailOf(job)
		detail.Redacted = redacted(s)
		return wire.Encode(a.out, struct {
			wire.JobDetail
			Phase jq.State `json:"phase"`
		}{detail, job.Phase()})
	}
	reasons, unknown := doctor.HeldBack(ctx, s, job.Job)
	if err := a.showJob(job.Job); err != nil {
		return err
	}
	a.showWaits(job)
	a.showReasons(reasons)
	if unknown != nil && !errors.Is(unknown, jq.ErrDenied) { // a producer sees a job, but neither the others nor their queue
		fmt.Fprintf(a.std.err, "it is not known whether something holds the job back: %s\n", printable(unknown.Error()))
	}
	a.showDocuments(job.Job)
	if redacted(s) {
		fmt.Fprintln(a.std.err, "the role of your token does not allow you to read payloads, checkpoints and lease tokens")
	}
	return a.showHistory(job)
}

func (a *app) showJob(j jq.Job) error {
	fmt.Fprintf(a.out, "job %d: %s\n", j.ID, j.Phase())
	table := newTable(a.out)
	line := func(name string, value any, shown bool) {
		if shown {
			row(table, "  "+name, value)
		}
	}
	line("queue", j.Queue, true)
	line("kind", j.Kind, true)
	line("priority", j.Priority, j.Priority != 0)
	line("tags", strings.Join(j.Tags, ", "), len(j.Tags) > 0)
	line("unique key", j.UniqueKey, j.UniqueKey != "")
	line("unique for", span(j.UniqueFor), j.UniqueFor != 0)
	line("group", j.Group(), j.Group() != "")
	line("limit key", j.LimitKey(), j.LimitKey() != "")
	line("enqueued", moment(j.EnqueuedAt), true)
	line("expires", moment(j.ExpiresAt()), !j.ExpiresAt().IsZero())
	if by := j.Scheduled(); by != nil {
		line("schedule", fmt.Sprintf("%s, for %s", by.Name, moment(by.For)), true)
	}
	line("when", when(j), true)
	line("attempts", j.Attempts, true)
	line("failures", fmt.Sprintf("%d (max retries %d)", j.Retries, j.MaxRetries), true)
	line("backoff", backoffOf(j.Backoff), true)
	line("timeout", span(j.Timeout), j.Timeout != 0)
	line("token", j.Token, j.Token != 0)
	line("worker", j.Worker, j.Worker != "")
	line("trace", j.Trace, j.Trace != "")
	return table.Flush()
}

func (a *app) showWaits(j jq.JobDetail) {
	if len(j.Waits) == 0 {
		return
	}
	fmt.Fprintln(a.out, "\nwaits for:")
	for _, w := range j.Waits {
		fmt.Fprintf(a.out, "  %s\n", printable(waitingText(w, j.State == jq.Blocked)))
	}
}

// showReasons says what holds back a due job.
func (a *app) showReasons(reasons []string) {
	if len(reasons) == 0 {
		return
	}
	fmt.Fprintln(a.out, "\nheld back:")
	for _, reason := range reasons {
		fmt.Fprintf(a.out, "  %s\n", printable(reason))
	}
}

// waitingText describes a wait. Only a blocked job can be held up.
func waitingText(w jq.Waiting, blocked bool) string {
	text := fmt.Sprintf("job %d", w.ID)
	phase := cmp.Or(string(w.State), "removed")
	if w.Group != "" {
		text = fmt.Sprintf("group %s", w.Group)
		phase = map[jq.State]string{
			jq.InFlight: "not done", jq.Dead: "has dead jobs", jq.Cancelled: "spoiled by a cancelled or removed job", jq.Succeeded: "done",
		}[w.State]
	}
	if w.Any {
		text += ", until it has ended"
	}
	switch {
	case w.Met:
		return fmt.Sprintf("%s: met (%s)", text, phase)
	case blocked && w.HoldsUp() && w.Group != "" && w.State == jq.Dead:
		return fmt.Sprintf("%s: %s; it holds this job up unless somebody requeues them", text, phase)
	case blocked && w.HoldsUp() && w.Group != "":
		return fmt.Sprintf("%s: %s; it holds this job up for ever", text, phase)
	case blocked && w.HoldsUp() && w.State != "":
		return fmt.Sprintf("%s: %s; it holds this job up unless somebody requeues it", text, phase)
	case blocked && w.HoldsUp():
		return fmt.Sprintf("%s: %s; it holds this job up for ever", text, phase)
	}
	return text + ": " + phase
}

func backoffOf(b jq.Backoff) string {
	text := fmt.Sprintf("%v, doubles up to %v", b.Base, b.Cap)
	if b.Jitter > 0 {
		text += fmt.Sprintf(", minus up to %d %% jitter", b.Jitter)
	}
	return text
}

func (a *app) showDocuments(j jq.Job) {
	for _, d := range []struct {
		name string
		doc  []byte
	}{
		{"payload", j.Payload}, {"checkpoint", j.Checkpoint}, {"progress", j.Progress}, {"result", j.Result},
	} {
		if len(d.doc) > 0 {
			fmt.Fprintf(a.out, "\n%s:\n  %s\n", d.name, a.document(d.doc))
		}
	}
	if j.Error != "" {
		fmt.Fprintf(a.out, "\nerror:\n%s", indented(j.Error))
	}
}

// indented indents each line of the text, such as a stack trace.
func indented(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		fmt.Fprintf(&out, "  %s\n", printable(strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\t", "    ")))
	}
	return out.String()
}

func (a *app) showHistory(j jq.JobDetail) error {
	if len(j.History) == 0 {
		_, err := fmt.Fprintln(a.out, "\nno attempts yet")
		return err
	}
	fmt.Fprintf(a.out, "\nattempts, oldest first:\n")
	if len(j.History) == contract.MaxAttemptsKept {
		fmt.Fprintf(a.out, "  (the store keeps only the latest %d)\n", contract.MaxAttemptsKept)
	}
	table := newTable(a.out)
	row(table, "  token", "worker", "from", "to", "took", "ending", "error")
	for _, at := range j.History {
		ending := cmp.Or(string(at.Ending), "running")
		token := "-" // the caller may not see it
		if at.Token != 0 {
			token = strconv.FormatInt(at.Token, 10)
		}
		row(table, "  "+token, at.Worker, moment(at.StartedAt), moment(at.EndedAt),
			took(at.StartedAt, at.EndedAt), ending, cut(at.Error, 80))
	}
	return table.Flush()
}

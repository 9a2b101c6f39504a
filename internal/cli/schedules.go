package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *app) schedules() *cobra.Command {
	return a.group("schedules", "enqueue jobs at the times of a cron expression",
		a.schedulesLs(), a.schedulesSet(),
		a.eachSchedule("pause", "stop schedules; the times in between are not made up for", (*jq.Client).PauseSchedule),
		a.eachSchedule("resume", "let paused schedules go on", (*jq.Client).ResumeSchedule),
		a.schedulesRun(),
		a.eachSchedule("reset", "compute the next times anew, after a clock was ahead", (*jq.Client).ResetSchedule),
		a.schedulesRm(), a.schedulesPreview())
}

func (a *app) schedulesLs() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "ls", Short: "list schedules with their next and their last time", Args: takesNone()}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			list, err := jq.NewClient(s, nil).Schedules(cmd.Context())
			if err != nil {
				return err
			}
			return a.showSchedules(list, asJSON)
		})
	}
	return cmd
}

// showSchedules prints a table, or JSON.
func (a *app) showSchedules(list []jq.Schedule, asJSON bool) error {
	if asJSON {
		return wire.Encode(a.out, struct {
			Schedules []jq.Schedule `json:"schedules"`
		}{wire.Listed(list)})
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(a.out, "there are no schedules; schedules set adds one")
		return err
	}
	table := newTable(a.out)
	row(table, "schedule", "expression", "zone", "queue", "kind", "next", "last", "last job")
	for _, s := range list {
		next, last, job := momentIn(s.NextAt, s.Timezone), "", ""
		if s.Paused {
			next = "paused"
		}
		if !s.LastAt.IsZero() {
			last, job = momentIn(s.LastAt, s.Timezone), fmt.Sprint(s.LastJob)
		}
		row(table, s.Name, s.Cron, zoneName(s.Timezone), s.Job.Queue, s.Job.Kind, next, last, job)
	}
	return table.Flush()
}

// momentIn formats a time as moment does, on the clock of the zone.
func momentIn(t time.Time, zone string) string {
	location, err := time.LoadLocation(zone)
	if err != nil || t.IsZero() {
		return moment(t)
	}
	return t.In(location).Truncate(time.Second).Format(time.RFC3339)
}

func zoneName(zone string) string {
	if zone == "" {
		return "UTC"
	}
	return zone
}

func (a *app) schedulesSet() *cobra.Command {
	o := order{job: jq.NewJob{Backoff: jq.DefaultBackoff}}
	var s jq.Schedule
	cmd := &cobra.Command{
		Use:   "set NAME CRON KIND [PAYLOAD]",
		Short: "add or replace a schedule",
		Long: "Add a schedule, or replace the one with the same name. CRON has five fields (minute, hour, day of month, month, day of week),\n" +
			"or six with the seconds first, or is @hourly, @daily, @weekly, @monthly, @yearly or @every and a duration. Every server of the\n" +
			"store enqueues the jobs; each time enqueues once. The payload is a JSON document; - reads it from standard input.",
		Example: "  SELF schedules set nightly '0 2 * * *' report --timezone Europe/Berlin\n" +
			"  SELF schedules set poll '@every 90s' poll '{\"feed\":7}' --overlap skip",
		Args: takes(3, 4, "a name, an expression and the kind of the job"),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&s.Timezone, "timezone", "", "`ZONE` in which the expression is read, such as Europe/Berlin; the default is UTC")
	f.StringVar((*string)(&s.CatchUp), "catch-up", string(jq.CatchUpOne), "what becomes of times while no server ran: `one` enqueues the latest of them,\nskip leaves out those more than a minute late")
	f.StringVar((*string)(&s.Overlap), "overlap", string(jq.OverlapAllow), "what to do while the previous job has not finished: `allow` or skip")
	f.BoolVar(&s.Paused, "paused", false, "keep the schedule from enqueueing until schedules resume")
	o.jobFlags(f)
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	a.noMigrate(f)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req, err := o.request(a, args[2:])
		if err != nil {
			return err
		}
		s.Name, s.Cron, s.Job = args[0], args[1], req.Jobs[0]
		if err := s.Check(); err != nil {
			return usageError{fieldError(err)}
		}
		if _, err := jq.PreviewSchedule(s.Cron, s.Timezone, time.Now(), 1); err != nil {
			return usageError{fieldError(err)}
		}
		return a.using(cmd.Context(), toFill, func(st jq.Store) error {
			kept, err := jq.NewClient(st, nil).PutSchedule(cmd.Context(), s)
			if err != nil {
				return fieldError(err)
			}
			return a.sayNext(kept, o.asJSON)
		})
	}
	return cmd
}

// sayNext prints what a schedule does next.
func (a *app) sayNext(s jq.Schedule, asJSON bool) error {
	text := fmt.Sprintf("schedule %s: next at %s", s.Name, momentIn(s.NextAt, s.Timezone))
	switch {
	case asJSON:
		return wire.Encode(a.out, s)
	case s.Paused:
		text = fmt.Sprintf("schedule %s: paused", s.Name)
	case s.NextAt.IsZero():
		text = fmt.Sprintf("schedule %s: no next time", s.Name)
	}
	_, err := fmt.Fprintln(a.out, printable(text))
	return err
}

// eachSchedule returns a command that changes schedules one by one.
func (a *app) eachSchedule(verb, short string, change func(*jq.Client, context.Context, string) (jq.Schedule, error)) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: verb + " NAME...", Short: short, Args: takesSchedules()}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one line for each schedule")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			for _, name := range names {
				kept, err := change(jq.NewClient(s, nil), cmd.Context(), name)
				if err != nil {
					return err
				}
				if err := a.sayNext(kept, asJSON); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return cmd
}

func (a *app) schedulesRun() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "run NAME...", Short: "enqueue the jobs of schedules now, in addition to their times", Args: takesSchedules()}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one line for each job")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			client := jq.NewClient(s, nil)
			for _, name := range names {
				one, err := client.Schedule(cmd.Context(), name)
				if err != nil {
					return err
				}
				added, err := client.RunSchedule(cmd.Context(), name)
				switch {
				case err != nil:
					return err
				case asJSON:
					err = wire.Encode(a.out, added)
				default:
					_, err = fmt.Fprintln(a.out, printable(enqueuedText(added, one.Job)))
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return cmd
}

func (a *app) schedulesRm() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME...", Short: "remove schedules; their jobs stay", Args: takesSchedules(),
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.using(cmd.Context(), toRead, func(s jq.Store) error {
				client := jq.NewClient(s, nil)
				for _, name := range names {
					if _, err := client.Schedule(cmd.Context(), name); err != nil { // a typing error must not pass for a removal
						return err
					}
					if err := client.DeleteSchedule(cmd.Context(), name); err != nil {
						return err
					}
					fmt.Fprintf(a.out, "schedule %s: removed\n", printable(name))
				}
				return nil
			})
		},
	}
}

func (a *app) schedulesPreview() *cobra.Command {
	var zone, from string
	count := 5
	cmd := &cobra.Command{
		Use: "preview CRON", Short: "print the next times of an expression", Args: takes(1, 1, "an expression"),
		Example: "  SELF schedules preview '30 2 * * *' --timezone Europe/Berlin\n" +
			"  SELF schedules preview '30 2 * * *' --timezone Europe/Berlin --after 2027-03-27T00:00:00Z --count 3",
	}
	cmd.Flags().StringVar(&from, "after", "", "print the times after `TIME`, such as "+exampleTime+"; the default is now")
	cmd.Flags().StringVar(&zone, "timezone", "", "`ZONE` in which the expression is read, such as Europe/Berlin; the default is UTC")
	cmd.Flags().IntVar(&count, "count", count, "how many times to print, at most 1,000")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if count < 1 || count > contract.MaxItems {
			return misuse("--count must be 1 to %d", contract.MaxItems)
		}
		after, err := timeOf("--after", from)
		if err != nil {
			return err
		}
		if after.IsZero() {
			after = time.Now()
		}
		times, err := jq.PreviewSchedule(args[0], zone, after, count)
		if err != nil {
			return usageError{fieldError(err)}
		}
		for _, at := range times {
			fmt.Fprintln(a.out, momentIn(at, zone))
		}
		return nil
	}
	return cmd
}

func takesSchedules() cobra.PositionalArgs { return takes(1, -1, "a schedule") }

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *app) flows() *cobra.Command {
	return a.group("flows", "look after groups of jobs, for which other jobs wait as a whole",
		a.flowsLs(), a.flowsShow(), a.flowsSeal(),
		a.flowsChange(requeueing, "make the dead and cancelled jobs of a group ready again", jq.Dead, jq.Cancelled),
		a.flowsChange(cancelling, "cancel the jobs of a group that have not finished", cancelling.from...))
}

func (a *app) flowsLs() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "ls", Short: "list groups with their states", Args: takesNone()}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one line for each group")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			table, n := newTable(a.out), 0
			for g, err := range jq.NewClient(s, nil).Groups(cmd.Context(), jq.GroupFilter{}) {
				if err != nil {
					return err
				}
				if n++; asJSON {
					if err := wire.Encode(a.out, g); err != nil {
						return err
					}
					continue
				}
				if n == 1 {
					row(table, "group", "state", "open since")
				}
				row(table, g.Name, groupState(g.GroupStatus), moment(g.OpenedAt))
			}
			if n == 0 && !asJSON {
				_, err := fmt.Fprintln(a.out, "there are no groups; enqueue --group adds jobs to one")
				return err
			}
			return table.Flush()
		})
	}
	return cmd
}

// groupState describes a group in a few words.
func groupState(g jq.GroupStatus) string {
	var words []string
	switch {
	case g.Open:
		words = append(words, "open")
	case g.Live:
		words = append(words, "running")
	default:
		words = append(words, "done")
	}
	if g.Dead {
		words = append(words, "has dead jobs")
	}
	if g.Spoiled {
		words = append(words, "spoiled by a cancelled or removed job")
	}
	return strings.Join(words, ", ")
}

// groupOf returns the group, if it exists.
func groupOf(ctx context.Context, s jq.Store, name string) (group jq.Group, exists bool, err error) {
	if err := store.CheckGroup(name); err != nil {
		return jq.Group{}, false, usageError{fieldError(err)}
	}
	for g, err := range jq.NewClient(s, nil).Groups(ctx, jq.GroupFilter{Name: name}) {
		return g, err == nil, err
	}
	return jq.Group{}, false, nil
}

func noGroup(name string) error { return fmt.Errorf("there is no group %s: see flows ls", name) }

func (a *app) flowsSeal() *cobra.Command {
	cmd := &cobra.Command{
		Use: "seal GROUP", Short: "say that a group has all its jobs, so that what waits for it can go on", Args: takes(1, 1, "the name of a group"),
		Long: "Seal a group that enqueue --open or a program has opened. From then on, what waits for the group goes on as soon as all its\n" +
			"jobs have ended. A program that adds jobs in several calls seals its groups itself: seal one only if the program is gone.",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			if err := jq.NewClient(s, nil).SealGroup(cmd.Context(), args[0]); err != nil {
				return fieldError(err)
			}
			_, err := fmt.Fprintf(a.out, "sealed group %s\n", printable(args[0]))
			return err
		})
	}
	return cmd
}

// flowsChange returns a command that changes the jobs of a group which are in some phases.
func (a *app) flowsChange(op operation, short string, from ...jq.State) *cobra.Command {
	cmd := &cobra.Command{Use: op.verb + " GROUP", Short: short, Args: takes(1, 1, "the name of a group")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			if _, exists, err := groupOf(cmd.Context(), s, args[0]); err != nil {
				return err
			} else if !exists {
				return noGroup(args[0])
			}
			total, filter := 0, jq.Filter{Group: args[0], States: from}
			for {
				outcomes, err := op.call(s, cmd.Context(), filter, contract.MaxItems)
				if err != nil {
					return err
				}
				for _, o := range outcomes {
					if o.Status == contract.StatusOK {
						total++
					}
				}
				if len(outcomes) < contract.MaxItems {
					break
				}
				filter.After = outcomes[len(outcomes)-1].ID
			}
			_, err := fmt.Fprintf(a.out, "%s %s\n", plural(int64(total)), op.done)
			return err
		})
	}
	return cmd
}

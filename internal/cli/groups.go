package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// more is the group of commands about the program itself.
const more = "more"

// A commandGroup is a group of the root's commands, as its help shows it.
type commandGroup struct {
	id, title string
	commands  []*cobra.Command
}

// groups returns all commands in groups, in the order in which people need them.
func (a *app) groups() []commandGroup {
	return []commandGroup{
		{"run", "Run servers and workers", []*cobra.Command{a.dev(), a.demo(), a.serve(), a.work()}},
		{"jobs", "Add and manage jobs", []*cobra.Command{a.enqueue(), a.jobs(), a.queues(), a.schedules(), a.flows()}},
		{"watch", "See what happens", []*cobra.Command{a.stats(), a.top(), a.workers(), a.doctor()}},
		{"operate", "Look after stores and tokens", []*cobra.Command{a.migrate(), a.prune(), a.backup(), a.restore(), a.fence(), a.token()}},
		{"prove", "Measure and prove stores", []*cobra.Command{a.bench(), a.conformance()}},
		{more, "More", []*cobra.Command{a.version()}},
	}
}

// addGroups adds the groups with their commands. Cobra makes the commands help and completion itself.
func addGroups(root *cobra.Command, groups []commandGroup) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID(more)
	root.SetCompletionCommandGroupID(more)
}

// helpCommands lists the commands below a command, in their groups if it has any.
func helpCommands(w io.Writer, cmd *cobra.Command) {
	if len(cmd.Groups()) == 0 {
		helpGroup(w, cmd, "Commands", "")
	}
	for _, g := range cmd.Groups() {
		helpGroup(w, cmd, g.Title, g.ID)
	}
}

func helpGroup(w io.Writer, cmd *cobra.Command, title, id string) {
	fmt.Fprintf(w, "\n%s:\n", title)
	for _, c := range cmd.Commands() {
		if c.GroupID == id && (c.IsAvailableCommand() || c.Name() == "help") {
			fmt.Fprintf(w, "  %-*s  %s\n", cmd.NamePadding(), c.Name(), c.Short)
		}
	}
}

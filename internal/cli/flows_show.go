package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/graph"
	"github.com/seed-ed332417/jq/internal/wire"
)

func (a *app) flowsShow() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show GROUP|ID", Short: "draw the jobs and groups that wait for each other, around a group or a job", Args: takes(1, 1, "the name of a group or the id of a job"),
		Long: "Draw the jobs and groups that wait for each other, around a group or the job with an id: one line for each, with its state. What\n" +
			"holds the flow up comes first. What stands under a job or a group waits for it: ├─ and └─ are several, ↓ is the only one. A · is\n" +
			"a job of the group above it. A job that waits for several others stands under the last of them, and names the rest.\n\n" +
			"A group of more than 20 jobs is drawn with how many are in each state, and with those of its jobs that are dead, cancelled or\n" +
			"blocked, 20 of each at most. Jobs that look alike share a line. The picture has the nearest 1,000 jobs and groups. If the name of a\n" +
			"group is a number, it means the group.",
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			group, exists, err := groupOf(cmd.Context(), s, args[0])
			if err != nil {
				return err
			}
			if !exists {
				return a.showFlowOfJob(cmd.Context(), s, args[0], asJSON)
			}
			around, err := graph.OfGroup(cmd.Context(), s, group.Name)
			if err != nil {
				return err
			}
			detail := wire.GroupDetailOf(group, around)
			if asJSON {
				return wire.Encode(a.out, detail)
			}
			if err := a.showGroup(detail); err != nil {
				return err
			}
			return a.draw(around, func(n *graph.Node) bool { return n.Name == group.Name })
		})
	}
	return cmd
}

func (a *app) showFlowOfJob(ctx context.Context, s jq.Store, arg string, asJSON bool) error {
	id, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || id < 1 {
		return noGroup(arg)
	}
	around, err := graph.OfJob(ctx, s, id)
	switch {
	case errors.Is(err, jq.ErrNotFound):
		return fmt.Errorf("there is no group and no job %d: see flows ls and jobs ls", id)
	case err != nil:
		return err
	case asJSON:
		return wire.Encode(a.out, around)
	default:
		return a.draw(around, func(n *graph.Node) bool { return n.ID == id })
	}
}

func (a *app) showGroup(g wire.GroupDetail) error {
	fmt.Fprintf(a.out, "group %s: %s\n", printable(g.Name), groupState(g.GroupStatus))
	table := newTable(a.out)
	if g.Open {
		row(table, "  open since", moment(g.OpenedAt))
	}
	for _, phase := range contract.Phases() {
		if n := g.Jobs[phase]; n > 0 {
			row(table, "  "+string(phase), n)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(a.out)
	return err
}

// draw prints a graph: what holds it up, and a line for each node. The node that was asked for is marked.
func (a *app) draw(g graph.Graph, asked func(*graph.Node) bool) error {
	p := picture{g: &g, colour: isTerminal(a.std.out) && os.Getenv("NO_COLOR") == "", asked: asked}
	p.holders()
	p.circles()
	p.tree()
	if g.Truncated {
		p.line("there are more than %d jobs and groups: these are the nearest", graph.MaxNodes)
	}
	_, err := io.WriteString(a.out, p.text.String())
	return err
}

// A picture is the text of a graph.
type picture struct {
	g      *graph.Graph
	colour bool
	asked  func(*graph.Node) bool
	text   strings.Builder
}

func (p *picture) line(format string, args ...any) { fmt.Fprintf(&p.text, format+"\n", args...) }

// mostNamed is how many jobs and groups are named where there can be any number.
const mostNamed = 5

// holders says what holds the flow up.
func (p *picture) holders() {
	holders := p.g.Holders()
	for i, at := range holders {
		if i == mostNamed {
			p.line("and %d more hold it up", len(holders)-i)
			break
		}
		n := &p.g.Nodes[at]
		p.line("held up by %s, which %s%s", nameOf(n), p.holds(n), reason(n))
	}
	switch {
	case slices.ContainsFunc(holders, func(at int) bool { n := &p.g.Nodes[at]; return n.State != "" && !n.Spoiled }):
		p.line("requeue what is dead or cancelled, or cancel what waits for it\n")
	case len(holders) > 0:
		p.line("cancel what waits for it\n")
	}
}

// holds says why others wait for the node in vain.
func (p *picture) holds(n *graph.Node) string {
	switch {
	case n.IsGroup() && n.Spoiled:
		return "is spoiled for good"
	case n.IsGroup():
		return "has dead jobs"
	case n.State == "":
		return "no longer exists"
	default:
		return "is " + p.painted(n)
	}
}

// circles names the jobs and groups that wait for each other.
func (p *picture) circles() {
	for _, circle := range p.g.Circles {
		var names []string
		for _, i := range append(slices.Clip(circle), circle[0]) {
			names = append(names, nameOf(&p.g.Nodes[i]))
		}
		p.line("a circle: %s; none of them can go on: cancel one of the jobs", strings.Join(names, " → "))
	}
	if len(p.g.Circles) > 0 {
		p.line("")
	}
}

// tree prints the lines in columns. The states are the last column, so that colours need no room.
func (p *picture) tree() {
	lines := p.g.Tree()
	cells := make([][3]string, len(lines))
	var widths [3]int
	for i, l := range lines {
		n := &p.g.Nodes[l.Node]
		switch {
		case l.More > 0:
			cells[i] = [3]string{fmt.Sprintf("%s%d more", l.Lead, l.More), printable(n.Kind)}
		default:
			cells[i] = [3]string{l.Lead + nameOf(n), printable(n.Kind), printable(n.Queue)}
		}
		for c, text := range cells[i] {
			widths[c] = max(widths[c], utf8.RuneCountInString(text))
		}
	}
	for i, l := range lines {
		for c, text := range cells[i] {
			if widths[c] > 0 {
				p.text.WriteString(text + strings.Repeat(" ", widths[c]+2-utf8.RuneCountInString(text)))
			}
		}
		p.line("%s", p.last(l))
	}
}

// last is the last column: the state, and what there is to say about the waits.
func (p *picture) last(l graph.Line) string {
	n := &p.g.Nodes[l.Node]
	text := p.painted(n)
	if l.More > 0 {
		return text
	}
	if n.IsGroup() {
		text += countsOf(n)
	}
	var others []string
	for _, e := range p.g.Edges {
		switch {
		case e.Waiter != l.Node:
		case e.On == l.Under && e.Any:
			text += ", after any end"
		case e.On != l.Under:
			others = append(others, nameOf(&p.g.Nodes[e.On]))
		}
	}
	if len(others) > mostNamed {
		others = append(others[:mostNamed-1], fmt.Sprintf("%d more", len(others)-mostNamed+1))
	}
	if len(others) > 0 {
		also := ", also waits for "
		if l.Under < 0 {
			also = ", waits for "
		}
		text += also + strings.Join(others, ", ")
	}
	text += reason(n)
	if p.asked(n) {
		text += "  ←"
	}
	return text
}

// countsOf says how many jobs a group has in each phase.
func countsOf(n *graph.Node) string {
	var counts []string
	for _, phase := range contract.Phases() {
		if jobs := n.Jobs[phase]; jobs > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", jobs, phase))
		}
	}
	if len(counts) == 0 {
		return ": no jobs"
	}
	return ": " + strings.Join(counts, ", ")
}

// colours are escape sequences of terminals, by state.
var colours = map[jq.State]string{
	jq.Blocked: "36", jq.Ready: "34", jq.InFlight: "35", jq.Retrying: "33", jq.Succeeded: "32", jq.Dead: "1;31", jq.Cancelled: "90", "": "1;31",
}

// painted is the state of the node, in its colour.
func (p *picture) painted(n *graph.Node) string {
	text := cmp.Or(string(n.State), "gone")
	if n.IsGroup() {
		text = groupState(n.GroupStatus)
	}
	if !p.colour {
		return text
	}
	return "\x1b[" + colours[n.State] + "m" + text + "\x1b[0m"
}

func nameOf(n *graph.Node) string {
	if n.IsGroup() {
		return "group " + printable(n.Name)
	}
	return fmt.Sprintf("job %d", n.ID)
}

// reason is the error of a job that is dead or retrying. That of a cancelled one mostly names another job of the picture.
func reason(n *graph.Node) string {
	if n.Error == "" || n.State != jq.Dead && n.State != jq.Retrying {
		return ""
	}
	return " (" + printable(cut(n.Error, 80)) + ")"
}

package graph

import (
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Line is a line of a tree: a node, or how many more there are like those above it.
type Line struct {
	Lead  string // the lines of the tree before the node
	Node  int    // index of the node
	Under int    // index of the node under which it stands because it waits for that, or -1
	More  int    // in place of the node, so many that are like it
}

// alike is how many jobs of the same kind and state stand under a node at most, if nothing waits for them.
const alike = 10

// Tree arranges the nodes as lines of text. Each stands once: a job of a group under the group, and anything else under the last of what it
// waits for. What stands under nothing, or would stand under itself, has no lead. The only one that stands under another begins with an
// arrow at the same depth, so that a chain is no staircase.
func (g *Graph) Tree() []Line {
	t := &tree{g: g, members: make([][]int, len(g.Nodes)), waiters: make([][]int, len(g.Nodes)), keep: map[int]bool{}}
	roots := t.plant()
	for _, i := range slices.Concat(append(g.Circles, g.Holders())...) {
		t.keep[i] = true
	}
	for _, i := range roots {
		t.print(Line{Node: i, Under: -1}, "")
	}
	return t.lines
}

// A tree is under construction.
type tree struct {
	g                *Graph
	members, waiters [][]int // what stands under each node
	keep             map[int]bool
	lines            []Line
}

// plant puts nodes under others, and returns the rest.
func (t *tree) plant() (roots []int) {
	g := t.g
	under := slices.Repeat([]int{-1}, len(g.Nodes))
	memberships := g.memberships()
	for on, members := range memberships {
		t.members[on] = members
		for _, i := range members {
			under[i] = on
		}
	}
	waitsFor := make([][]int, len(g.Nodes))
	for _, e := range g.Edges {
		i := e.Waiter
		if on := under[i]; on >= 0 && len(t.members[on]) > 0 && g.Nodes[i].Group != "" { // the group stands where its jobs would
			if i = on; e.On == on || g.Nodes[e.On].Group == g.Nodes[on].Name {
				continue
			}
		}
		waitsFor[i] = append(waitsFor[i], e.On)
	}
	for i := range g.Nodes {
		if g.Nodes[i].Group != "" {
			continue
		}
		slices.Sort(waitsFor[i])
		for _, on := range slices.Backward(waitsFor[i]) {
			above := on
			for above >= 0 && above != i {
				above = under[above]
			}
			if above != i {
				under[i] = on
				t.waiters[on] = append(t.waiters[on], i)
				break
			}
		}
		if under[i] < 0 {
			roots = append(roots, i)
		}
	}
	return roots
}

// print adds the line and what stands under its node, behind the text.
func (t *tree) print(l Line, below string) {
	t.lines = append(t.lines, l)
	if l.More > 0 {
		return
	}
	members, waiters := t.collapsed(t.members[l.Node]), t.collapsed(t.waiters[l.Node])
	lead := "  "
	if len(waiters) > 0 {
		lead = "│ "
	}
	for _, m := range members {
		m.Lead, m.Under = below+lead+"· ", -1
		t.print(m, below+lead+"  ")
	}
	for n, w := range waiters {
		w.Under = l.Node
		switch {
		case len(waiters) == 1:
			w.Lead = below + "↓ "
			t.print(w, below)
		case n < len(waiters)-1:
			w.Lead = below + "├─ "
			t.print(w, below+"│  ")
		default:
			w.Lead = below + "└─ "
			t.print(w, below+"   ")
		}
	}
}

// collapsed returns lines for the nodes, of which those that are like many others share one.
func (t *tree) collapsed(nodes []int) (lines []Line) {
	type sort struct {
		kind  string
		state store.State
	}
	seen, rest := map[sort]int{}, map[sort]int{}
	slices.SortFunc(nodes, func(a, b int) int { return t.g.Nodes[a].compare(&t.g.Nodes[b]) })
	for _, i := range nodes {
		n := &t.g.Nodes[i]
		of := sort{n.Kind, n.State}
		if n.IsGroup() || t.keep[i] || len(t.waiters[i]) > 0 {
			lines = append(lines, Line{Node: i})
			continue
		}
		if seen[of]++; seen[of] <= alike {
			lines = append(lines, Line{Node: i})
			continue
		}
		if at, is := rest[of]; is {
			lines[at].More++
			continue
		}
		rest[of] = len(lines)
		lines = append(lines, Line{Node: i, More: 1})
	}
	return lines
}

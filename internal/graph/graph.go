// Package graph reads the graph of a flow: jobs and groups that wait for each other.
//
// [OfJob] and [OfGroup] read it through the calls of the contract, from a job or a group in both directions. [Graph.Holders] and
// [Graph.Circles] say what holds the flow up. [Graph.Tree] arranges it for a terminal, and layers for a picture.
package graph

import (
	"cmp"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

// MaxNodes is how many nodes a graph has at most.
const MaxNodes = 1000

// A Graph is jobs and groups as they were while they were read, one after the other. Its nodes stand in the order in which a picture has
// them: layer by layer, and within a layer so that few lines cross.
type Graph struct {
	Nodes     []Node  `json:"nodes"`
	Edges     []Edge  `json:"edges"`
	Circles   [][]int `json:"circles,omitempty"`   // indices of nodes that wait for each other, each for the next and the last for the first
	Truncated bool    `json:"truncated,omitempty"` // there are more than MaxNodes, or more than can be read
}

// A Node is a job or a group.
type Node struct {
	ID    int64       `json:"id,omitempty,string"` // of a job, or zero
	Queue string      `json:"queue,omitempty"`
	Kind  string      `json:"kind,omitempty"`
	Group string      `json:"group,omitempty"` // in which the job is, if that is a node too
	Error string      `json:"error,omitempty"` // why the job is dead, cancelled or retrying: the first line, cut
	Name  string      `json:"name,omitempty"`  // of a group
	State store.State `json:"state,omitempty"` // phase of the job or of the group; empty if it no longer exists
	store.GroupStatus
	Jobs  map[store.State]int64 `json:"jobs,omitempty"` // how many jobs the group has in each phase
	Layer int                   `json:"layer"`          // greater than that of everything it waits for, unless they are in a circle
}

// IsGroup reports whether the node is a group.
func (n *Node) IsGroup() bool { return n.Name != "" }

// compare sorts jobs by id, and groups by name behind them.
func (n *Node) compare(other *Node) int {
	return cmp.Or(cmp.Compare(n.Name, other.Name), cmp.Compare(n.ID, other.ID))
}

// An Edge is a wait of a job for another job or for a group.
type Edge struct {
	Waiter int  `json:"waiter"` // index of the node that waits
	On     int  `json:"on"`     // index of the node that it waits for
	Any    bool `json:"any,omitempty"`
	Met    bool `json:"met,omitempty"`
}

// A key names a node.
type key struct {
	id    int64
	group string
}

// Holders returns the indices of the nodes that hold a blocked job up until somebody acts: jobs that are dead, cancelled or gone, dead jobs
// of a group, and groups that are spoiled or of which no dead job is a node.
func (g *Graph) Holders() []int {
	holds := map[int]bool{}
	for _, e := range g.Edges {
		on := &g.Nodes[e.On]
		switch {
		case e.Met || g.Nodes[e.Waiter].State != store.Blocked:
		case !on.IsGroup():
			holds[e.On] = holds[e.On] || store.Waiting{State: on.State}.HoldsUp()
		case e.Any:
		case on.Spoiled:
			holds[e.On] = true
		case on.Dead:
			dead := g.members(on.Name, func(n *Node) bool { return n.State == store.Dead })
			if len(dead) == 0 {
				dead = []int{e.On}
			}
			for _, i := range dead {
				holds[i] = true
			}
		}
	}
	var found []int
	for i := range g.Nodes {
		if holds[i] {
			found = append(found, i)
		}
	}
	return found
}

// members returns the indices of the jobs that are in the group and match.
func (g *Graph) members(group string, match func(*Node) bool) (found []int) {
	for i := range g.Nodes {
		if n := &g.Nodes[i]; n.Group == group && !n.IsGroup() && match(n) {
			found = append(found, i)
		}
	}
	return found
}

// findCircles sets Circles: one for each set of nodes that can never go on because they wait for each other.
func (g *Graph) findCircles() {
	next := make([][]int, len(g.Nodes)) // what each node waits for
	for _, e := range g.Edges {
		if !e.Met && g.Nodes[e.Waiter].State == store.Blocked {
			next[e.Waiter] = append(next[e.Waiter], e.On)
		}
	}
	for on, members := range g.memberships() {
		for _, i := range members {
			if g.Nodes[i].State == store.Blocked {
				next[on] = append(next[on], i)
			}
		}
	}
	g.Circles = circles(next)
}

// memberships returns the jobs of each group, by indices.
func (g *Graph) memberships() map[int][]int {
	groups := map[string]int{}
	for i := range g.Nodes {
		if g.Nodes[i].IsGroup() {
			groups[g.Nodes[i].Name] = i
		}
	}
	members := map[int][]int{}
	for i := range g.Nodes {
		if on, is := groups[g.Nodes[i].Group]; is && !g.Nodes[i].IsGroup() {
			members[on] = append(members[on], i)
		}
	}
	return members
}

// circles returns circles that have no node in common, such that every circle shares a node with one of them.
func circles(next [][]int) (found [][]int) {
	used := make([]bool, len(next))
	for {
		more := someCircles(next, used)
		if len(more) == 0 {
			return found
		}
		found = append(found, more...)
	}
}

// someCircles returns circles without used nodes that have no node in common, if there are any, and notes which nodes are used now.
func someCircles(next [][]int, used []bool) (found [][]int) {
	const fresh, open, left = 0, 1, 2
	state := make([]int, len(next))
	var path []int
	var enter func(i int)
	enter = func(i int) {
		state[i] = open
		path = append(path, i)
		for _, n := range next[i] {
			switch {
			case used[n]:
			case state[n] == fresh:
				enter(n)
			case state[n] == open:
				circle := slices.Clone(path[slices.Index(path, n):])
				if !slices.ContainsFunc(circle, func(i int) bool { return used[i] }) {
					for _, i := range circle {
						used[i] = true
					}
					found = append(found, circle)
				}
			}
		}
		path = path[:len(path)-1]
		state[i] = left
	}
	for i := range next {
		if state[i] == fresh && !used[i] {
			enter(i)
		}
	}
	return found
}

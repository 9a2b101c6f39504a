package graph

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	fewJobs   = 20  // so many jobs of a group are nodes, whatever their state
	errorSize = 200 // bytes of an error
)

// A drawer is a store that can read graphs by itself: one that calls a server.
type drawer interface {
	GraphOfJob(ctx context.Context, id int64) (Graph, error)
	GraphOfGroup(ctx context.Context, name string) (Graph, error)
}

// OfJob returns the graph around a job, or ErrNotFound if the job does not exist.
//
// It has what the job waits for and what waits for it, and so on, the nearest first. Every wait counts, whether it is met or not. A group is
// a node if something waits for it. Up to 20 jobs of it are nodes too. If it has more, only 20 of those that are dead, cancelled or blocked
// are, each, and those that the graph reaches by waits of their own: the node of the group has the counts of all.
func OfJob(ctx context.Context, s store.Store, id int64) (Graph, error) {
	if d, ok := s.(drawer); ok {
		return d.GraphOfJob(ctx, id)
	}
	return from(ctx, s, key{id: id})
}

// OfGroup returns the graph around a group like [OfJob], or ErrNotFound if the group does not exist.
func OfGroup(ctx context.Context, s store.Store, name string) (Graph, error) {
	if d, ok := s.(drawer); ok {
		return d.GraphOfGroup(ctx, name)
	}
	return from(ctx, s, key{group: name})
}

func from(ctx context.Context, s store.Store, root key) (Graph, error) {
	g := gatherer{ctx: ctx, s: s, at: map[key]int{}, left: mostRead}
	g.reach(root)
	for i := 0; i < len(g.Nodes); i++ {
		r, err := g.read(g.Nodes[i])
		if err != nil {
			return Graph{}, err
		}
		g.Nodes[i], g.readings = r.node, append(g.readings, r)
		for _, k := range r.next {
			g.reach(k)
		}
		if g.Nodes[0].State == "" {
			return Graph{}, store.ErrNotFound
		}
	}
	g.leaveOut()
	g.connect()
	g.arrange()
	g.findCircles()
	return g.Graph, nil
}

// A gatherer reads a graph, the nodes nearest to its root first and one at a time: others use the store too.
type gatherer struct {
	ctx context.Context
	s   store.Store
	Graph
	at       map[key]int // indices of nodes
	readings []reading   // of the nodes
	left     int         // bytes that may still be listed
}

// Lists return whole jobs, of which a graph needs the ids. When it has read so many bytes, it is cut.
const (
	mostRead = 64 << 20
	aJob     = 1 << 10 // without its documents
)

// reach adds the node unless there is no room for it.
func (g *gatherer) reach(k key) {
	if _, known := g.at[k]; known {
		return
	}
	if len(g.Nodes) == MaxNodes {
		g.Truncated = true
		return
	}
	g.at[k] = len(g.Nodes)
	g.Nodes = append(g.Nodes, Node{ID: k.id, Name: k.group})
}

// leaveOut leaves out groups that the store does not show. For a group exists while something waits for it or is in it, so these are groups
// that a token may not see.
func (g *gatherer) leaveOut() {
	nodes, readings := g.Nodes, g.readings
	g.Nodes, g.readings, g.at = nil, nil, map[key]int{}
	for i, n := range nodes {
		if !n.IsGroup() || n.State != "" {
			g.at[key{n.ID, n.Name}] = len(g.Nodes)
			g.Nodes, g.readings = append(g.Nodes, n), append(g.readings, readings[i])
		}
	}
}

// A reading is a node as it was read, with what is next to it.
type reading struct {
	node  Node
	waits []store.Waiting
	next  []key
}

func (g *gatherer) read(n Node) (reading, error) {
	if n.IsGroup() {
		return g.readGroup(n.Name)
	}
	return g.readJob(n.ID)
}

func (g *gatherer) readJob(id int64) (reading, error) {
	found := reading{node: Node{ID: id}}
	d, err := g.s.Get(g.ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound): // others have waited for it
	case err != nil:
		return found, err
	default:
		found.node = Node{ID: id, Queue: d.Queue, Kind: d.Kind, Group: d.Group(), State: store.PhaseOf(&d.Job), Error: brief(d.Error)}
		found.waits = d.Waits
	}
	for _, w := range d.Waits {
		found.next = append(found.next, key{w.ID, w.Group})
	}
	if err := g.list(&found, store.Filter{WaitsFor: id}, MaxNodes); err != nil || d.Group() == "" || g.Truncated {
		return found, err
	}
	awaited, err := g.s.List(g.ctx, store.Filter{WaitsForGroup: d.Group()}, store.Page{Limit: 1})
	if len(awaited.Jobs) > 0 {
		found.next = append(found.next, key{group: d.Group()})
	}
	return found, err
}

func (g *gatherer) readGroup(name string) (reading, error) {
	found := reading{node: Node{Name: name}}
	keeper, ok := g.s.(store.GroupKeeper)
	if !ok {
		return found, nil // and so it does not exist
	}
	page, err := keeper.Groups(g.ctx, store.GroupFilter{Name: name}, store.Page{Limit: 1})
	if err != nil || len(page.Groups) == 0 {
		return found, err
	}
	counts, err := g.s.Count(g.ctx, store.Filter{Group: name})
	if err != nil {
		return found, err
	}
	status := page.Groups[0].GroupStatus
	found.node = Node{Name: name, State: status.Phase(), GroupStatus: status, Jobs: phases(counts)}
	if counts.Total() <= fewJobs {
		err = g.list(&found, store.Filter{Group: name}, fewJobs)
	} else {
		for _, state := range []store.State{store.Dead, store.Cancelled, store.Blocked} {
			if err == nil && found.node.Jobs[state] > 0 {
				err = g.list(&found, store.Filter{Group: name, States: []store.State{state}}, fewJobs)
			}
		}
	}
	if err != nil {
		return found, err
	}
	return found, g.list(&found, store.Filter{WaitsForGroup: name}, MaxNodes)
}

// list adds the newest jobs of a filter to what is next.
func (g *gatherer) list(found *reading, filter store.Filter, most int) error {
	for page := (store.Page{Limit: most}); !g.Truncated; {
		part, err := g.s.List(g.ctx, filter, page)
		for _, j := range part.Jobs {
			found.next = append(found.next, key{id: j.ID})
			g.left -= aJob + j.Weight()
		}
		g.Truncated = g.left < 0
		most -= len(part.Jobs)
		if page.Cursor = part.Next; err != nil || page.Cursor == "" || most <= 0 {
			return err
		}
	}
	return nil
}

// connect adds the edges between the nodes.
func (g *gatherer) connect() {
	g.Edges = []Edge{}
	for i, r := range g.readings {
		for _, w := range r.waits {
			if on, is := g.at[key{w.ID, w.Group}]; is {
				g.Edges = append(g.Edges, Edge{Waiter: i, On: on, Any: w.Any, Met: w.Met})
			}
		}
	}
	for i := range g.Nodes {
		if _, is := g.at[key{group: g.Nodes[i].Group}]; !is {
			g.Nodes[i].Group = ""
		}
	}
}

// phases returns how many jobs are in each phase, in all queues.
func phases(counts store.Counts) map[store.State]int64 {
	jobs := map[store.State]int64{}
	for _, q := range counts.Queues {
		for phase, n := range q.Jobs {
			jobs[phase] += n
		}
	}
	return jobs
}

// brief returns the first line of an error, cut.
func brief(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	if len(line) <= errorSize {
		return line
	}
	end := errorSize
	for !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end] + "…"
}

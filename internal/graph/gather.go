package graph

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
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
	g := gatherer{at: map[key]int{}}
	g.reach(root)
	for done := 0; done < len(g.Nodes); {
		level := g.Nodes[done:]
		readings, err := readAll(level, reader{ctx, s, g.Truncated})
		if err != nil {
			return Graph{}, err
		}
		for i, r := range readings {
			g.Nodes[done+i] = r.node
			for _, k := range r.next {
				g.reach(k)
			}
		}
		g.readings = append(g.readings, readings...)
		done = len(g.readings)
		if g.Nodes[0].State == "" {
			return Graph{}, store.ErrNotFound
		}
	}
	g.connect()
	g.arrange()
	g.findCircles()
	return g.Graph, nil
}

// A gatherer reads a graph, the nodes nearest to its root first.
type gatherer struct {
	Graph
	at       map[key]int // indices of nodes
	readings []reading   // of the nodes
}

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

// A reading is a node as it was read, with what is next to it.
type reading struct {
	node  Node
	waits []store.Waiting
	next  []key
}

// together is how many nodes are read at a time.
const together = 4

// readAll reads the nodes.
func readAll(nodes []Node, r reader) ([]reading, error) {
	readings, failed := make([]reading, len(nodes)), make([]error, len(nodes))
	var all sync.WaitGroup
	var latest atomic.Int64
	for range min(together, len(nodes)) {
		all.Go(func() {
			for i := int(latest.Add(1)) - 1; i < len(nodes); i = int(latest.Add(1)) - 1 {
				readings[i], failed[i] = r.read(nodes[i])
			}
		})
	}
	all.Wait()
	return readings, errors.Join(failed...)
}

// A reader reads nodes.
type reader struct {
	ctx  context.Context
	s    store.Store
	full bool // there is no room for others
}

func (r reader) read(n Node) (reading, error) {
	if n.IsGroup() {
		return r.readGroup(n.Name)
	}
	return r.readJob(n.ID)
}

func (r reader) readJob(id int64) (reading, error) {
	found := reading{node: Node{ID: id}}
	d, err := r.s.Get(r.ctx, id)
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
	if err := r.list(&found, store.Filter{WaitsFor: id}, MaxNodes); err != nil || d.Group() == "" || r.full {
		return found, err
	}
	awaited, err := r.s.List(r.ctx, store.Filter{WaitsForGroup: d.Group()}, store.Page{Limit: 1})
	if len(awaited.Jobs) > 0 {
		found.next = append(found.next, key{group: d.Group()})
	}
	return found, err
}

func (r reader) readGroup(name string) (reading, error) {
	found := reading{node: Node{Name: name}}
	keeper, ok := r.s.(store.GroupKeeper)
	if !ok {
		return found, nil // and so it does not exist
	}
	page, err := keeper.Groups(r.ctx, store.GroupFilter{Name: name}, store.Page{Limit: 1})
	if err != nil || len(page.Groups) == 0 {
		return found, err
	}
	counts, err := r.s.Count(r.ctx, store.Filter{Group: name})
	if err != nil {
		return found, err
	}
	status := page.Groups[0].GroupStatus
	found.node = Node{Name: name, State: status.Phase(), GroupStatus: status, Jobs: phases(counts)}
	if counts.Total() <= fewJobs {
		err = r.list(&found, store.Filter{Group: name}, fewJobs)
	} else {
		for _, state := range []store.State{store.Dead, store.Cancelled, store.Blocked} {
			if err == nil && found.node.Jobs[state] > 0 {
				err = r.list(&found, store.Filter{Group: name, States: []store.State{state}}, fewJobs)
			}
		}
	}
	if err != nil {
		return found, err
	}
	return found, r.list(&found, store.Filter{WaitsForGroup: name}, MaxNodes)
}

// list adds the newest jobs of a filter to what is next.
func (r reader) list(found *reading, filter store.Filter, most int) error {
	for page := (store.Page{Limit: most}); !r.full; {
		part, err := r.s.List(r.ctx, filter, page)
		for _, j := range part.Jobs {
			found.next = append(found.next, key{id: j.ID})
		}
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

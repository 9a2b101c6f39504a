package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/graph"
)

// TestOnlyStatesAreInColour: what comes from jobs cannot change the terminal.
func TestOnlyStatesAreInColour(t *testing.T) {
	g := graph.Graph{Nodes: []graph.Node{{ID: 1, Queue: "q\x1b[2J", Kind: "k\t", State: jq.Dead, Error: "boom \x1b[2J"}}}
	p := picture{g: &g, colour: true, asked: func(*graph.Node) bool { return false }}
	p.tree()
	assert.Equal(t, `job 1  k\t  q\x1b[2J  `+"\x1b[1;31mdead\x1b[0m"+` (boom \x1b[2J)`+"\n", p.text.String())
}

// TestManyNamesAreCut, of those that hold up and of what a job waits for.
func TestManyNamesAreCut(t *testing.T) {
	g := graph.Graph{Nodes: []graph.Node{{ID: 1, Kind: "k", State: jq.Blocked}}}
	for i := 1; i <= mostNamed+2; i++ {
		g.Nodes = append(g.Nodes, graph.Node{ID: int64(i + 1), Kind: "k"})
		g.Edges = append(g.Edges, graph.Edge{Waiter: 0, On: i})
	}
	p := picture{g: &g, asked: func(*graph.Node) bool { return false }}
	p.holders()
	assert.Contains(t, p.text.String(), "held up by job 6, which no longer exists\nand 2 more hold it up\ncancel what waits for it\n")
	assert.Equal(t, "blocked, also waits for job 2, job 3, job 4, job 5, 2 more", p.last(graph.Line{Node: 0, Under: 7}))
	assert.Equal(t, "blocked, waits for job 2, job 3, job 4, job 5, 3 more", p.last(graph.Line{Node: 0, Under: -1}))
}

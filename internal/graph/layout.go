package graph

import (
	"cmp"
	"slices"
)

// arrange sets the layers of the nodes, and sorts the nodes as a picture has them.
func (g *Graph) arrange() {
	before := g.before()
	for i, layer := range layers(before) {
		g.Nodes[i].Layer = layer
	}
	order := make([]int, len(g.Nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		m, n := &g.Nodes[a], &g.Nodes[b]
		return cmp.Or(cmp.Compare(m.Layer, n.Layer), m.compare(n))
	})
	g.uncross(order, before)
	nodes, at := make([]Node, len(order)), make([]int, len(order))
	for to, from := range order {
		nodes[to], at[from] = g.Nodes[from], to
	}
	g.Nodes = nodes
	for i, e := range g.Edges {
		g.Edges[i].Waiter, g.Edges[i].On = at[e.Waiter], at[e.On]
	}
	slices.SortStableFunc(g.Edges, func(a, b Edge) int { return cmp.Or(a.Waiter-b.Waiter, a.On-b.On) })
}

// before returns what must be done before each node: what a job waits for, and the jobs of a group.
func (g *Graph) before() [][]int {
	before := make([][]int, len(g.Nodes))
	for _, e := range g.Edges {
		before[e.Waiter] = append(before[e.Waiter], e.On)
	}
	for on, members := range g.memberships() {
		before[on] = append(before[on], members...)
	}
	return before
}

// layers returns the length of the longest way to each node. In a circle, it begins anywhere.
func layers(before [][]int) []int {
	const unknown, open = -1, -2
	layer := slices.Repeat([]int{unknown}, len(before))
	var enter func(i int)
	enter = func(i int) {
		layer[i] = open
		deepest := 0
		for _, b := range before[i] {
			if layer[b] == unknown {
				enter(b)
			}
			deepest = max(deepest, layer[b]+1)
		}
		layer[i] = deepest
	}
	for i := range before {
		if layer[i] == unknown {
			enter(i)
		}
	}
	return layer
}

// uncross moves each node of the order within its layer to the middle of its neighbours, a few times in both directions.
func (g *Graph) uncross(order []int, before [][]int) {
	after := make([][]int, len(before))
	for i, list := range before {
		for _, b := range list {
			after[b] = append(after[b], i)
		}
	}
	var rows [][]int // of the layers, which share the memory of the order
	for from := 0; from < len(order); {
		to := from
		for to < len(order) && g.Nodes[order[to]].Layer == g.Nodes[order[from]].Layer {
			to++
		}
		rows = append(rows, order[from:to])
		from = to
	}
	place := make([]float64, len(order)) // from the middle of the layer
	settle := func(row []int) {
		for at, i := range row {
			place[i] = float64(at) - float64(len(row)-1)/2
		}
	}
	for _, row := range rows {
		settle(row)
	}
	for range 4 {
		for _, row := range rows {
			sortByMiddle(row, before, place)
			settle(row)
		}
		for _, row := range slices.Backward(rows) {
			sortByMiddle(row, after, place)
			settle(row)
		}
	}
}

// sortByMiddle sorts nodes by the middle of their neighbours. One without neighbours stays where it is.
func sortByMiddle(row []int, neighbours [][]int, place []float64) {
	middle := make(map[int]float64, len(row))
	for _, i := range row {
		middle[i] = place[i]
		if n := len(neighbours[i]); n > 0 {
			middle[i] = 0
			for _, other := range neighbours[i] {
				middle[i] += place[other] / float64(n)
			}
		}
	}
	slices.SortStableFunc(row, func(a, b int) int { return cmp.Compare(middle[a], middle[b]) })
}

package graph

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
)

// A field is a store with flows in it.
type field struct {
	*testing.T
	*memory.Store
}

func newField(t *testing.T) *field {
	t.Helper()
	clk := clock.NewMock()
	clk.Set(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	f := &field{t, memory.New(memory.Options{Clock: clk})}
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	return f
}

// job is a job of a kind, in a group, that needs others: ids, names of groups, or such with a question mark that may end in any way.
func job(kind, group string, after ...any) store.NewJob {
	n := store.NewJob{Queue: "q", Kind: kind, Payload: []byte(`1`), Group: group}
	for _, on := range after {
		var w store.Wait
		switch on := on.(type) {
		case int:
			w.ID = int64(on)
		case string:
			w.Group, w.Any = strings.CutSuffix(on, "?")
		case store.Wait:
			w = on
		}
		n.After = append(n.After, w)
	}
	return n
}

// add adds jobs one by one, so that no call shows the circles.
func (f *field) add(jobs ...store.NewJob) {
	f.Helper()
	for _, n := range jobs {
		_, err := f.Enqueue(f.Context(), store.EnqueueRequest{Jobs: []store.NewJob{n}})
		require.NoError(f, err)
	}
}

// end claims the next jobs of the kind's queue and ends them: by an Ack, or as dead with an error.
func (f *field) end(n int, errors ...string) {
	f.Helper()
	jobs, err := f.FetchAndClaim(f.Context(), store.ClaimRequest{Queue: "q", Limit: n, Worker: "w", TTL: time.Minute})
	require.NoError(f, err)
	require.Len(f, jobs, n)
	for i, j := range jobs {
		if i < len(errors) {
			_, err = f.NAck(f.Context(), []store.NAck{{Lease: j.Lease(), Form: store.Never, Error: errors[i]}})
		} else {
			_, err = f.Ack(f.Context(), []store.Ack{{Lease: j.Lease()}})
		}
		require.NoError(f, err)
	}
}

func (f *field) ofJob(id int64) Graph {
	f.Helper()
	g, err := OfJob(f.Context(), f.Store, id)
	require.NoError(f, err)
	return g
}

func (f *field) ofGroup(name string) Graph {
	f.Helper()
	g, err := OfGroup(f.Context(), f.Store, name)
	require.NoError(f, err)
	return g
}

// name is how the tests call a node.
func name(n Node) string {
	if n.IsGroup() {
		return n.Name
	}
	return fmt.Sprint(n.ID)
}

// drawn is the tree as text.
func drawn(g Graph) string {
	var text strings.Builder
	for _, l := range g.Tree() {
		n := g.Nodes[l.Node]
		switch {
		case l.More > 0:
			fmt.Fprintf(&text, "%s%d more %s %s\n", l.Lead, l.More, n.Kind, n.State)
		case n.IsGroup():
			fmt.Fprintf(&text, "%s%s %s %v\n", l.Lead, n.Name, n.State, n.Jobs)
		default:
			fmt.Fprintf(&text, "%s%d %s %s\n", l.Lead, n.ID, n.Kind, cmp.Or(n.State, "gone"))
		}
	}
	return "\n" + text.String()
}

// edges are the waits as text.
func edges(g Graph) (list []string) {
	for _, e := range g.Edges {
		text := name(g.Nodes[e.Waiter]) + " on " + name(g.Nodes[e.On])
		if e.Any {
			text += ", any"
		}
		if e.Met {
			text += ", met"
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return list
}

// layered are the names of the nodes in each layer.
func layered(g Graph) [][]string {
	var list [][]string
	for _, n := range g.Nodes {
		for len(list) <= n.Layer {
			list = append(list, nil)
		}
		list[n.Layer] = append(list[n.Layer], name(n))
	}
	return list
}

func names(g Graph, indices []int) (list []string) {
	for _, i := range indices {
		list = append(list, name(g.Nodes[i]))
	}
	return list
}

// TestGraphIsTheSameFromEachOfItsJobs, whichever way it leads.
func TestGraphIsTheSameFromEachOfItsJobs(t *testing.T) {
	f := newField(t)
	f.add(job("download", ""), job("shrink", "", 1), job("enlarge", "", 1), job("publish", "", 2, 3),
		job("report", "", store.Wait{ID: 4, Any: true}), job("other", ""))
	f.end(1)
	want := f.ofJob(1)
	for id := int64(1); id <= 5; id++ {
		assert.Equal(t, want, f.ofJob(id), id)
	}
	assert.Equal(t, []string{"2 on 1, met", "3 on 1, met", "4 on 2", "4 on 3", "5 on 4, any"}, edges(want))
	assert.Equal(t, [][]string{{"1"}, {"2", "3"}, {"4"}, {"5"}}, layered(want))
	assert.Equal(t, Node{ID: 2, Queue: "q", Kind: "shrink", State: store.Ready, Layer: 1}, want.Nodes[1])
	assert.Equal(t, `
1 download succeeded
├─ 2 shrink ready
└─ 3 enlarge ready
   ↓ 4 publish blocked
   ↓ 5 report blocked
`, drawn(want))
	assert.Equal(t, []Edge{}, f.ofJob(6).Edges)
	assert.Empty(t, want.Holders())
	assert.Empty(t, want.Circles)
}

// TestSmallGroupHasItsJobs, and stands between them and what waits for it.
func TestSmallGroupHasItsJobs(t *testing.T) {
	f := newField(t)
	f.add(job("scan", ""), job("frame", "g", 1), job("frame", "g"), job("frame", "g"), job("album", "", "g"), job("tidy", "", "g?", 1), job("peek", "", 3))
	f.add(job("alone", "not awaited"))
	f.end(2, "boom\nat line 1")
	want := f.ofGroup("g")
	for id := int64(1); id <= 7; id++ {
		assert.Equal(t, want, f.ofJob(id), id)
	}
	assert.Equal(t, []string{"2 on 1", "5 on g", "6 on 1", "6 on g, any", "7 on 3, met"}, edges(want))
	assert.Equal(t, `
1 scan dead
↓ g in_flight map[blocked:1 ready:1 succeeded:1]
│ · 2 frame blocked
│ · 3 frame succeeded
│   ↓ 7 peek ready
│ · 4 frame ready
├─ 5 album blocked
└─ 6 tidy blocked
`, drawn(want))
	assert.Equal(t, []string{"1"}, names(want, want.Holders()))
	assert.Equal(t, "boom", want.Nodes[want.Holders()[0]].Error)
	assert.Empty(t, f.ofJob(8).Nodes[0].Group, "a group for which nothing waits is no node")
}

// TestLargeGroupHasCounts, and those of its jobs that somebody must look at.
func TestLargeGroupHasCounts(t *testing.T) {
	f := newField(t)
	var jobs []store.NewJob
	for range 99 {
		jobs = append(jobs, job("page", "g"))
	}
	f.add(append(jobs, job("page", "g", 1), job("report", "", "g"), job("peek", "", 50))...)
	f.end(30, "boom", "bang")
	g := f.ofGroup("g")
	assert.Equal(t, `
g in_flight map[blocked:1 dead:2 ready:69 succeeded:28]
│ · 1 page dead
│ · 2 page dead
│ · 100 page blocked
↓ 101 report blocked
`, drawn(g))
	assert.Equal(t, []string{"1", "2"}, names(g, g.Holders()), "the dead jobs of the group")
	for i := range g.Edges {
		g.Edges[i].Any = true
	}
	assert.Equal(t, []string{"1"}, names(g, g.Holders()), "one for which a job of the group waits itself")
	assert.Equal(t, `
g in_flight map[blocked:1 dead:2 ready:69 succeeded:28]
│ · 1 page dead
│ · 2 page dead
│ · 50 page ready
│   ↓ 102 peek blocked
│ · 100 page blocked
↓ 101 report blocked
`, drawn(f.ofJob(102)), "one that the graph reaches by a wait of its own")

	_, err := f.Cancel(t.Context(), store.Filter{Group: "g", States: []store.State{store.Ready}}, 1000)
	require.NoError(t, err)
	g = f.ofGroup("g")
	assert.Len(t, g.Nodes, 1+2+20+2, "the group, the dead, some of those that are cancelled, and two that waited")
	assert.False(t, g.Truncated)
}

// TestFewJobsOfAGroupIsTwenty: one more, and only those in need are nodes.
func TestFewJobsOfAGroupIsTwenty(t *testing.T) {
	f := newField(t)
	for range fewJobs {
		f.add(job("page", "g"))
	}
	assert.Len(t, f.ofGroup("g").Nodes, fewJobs+1)
	f.add(job("page", "g"))
	assert.Len(t, f.ofGroup("g").Nodes, 1)
}

// TestSpoiledGroupHoldsUp what was requeued after that. So does a job that is gone.
func TestSpoiledGroupHoldsUp(t *testing.T) {
	f := newField(t)
	f.add(job("page", "g"), job("report", "", "g"), job("page", ""), job("report", "", 3))
	_, err := f.Cancel(t.Context(), store.Filter{IDs: []int64{1, 3}}, 2)
	require.NoError(t, err)
	_, err = f.Requeue(t.Context(), store.Filter{IDs: []int64{2, 4}}, 2)
	require.NoError(t, err)
	g := f.ofGroup("g")
	assert.Equal(t, []string{"g"}, names(g, g.Holders()))
	_, err = f.Delete(t.Context(), store.Filter{IDs: []int64{3}}, 1)
	require.NoError(t, err)
	g = f.ofJob(4)
	assert.Equal(t, "\n3  gone\n↓ 4 report blocked\n", drawn(g))
	assert.Equal(t, []string{"3"}, names(g, g.Holders()))
	_, err = OfJob(t.Context(), f.Store, 3)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = OfGroup(t.Context(), f.Store, "none")
	require.ErrorIs(t, err, store.ErrNotFound)
}

// TestCirclesAreFound, which no single call has shown.
func TestCirclesAreFound(t *testing.T) {
	f := newField(t)
	_, err := f.Enqueue(t.Context(), store.EnqueueRequest{Open: []string{"a", "b"}, Jobs: []store.NewJob{job("x", "a", "b")}})
	require.NoError(t, err)
	f.add(job("y", "b", "a"), job("z", "b"), job("last", "", "a"))
	require.NoError(t, f.SealGroup(t.Context(), "a"))
	require.NoError(t, f.SealGroup(t.Context(), "b"))
	for _, g := range []Graph{f.ofGroup("a"), f.ofGroup("b"), f.ofJob(1), f.ofJob(4)} {
		require.Len(t, g.Circles, 1)
		circle := names(g, g.Circles[0])
		at := slices.Index(circle, "a")
		assert.Equal(t, []string{"a", "1", "b", "2"}, append(circle[at:], circle[:at]...))
		lines := strings.Split(strings.TrimSpace(drawn(g)), "\n")
		assert.Len(t, lines, 6, "each node stands in the tree once: %v", lines)
	}
	_, err = f.Cancel(t.Context(), store.Filter{IDs: []int64{1}}, 1)
	require.NoError(t, err)
	assert.Empty(t, f.ofGroup("a").Circles)
}

// TestTreeHasAllThatHoldUp, however many are like them.
func TestTreeHasAllThatHoldUp(t *testing.T) {
	f := newField(t)
	for range alike + 5 {
		f.add(job("page", "g"))
	}
	f.add(job("report", "", "g"))
	f.end(alike+5, slices.Repeat([]string{"boom"}, alike+5)...)
	assert.Equal(t, alike+5, strings.Count(drawn(f.ofGroup("g")), "page dead"))
	assert.NotContains(t, drawn(f.ofGroup("g")), "more")
}

// TestFewLinesCross: a job stands beside what it waits for.
func TestFewLinesCross(t *testing.T) {
	f := newField(t)
	f.add(job("a", ""), job("b", ""), job("on b", "", 2), job("on a", "", 1), job("last", "", 3, 4))
	assert.Equal(t, [][]string{{"1", "2"}, {"4", "3"}, {"5"}}, layered(f.ofJob(1)))
}

// TestOnlyBlockedJobsAreInCircles: what was cancelled waits no longer, whatever became of its waits.
func TestOnlyBlockedJobsAreInCircles(t *testing.T) {
	nodes := []Node{{Name: "g"}, {ID: 1, Group: "g", State: store.Blocked}, {ID: 2, State: store.Blocked}}
	g := Graph{Nodes: nodes, Edges: []Edge{{Waiter: 1, On: 2}, {Waiter: 2, On: 0}}}
	for state, want := range map[store.State]int{store.Blocked: 1, store.Cancelled: 0} {
		nodes[2].State = state
		g.findCircles()
		assert.Len(t, g.Circles, want, state)
	}
}

// A counter counts the calls of List.
type counter struct {
	store.Store
	lists atomic.Int64
}

func (c *counter) List(ctx context.Context, filter store.Filter, page store.Page) (store.JobPage, error) {
	c.lists.Add(1)
	return c.Store.List(ctx, filter, page)
}

// TestNobodyIsListedForWhomThereIsNoRoom.
func TestNobodyIsListedForWhomThereIsNoRoom(t *testing.T) {
	f := newField(t)
	f.add(job("hub", ""))
	for range MaxNodes {
		f.add(job("spoke", "", 1))
	}
	c := &counter{Store: f.Store}
	_, err := OfJob(t.Context(), c, 1)
	require.NoError(t, err)
	assert.Equal(t, int64(1), c.lists.Load())
}

// TestGraphIsCutToTheNearest.
func TestGraphIsCutToTheNearest(t *testing.T) {
	f := newField(t)
	f.add(job("hub", ""))
	for range MaxNodes - 2 {
		f.add(job("spoke", "", 1))
	}
	f.add(job("far", "", MaxNodes-1))
	g := f.ofJob(1)
	assert.Len(t, g.Nodes, MaxNodes)
	assert.False(t, g.Truncated)
	assert.Contains(t, drawn(g), fmt.Sprintf("%d more spoke blocked\n", MaxNodes-3-alike))
	f.add(job("spoke", "", 1))
	g = f.ofJob(1)
	assert.Len(t, g.Nodes, MaxNodes)
	assert.True(t, g.Truncated)
	assert.NotContains(t, drawn(g), "far")
	for range 100 { // more than one page of those that wait
		f.add(job("spoke", "", 1))
	}
	assert.Len(t, f.ofJob(1).Nodes, MaxNodes)
}

// TestLongErrorsAreCut, and not within a character.
func TestLongErrorsAreCut(t *testing.T) {
	assert.Equal(t, strings.Repeat("ä", 100)+"…", brief(strings.Repeat("ä", 101)+"\nmore"))
	assert.Equal(t, "x"+strings.Repeat("ä", 99)+"…", brief("x"+strings.Repeat("ä", 100)))
	assert.Equal(t, strings.Repeat("x", errorSize), brief(strings.Repeat("x", errorSize)))
}

// A drawn store has its graphs from elsewhere.
type elsewhere struct{ store.Store }

func (elsewhere) GraphOfJob(_ context.Context, id int64) (Graph, error) {
	return Graph{Nodes: []Node{{ID: id}}}, nil
}

func (elsewhere) GraphOfGroup(_ context.Context, name string) (Graph, error) {
	return Graph{Nodes: []Node{{Name: name}}}, nil
}

// TestStoreMayReadGraphsItself.
func TestStoreMayReadGraphsItself(t *testing.T) {
	g, err := OfJob(t.Context(), elsewhere{}, 7)
	require.NoError(t, err)
	assert.Equal(t, int64(7), g.Nodes[0].ID)
	g, err = OfGroup(t.Context(), elsewhere{}, "g")
	require.NoError(t, err)
	assert.Equal(t, "g", g.Nodes[0].Name)
}

// TestAnyGraphIsArranged: layers rise along the waits, and the tree has each node once.
func TestAnyGraphIsArranged(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		g := anyGraph(random)
		waits := edges(g)
		g.arrange()
		g.findCircles()
		assert.Equal(t, waits, edges(g))
		for _, e := range g.Edges {
			if len(g.Circles) == 0 {
				assert.Less(t, g.Nodes[e.On].Layer, g.Nodes[e.Waiter].Layer)
			}
		}
		times := make([]int, len(g.Nodes))
		more := 0
		for _, l := range g.Tree() {
			if l.More > 0 {
				more += l.More
			} else {
				times[l.Node]++
			}
		}
		for i, n := range times {
			if n == 0 {
				more--
			}
			assert.LessOrEqual(t, n, 1, "node %d", i)
		}
		assert.Zero(t, more, "how many are neither there nor counted")
	}
}

// anyGraph has up to 40 jobs, all blocked, of which some are in up to three groups and each waits for some before it. It has no circles of jobs.
func anyGraph(random *rand.Rand) Graph {
	var g Graph
	for i := range random.IntN(4) {
		g.Nodes = append(g.Nodes, Node{Name: fmt.Sprint("g", i)})
	}
	groups := len(g.Nodes)
	for i := range 1 + random.IntN(40) {
		n := Node{ID: int64(i + 1), Kind: "k", State: store.Blocked}
		if groups > 0 && random.IntN(2) == 0 {
			n.Group = g.Nodes[random.IntN(groups)].Name
		}
		g.Nodes = append(g.Nodes, n)
	}
	for i := groups; i < len(g.Nodes); i++ {
		for range min(i, random.IntN(3)) {
			if on := random.IntN(i); on >= groups || random.IntN(3) == 0 {
				g.Edges = append(g.Edges, Edge{Waiter: i, On: on})
			}
		}
	}
	return g
}

// TestEachCircleIsNamed: no circle is overlooked because another one was found on the way to it.
func TestEachCircleIsNamed(t *testing.T) {
	found := circles([][]int{{1, 4}, {2, 3}, {1}, {0}, {3}})
	require.Len(t, found, 2)
	assert.ElementsMatch(t, []int{1, 2}, found[0])
	assert.ElementsMatch(t, []int{0, 4, 3}, found[1])
}

// A shy store does not show its groups.
type shy struct{ *memory.Store }

func (s shy) Groups(context.Context, store.GroupFilter, store.Page) (store.GroupPage, error) {
	return store.GroupPage{}, nil
}

// TestHiddenGroupsAreLeftOut rather than shown as gone.
func TestHiddenGroupsAreLeftOut(t *testing.T) {
	f := newField(t)
	f.add(job("theirs", "g"), job("mine", "", "g"))
	g, err := OfJob(t.Context(), shy{f.Store}, 2)
	require.NoError(t, err)
	require.Len(t, g.Nodes, 1)
	assert.Equal(t, int64(2), g.Nodes[0].ID)
	assert.Empty(t, g.Edges)
}

// A failing store fails at the third call.
type failing struct {
	store.Store
	gets atomic.Int64
}

func (s *failing) Get(ctx context.Context, id int64) (store.JobDetail, error) {
	if s.gets.Add(1) > 2 {
		return store.JobDetail{}, store.ErrUnavailable
	}
	return s.Store.Get(ctx, id)
}

// TestFirstErrorEndsTheReading.
func TestFirstErrorEndsTheReading(t *testing.T) {
	f := newField(t)
	f.add(job("hub", ""))
	for range 100 {
		f.add(job("spoke", "", 1))
	}
	s := &failing{Store: f.Store}
	_, err := OfJob(t.Context(), s, 1)
	require.Equal(t, store.ErrUnavailable, err)
	assert.Equal(t, int64(3), s.gets.Load())
}

// TestGraphReadsNoMoreThanItMay, although it has few nodes: of each job it lists who waits for it, with documents.
func TestGraphReadsNoMoreThanItMay(t *testing.T) {
	f := newField(t)
	const hubs, large = 20, 1 << 20
	for range hubs {
		f.add(job("hub", ""))
	}
	spoke := job("spoke", "")
	for id := range hubs {
		spoke.After = append(spoke.After, store.Wait{ID: int64(id + 1)})
	}
	spoke.Payload = []byte(`"` + strings.Repeat("x", large-2) + `"`)
	for range 10 {
		f.add(spoke)
	}
	c := &counter{Store: f.Store}
	g, err := OfJob(t.Context(), c, 1)
	require.NoError(t, err)
	assert.True(t, g.Truncated)
	assert.LessOrEqual(t, c.lists.Load(), int64(2+2*mostRead/large/10+hubs), "calls of List")
}

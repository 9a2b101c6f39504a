package browser

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// The pages of a job and of a group have a picture of the flow, whose boxes lead to the others, and a table that says the same.
func TestFlowsAreDrawn(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	dead := s.add("download", "{}", &jq.EnqueueOptions{Queue: "broken"})
	s.fail("broken", "it broke", contract.Never)
	scan := s.add("scan", "{}", &jq.EnqueueOptions{Queue: "media"})
	frame := &jq.EnqueueOptions{Queue: "media", Group: "frames/1", After: []jq.Wait{{ID: scan}}}
	first := s.add("frame", "{}", frame)
	s.add("frame", "{}", frame)
	album := s.add("album", "{}", &jq.EnqueueOptions{After: []jq.Wait{{Group: "frames/1"}, {ID: dead, Any: true}}})
	publish := s.add("publish", "{}", &jq.EnqueueOptions{After: []jq.Wait{{ID: album}, {ID: dead}}})
	for range 9 {
		s.add("mail", "{}", &jq.EnqueueOptions{After: []jq.Wait{{ID: publish}}})
	}
	p := open(t, s.url, desk)
	p.visit(fmt.Sprintf("/#/jobs/%d", publish))
	p.shown(fmt.Sprintf("Job %d", publish))
	p.shows(fmt.Sprintf("Held up by Job %d (dead).", dead))
	assert.Equal(t, 13, eval[int](p, `document.querySelectorAll(".flow .node").length`), "boxes: of nine jobs that look alike, four share one")
	assert.Equal(t, "4 more ", eval[string](p, `document.querySelector(".flow .node[aria-label^='4 more like these: mail'] .name").textContent`))
	assert.Equal(t, 16, eval[int](p, `document.querySelectorAll("details tbody tr").length`), "rows of the table, which has all")
	rising := `[...document.querySelectorAll(".flow .is-unmet .way, .flow .is-held .way")].every(w => {
		const [begin, end] = [w.getPointAtLength(0), w.getPointAtLength(w.getTotalLength())];
		return begin.x < end.x;
	})`
	assert.True(t, eval[bool](p, rising), "each arrow leads to the right")
	apart := `[...document.querySelectorAll(".flow .way")].every(w => Array.from({length: 200}, (_, i) => w.getPointAtLength(w.getTotalLength() * i / 200))
		.every(at => ![...document.querySelectorAll(".flow rect")].some(r => {
			const box = r.getBBox();
			return at.x > box.x + 1 && at.x < box.x + box.width - 1 && at.y > box.y && at.y < box.y + box.height;
		})))`
	assert.True(t, eval[bool](p, apart), "no line crosses a box")
	for _, l := range looks {
		p.show(l)
		p.accessible()
		p.fits()
	}
	p.show(desk)
	p.click(link("Group frames/1 2 blocked"))
	p.shown("Group frames/1")
	assert.Equal(t, 1, eval[int](p, `document.querySelectorAll(".flow .is-asked.is-group").length`))
	for _, l := range looks {
		p.show(l)
		p.accessible()
		p.fits()
	}
	p.show(desk)
	require.NoError(t, s.Cancel(t.Context(), first))
	p.shows("1 cancelled") // without a reload
	p.click(link("List its jobs"))
	p.shown("Jobs")
	assert.Equal(t, 2, eval[int](p, `document.querySelectorAll("tbody tr").length`))
}

// Groups that wait for each other are named.
func TestCirclesAreNamed(t *testing.T) {
	t.Parallel()
	s := serve(t, options{})
	_, err := s.store.Enqueue(t.Context(), contract.EnqueueRequest{Open: []string{"a", "b"}, Jobs: []jq.NewJob{
		{Queue: "q", Kind: "k", Payload: []byte(`1`), Group: "a", After: []jq.Wait{{Group: "b"}}},
	}})
	require.NoError(t, err)
	s.add("k", "{}", &jq.EnqueueOptions{Group: "b", After: []jq.Wait{{Group: "a"}}})
	p := open(t, s.url, desk)
	p.visit("/#/groups/a")
	p.shown("Group a")
	p.shows("These wait for each other and can never go on: ")
	assert.Equal(t, 4, eval[int](p, `document.querySelectorAll(".flow .node").length`))
	p.accessible()
}

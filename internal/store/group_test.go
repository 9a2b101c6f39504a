package store

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestCirclesAreFound, and nothing that only looks like one.
func TestCirclesAreFound(t *testing.T) {
	on := func(group string, waits ...Wait) NewJob {
		return NewJob{Queue: "q", Kind: "k", Payload: []byte(`{}`), Group: group, After: waits}
	}
	job := func(item int) Wait { return Wait{Item: item} }
	group := func(name string) Wait { return Wait{Group: name} }
	for name, c := range map[string]struct {
		jobs []NewJob
		item int
	}{
		"no groups":           {[]NewJob{on(""), on("", job(0))}, -1},
		"no members":          {[]NewJob{on("", group("a")), on("", group("b"))}, -1},
		"a batch":             {[]NewJob{on("", group("a")), on("a"), on("a")}, -1},
		"a chain of groups":   {[]NewJob{on("", group("a")), on("a", group("b")), on("b", group("c")), on("c")}, -1},
		"a diamond of groups": {[]NewJob{on("", group("a"), group("b")), on("a", group("c")), on("b", group("c")), on("c")}, -1},
		"its own":             {[]NewJob{on(""), on("a", group("a"))}, 1},
		"two groups":          {[]NewJob{on("a", group("b")), on("b", group("a"))}, 0},
		"through a job":       {[]NewJob{on(""), on("", group("a")), on("a", job(1))}, 1},
		"behind what leads":   {[]NewJob{on("", group("b")), on("b", group("a")), on("a", group("c")), on("c", group("a"))}, 2},
		"beside a batch":      {[]NewJob{on("", group("a")), on("a"), on("b", group("b"))}, 2},
	} {
		err := EnqueueRequest{Jobs: c.jobs}.Check()
		if c.item < 0 {
			assert.NoError(t, err, name)
			continue
		}
		refused := new(InvalidError)
		if assert.ErrorAs(t, err, &refused, name) {
			assert.Equal(t, []any{c.item, "after"}, []any{refused.Item, refused.Field}, name)
		}
	}
}

// TestLongestCircleIsFoundSoon: a call of a thousand jobs in as many groups, each of which waits for 4 others.
func TestLongestCircleIsFoundSoon(t *testing.T) {
	var jobs []NewJob
	name := func(i int) string {
		return string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
	}
	for i := range MaxItems {
		n := NewJob{Queue: "q", Kind: "k", Payload: []byte(`{}`), Group: name(i)}
		for k := range 4 {
			n.After = append(n.After, Wait{Group: name(i + k + 1)})
		}
		jobs = append(jobs, n)
	}
	assert.NoError(t, EnqueueRequest{Jobs: jobs}.Check())
	last := &jobs[MaxItems-1]
	last.After = []Wait{{Group: name(0)}}
	assert.ErrorContains(t, EnqueueRequest{Jobs: jobs}.Check(), "must not wait for a group that waits for the job itself")
}

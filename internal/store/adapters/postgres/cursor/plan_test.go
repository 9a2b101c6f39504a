package cursor

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/store"
)

// A claim looks when it is the first one, when the latest look was too long ago, and when the latest claim found too little.
func TestClaimsLookWhenTheyMust(t *testing.T) {
	t.Parallel()
	c := New()
	p := c.Plan("q")
	assert.True(t, p.MustLook(), "nothing is known")
	assert.False(t, p.ExpectsNothing(), "nothing is known")
	p.Looked(noon)
	p.Done(false)
	assert.False(t, c.Plan("q").MustLook(), "the look was just now")
	c.Plan("q").Done(true)
	assert.True(t, c.Plan("q").MustLook(), "the latest claim found too little")
	assert.True(t, c.Plan("q").ExpectsNothing())
	c.Tell("other")
	c.Tell("q")
	assert.False(t, c.Plan("q").ExpectsNothing(), "the store was told of jobs")
	c.Plan("q").Looked(noon)
	assert.True(t, c.Plan("q").ExpectsNothing(), "a look has answered what the store was told")
	c.Plan("q").Done(false)
	c.Plan("q").Failed()
	assert.True(t, c.Plan("q").MustLook(), "it is not known what the latest claim did")
	c.Change("q", c.Get("q"), func(q *Queue) { q.Looked = time.Now().Add(-LookEvery - time.Second) })
	assert.True(t, c.Plan("q").MustLook(), "the look was too long ago")
}

func TestALookLastsForAWhile(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := New()
		c.Plan("q").Looked(noon)
		<-time.After(LookEvery)
		assert.False(t, c.Plan("q").Stale())
		<-time.After(1)
		assert.True(t, c.Plan("q").Stale())
	})
}

// A claim begins at the later one of mark and cursor; after a look, at the first jobs that are due.
func TestClaimsBeginWhereThePlanSays(t *testing.T) {
	t.Parallel()
	c := New()
	mark, cursor, first := Position{noon, 5}, Position{noon, 9}, Position{noon, 7}
	c.Change("q", c.Get("q"), func(q *Queue) {
		q.Lanes[Fresh].Mark[LevelOf(0)], q.Lanes[Fresh].Cursor[LevelOf(0)] = mark, cursor
		q.Lanes[Fresh].Mark[LevelOf(1)], q.Lanes[Fresh].Cursor[LevelOf(1)] = cursor, mark
	})
	p := c.Plan("q")
	starts, marks := maps.Collect(p.Starts(Fresh)), maps.Collect(p.Marks(Fresh))
	assert.Len(t, starts, Levels)
	assert.Len(t, marks, Levels)
	assert.Equal(t, mark, marks[0])
	assert.Equal(t, mark, p.Mark(Fresh, 0))
	assert.Equal(t, cursor, starts[0])
	assert.Equal(t, cursor, starts[1])
	assert.Zero(t, starts[store.MinPriority])

	p.Saw(Fresh, 0, first)
	p.Saw(Fresh, 1, Position{noon.Add(time.Microsecond), 1})
	assert.False(t, p.Empty(Retries), "no look has ended")
	p.Looked(noon)
	assert.Equal(t, map[int]Position{0: first}, maps.Collect(p.Starts(Fresh)), "the other level has nothing that is due")
	assert.False(t, p.Empty(Fresh))
	assert.True(t, p.Empty(Retries))
	for range p.Starts(Fresh) {
		break // the loop may end early
	}
	for range p.Marks(Fresh) {
		break
	}
}

// A mark moves to the first job, and no further than the horizon as it was known before the look.
func TestMarksStayBeforeTheHorizon(t *testing.T) {
	t.Parallel()
	limit := Position{At: noon.Add(-Slack)}
	for name, k := range map[string]struct {
		horizon     time.Time
		first, want Position
	}{
		"NothingIsKnown":   {time.Time{}, Position{noon.Add(-time.Hour), 3}, Position{}},
		"AFirstJob":        {noon, Position{noon.Add(-time.Hour), 3}, Position{noon.Add(-time.Hour), 3}},
		"BehindTheHorizon": {noon, Position{noon.Add(time.Hour), 3}, limit},
		"NoJob":            {noon, Position{}, limit},
	} {
		t.Run(name, func(t *testing.T) {
			c := New()
			p := c.Plan("q")
			require.False(t, p.Open(Horizon{At: k.horizon}, false))
			p.Saw(Fresh, top, k.first)
			p.Looked(noon)
			assert.Equal(t, k.want, markOf(c, "q"))
			assert.Equal(t, k.want, p.Mark(Fresh, top), "a recovery goes on from there")
			p.Saw(Fresh, top, Position{time.Unix(0, 0), 1})
			p.Looked(noon)
			assert.Equal(t, k.want, markOf(c, "q"), "a mark does not go back")
		})
	}
}

// A look that went with the opening counts on what was known before. Any other one counts on what the opening has shown.
func TestALookKnowsNothingOfWhatEndedAfterIt(t *testing.T) {
	t.Parallel()
	for _, ahead := range []bool{false, true} {
		c := New()
		pass(c, noon)
		p := c.Plan("q")
		require.Equal(t, ahead, p.Open(Horizon{At: noon.Add(time.Hour)}, ahead))
		p.Looked(noon)
		want := noon
		if !ahead {
			want = noon.Add(time.Hour)
		}
		assert.Equal(t, Position{At: want.Add(-Slack)}, markOf(c, "q"))
	}
}

// If positions are forgotten after a plan was made, it is made anew, and its look does not count.
func TestAPlanIsMadeAnewWhenItsPositionsWereForgotten(t *testing.T) {
	t.Parallel()
	c := New()
	pass(c, noon)
	look(c, "q", Position{noon.Add(-time.Minute), 7})
	p := c.Plan("q")
	p.Saw(Fresh, top, Position{noon, 9})
	c.Forget()
	assert.False(t, p.Open(Horizon{At: noon}, true))
	assert.Zero(t, p.Mark(Fresh, top))
	p.Looked(noon)
	assert.True(t, p.Empty(Fresh), "what the look has seen is forgotten")
	assert.Zero(t, markOf(c, "q"), "what the opening has shown is forgotten")
	assert.False(t, c.Get("q").Looked.IsZero(), "the new plan is kept")
}

// A cursor does not go beyond the horizon, unless that stands still.
func TestCursorsStayBeforeTheHorizon(t *testing.T) {
	t.Parallel()
	for _, stuck := range []bool{false, true} {
		c := New()
		pass(c, noon)
		p := c.Plan("q")
		p.Open(Horizon{noon, stuck}, false)
		p.Took(Fresh, 0, Position{noon.Add(-time.Minute), 3})
		p.Took(Fresh, 0, Position{noon.Add(-time.Hour), 9})
		p.Took(Retries, 0, Position{noon.Add(time.Minute), 4})
		p.Done(false)
		q := c.Get("q")
		assert.Equal(t, Position{noon.Add(-time.Minute), 4}, q.Lanes[Fresh].Cursor[LevelOf(0)], "behind the last job taken")
		want := Position{At: noon}
		if stuck {
			want = Position{noon.Add(time.Minute), 5}
		}
		assert.Equal(t, want, q.Lanes[Retries].Cursor[LevelOf(0)])
		c.Plan("q").Done(false)
		assert.Equal(t, want, c.Get("q").Lanes[Retries].Cursor[LevelOf(0)], "a cursor does not go back")
	}
}

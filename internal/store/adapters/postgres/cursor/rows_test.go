package cursor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// read lets a transaction read rows of the queue, and returns where the next one begins.
func read(c *Cursors, first, last int64, by Opening) int64 {
	p := c.Plan("q")
	p.SawRows(p.FirstRow(), first, last, by)
	return c.Plan("q").FirstRow()
}

// later returns the opening of a transaction that is sent now. All with numbers below xmin have ended.
func later(xmin, number int64) Opening {
	return Opening{XMin: xmin, Number: number, Sent: time.Now().Add(time.Hour)}
}

func TestReadersBeginBehindRowsThatAreGone(t *testing.T) {
	c := New()
	assert.Zero(t, c.Plan("q").FirstRow())
	assert.EqualValues(t, 1, read(c, 5, 9, later(10, 10)))
	assert.EqualValues(t, 1, read(c, 0, 0, later(11, 11)), "nothing was known before the first reader")
	assert.EqualValues(t, 10, read(c, 0, 0, later(12, 12)), "all have ended that might have had a number up to 9")
	assert.EqualValues(t, 10, read(c, 12, 20, later(13, 13)), "those that had no number before may have given 10")
	assert.EqualValues(t, 10, read(c, 18, 20, later(14, 14)))
	assert.EqualValues(t, 18, read(c, 18, 25, later(15, 15)), "it is still there")
	assert.EqualValues(t, 19, read(c, 19, 19, later(16, 16)))
	assert.Zero(t, c.Plan("another").FirstRow())
}

// The very first row of all is not passed while it is there.
func TestTheFirstRowIsNotPassed(t *testing.T) {
	c := New()
	for i := range int64(4) {
		assert.EqualValues(t, 1, read(c, 1, 9, later(10+i, 10+i)))
	}
	assert.EqualValues(t, 2, read(c, 2, 9, later(20, 20)))
}

func TestARowOfARunningTransactionIsNotPassed(t *testing.T) {
	c := New()
	read(c, 5, 9, later(10, 10))
	read(c, 0, 0, later(11, 12)) // 11 is running, and may have given a row the number 7
	for range 5 {
		assert.EqualValues(t, 1, read(c, 20, 30, later(11, 20)))
	}
	assert.EqualValues(t, 7, read(c, 7, 30, later(21, 21)), "it has ended")
}

// A number that was seen after the opening of a transaction says nothing about those with later numbers.
func TestNumbersSeenLateBoundNothing(t *testing.T) {
	c := New()
	read(c, 5, 9, later(10, 10))
	early := Opening{XMin: 11, Number: 11, Sent: time.Now().Add(-time.Hour)}
	read(c, 0, 0, early)
	assert.EqualValues(t, 1, read(c, 0, 0, early))
}

func TestRowsAreReadFromTheHeadNowAndThen(t *testing.T) {
	c := New()
	for i := range int64(3) {
		read(c, 5, 9, later(10+i, 10+i))
	}
	assert.NotZero(t, c.Plan("q").FirstRow())
	c.Change("q", c.Get("q"), func(q *Queue) { q.Rows.whole = q.Rows.whole.Add(-LookEvery) })
	assert.Zero(t, c.Plan("q").FirstRow(), "the sequence may have begun anew")
	assert.EqualValues(t, 2, read(c, 2, 2, later(20, 20)))
	c.Forget()
	assert.Zero(t, c.Plan("q").FirstRow())
}

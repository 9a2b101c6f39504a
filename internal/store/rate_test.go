package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A claim by a clock that was much ahead counts as one of now, even if claims of a little later are kept as they are.
func TestClaimsOfAClockThatWasAheadCountAsOfNow(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	log, r := ClaimLog{{at(94), 1}, {at(100), 1}, {at(104), 1}, {at(107), 2}, {at(120), 3}}, Rate{N: 9, Per: 10 * time.Second}
	jobs, first := log.Count(r, at(101))
	assert.Equal(t, 8, jobs)
	assert.Equal(t, at(94), first)
	assert.Equal(t, ClaimLog{{at(94), 1}, {at(100), 1}, {at(101), 5}, {at(104), 1}}, log)
	jobs, first = log.Count(r, at(110))
	assert.Equal(t, 6, jobs)
	assert.Equal(t, at(101), first)
	jobs, first = log.Count(r, at(200))
	assert.Zero(t, jobs)
	assert.Equal(t, at(200), first)
}

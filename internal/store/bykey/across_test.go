package bykey

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/store"
)

// jobsOf are jobs of these keys.
func jobsOf(keys ...string) []store.Job {
	jobs := make([]store.Job, len(keys))
	for i, key := range keys {
		jobs[i].Extras = &store.Extras{LimitKey: key}
	}
	return jobs
}

func TestAcrossKeysOnlyWhereNothingElseLimits(t *testing.T) {
	var a *Across
	assert.False(t, a.Tries())
	for _, p := range []store.Policy{
		{}, {MaxInFlight: 5}, {Fair: true}, {Ordered: true}, {MaxPerKey: 5, Fair: true}, {MaxPerKey: 5, Ordered: true}, {MaxPerKey: 5, MaxInFlight: 5},
		{MaxPerKey: 5, Rate: store.Rate{N: 1, Per: store.MinPer}},
	} {
		assert.Nil(t, a.Under(p, Often{}), "%+v", p)
	}
	a = a.Under(store.Policy{MaxPerKey: 5}, Often{})
	a.Took(nil)
	assert.Same(t, a, a.Under(store.Policy{MaxPerKey: 5, Version: 7}, Often{}))
	assert.False(t, a.Tries())
	assert.True(t, a.Under(store.Policy{MaxPerKey: 6}, Often{}).Tries(), "what was in vain may not be under another limit")
}

func TestFewerClaimsTryAfterOthersInVain(t *testing.T) {
	a := (*Across)(nil).Under(store.Policy{MaxPerKey: 5}, Often{})
	assert.True(t, a.Took(nil))
	assert.False(t, a.Took(nil), "others have tried at the same time")
	assert.False(t, a.Tries())
	assert.True(t, a.Tries())
	a.Took(jobsOf("k"))
	a.Took(nil)
	assert.False(t, a.Tries())
	assert.True(t, a.Tries(), "a claim did not try in vain")
}

func TestAClaimByKeyComesNowAndThen(t *testing.T) {
	const never = 10_000
	for _, c := range []struct {
		jobs int // after so many
		key  string
		want int // claims before it
	}{
		{0, "key %d", mostPassed / 2},
		{0, "key", never},
		{500, "key %d", 250},
		{500, "key", 250},
	} {
		a := (*Across)(nil).Under(store.Policy{MaxPerKey: 5}, Often{Jobs: c.jobs})
		for range 2 {
			n := 0
			for ; n < never && a.Tries(); n++ {
				key := c.key
				if key == "key %d" {
					key = fmt.Sprintf(key, n)
				}
				a.Took(jobsOf(key, key+"'"))
			}
			assert.Equal(t, c.want, n, "%+v", c)
		}
	}
}

func TestAClaimByKeyComesInTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := (*Across)(nil).Under(store.Policy{MaxPerKey: 5}, Often{Time: time.Second})
		for range 3 {
			<-time.After(time.Second - 1)
			assert.True(t, a.Tries())
			<-time.After(1)
			assert.False(t, a.Tries())
			assert.True(t, a.Tries())
		}
	})
}

func TestMostThatClaimsMayHaveTakenOfAKey(t *testing.T) {
	assert.Equal(t, 5, (&Across{Limit: 5}).Most())
	assert.Equal(t, mostTaken, (&Across{Limit: store.MaxKeyLimit}).Most())
}

//go:build unix

package chaos

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/store"
)

const (
	most       = workers * slots / 2 // jobs that may be in flight at once: half of what the workers would hold
	mostPerKey = 2                   // those with the same limit key: the jobs with keys alone can not fill the queue
)

// claimRate is how many jobs may be claimed in how long: fewer than the workers would claim at times.
var claimRate = store.Rate{N: 6, Per: 100 * time.Millisecond}

// A sighting counts the looks that saw as many jobs in flight as may be.
type sighting struct {
	full     int // in the queue
	fullKeys int // with one of the limit keys
}

// limit sets how many jobs may be in flight, in all and with the same limit key, and how many may be claimed in a span of time. There are no workers
// yet: what they have claimed before would not count.
func (s *storm) limit() {
	s.Helper()
	_, err := jq.NewClient(s.store, nil).SetPolicy(s.Context(), jq.DefaultQueue, jq.Policy{MaxInFlight: most, MaxPerKey: mostPerKey, Rate: claimRate})
	require.NoError(s, err)
}

// watch looks all the time whether more jobs are in flight than may be. What it returns ends that, and says how often as many were.
func (s *storm) watch() (looks func() sighting) {
	ctx, cancel := context.WithCancel(s.Context())
	var looking sync.WaitGroup
	var seen sighting
	looking.Go(func() {
		for ctx.Err() == nil {
			s.look(ctx, &seen)
			<-time.After(5 * time.Millisecond)
		}
	})
	return func() sighting {
		cancel()
		looking.Wait()
		return seen
	}
}

// look looks once, unless the database is away. One page has all jobs in flight, at one moment.
func (s *storm) look(ctx context.Context, seen *sighting) {
	page, err := s.store.List(ctx, jq.Filter{States: []jq.State{jq.InFlight}}, jq.Page{Limit: 1000})
	if err != nil {
		return
	}
	n := len(page.Jobs)
	if n > most {
		s.ledger.blame("%d jobs are in flight at once, and %d may be", n, most)
	}
	if n == most {
		seen.full++
	}
	byKey := map[string]int{}
	for _, j := range page.Jobs {
		byKey[j.LimitKey()]++
	}
	for _, key := range limitKeys {
		if byKey[key] > mostPerKey {
			s.ledger.blame("%d jobs of %s are in flight at once, and %d may be", byKey[key], key, mostPerKey)
		}
		if byKey[key] == mostPerKey {
			seen.fullKeys++
		}
	}
}

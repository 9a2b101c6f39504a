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
	heldUp   int // lines of the ordered queue whose first job waited for its retry, before others
}

// limit sets how many jobs may be in flight, in all and with the same limit key, and how many may be claimed in a span of time, and puts the jobs of another
// queue in order. There are no workers yet: what they have claimed before would not count.
func (s *storm) limit() {
	s.Helper()
	for queue, policy := range map[string]jq.Policy{
		jq.DefaultQueue: {MaxInFlight: most, MaxPerKey: mostPerKey, Rate: claimRate},
		orderedQueue:    {Ordered: true},
	} {
		_, err := jq.NewClient(s.store, nil).SetPolicy(s.Context(), queue, policy)
		require.NoError(s, err)
	}
}

// watch looks all the time whether more jobs are in flight than may be, or others. What it returns ends that, and says what was seen.
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

// look looks once, unless the database is away. One page has all live jobs, at one moment.
func (s *storm) look(ctx context.Context, seen *sighting) {
	page, err := s.store.List(ctx, jq.Filter{States: []jq.State{jq.Ready, jq.InFlight, jq.Retrying}}, jq.Page{Limit: 1000})
	if err == nil {
		s.see(page.Jobs, seen)
	}
}

// see judges the live jobs of one moment.
func (s *storm) see(jobs []jq.Job, seen *sighting) {
	n, byKey, byLine := 0, map[string]int{}, map[string][]jq.Job{}
	for _, j := range jobs {
		switch {
		case j.Queue == orderedQueue:
			byLine[j.LimitKey()] = append(byLine[j.LimitKey()], j)
		case j.State == jq.InFlight:
			n++
			byKey[j.LimitKey()]++
		}
	}
	for line, jobs := range byLine {
		s.seeLine(line, jobs, seen)
	}
	if n > most {
		s.ledger.blame("%d jobs are in flight at once, and %d may be", n, most)
	}
	if n == most {
		seen.full++
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

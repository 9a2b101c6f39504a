//go:build unix

package chaos

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
)

// most is how many jobs may be in flight at once: half of what the workers would hold.
const most = workers * slots / 2

// limit sets how many jobs may be in flight, and looks all the time whether more are. What it returns ends that, and says how often as many were.
func (s *storm) limit() (looks func() (full int)) {
	s.Helper()
	_, err := jq.NewClient(s.store, nil).SetPolicy(s.Context(), jq.DefaultQueue, jq.Policy{MaxInFlight: most})
	require.NoError(s, err)
	ctx, cancel := context.WithCancel(s.Context())
	var looking sync.WaitGroup
	full := 0
	looking.Go(func() {
		for ctx.Err() == nil {
			switch n := s.inFlight(ctx); {
			case n > most:
				s.ledger.blame("%d jobs are in flight at once, and %d may be", n, most)
			case n == most:
				full++
			}
			<-time.After(5 * time.Millisecond)
		}
	})
	return func() int {
		cancel()
		looking.Wait()
		return full
	}
}

// inFlight is how many jobs are in flight, or 0 while the database is away.
func (s *storm) inFlight(ctx context.Context) (n int64) {
	counts, err := s.store.Count(ctx, jq.Filter{States: []jq.State{jq.InFlight}})
	if err != nil {
		return 0
	}
	for _, q := range counts.Queues {
		n += q.Jobs[jq.InFlight]
	}
	return n
}

package server_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/server"
	"github.com/seed-ed332417/jq/internal/store"
)

// The environment variables that choose what is simulated.
const (
	seedVar  = "JQ_SIM_SEED"  // this seed alone
	timesVar = "JQ_SIM_TIMES" // so many times
	seedsVar = "JQ_SIM_SEEDS" // so many seeds, rather than the usual ones
)

const (
	defaultSeeds = 2000 // so many are simulated, beginning with 1
	racingSeeds  = 500  // so many of them under the race detector, and more only until everything was tried; the pass without it plays all
	defaultTimes = 200  // so many times a seed is played that was chosen
	maxFailures  = 3    // after so many no further seed is played
	parts        = 16   // of the seeds: several are played at the same time
)

// TestSimulation plays scenarios with every fault that servers must survive, one per seed. When the faults are over, every job ends, or
// waits for one that is dead: none is lost (R62), none is finished twice or by a stale write (R20 to R27), none runs more often than it may
// (C3, R13), expired leases are recovered in time (C5, R17), no flow hangs (R75 to R81), and the servers stop with nothing left (C13, R41).
func TestSimulation(t *testing.T) {
	seeds := chosenSeeds(t)
	first := seeds
	if race.Enabled && os.Getenv(seedVar) == "" {
		first = seeds[:min(len(seeds), racingSeeds)]
	}
	total := newTotal()
	began := time.Now()
	play := func(t *testing.T, seed uint64) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { // a crash of the process names it
			r := watched(t, seed, breakage{})
			if total.add(r); len(r.problems) > 0 {
				t.Errorf("%sTo play it again, %d times: %s", r.story(), defaultTimes, replay(seed))
			}
		})
	}
	t.Run("seeds", func(t *testing.T) {
		for part := range parts {
			t.Run(fmt.Sprintf("part %d", part), func(t *testing.T) {
				t.Parallel()
				for at := part; at < len(first) && total.failed() < maxFailures; at += parts {
					play(t, first[at])
				}
			})
		}
	})
	all := total.plays >= len(first) // otherwise -run has chosen some of them
	for _, seed := range seeds[len(first):] {
		if t.Failed() || !all || len(total.missing()) == 0 {
			break
		}
		play(t, seed)
	}
	total.print(t, time.Since(began))
	if os.Getenv(seedVar) == "" && !t.Failed() && all {
		for _, what := range total.missing() {
			t.Errorf("the simulation has not tried enough: no %s", what)
		}
	}
}

// chosenSeeds returns the seeds to play, in order.
func chosenSeeds(t *testing.T) []uint64 {
	if only := os.Getenv(seedVar); only != "" {
		seed, err := strconv.ParseUint(only, 10, 64)
		require.NoError(t, err, seedVar)
		return slices.Repeat([]uint64{seed}, number(t, timesVar, defaultTimes))
	}
	seeds := make([]uint64, number(t, seedsVar, defaultSeeds))
	for i := range seeds {
		seeds[i] = uint64(i + 1)
	}
	return seeds
}

func number(t *testing.T, name string, otherwise int) int {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	require.Positive(t, n, name)
	return n
}

// replay returns the command that plays the seed again.
func replay(seed uint64) string {
	return fmt.Sprintf("%s=%d go test -race -run 'TestSimulation$' ./internal/server", seedVar, seed)
}

// watched simulates under a watchdog in real time, which names the seed that never ends.
func watched(t *testing.T, seed uint64, b breakage) result {
	t.Helper()
	watch := time.AfterFunc(3*time.Minute, func() {
		panic(fmt.Sprintf("seed %d does not end. To play it again: %s", seed, replay(seed)))
	})
	defer watch.Stop()
	return simulate(t, seed, b)
}

// total adds up what many simulations have tried.
type total struct {
	mu      sync.Mutex // guards what follows
	plays   int
	bad     int
	counts  map[string]int
	lasted  time.Duration
	after   time.Duration
	longest time.Duration
}

func newTotal() *total { return &total{counts: map[string]int{}} }

func (s *total) add(r result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plays++
	if len(r.problems) > 0 {
		s.bad++
	}
	for what, n := range r.counts {
		s.counts[what] += n
	}
	s.lasted += r.lasted
	s.after, s.longest = max(s.after, r.after), max(s.longest, r.longest)
}

func (s *total) failed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bad
}

// missing returns what must occur in so many simulations, and did not.
func (s *total) missing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, f := range faults {
		names = append(names, string(f))
	}
	for _, k := range kinds {
		names = append(names, "runs of "+k)
	}
	for _, op := range []store.Op{store.OpAck, store.OpFail, store.OpSnooze, store.OpRelease, store.OpExtend, store.OpSave} {
		names = append(names, "stale: "+string(op))
	}
	for _, e := range []store.Ending{store.EndSucceeded, store.EndFailed, store.EndSnoozed, store.EndReleased, store.EndExpired, store.EndCancelled} {
		names = append(names, "leases that have "+string(e))
	}
	for _, cause := range []error{server.ErrLeaseLost, server.ErrLeaseUnknown, server.ErrCancelled, server.ErrTimeout, server.ErrDrained} {
		names = append(names, "handlers told: "+cause.Error())
	}
	names = append(names, unblocked, cancelledFor, heldUp, heldBack, addedJobs, "ends told again", "effects refused", "enqueues repeated in doubt", "stops that left something behind",
		"jobs left to servers that know their kind", "recoveries that had to be prompt", claimsFilled+"queue", claimsFilled+"limit key", claimsUsedUp, claimsInOrder, longStalls, "duplicates", "jobs", "claims")
	return slices.DeleteFunc(names, func(what string) bool { return s.counts[what] > 0 })
}

// print prints what was tried.
func (s *total) print(t *testing.T, took time.Duration) {
	t.Helper()
	sum := func(prefix string) (n int) {
		for what, count := range s.counts {
			if strings.HasPrefix(what, prefix) {
				n += count
			}
		}
		return n
	}
	figures.Print(t, "simulation: %d seeds, %d jobs, %d claims, %d runs of handlers, %v of virtual time; jobs lost: %d",
		s.plays, s.counts["jobs"], s.counts["claims"], sum("runs of "), s.lasted.Round(time.Second), s.counts[jobsLost])
	var met []string
	for _, f := range faults {
		met = append(met, fmt.Sprintf("%d %s", s.counts[string(f)], f))
	}
	figures.Print(t, "simulation: %s", strings.Join(met, ", "))
	figures.Print(t, "simulation: %d stale writes refused, %d effects outside refused, %d leases recovered, "+
		"at most %v after their end where a server reached the store; the last job ended %v after the faults",
		sum("stale: "), s.counts["effects refused"], s.counts["leases that have "+string(store.EndExpired)], s.longest, s.after)
	t.Logf("%v a seed; %v", took/time.Duration(max(1, s.plays)), s.counts)
}

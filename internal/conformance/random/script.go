package random

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"github.com/seed-ed332417/jq/internal/store"
)

// An op is one line of a script: in words, and the doing.
type op struct {
	text string
	play func(r *run) error
}

// A script is what to do, in bursts.
type script [][]op

func (s script) ops() []op {
	var all []op
	for _, burst := range s {
		all = append(all, burst...)
	}
	return all
}

// GoString is how a script is printed when it has failed: a line for each operation.
func (s script) GoString() string {
	var lines strings.Builder
	for i, o := range s.ops() {
		fmt.Fprintf(&lines, "\n\t%3d  %s", i+1, o.text)
	}
	return lines.String()
}

// scripts are long because they have many bursts, and shrink well because a burst may be empty.
var scripts = rapid.Custom(func(t *rapid.T) script {
	return rapid.SliceOfN(rapid.SliceOf(ops), 18, 30).Draw(t, "bursts")
})

// ops are all operations, so often that each meets jobs in every phase many times in a run.
var ops = rapid.Custom(func(t *rapid.T) op { return one(t, makers)(t) })

// makers holds each maker of operations as often as its weight says, in turns: rapid likes the beginning of a list better
// than the rest, so what stands there must be worth it.
var makers = inTurns([]weighted{
	{12, enqueue}, {16, claim}, {12, advance}, {16, nack}, {8, ack}, {6, extend}, {6, save}, {7, recovery},
	{8, requeue}, {5, cancel}, {5, reschedule}, {4, remove}, {3, look}, {2, pause}, {4, policy}, {10, schedule}, {2, again}, {3, settle},
	{3, seal}, {1, fence},
})

type weighted struct {
	weight int
	maker  func(*rapid.T) op
}

func inTurns(list []weighted) []func(*rapid.T) op {
	var turns []func(*rapid.T) op
	for turn := range 16 {
		for _, w := range list {
			if turn < w.weight {
				turns = append(turns, w.maker)
			}
		}
	}
	return turns
}

// one draws one of the values; failing scripts shrink towards the first.
func one[T any](t *rapid.T, values []T) T { return rapid.SampledFrom(values).Draw(t, "") }

// among draws one of the values; failing scripts shrink towards the first.
func among[T any](t *rapid.T, values ...T) T { return one(t, values) }

// rarely draws true once in n times. It asks for the middle, for rapid likes the ends of a range more than the rest.
func rarely(t *rapid.T, n int) bool { return rapid.IntRange(0, n-1).Draw(t, "") == n/2 }

// A pick names a job, or a lease, by the phase of the job and its place among those in that phase, from the newest back.
type pick struct {
	phase store.State
	place int
}

func (p pick) String() string { return fmt.Sprintf("%s~%d", p.phase, p.place) }

// pickable are the phases that a picked job can be in, those that are harder to come by first: rapid likes them better.
var pickable = []store.State{
	store.InFlight, store.Retrying, store.Dead, store.Succeeded, store.Ready, store.Blocked, store.Cancelled, store.Gone,
}

// drawLease picks a lease: every other time one of a job in flight.
func drawLease(t *rapid.T) pick {
	phase := store.InFlight
	if rapid.Bool().Draw(t, "") {
		phase = one(t, pickable)
	}
	return pick{phase, rapid.IntRange(0, 4).Draw(t, "")}
}

// drawJob picks a job.
func drawJob(t *rapid.T) pick {
	return pick{one(t, pickable), rapid.IntRange(0, 3).Draw(t, "")}
}

// several draws one to four items of a call; some of them say again which job the item before was about.
func several[T any](t *rapid.T, draw func(*rapid.T) T, about func(item *T, before T)) []T {
	items := []T{draw(t)}
	for len(items) < 4 && rapid.Bool().Draw(t, "") {
		item := draw(t)
		if rarely(t, 4) {
			about(&item, items[len(items)-1])
		}
		items = append(items, item)
	}
	return items
}

// when is a part of a text that is only there when it says something.
func when(said bool, format string, args ...any) string {
	if !said {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// texts joins what items say of themselves.
func texts[T fmt.Stringer](items []T) string {
	all := make([]string, len(items))
	for i, item := range items {
		all[i] = item.String()
	}
	return strings.Join(all, ", ")
}

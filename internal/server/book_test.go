package server

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// broken returns what is inconsistent in the book.
func (h *book) broken(now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	stages, queues := map[stage]int{}, map[string]int{}
	for queue := range h.byQueue {
		queues[queue] = 0
	}
	for i, r := range h.runs {
		lease := r.Lease()
		stages[r.stage]++
		if _, limited := queues[r.Queue]; limited && r.stage != ended {
			queues[r.Queue]++
		}
		switch at := r.deadline(); {
		case int(r.index) != i+1:
			return fmt.Errorf("run %v has the place %d, and believes %d", lease, i+1, r.index)
		case r.abandoned && r.stage != ended:
			return fmt.Errorf("run %v was given up, is not written, and still held", lease)
		case r.stage == running && (h.watchAt.IsZero() || at.Before(h.watchAt)):
			return fmt.Errorf("run %v is due at %v, and the watch looks at %v", lease, at, h.watchAt)
		}
	}
	listed := map[*Run]int{}
	for _, r := range slices.Concat(h.buffered, h.ended, h.delayed) {
		if listed[r]++; listed[r] > 1 {
			return fmt.Errorf("run %v is in two lists", r.Lease())
		}
	}
	startable := slices.ContainsFunc(h.buffered, func(r *Run) bool { return r.leaseUntil.After(now) })
	switch {
	case len(h.buffered) != stages[buffered]:
		return fmt.Errorf("%d are queued, %d buffered", len(h.buffered), stages[buffered])
	case h.running != stages[running]+len(h.blocking):
		return fmt.Errorf("%d slots are taken by %d runs and %d that were given up", h.running, stages[running], len(h.blocking))
	case h.uncommitted != stages[ended]:
		return fmt.Errorf("%d are uncommitted, %d ended", h.uncommitted, stages[ended])
	case len(h.ended)+len(h.delayed) > stages[ended]:
		return fmt.Errorf("%d and %d are to be written, and %d ended", len(h.ended), len(h.delayed), stages[ended])
	case !maps.Equal(queues, h.byQueue):
		return fmt.Errorf("of the queues there are %v, and %v are counted", queues, h.byQueue)
	case h.running > h.slots || h.running < 0:
		return fmt.Errorf("%d of %d slots are taken", h.running, h.slots)
	case h.abandoned < 0 || h.abandoned > max(0, h.maxAbandoned):
		return fmt.Errorf("%d slots were replaced, at most %d may", h.abandoned, h.maxAbandoned)
	case len(h.blocking) > 0 && h.abandoned < h.maxAbandoned:
		return errors.New("a slot is not replaced although it may be")
	case h.running < h.slots && startable:
		return errors.New("a slot is free, and a run waits that could start")
	case h.stopping && len(h.buffered) > 0:
		return errors.New("the server stops, and runs wait to start")
	}
	return nil
}

// Whatever happens to runs, in whatever order, the book is consistent: no run is started twice, is in two lists, or is written twice; no
// slot gets lost; and no loop sleeps while it has something to do. At the end, the book is empty.
func TestBookAddsUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o, err := Options{
			Slots: rapid.IntRange(1, 3).Draw(rt, "slots"), Claim: ClaimOptions{Buffer: rapid.IntRange(0, 3).Draw(rt, "buffer")},
			Abandon: AbandonOptions{MaxHandlers: rapid.IntRange(-1, 3).Draw(rt, "most abandoned")}, Commit: CommitOptions{MaxUncommitted: 5},
			Queues: map[string]QueueOptions{"a": {Slots: 1}, "b": {}}, // b without a limit of its own
		}.withDefaults()
		require.NoError(rt, err)
		c := &clerk{
			T: rt, h: newBook(o), now: dawn,
			starts: map[*Run]int{}, told: map[*Run]int{}, givenUp: map[*Run]int{}, written: map[*Run]bool{},
		}
		c.waitings = c.waiting()
		actions := map[string]func(*rapid.T){
			"claim": c.Claim, "return": c.Return, "beat": c.Beat, "save": c.Save, "time": c.Time, "watch": c.Watch,
			"pause": c.Pause, "take": c.Take, "write": c.Write, "stop": c.Stop, "": c.Check,
		}
		rt.Repeat(actions)
		c.finish()
	})
}

package random

import (
	"fmt"
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

// A cell counts how often an operation met a job in a phase with an outcome.
type cell struct {
	op      store.Op
	phase   store.State
	outcome store.Status
}

// What a claim or a recovery can do with a job that it might have taken.
const (
	taken store.Status = "taken"
	left  store.Status = "left"
)

// A tally is what the scripts of a run have tried.
type tally struct {
	ops     int
	scripts int
	cells   map[cell]int
}

func newTally() *tally { return &tally{cells: map[cell]int{}} }

// add counts what another tally has counted.
func (t *tally) add(other *tally) {
	t.ops += other.ops
	t.scripts += other.scripts
	for c, n := range other.cells {
		t.cells[c] += n
	}
}

// outcome counts what became of an item, and moves the job to its new phase, which the next item of the call meets.
func (t *tally) outcome(op store.Op, now map[int64]store.State, o store.Outcome) {
	phase, found := now[o.ID]
	if !found {
		phase = store.Gone
	}
	t.cells[cell{op, phase, o.Status}]++
	switch {
	case o.State != "":
		now[o.ID] = store.Job{State: o.State, RetryAt: o.Next}.Phase()
	case op == store.OpDelete && o.Status == store.StatusOK:
		now[o.ID] = store.Gone
	}
}

// gaps are the sentences of the contract that the scripts have not put to the test: an operation that met no job in some
// phase, a transition of the table that was not made, an operation on leases that met no stale one.
func (t *tally) gaps(noWaits bool) []string {
	var gaps []string
	for _, row := range store.Transitions {
		for _, phase := range phasesOf(row.Op) {
			if noWaits && phase == store.Blocked {
				continue
			}
			if t.count(row.Op, phase, outcomes...) == 0 {
				gaps = append(gaps, fmt.Sprintf("%s never met a job that was %s", row.Op, phase))
			}
		}
		for _, phase := range row.From {
			if noWaits && phase == store.Blocked {
				continue
			}
			if t.count(row.Op, phase, store.StatusOK, taken) == 0 {
				gaps = append(gaps, fmt.Sprintf("%s never changed a job that was %s", row.Op, phase))
			}
		}
		if row.Guard == "token" {
			met := func(phase store.State) bool { return t.count(row.Op, phase, store.StatusStale) > 0 }
			if !slices.ContainsFunc(phases, met) {
				gaps = append(gaps, fmt.Sprintf("%s never met a stale lease", row.Op))
			}
		}
	}
	return gaps
}

// The columns and the phases of the table.
var (
	outcomes = []store.Status{
		store.StatusOK, taken, left, store.StatusStale, store.StatusFinished, store.StatusCancelled, store.StatusWrongState,
		store.StatusDuplicate, store.StatusNotFound, store.StatusInvalid, store.StatusBusy,
	}
	phases = append(slices.Clone(store.Phases), store.Gone)
)

// phasesOf are the phases of jobs that the operation can meet: only one that names its jobs meets those that are gone.
func phasesOf(op store.Op) []store.State {
	if op == store.OpUnblock { // which names no job
		return nil
	}
	if op == store.OpClaim || op == store.OpRecover {
		return store.Phases
	}
	return phases
}

func (t *tally) count(op store.Op, phase store.State, outcomes ...store.Status) int {
	n := 0
	for _, outcome := range outcomes {
		n += t.cells[cell{op, phase, outcome}]
	}
	return n
}

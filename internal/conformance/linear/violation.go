package linear

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed-ed332417/jq/internal/store"
)

// timeout is how long porcupine may take for one part: histories are so small that it needs milliseconds.
const timeout = 20 * time.Second

// A Violation is a part of a history that no order of its calls explains, or that could not be judged, or a job that is not as it must be
// at rest.
type Violation struct {
	Seed    uint64 // of the history: Options.Seed runs its script first
	Part    string // the job or the unique key
	Unknown bool   // porcupine did not come to an end in time
	Flaw    string // what the job is at rest, if that is what is wrong
	Listing string // the operations, in the order of their calls
}

// Error is the verdict, followed by the operations.
func (v *Violation) Error() string {
	verdict := cmp.Or(v.Flaw, "is not linearizable")
	if v.Unknown {
		verdict = fmt.Sprintf("could not be judged within %v", timeout)
	}
	return fmt.Sprintf("history with seed %d: %s %s:\n%s", v.Seed, v.Part, verdict, v.Listing)
}

// judge says whether some order explains the part, and is nil if one does.
func (p part) judge(seed uint64) error {
	ops := ended(p.ops)
	verdict := porcupine.CheckOperationsTimeout(specification, ops, timeout)
	if verdict == porcupine.Ok {
		return nil
	}
	_, info := porcupine.CheckOperationsVerbose(specification, ops, timeout)
	return &Violation{Seed: seed, Part: p.name, Unknown: verdict == porcupine.Unknown, Listing: p.listing(explained(info))}
}

// judgeRest says which job is not as it must be at rest, and is nil if all are.
func (h *history) judgeRest(parts []part) error {
	flaws := h.flaws()
	if len(flaws) == 0 {
		return nil
	}
	v := &Violation{Seed: h.seed, Part: fmt.Sprintf("job %d", flaws[0].id), Flaw: flaws[0].what}
	for _, p := range parts {
		v.Listing += p.name + "\n" + p.listing(nil)
	}
	return v
}

// explained are the events in the longest order that porcupine found.
func explained(info porcupine.LinearizationInfo) map[*event]bool {
	events := map[*event]bool{}
	for _, orders := range info.PartialLinearizationsOperations() {
		if len(orders) == 0 {
			continue
		}
		longest := slices.MaxFunc(orders, func(a, b []porcupine.Operation) int { return cmp.Compare(len(a), len(b)) })
		for _, op := range longest {
			events[op.Input.(*event)] = true
		}
	}
	return events
}

// listing has one line for each operation: when it was called and returned, by whom, at what time of the store, and what it
// asked and got. A mark shows those that do not fit behind the others.
func (p part) listing(explained map[*event]bool) string {
	var text strings.Builder
	ops := slices.Clone(p.ops)
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	fmt.Fprintf(&text, "   %5s %6s %s\n", "call", "return", "client, operation, answer, and what it shows of the job (✗: no place in the longest order found)")
	for _, op := range ops {
		e := op.Input.(*event)
		mark, ret := "✗", fmt.Sprint(op.Return)
		if explained == nil || explained[e] {
			mark = " "
		}
		if op.Return == never {
			ret = "–"
		}
		fmt.Fprintf(&text, " %s %5d %6s c%d at %s %s\n", mark, op.Call, ret, op.ClientId, e.now, e)
	}
	return text.String()
}

// String is what was asked and what was answered.
func (e *event) String() string {
	text := string(e.op)
	add := func(known bool, format string, args ...any) {
		if known {
			text += fmt.Sprintf(format, args...)
		}
	}
	add(e.id != 0, " job %d", e.id)
	add(e.token != 0, " token %d", e.token)
	add(e.worker != "", " by %s", e.worker)
	for _, it := range e.items {
		add(true, " [%s", it.job.Kind)
		add(it.job.UniqueKey != "", " key %s for %v", it.job.UniqueKey, it.job.UniqueFor)
		add(it.job.Group != "", " in %s", it.job.Group)
		for _, w := range it.job.After {
			add(true, " after %+v", w)
		}
		add(it.Duplicate, " → duplicate of job %d, %s", it.ID, it.State)
		add(!it.Duplicate && it.ID != 0, " → job %d, %s", it.ID, it.State)
		add(true, "]")
	}
	add(e.lost && e.op != store.OpUnblock && e.op != opCascade, " → answer lost")
	add(!e.lost && e.op != opEnqueue, " → %s", e.status)
	add(e.seen.state != "", " (%s, token %d", e.seen.phase(), e.seen.token)
	add(!e.seen.next.IsZero(), ", next %s", exactly(e.seen.next))
	if r := e.seen.row; r != nil {
		add(true, ", attempts %d, retries %d, worker %q, result %q", r.Attempts, r.Retries, r.Worker, r.Result)
		add(true, ", error %q, checkpoint %q", r.Error, r.Checkpoint)
	}
	add(e.seen.state != "", ")")
	return text
}

// String is the time of the day, or the two bounds.
func (s span) String() string {
	clockTime := func(t int64) string { return time.UnixMicro(t).UTC().Format("15:04:05.000000") }
	if s.lo == s.hi {
		return clockTime(s.lo)
	}
	return clockTime(s.lo) + "…" + clockTime(s.hi)
}

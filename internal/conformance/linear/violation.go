package linear

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// timeout is how long porcupine may take for one part: histories are so small that it needs milliseconds.
const timeout = 20 * time.Second

// A Violation is a part of a history that no order of its calls explains, or that could not be judged.
type Violation struct {
	Seed    uint64 // of the history: Options.Seed runs its script first
	Part    string // the job or the unique key
	Unknown bool   // porcupine did not come to an end in time
	Listing string // the operations, in the order of their calls
	Page    string // the file that shows them, if asked for
}

// Error is the verdict, followed by the operations.
func (v *Violation) Error() string {
	verdict := "is not linearizable"
	if v.Unknown {
		verdict = fmt.Sprintf("could not be judged within %v", timeout)
	}
	text := fmt.Sprintf("history with seed %d: %s %s:\n%s", v.Seed, v.Part, verdict, v.Listing)
	if v.Page != "" {
		text += "shown in " + v.Page + "\n"
	}
	return text
}

// judge says whether some order explains the part, and is nil if one does.
func (p part) judge(seed uint64, directory string) error {
	ops := ended(p.ops)
	verdict := porcupine.CheckOperationsTimeout(specification, ops, timeout)
	if verdict == porcupine.Ok {
		return nil
	}
	v := &Violation{Seed: seed, Part: p.name, Unknown: verdict == porcupine.Unknown}
	_, info := porcupine.CheckOperationsVerbose(specification, ops, timeout)
	v.Listing = p.listing(explained(info))
	if directory != "" {
		v.Page = filepath.Join(directory, fmt.Sprintf("linear-%d.html", seed))
		if err := porcupine.VisualizePath(specification, info, v.Page); err != nil {
			return fmt.Errorf("%w\nwriting the page: %w", v, err)
		}
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
		if explained[e] {
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
	words := []string{string(e.op)}
	if e.id != 0 {
		words = append(words, fmt.Sprintf("job %d", e.id))
	}
	if e.token != 0 {
		words = append(words, fmt.Sprintf("token %d", e.token))
	}
	if e.worker != "" {
		words = append(words, "by "+e.worker)
	}
	for _, it := range e.items {
		words = append(words, it.String())
	}
	text := strings.Join(words, " ")
	switch {
	case e.lost:
		return text + " → answer lost"
	case e.op == opEnqueue:
		return text
	default:
		return fmt.Sprintf("%s → %s %s", text, e.status, e.seen)
	}
}

// String is the job asked for, and its id.
func (it item) String() string {
	text := "[" + it.job.Kind
	if it.job.UniqueKey != "" {
		text += fmt.Sprintf(" key %s for %v", it.job.UniqueKey, it.job.UniqueFor)
	}
	switch {
	case it.Duplicate:
		text += fmt.Sprintf(" → duplicate of job %d, %s", it.ID, it.State)
	case it.ID != 0:
		text += fmt.Sprintf(" → job %d", it.ID)
	}
	return text + "]"
}

// String is the state and what else is known.
func (s sight) String() string {
	if s.state == "" {
		return ""
	}
	text := fmt.Sprintf("(%s, token %d", s.phase(), s.token)
	if !s.next.IsZero() {
		text += ", next " + exactly(s.next).String()
	}
	if r := s.row; r != nil {
		text += fmt.Sprintf(", attempts %d, retries %d, worker %q, result %q, error %q, checkpoint %q", r.Attempts, r.Retries, r.Worker, r.Result, r.Error, r.Checkpoint)
	}
	return text + ")"
}

// String is the time of the day, or the two bounds.
func (s span) String() string {
	clockTime := func(t int64) string { return time.UnixMicro(t).UTC().Format("15:04:05.000000") }
	if s.lo == s.hi {
		return clockTime(s.lo)
	}
	return clockTime(s.lo) + "…" + clockTime(s.hi)
}

package store

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// A Filter selects the jobs that match every field that is set.
type Filter struct {
	IDs         []int64       `json:"ids,omitempty"`          // the id is one of these
	After       int64         `json:"after,omitempty,string"` // the id is greater
	Queue       string        `json:"queue,omitempty"`        // in this queue
	Queues      []string      `json:"queues,omitempty"`       // the queue matches one of these: a name, or a prefix followed by *
	Kind        string        `json:"kind,omitempty"`         // of this kind
	Tag         string        `json:"tag,omitempty"`          // is one of the job's tags
	Worker      string        `json:"worker,omitempty"`       // the worker that claimed it last
	UniqueKey   string        `json:"unique_key,omitempty"`   // with this unique key
	Group       string        `json:"group,omitempty"`        // in this group
	LimitKey    string        `json:"limit_key,omitempty"`    // with this limit key
	States      []State       `json:"states,omitempty"`       // the state or the phase is one of these
	FinishedFor time.Duration `json:"finished_for,omitempty"` // finished at least this long ago

	WaitsFor      int64  `json:"waits_for,omitempty,string"` // waits, or has waited, for the job with this id
	WaitsForGroup string `json:"waits_for_group,omitempty"`  // waits, or has waited, for the group with this name
	Unneeded      bool   `json:"unneeded,omitempty"`         // no job that has not ended waits, or has waited, for it or its group
}

// Empty reports whether no field is set; After does not count.
func (f Filter) Empty() bool {
	return len(f.IDs) == 0 && f.Queue == "" && len(f.Queues) == 0 && f.Kind == "" && f.Tag == "" && f.Worker == "" && f.UniqueKey == "" &&
		f.Group == "" && f.LimitKey == "" && len(f.States) == 0 && f.FinishedFor == 0 && f.WaitsFor == 0 && f.WaitsForGroup == "" && !f.Unneeded
}

// WithoutWaits returns the filter without what it says about waits, for a store that looks at these itself.
func (f Filter) WithoutWaits() Filter {
	f.WaitsFor, f.WaitsForGroup, f.Unneeded = 0, "", false
	return f
}

// Matches reports whether the filter selects the job at now, in a store in which no job waits for others.
func (f Filter) Matches(j Job, now time.Time) bool {
	inStates := func() bool {
		return slices.ContainsFunc(f.States, func(s State) bool { return s == j.State || s == j.Phase() })
	}
	finishedLongEnough := func() bool {
		return j.Terminal() && !j.FinishedAt.After(now.Add(-f.FinishedFor.Truncate(Resolution)))
	}
	return (len(f.IDs) == 0 || slices.Contains(f.IDs, j.ID)) && j.ID > f.After &&
		(f.Queue == "" || f.Queue == j.Queue) && QueueMatches(f.Queues, j.Queue) &&
		(f.Kind == "" || f.Kind == j.Kind) &&
		(f.Tag == "" || slices.Contains(j.Tags, f.Tag)) &&
		(f.Worker == "" || f.Worker == j.Worker) &&
		(f.UniqueKey == "" || f.UniqueKey == j.UniqueKey) &&
		(f.Group == "" || f.Group == j.Group()) &&
		(f.LimitKey == "" || f.LimitKey == j.LimitKey()) &&
		(len(f.States) == 0 || inStates()) &&
		(f.FinishedFor == 0 || finishedLongEnough()) && f.WaitsFor == 0 && f.WaitsForGroup == ""
}

// Cursor returns the cursor of the page that begins after the job with the id.
func (f Filter) Cursor(id int64) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(f.mark(), uint64(id)))
}

// Position checks the filter and the page, and returns the id before which the page begins: math.MaxInt64 for the first page. A cursor
// from another filter or from another listing returns ErrInvalid.
func (f Filter) Position(page Page) (int64, error) {
	if err := cmp.Or(f.Check(), page.Check()); err != nil {
		return 0, err
	}
	if page.Cursor == "" {
		return math.MaxInt64, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(page.Cursor)
	if err == nil && len(raw) >= 8 {
		if id := int64(binary.BigEndian.Uint64(raw[len(raw)-8:])); f.Cursor(id) == page.Cursor {
			return id, nil
		}
	}
	return 0, refuse("cursor", "must come from the page before, by the same filter")
}

// mark returns a hash of the filter, so that a cursor is not used with another filter by mistake.
func (f Filter) mark() []byte {
	text := fmt.Sprintf("%d %d %q %q %q %q %q %q %q %d",
		f.IDs, f.After, f.Queue, f.Queues, f.Kind, f.Tag, f.Worker, f.UniqueKey, f.States, f.FinishedFor.Microseconds())
	if f.WaitsFor != 0 || f.Unneeded { // else the cursor is as in earlier versions, with which a client may talk
		text += fmt.Sprintf(" %d %t", f.WaitsFor, f.Unneeded)
	}
	if f.Group != "" {
		text += fmt.Sprintf(" group %q", f.Group)
	}
	if f.LimitKey != "" {
		text += fmt.Sprintf(" limit key %q", f.LimitKey)
	}
	if f.WaitsForGroup != "" {
		text += fmt.Sprintf(" waits for group %q", f.WaitsForGroup)
	}
	sum := sha256.Sum256([]byte(text))
	return sum[:8]
}

// A WorkerFilter selects workers.
type WorkerFilter struct {
	Name string // selects the worker with this name; empty selects every worker
}

// Cursor returns the cursor of the page that begins after the worker with the name.
func (f WorkerFilter) Cursor(name string) string { return f.listing().cursor(name) }

// Position checks the filter and the page, and returns the name after which the page begins: empty for the first page. A cursor
// from another filter or from another listing returns ErrInvalid.
func (f WorkerFilter) Position(page Page) (string, error) {
	return f.listing().position(f.Check(), page)
}

func (f WorkerFilter) listing() listing { return listing(fmt.Sprintf("workers %q", f.Name)) }

// Cursor returns the cursor of the page that begins after the schedule with the name.
func (f ScheduleFilter) Cursor(name string) string { return f.listing().cursor(name) }

// Position checks the filter and the page, and returns the name after which the page begins: empty for the first page. A cursor
// from another filter or from another listing returns ErrInvalid.
func (f ScheduleFilter) Position(page Page) (string, error) {
	return f.listing().position(f.Check(), page)
}

func (f ScheduleFilter) listing() listing {
	return listing(fmt.Sprintf("schedules %q %t %d", f.Name, f.Due, f.Within.Microseconds()))
}

// A listing is the text that tells a listing by name, with its filter, from others.
type listing string

func (l listing) cursor(name string) string {
	return base64.RawURLEncoding.EncodeToString(append(l.mark(), name...))
}

func (l listing) position(invalid error, page Page) (string, error) {
	if invalid != nil {
		return "", invalid
	}
	if err := page.Check(); err != nil || page.Cursor == "" {
		return "", err
	}
	raw, err := base64.RawURLEncoding.DecodeString(page.Cursor)
	if mark := l.mark(); err == nil && bytes.HasPrefix(raw, mark) {
		name := string(raw[len(mark):])
		if checkName("cursor", name, required) == nil && l.cursor(name) == page.Cursor {
			return name, nil
		}
	}
	return "", refuse("cursor", "must come from the page before, by the same filter")
}

// mark returns a hash of the listing, so that a cursor is not used with another one by mistake.
func (l listing) mark() []byte {
	sum := sha256.Sum256([]byte(l))
	return sum[:8]
}

// QueueMatches reports whether the queue matches one of the patterns. Without patterns, every queue matches.
func QueueMatches(patterns []string, queue string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		begin, open := strings.CutSuffix(p, "*")
		return p == queue || open && strings.HasPrefix(queue, begin)
	})
}

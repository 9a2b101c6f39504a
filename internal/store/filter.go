package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Filter chooses jobs: those that match every field that is set.
type Filter struct {
	IDs         []int64 // one of these
	After       int64   // a greater id
	Queue       string
	Queues      []string // in one of these: a name, or the beginning of names with a * behind it
	Kind        string
	Tag         string // among the job's tags
	Worker      string // claimed it last
	UniqueKey   string
	States      []State       // in one of these, faces of Failed included
	FinishedFor time.Duration // finished so long ago, or longer
}

// Empty says that the filter chooses nothing in particular: After alone does not count.
func (f Filter) Empty() bool {
	return len(f.IDs) == 0 && f.Queue == "" && len(f.Queues) == 0 && f.Kind == "" && f.Tag == "" && f.Worker == "" && f.UniqueKey == "" &&
		len(f.States) == 0 && f.FinishedFor == 0
}

// Matches says whether the job is chosen at now.
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
		(len(f.States) == 0 || inStates()) &&
		(f.FinishedFor == 0 || finishedLongEnough())
}

// Cursor is the mark for the page that begins after the job with the id.
func (f Filter) Cursor(id int64) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(f.mark(), uint64(id)))
}

// Position is the id that the cursor carries: the page holds smaller ones. A cursor of another filter is ErrInvalid.
func (f Filter) Position(cursor string) (int64, error) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil && len(raw) >= 8 {
		if id := int64(binary.BigEndian.Uint64(raw[len(raw)-8:])); f.Cursor(id) == cursor {
			return id, nil
		}
	}
	return 0, refuse("cursor", "must come from the page before, by the same filter")
}

// mark tells filters apart, so that a cursor is not used with another one by mistake.
func (f Filter) mark() []byte {
	text := fmt.Sprintf("%d %d %q %q %q %q %q %q %q %d",
		f.IDs, f.After, f.Queue, f.Queues, f.Kind, f.Tag, f.Worker, f.UniqueKey, f.States, f.FinishedFor.Microseconds())
	sum := sha256.Sum256([]byte(text))
	return sum[:8]
}

// A WorkerFilter chooses workers.
type WorkerFilter struct {
	Name string // the one that has it; empty for every one
}

// Cursor is the mark for the page that begins after the worker with the name.
func (f WorkerFilter) Cursor(name string) string {
	return base64.RawURLEncoding.EncodeToString(append(f.mark(), name...))
}

// Position checks a request for a page, and is the name after which the page begins: empty for the first one. A cursor of another
// filter, or of jobs, is ErrInvalid.
func (f WorkerFilter) Position(page Page) (string, error) {
	if err := f.Check(); err != nil {
		return "", err
	}
	if err := page.Check(); err != nil || page.Cursor == "" {
		return "", err
	}
	raw, err := base64.RawURLEncoding.DecodeString(page.Cursor)
	if mark := f.mark(); err == nil && bytes.HasPrefix(raw, mark) {
		name := string(raw[len(mark):])
		if checkName("cursor", name, required) == nil && f.Cursor(name) == page.Cursor {
			return name, nil
		}
	}
	return "", refuse("cursor", "must come from the page before, by the same filter")
}

// mark tells a cursor of this filter from others, so that none is used with another listing by mistake.
func (f WorkerFilter) mark() []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "workers %q", f.Name))
	return sum[:8]
}

// QueueMatches says whether the queue is one of those that the patterns choose. No patterns choose every queue.
func QueueMatches(patterns []string, queue string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		begin, open := strings.CutSuffix(p, "*")
		return p == queue || open && strings.HasPrefix(queue, begin)
	})
}

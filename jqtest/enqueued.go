package jqtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ed332417/jq"
)

// A Want describes jobs that should have been enqueued. Zero fields match every job.
type Want struct {
	// Payload must be equal to the job's payload as JSON, and of the same kind.
	Payload jq.Payload
	// Kind is for jobs whose payload does not matter. It is ignored if Payload is set.
	Kind string

	Queue     string        // the name of the job's queue
	Delay     time.Duration // from enqueueing to the time it is due
	UniqueKey string        // the job's, as a whole
	LimitKey  string        // the job's, as a whole
	Tags      []string      // the job must have all of these

	// Priority must be the job's priority, if it is set: new(3).
	Priority *int
	// Where must return true for the job, if it is set.
	Where func(jq.Job) bool
	// Times is how many such jobs there must be. Zero means one or more.
	Times int
}

// RequireEnqueued fails the test unless the store has jobs that match want, in any state. It returns them in the order in which
// they were enqueued.
func RequireEnqueued(t testing.TB, s jq.Store, want Want) []jq.Job {
	t.Helper()
	found, others := search(t, s, want)
	switch {
	case want.Times > 0 && len(found) != want.Times:
		t.Fatalf("want %d jobs enqueued with %s, found %d%s%s", want.Times, want, len(found),
			lines("\nThose that match:", found), lines("\nThose that do not:", others))
	case len(found) == 0:
		t.Fatalf("no job was enqueued with %s%s", want, lines("\nThose that were:", others))
	}
	jobs := make([]jq.Job, len(found))
	for i, f := range found {
		jobs[i] = f.Job
	}
	return jobs
}

// RefuteEnqueued fails the test if the store has a job that matches want.
func RefuteEnqueued(t testing.TB, s jq.Store, want Want) {
	t.Helper()
	if found, _ := search(t, s, want); len(found) > 0 {
		t.Fatalf("want no job enqueued with %s%s", want, lines("\nThere is:", found))
	}
}

// A candidate is a job with the reasons why it does not match.
type candidate struct {
	jq.Job
	misses []string
}

func (c candidate) String() string {
	text := fmt.Sprintf("job %d, %s in %s, %s: %s", c.ID, c.Kind, c.Queue, c.Phase(), c.Payload)
	if len(c.misses) > 0 {
		text += " (" + strings.Join(c.misses, ", ") + ")"
	}
	return text
}

func search(t testing.TB, s jq.Store, want Want) (found, others []candidate) {
	t.Helper()
	for job, err := range jq.NewClient(s, nil).Jobs(t.Context(), jq.Filter{}) {
		if err != nil {
			t.Fatalf("listing the jobs: %v", err)
		}
		misses, err := want.misses(job)
		if err != nil {
			t.Fatal(err)
		}
		if len(misses) == 0 {
			found = append(found, candidate{job, nil})
		} else {
			others = append(others, candidate{job, misses})
		}
	}
	slices.Reverse(found)
	slices.Reverse(others)
	return found, others
}

// misses lists how the job differs from want.
func (w Want) misses(j jq.Job) ([]string, error) {
	var misses []string
	differs := func(format string, args ...any) { misses = append(misses, fmt.Sprintf(format, args...)) }
	if kind := w.kind(); kind != "" && kind != j.Kind {
		differs("another kind")
	} else if w.Payload != nil {
		same, err := samePayload(w.Payload, j.Payload)
		if err != nil {
			return nil, err
		}
		if !same {
			differs("another payload")
		}
	}
	if w.Queue != "" && w.Queue != j.Queue {
		differs("another queue")
	}
	if delay := j.RunAt.Sub(j.EnqueuedAt); w.Delay != 0 && w.Delay != delay {
		differs("delay %v", delay)
	}
	if w.UniqueKey != "" && w.UniqueKey != j.UniqueKey {
		differs("unique key %q", j.UniqueKey)
	}
	if w.LimitKey != "" && w.LimitKey != j.LimitKey() {
		differs("limit key %q", j.LimitKey())
	}
	if w.Priority != nil && *w.Priority != j.Priority {
		differs("priority %d", j.Priority)
	}
	for _, tag := range w.Tags {
		if !slices.Contains(j.Tags, tag) {
			differs("no tag %q", tag)
		}
	}
	if len(misses) == 0 && w.Where != nil && !w.Where(j) {
		differs("not where wanted")
	}
	return misses, nil
}

func (w Want) kind() string {
	if w.Payload != nil {
		return w.Payload.Kind()
	}
	return w.Kind
}

// samePayload compares two documents as JSON, ignoring white space.
func samePayload(want jq.Payload, got []byte) (bool, error) {
	doc, err := json.Marshal(want)
	if raw, ok := want.(jq.Raw); ok {
		doc, err = raw.Document, nil
	}
	if err != nil {
		return false, fmt.Errorf("the wanted payload of kind %q is no JSON: %w", want.Kind(), err)
	}
	var a, b bytes.Buffer
	if err := json.Compact(&a, doc); err != nil {
		return false, fmt.Errorf("the wanted payload of kind %q is no JSON: %w", want.Kind(), err)
	}
	if err := json.Compact(&b, got); err != nil {
		return false, err
	}
	return bytes.Equal(a.Bytes(), b.Bytes()), nil
}

// String describes the wanted job, as part of a sentence.
func (w Want) String() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if kind := w.kind(); kind != "" {
		add("kind %s", kind)
	}
	if w.Payload != nil {
		doc, err := json.Marshal(w.Payload)
		if raw, ok := w.Payload.(jq.Raw); ok {
			doc, err = raw.Document, nil
		}
		if err == nil {
			add("payload %s", doc)
		}
	}
	if w.Queue != "" {
		add("queue %s", w.Queue)
	}
	if w.Delay != 0 {
		add("delay %v", w.Delay)
	}
	if w.UniqueKey != "" {
		add("unique key %q", w.UniqueKey)
	}
	if w.LimitKey != "" {
		add("limit key %q", w.LimitKey)
	}
	if w.Priority != nil {
		add("priority %d", *w.Priority)
	}
	if len(w.Tags) > 0 {
		add("tags %q", w.Tags)
	}
	if w.Where != nil {
		add("what Where says")
	}
	if len(parts) == 0 {
		return "whatever"
	}
	return strings.Join(parts, ", ")
}

// lines returns the heading and each thing on a line of its own, or nothing if there are no things.
func lines[T fmt.Stringer](heading string, things []T) string {
	if len(things) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString(heading)
	for _, thing := range things {
		text.WriteString("\n  " + thing.String())
	}
	return text.String()
}

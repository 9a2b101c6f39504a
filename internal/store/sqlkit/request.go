package sqlkit

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Request is what the store keeps under a request key.
type Request struct {
	Fingerprint string
	Answer      string
}

// Once adds the jobs of a request and keeps the answer under its key. If an answer is kept under the key already, Once adds
// nothing and returns that answer.
func Once(
	req store.EnqueueRequest,
	add func(store.EnqueueRequest) ([]store.Enqueued, error),
	find func(key string) (first Request, known bool, err error),
	keep func(key string, r Request) error,
) ([]store.Enqueued, error) {
	if len(req.Jobs) == 0 {
		return nil, nil
	}
	if req.RequestKey == "" {
		return add(req)
	}
	sum := req.Fingerprint()
	fingerprint := hex.EncodeToString(sum[:])
	first, known, err := find(req.RequestKey)
	if err != nil {
		return nil, err
	}
	if known && first.Fingerprint != fingerprint {
		return nil, req.KeyUsed()
	}
	if known {
		return first.answers()
	}
	answers, err := add(req)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(shortened(answers))
	if err != nil {
		return nil, err
	}
	return answers, keep(req.RequestKey, Request{Fingerprint: fingerprint, Answer: string(text)})
}

// An answer is what databases keep of one or more store.Enqueued. Do not rename its fields: rows that older programs wrote use these names.
type answer struct {
	ID        ids
	State     store.State
	Duplicate bool
	Replaced  bool `json:",omitempty"`
}

// ids are the ids from first to last. In databases these are one number, or two: a program that knows only one number fails then.
type ids struct{ first, last int64 }

// MarshalJSON writes the numbers.
func (i ids) MarshalJSON() ([]byte, error) {
	if i.first == i.last {
		return json.Marshal(i.first)
	}
	return json.Marshal([]int64{i.first, i.last})
}

// UnmarshalJSON reads the numbers.
func (i *ids) UnmarshalJSON(text []byte) error {
	if !bytes.HasPrefix(text, []byte("[")) {
		err := json.Unmarshal(text, &i.first)
		i.last = i.first
		return err
	}
	return json.Unmarshal(text, &[2]*int64{&i.first, &i.last})
}

// shortened returns the answers as databases keep them. Those about new jobs are mostly alike.
func shortened(answers []store.Enqueued) []answer {
	var rows []answer
	for _, a := range answers {
		next := answer{ids{a.ID, a.ID}, a.State, a.Duplicate, a.Replaced}
		if n := len(rows); n > 0 {
			last := &rows[n-1]
			if alike := (answer{ids{last.ID.last + 1, last.ID.last + 1}, last.State, last.Duplicate, last.Replaced}); alike == next {
				last.ID.last++
				continue
			}
		}
		rows = append(rows, next)
	}
	return rows
}

// answers returns the kept answer to the request.
func (r Request) answers() ([]store.Enqueued, error) {
	var rows []answer
	if err := json.Unmarshal([]byte(r.Answer), &rows); err != nil {
		return nil, err
	}
	var answers []store.Enqueued
	for _, row := range rows {
		for id := row.ID.first; id <= row.ID.last; id++ {
			answers = append(answers, store.Enqueued{ID: id, State: row.State, Duplicate: row.Duplicate, Replaced: row.Replaced})
		}
	}
	return answers, nil
}

// Replace changes the holders that duplicates with Replace are to change, in the order of the jobs, and notes it in the answers.
// It returns the holders that it changed, some of them perhaps several times.
func Replace(jobs []store.NewJob, answers []store.Enqueued, holders map[int64]*store.Record, now time.Time) []*store.Record {
	var changed []*store.Record
	for i, n := range jobs {
		a := &answers[i]
		if e := holders[a.ID]; a.Duplicate && e.Replace(n, now) {
			a.Replaced = true
			changed = append(changed, e)
		}
	}
	return changed
}

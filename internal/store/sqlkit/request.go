package sqlkit

import (
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
	rows := make([]answer, len(answers))
	for i, a := range answers {
		rows[i] = answer(a)
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return nil, err
	}
	return answers, keep(req.RequestKey, Request{Fingerprint: fingerprint, Answer: string(text)})
}

// An answer is a store.Enqueued as databases keep it. Do not rename its fields: rows that older programs wrote use these names.
type answer struct {
	ID        int64
	State     store.State
	Duplicate bool
	Replaced  bool `json:",omitempty"`
}

// answers returns the kept answer to the request.
func (r Request) answers() ([]store.Enqueued, error) {
	var rows []answer
	if err := json.Unmarshal([]byte(r.Answer), &rows); err != nil {
		return nil, err
	}
	answers := make([]store.Enqueued, len(rows))
	for i, row := range rows {
		answers[i] = store.Enqueued(row)
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

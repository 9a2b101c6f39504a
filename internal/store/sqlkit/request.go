package sqlkit

import (
	"encoding/hex"
	"encoding/json"

	"github.com/seed-ed332417/jq/internal/store"
)

// A Request is what is kept of a request under its key.
type Request struct {
	Fingerprint string
	Answer      string
}

// Once adds the jobs of a request, and keeps its answer under its key. Where the key is kept already, it answers as the first
// time and adds nothing.
func Once(
	req store.EnqueueRequest,
	add func([]store.NewJob) ([]store.Enqueued, error),
	find func(key string) (first Request, known bool, err error),
	keep func(key string, r Request) error,
) ([]store.Enqueued, error) {
	if len(req.Jobs) == 0 {
		return nil, nil
	}
	if req.RequestKey == "" {
		return add(req.Jobs)
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
	answers, err := add(req.Jobs)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(answers)
	if err != nil {
		return nil, err
	}
	return answers, keep(req.RequestKey, Request{Fingerprint: fingerprint, Answer: string(text)})
}

// answers are what the request was answered.
func (r Request) answers() (answers []store.Enqueued, err error) {
	return answers, json.Unmarshal([]byte(r.Answer), &answers)
}

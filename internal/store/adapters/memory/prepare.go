package memory

import (
	"crypto/sha256"

	"github.com/seed-ed332417/jq/internal/store"
)

// Reading documents and texts takes long, so the functions below do it before a call takes the lock.

// A prepared request has passed its checks, and has its fingerprint if it has a request key.
type prepared struct {
	store.EnqueueRequest
	fingerprint [sha256.Size]byte
}

func prepare(req store.EnqueueRequest) (prepared, error) {
	p := prepared{EnqueueRequest: req}
	if err := req.Check(); err != nil {
		return p, err
	}
	if req.RequestKey != "" {
		p.fingerprint = req.Fingerprint()
	}
	return p, nil
}

// refusedResults returns why results are refused, by the index of their acks.
func refusedResults(acks []store.Ack) map[int]*store.Failure {
	var refusals map[int]*store.Failure
	for i, a := range acks {
		if f := a.Refused(); f != nil {
			if refusals == nil {
				refusals = map[int]*store.Failure{}
			}
			refusals[i] = f
		}
	}
	return refusals
}

// refusedSaves returns why saves are refused, by their index.
func refusedSaves(saves []store.Save) map[int]error {
	var refusals map[int]error
	for i, save := range saves {
		if err := save.Check(); err != nil {
			if refusals == nil {
				refusals = map[int]error{}
			}
			refusals[i] = err
		}
	}
	return refusals
}

// failuresOf applies the retry policy to each item. The forms that do not fail ignore the result.
func failuresOf(nacks []store.NAck) []store.Failure {
	failures := make([]store.Failure, len(nacks))
	for i, n := range nacks {
		failures[i] = n.Failure()
	}
	return failures
}

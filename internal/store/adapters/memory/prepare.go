package memory

import (
	"crypto/sha256"

	"github.com/seed-ed332417/jq/internal/store"
)

// What takes long, reading documents and texts, is done here before a call takes its turn.

// A prepared request has been checked, and has its fingerprint if it has a key.
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

// refusedResults is why results are refused, by the index of their acks.
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

// refusedSaves is why saves are refused, by their index.
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

// failuresOf is what the policy makes of each item; the forms that do not fail ignore theirs.
func failuresOf(nacks []store.NAck) []store.Failure {
	failures := make([]store.Failure, len(nacks))
	for i, n := range nacks {
		failures[i] = n.Failure()
	}
	return failures
}

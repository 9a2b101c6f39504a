package bbolt

import (
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// A holder is the job that holds a unique key: while it is live, or until its window ends, even if the job has ended.
type holder struct {
	ID    int64
	Until time.Time // the end of the window; zero while the job is live
}

// An answer is the stored answer to a request with a key.
type answer struct {
	Fingerprint [32]byte
	Jobs        []contract.Enqueued
	Until       time.Time
}

// holder returns the holder of the unique key, or none. It cancels a holder that has expired, unless that has a window.
func (t *txn) holder(key string) (holder, bool) {
	if key == "" {
		return holder{}, false
	}
	h, ok := get[holder](t, keys, []byte(key))
	if !ok || !h.Until.IsZero() {
		return h, ok && h.Until.After(t.now)
	}
	if j := t.job(h.ID); j != nil && contract.ExpiredOf(&j.Job, t.now) {
		t.cancel(j)
		return holder{}, false
	}
	return h, true
}

// hold gives the job its unique key, which must be free.
func (t *txn) hold(j contract.Job) {
	h := holder{ID: j.ID}
	if j.UniqueFor > 0 {
		h.Until = j.EnqueuedAt.Add(j.UniqueFor)
		t.putRaw(ends, endOf(h.Until, keys, j.UniqueKey), nil)
	}
	t.put(keys, []byte(j.UniqueKey), h)
}

// release frees the unique key of a job that is no longer live. A key with a window stays held.
func (t *txn) release(j *job) {
	if j.UniqueKey != "" && j.UniqueFor == 0 {
		t.remove(keys, []byte(j.UniqueKey))
	}
}

// answered returns the stored answer to the request, if there is one. A different request under the same key fails the call.
func (t *txn) answered(req contract.EnqueueRequest) ([]contract.Enqueued, bool) {
	if req.RequestKey == "" {
		return nil, false
	}
	given, ok := get[answer](t, requests, []byte(req.RequestKey))
	if !ok || !given.Until.After(t.now) {
		return nil, false
	}
	if given.Fingerprint != req.Fingerprint() {
		t.fail(req.KeyUsed())
	}
	return given.Jobs, true
}

// remember stores an answer for repeats of its request.
func (t *txn) remember(req contract.EnqueueRequest, jobs []contract.Enqueued) {
	if req.RequestKey == "" {
		return
	}
	until := t.now.Add(contract.RequestKeyLife)
	t.putRaw(ends, endOf(until, requests, req.RequestKey), nil)
	t.put(requests, []byte(req.RequestKey), answer{req.Fingerprint(), jobs, until})
}

// endOf returns the key in the index of ends.
func endOf(until time.Time, b bucket, key string) []byte {
	return append(append(moment(until), b[0]), key...)
}

// forgottenAtOnce is the most keys that one call deletes. An ended key has no effect, deleted or not.
const forgottenAtOnce = 1000

// forget deletes keys that have ended.
func (t *txn) forget() {
	for _, end := range t.upTo(ends, nil, t.now, forgottenAtOnce) {
		b, key := keys, end[9:]
		if end[8] == requests[0] {
			b = requests
		}
		// The key may have been taken again since then. Both kinds of value say when they end.
		if value, ok := get[struct{ Until time.Time }](t, b, key); ok && !value.Until.IsZero() && !value.Until.After(t.now) {
			t.remove(b, key)
		}
		t.remove(ends, end)
	}
}

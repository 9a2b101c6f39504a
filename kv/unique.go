package kv

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

// fetchHolders reads in one trip the jobs that hold the unique keys.
func (t *txn) fetchHolders(names []string) {
	var ids []int64
	for _, name := range names {
		if h, held := get[holder](t, named(uniques, name)); held {
			ids = append(ids, h.ID)
		}
	}
	t.fetchJobs(ids)
}

// holder returns the holder of the unique key, or none. It cancels a holder that has expired, unless that has a window.
func (t *txn) holder(unique string) (holder, bool) {
	if unique == "" {
		return holder{}, false
	}
	h, ok := get[holder](t, named(uniques, unique))
	if !ok || !h.Until.IsZero() {
		return h, ok && h.Until.After(t.now)
	}
	if j := t.job(h.ID); j != nil && contract.ExpiredOf(&j.Job, t.now) {
		t.cancel(j)
		return holder{}, false
	}
	return h, true
}

// hold gives the job its unique key, which must be free. To be absent is not enough for a key with a window: others may have taken it after the time of
// this call, and forgotten it. So no window may have been forgotten since.
func (t *txn) hold(j contract.Job) {
	h := holder{ID: j.ID}
	if j.UniqueFor > 0 {
		t.guard(key(freed))
		h.Until = j.EnqueuedAt.Add(j.UniqueFor)
		t.putRaw(endOf(h.Until, uniques, j.UniqueKey), nil)
	}
	t.put(named(uniques, j.UniqueKey), h)
}

// release frees the unique key of a job that is no longer live. A key with a window stays held. The key needs no guard of its own: while the
// job is live, which is guarded, the key is its own.
func (t *txn) release(j *job) {
	if j.UniqueKey != "" && j.UniqueFor == 0 {
		t.remove(named(uniques, j.UniqueKey))
	}
}

// answered returns the stored answer to the request, if there is one. A different request under the same key fails the call.
func (t *txn) answered(req contract.EnqueueRequest) ([]contract.Enqueued, bool) {
	if req.RequestKey == "" {
		return nil, false
	}
	given, ok := get[answer](t, named(requests, req.RequestKey))
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
	t.putRaw(endOf(until, requests, req.RequestKey), nil)
	t.put(named(requests, req.RequestKey), answer{req.Fingerprint(), jobs, until})
}

// endOf returns the key in the index of ends.
func endOf(until time.Time, of table, name string) []byte {
	return key(ends, moment(until), []byte{byte(of)}, []byte(name))
}

// forgottenAtOnce is how many values one call deletes. A value that has ended has no effect, deleted or not.
const forgottenAtOnce = 100

// ended returns the range of the values that have ended at now, for forget.
func ended(now time.Time) Range {
	r := upTo(key(ends), now, forgottenAtOnce)
	r.KeysOnly = true
	return r
}

// forget deletes values that have ended: unique keys, answers, workers, and signs of cancellations, and the histories and waits of jobs that were deleted. It is part of the
// calls that servers make from time to time, so that calls of producers do not conflict over it.
func (t *txn) forget(found []Item) {
	var keys [][]byte
	var values, histories, waits []Item
	for _, end := range found {
		switch table(end.Key[9]) {
		case attempts:
			histories = append(histories, end)
			continue
		case needs:
			waits = append(waits, end)
			continue
		}
		values, keys = append(values, end), append(keys, end.Key[9:])
	}
	t.fetch(keys...)
	for i, end := range values {
		// The key may have been taken again since then. Each kind of value says when it ends.
		if value, ok := get[struct{ Until time.Time }](t, keys[i]); ok && !value.Until.IsZero() && !value.Until.After(t.now) {
			t.remove(keys[i])
			if table(keys[i][0]) == uniques {
				t.putBlind(key(freed), "")
			}
		}
		t.remove(end.Key)
	}
	t.forgetHistories(histories, t.forgetWaits(waits, droppedAtOnce))
}

// forgetHistories deletes the histories of jobs that were deleted, as many as there is room for.
func (t *txn) forgetHistories(found []Item, room int) {
	var asked []Range
	for _, end := range found {
		asked = append(asked, attemptsOf(lastNumber(end.Key)))
	}
	for i, history := range t.scan(asked...) {
		if room -= len(history); room < 0 {
			break
		}
		for _, a := range history {
			t.remove(a.Key)
		}
		t.remove(found[i].Key)
	}
}

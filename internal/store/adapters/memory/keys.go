package memory

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A holder is the job that holds a unique key. It holds the key while it is live, or, with a window, until the window ends,
// whatever becomes of the job.
type holder struct {
	key   string
	id    int64
	index int // in the heap of windows; negative if it is not in it
}

func (h *holder) moved(to int) { h.index = to }

// hold gives the job its unique key, which must be free.
func (s *Store) hold(j *job) {
	h := &holder{key: j.rare.uniqueKey, id: j.ID, index: -1}
	s.keys[h.key] = h
	if window := j.rare.uniqueFor; window > 0 {
		s.windows.push(j.enqueuedAt.unix()+window.Microseconds(), j.ID, h)
	}
	if s.tx == nil {
		return
	}
	s.tx.onRollback(func() { s.dropHolder(h) })
}

// dropHolder ends the hold on a key. If the window ended within the transaction that is rolled back, there is nothing to end.
func (s *Store) dropHolder(h *holder) {
	if s.keys[h.key] == h {
		delete(s.keys, h.key)
	}
	if h.index >= 0 {
		s.windows.remove(h.index)
	}
}

// holderOf returns the job that holds the key, or 0. It cancels a holder that has expired, unless that has a window.
func (s *Store) holderOf(key string, now time.Time) int64 {
	h, held := s.keys[key]
	if !held {
		return 0
	}
	if j := s.jobs.get(h.id); j != nil && j.rares().uniqueFor == 0 && j.expired(now) {
		s.cancel(j, now)
		return 0
	}
	return h.id
}

// release frees the unique key of a job that is no longer live. A key that is held for a window stays held.
func (s *Store) release(j *job) {
	has := j.rares()
	if has.uniqueKey == "" || has.uniqueFor > 0 {
		return
	}
	h := s.keys[has.uniqueKey]
	delete(s.keys, has.uniqueKey)
	if s.tx != nil {
		s.tx.onRollback(func() { s.keys[h.key] = h })
	}
}

// An answer is what the store answered to a request with a key.
type answer struct {
	key         string
	fingerprint [sha256.Size]byte
	jobs        []store.Enqueued
	index       int // in the heap of answers; negative if it is not in it
}

func (a *answer) moved(to int) { a.index = to }

// keep keeps the answer for a repeat of the request.
func (s *Store) keep(req prepared, jobs []store.Enqueued, now time.Time) {
	a := &answer{key: req.RequestKey, fingerprint: req.fingerprint, jobs: slices.Clone(jobs), index: -1}
	s.requests[a.key] = a
	s.answers.push(now.Add(store.RequestKeyLife).UnixMicro(), 0, a)
	if s.tx == nil {
		return
	}
	s.tx.onRollback(func() { s.dropAnswer(a) })
}

// dropAnswer forgets an answer. If the answer was forgotten within the transaction that is rolled back, there is nothing to do.
func (s *Store) dropAnswer(a *answer) {
	if s.requests[a.key] == a {
		delete(s.requests, a.key)
	}
	if a.index >= 0 {
		s.answers.remove(a.index)
	}
}

// forget drops the unique keys and request keys whose time has ended, so that all remaining ones are in force. A rollback does
// not restore them, because their time has ended anyway.
func (s *Store) forget(now time.Time) {
	for {
		h, ended := s.windows.first(now.UnixMicro())
		if !ended {
			break
		}
		s.dropHolder(h)
	}
	for {
		a, ended := s.answers.first(now.UnixMicro())
		if !ended {
			break
		}
		s.dropAnswer(a)
	}
}

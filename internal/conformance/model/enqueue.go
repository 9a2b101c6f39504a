package model

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A window keeps a unique key for a job, whatever becomes of the job.
type window struct {
	key string
	id  int64
	end time.Time
}

// A request is what an Enqueue with a request key asked for and was answered.
type request struct {
	key    string
	print  [sha256.Size]byte
	answer []store.Enqueued
	at     time.Time
}

// overlooks reports whether nothing is wrong with a request but what a broken store does not look at.
func (s *Store) overlooks(req store.EnqueueRequest) bool {
	req.Jobs = slices.Clone(req.Jobs)
	for i := range req.Jobs {
		n := &req.Jobs[i]
		if s.broken(CirclesAccepted) {
			n.Group = ""
		}
		if s.broken(LimitKeyUnchecked) {
			n.LimitKey = ""
		}
		if s.broken(MoreWaitsAccepted) {
			n.After = n.After[:min(len(n.After), store.MaxWaits)]
		}
	}
	return req.Check() == nil
}

// Enqueue is part of the contract.
func (s *Store) Enqueue(ctx context.Context, req store.EnqueueRequest) ([]store.Enqueued, error) {
	return call(ctx, s, nil, func(now time.Time) ([]store.Enqueued, error) {
		defer func() { s.given = nil }()
		if err := req.Check(); err != nil && !s.broken(LimitsIgnored) && !s.overlooks(req) {
			return nil, s.refuse(req, err, now)
		}
		if len(req.Jobs) == 0 {
			return nil, nil
		}
		if first, known := s.remembered(req.RequestKey, now); known {
			if s.printOf(req) != first.print && !s.broken(RequestKeyAcceptsOthers) {
				return nil, &store.InvalidError{Item: -1, Field: "request_key", Rule: "was used for other jobs within a day"}
			}
			return slices.Clone(first.answer), nil
		}
		if err := s.unfit(req.Jobs, now); err != nil {
			return nil, s.refuse(req, err, now)
		}
		for _, name := range req.Open {
			if _, open := s.opened[name]; !open || s.broken(OpenedAnew) {
				s.opened[name] = now
			}
		}
		answer, err := s.add(req.Jobs, now)
		if err == nil && req.RequestKey != "" {
			s.requests = append(s.requests, request{req.RequestKey, s.printOf(req), slices.Clone(answer), now})
		}
		return answer, err
	})
}

// printOf tells requests apart.
func (s *Store) printOf(req store.EnqueueRequest) [sha256.Size]byte {
	if s.broken(RepeatIgnoresWaits) || s.broken(RepeatIgnoresLimitKey) {
		req.Jobs = slices.Clone(req.Jobs)
		for i := range req.Jobs {
			if n := &req.Jobs[i]; s.broken(RepeatIgnoresWaits) {
				n.After = nil
			} else {
				n.LimitKey = ""
			}
		}
	}
	sum := req.Fingerprint()
	if s.broken(RequestKeyMindsTrace) {
		for _, n := range req.Jobs {
			sum = sha256.Sum256(append(sum[:], n.Trace...))
		}
	}
	return sum
}

// refuse answers an invalid request. Nothing of it is kept.
func (s *Store) refuse(req store.EnqueueRequest, err error, now time.Time) error {
	var invalid *store.InvalidError
	if errors.As(err, &invalid) && invalid.Item >= 0 {
		if s.broken(EnqueueInParts) {
			_, _ = s.add(req.Jobs[:invalid.Item], now)
		}
		if s.broken(InvalidItemUnnamed) {
			invalid.Item = -1
		}
	}
	return err
}

// remembered is the first request with the key, while it is remembered.
func (s *Store) remembered(key string, now time.Time) (request, bool) {
	for _, r := range s.requests {
		young := r.at.Add(store.RequestKeyLife).After(now) || s.broken(RequestKeyForEver)
		if key != "" && r.key == key && young && !s.broken(RequestKeyForgotten) {
			gone := func(e store.Enqueued) bool { _, found := s.find(e.ID); return !found }
			return r, !s.broken(RequestKeyForgetsGoneJobs) || !slices.ContainsFunc(r.answer, gone)
		}
	}
	return request{}, false
}

// add enqueues what is no duplicate.
func (s *Store) add(jobs []store.NewJob, now time.Time) ([]store.Enqueued, error) {
	answer := make([]store.Enqueued, len(jobs))
	first := s.nextID
	jobsBefore, windowsBefore := slices.Clone(s.jobs), slices.Clone(s.windows)
	s.begin(jobs)
	for i, n := range jobs {
		row := n.Row(0, now)
		holder, held := s.holder(row, now)
		if held && s.broken(DuplicatesInOneCall) && holder >= first {
			held = false
		}
		if held {
			if at := s.index(holder); at >= 0 { // a holder that is gone can get nothing
				j := &s.jobs[at]
				if s.broken(DuplicatesJoin) && n.Group != "" {
					j.Extras = j.Extras.WithGroup(n.Group)
				}
				if s.broken(DuplicateKeepsWaits) {
					j.waits = append(j.waits, s.waiting(job{}, n, answer, now).waits...)
				}
			}
			holding, _ := s.find(holder)
			answer[i] = store.Enqueued{ID: holder, State: holding.State, Duplicate: true}
			if n.Replace && !(s.broken(ReplaceBeforeTheCall) && holder >= first) {
				answer[i].Replaced = s.replace(holding, n, row, now)
			}
			if s.broken(ReplaceUnsaid) {
				answer[i].Replaced = false
			}
			if s.broken(ReplaceIsNoDuplicate) && answer[i].Replaced {
				answer[i].Duplicate = false
			}
			if s.broken(DuplicateUnnamed) {
				answer[i].ID = 0
			}
			if s.broken(DuplicateSpoilsCall) {
				s.jobs, s.windows = jobsBefore, windowsBefore
				return nil, store.ErrDuplicate
			}
			continue
		}
		row.ID = s.newID()
		answer[i] = store.Enqueued{ID: row.ID, State: s.insert(n, row, answer, now)}
	}
	s.begun(jobs)
	return answer, nil
}

// replace changes the holder of a key for a duplicate with Replace, of which the row is what would have been added.
func (s *Store) replace(before job, n store.NewJob, row store.Job, now time.Time) bool {
	waits := before.Phase() == store.Blocked && !s.broken(ReplaceSparesBlocked) || before.Phase() == store.Ready || before.Phase() == store.Retrying || before.State == store.InFlight && s.broken(ReplaceOfInFlight)
	switch {
	case !waits, s.broken(ReplaceIgnored),
		before.Queue != row.Queue && !s.broken(ReplaceOfOtherQueue),
		before.Kind != row.Kind && !s.broken(ReplaceOfOtherKind),
		before.Group() != row.Group() && !s.broken(ReplaceOfOtherGroup),
		before.LimitKey() != row.LimitKey() && !s.broken(ReplaceOfOtherLimitKey),
		store.ExpiredOf(&before.Job, now) && !s.broken(ReplaceOfExpired),
		before.UniqueFor > 0 && s.broken(ReplaceSparesWindows):
		return false
	}
	due := row.RunAt
	if s.broken(PastReplaceKept) && n.RunAt.Before(now) && !n.RunAt.IsZero() {
		due = store.Truncate(n.RunAt)
	}
	j := before
	if j.State == store.Failed {
		j.RetryAt = due
	} else {
		j.RunAt = due
	}
	j.Payload, j.Priority, j.Extras = row.Payload, row.Priority, j.Extras.WithExpiresAt(row.ExpiresAt())
	if s.broken(ReplaceSharesSlices) {
		j.Payload = n.Payload
	}
	j.Checkpoint, j.Progress, j.CheckpointSeq, j.ProgressSeq = nil, nil, 0, 0
	j.Token = s.raised(j, ReplaceForgetsEpoch)
	j.endedBy = ""
	if s.broken(ReplaceProlongsWindow) {
		for i, w := range s.windows {
			if w.id == j.ID {
				s.windows[i].end = now.Add(row.UniqueFor)
			}
		}
	}
	s.write(opReplace, before, j)
	return true
}

func (s *Store) insert(n store.NewJob, row store.Job, answer []store.Enqueued, now time.Time) store.State {
	switch {
	case s.broken(SlicesKept):
		row.Payload, row.Tags = n.Payload, n.Tags
	case s.broken(PayloadRewritten):
		var compact bytes.Buffer
		if json.Compact(&compact, row.Payload) == nil {
			row.Payload = compact.Bytes()
		}
	case s.broken(DelayIgnored):
		row.RunAt = row.EnqueuedAt
	case s.broken(LimitKeyLost):
		row.Extras = row.Extras.WithLimitKey("")
	case s.broken(PastRunAtKept) && !n.RunAt.IsZero():
		row.RunAt = store.Truncate(n.RunAt)
	}
	added := s.waiting(job{Job: row}, n, answer, now)
	s.jobs = append(s.jobs, added)
	switch {
	case added.State != store.Cancelled, s.broken(AddedCancelledSpares):
	case s.broken(SpoiledByCallUnseen):
		s.late = append(s.late, added)
	default:
		s.leaves(added, store.Cancelled)
	}
	if row.UniqueKey != "" && row.UniqueFor > 0 {
		s.windows = append(s.windows, window{row.UniqueKey, row.ID, row.EnqueuedAt.Add(row.UniqueFor)})
	}
	return added.State
}

// newID is never one that was given before.
func (s *Store) newID() int64 {
	id := s.nextID
	if len(s.given) > 0 {
		id, s.given = s.given[0], s.given[1:]
	}
	if s.broken(IDsReused) {
		id = 1
		if n := len(s.jobs); n > 0 {
			id = s.jobs[n-1].ID + 1
		}
	}
	s.nextID = id + 1
	return id
}

// holder is the other job that holds the job's unique key: within a window of its own, even if it is gone, or, where it
// has none, while it is live.
func (s *Store) holder(j store.Job, now time.Time) (id int64, held bool) {
	if j.UniqueKey == "" {
		return 0, false
	}
	for _, w := range s.windows {
		if w.key == j.UniqueKey && w.id != j.ID && s.open(w, now) {
			return w.id, true
		}
	}
	for _, other := range s.jobs {
		if other.UniqueKey == j.UniqueKey && other.ID != j.ID && other.UniqueFor == 0 && s.live(other) &&
			(other.Queue == j.Queue || !s.broken(KeyPerQueue)) {
			if store.ExpiredOf(&other.Job, now) && !s.broken(KeyKeptByExpired) {
				if !s.broken(ExpiredHolderLeft) {
					s.cancel(other, now)
				}
				continue
			}
			return other.ID, true
		}
	}
	return 0, false
}

// open says that the window has not ended.
func (s *Store) open(w window, now time.Time) bool {
	j, found := s.find(w.id)
	switch {
	case s.broken(WindowEndsWithJob) && (!found || j.Terminal()):
		return false
	case s.broken(WindowEndsWithDeletion) && !found:
		return false
	case s.broken(WindowForEver):
		return true
	case s.broken(WindowEndsLate) && w.end.Equal(now):
		return true
	default:
		return w.end.After(now)
	}
}

// live says that the job holds a key that it holds while it is live.
func (s *Store) live(j job) bool {
	return !j.Terminal() ||
		j.Phase() == store.Dead && s.broken(KeyKeptByDead) ||
		j.Phase() == store.Cancelled && s.broken(KeyKeptByCancelled)
}

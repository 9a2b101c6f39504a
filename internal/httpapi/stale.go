package httpapi

import (
	"slices"
	"sync"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// maxStale is how many refused writes the API remembers. Beyond that it forgets the one that was seen last the longest ago.
const maxStale = 1000

// A refusedWrite is a write that was refused because its lease was lost. Writes with the same token and of the same kind are one.
type refusedWrite struct {
	Token wire.ID   `json:"token,omitzero"`
	Op    string    `json:"op"` // ack, nack, extend or save
	At    wire.Time `json:"at"` // the latest, by the clock of the server
	Times int       `json:"times,omitempty"`

	job int64
}

// A jobAnswer is a job with its attempts, and with the writes that were refused since the start of this server.
type jobAnswer struct {
	wire.JobDetail
	Refused []refusedWrite `json:"refused,omitempty"`
}

// staleWrites remembers refused writes, so that people see beside a job that somebody else still worked on it.
type staleWrites struct {
	mu  sync.Mutex // guards all
	all []refusedWrite
}

// add remembers a refused write as the latest one.
func (s *staleWrites) add(lease store.Lease, op string, at wire.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := refusedWrite{Token: wire.ID(lease.Token), Op: op, At: at, job: lease.ID}
	same := slices.IndexFunc(s.all, func(w refusedWrite) bool { return w.job == now.job && w.Token == now.Token && w.Op == now.Op })
	switch {
	case same >= 0:
		now.Times = max(s.all[same].Times, 1) + 1
		s.all = slices.Delete(s.all, same, same+1)
	case len(s.all) == maxStale:
		s.all = slices.Delete(s.all, 0, 1)
	}
	s.all = append(s.all, now)
}

// of returns the refused writes of the job, the latest at the end.
func (s *staleWrites) of(job int64) (found []refusedWrite) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.all {
		if w.job == job {
			found = append(found, w)
		}
	}
	return found
}

// answerJob adds to the job what was refused here.
func (a *API) answerJob(d store.JobDetail) jobAnswer {
	return jobAnswer{wire.DetailOf(d), a.stale.of(d.ID)}
}

// countStale counts, remembers and publishes the writes that were refused because their lease was lost.
func (a *API) countStale(op string, leases []store.Lease, outcomes []store.Outcome) {
	if !slices.ContainsFunc(outcomes, func(o store.Outcome) bool { return o.Status == store.StatusStale }) {
		return
	}
	now := wire.Time{Time: a.clock.Now().Truncate(store.Resolution)}
	var events []Event
	for i, o := range outcomes {
		if o.Status != store.StatusStale {
			continue
		}
		a.counter.StaleWrite(op)
		a.stale.add(leases[i], op, now)
		of, _ := a.held.sort(leases[i])
		a.tally.Stale(of.queue, of.kind)
		events = append(events, Event{Job: wire.ID(o.ID), Queue: of.queue, Event: WasRefused})
	}
	a.Publish(events...)
}

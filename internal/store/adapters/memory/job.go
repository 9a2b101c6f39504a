package memory

import (
	"bytes"
	"math"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A job is a row of the store, and where it stands among the others.
type job struct {
	store.Job
	history []store.Attempt
	queue   *queue

	// Where it stands, so that it can step out from anywhere. The narrow fields keep a job within 512 bytes: beyond, the
	// collector takes far longer to look at it.
	line   *line // or nil
	at     int64 // its time there, in microseconds
	index  int32 // in the fifo or in the heap
	inFifo bool

	finishedBy finishedBy // how its holder ended the lease that has the job's token
	leaseFor   uint16     // how long its lease was when it was given or extended: see lengths
}

// A finishedBy is a way in which a holder ends its own lease.
type finishedBy uint8

// The ways. Fail, Never and After are one.
const (
	nobody finishedBy = iota // not ended by its holder
	byAck
	byFail
	bySnooze
	byRelease
)

// A queue is the jobs of one name.
type queue struct {
	name    string
	paused  bool
	policy  store.Policy
	jobs    int // in any state
	fresh   lane
	retries lane
}

// A lane is the jobs that wait as fresh ones, or as retries: a line for each priority, the highest first.
type lane [store.MaxPriority - store.MinPriority + 1]line

func (l *lane) of(priority int) *line { return &l[store.MaxPriority-priority] }

// queue returns the queue of the name, making it if need be.
func (s *Store) queue(name string) *queue {
	q := s.queues[name]
	if q == nil {
		q = &queue{name: name}
		s.queues[name] = q
	}
	return q
}

// forgetIfIdle drops a queue of which there is nothing to tell.
func (s *Store) forgetIfIdle(q *queue) {
	if q.jobs == 0 && !q.paused && q.policy.Version == 0 {
		delete(s.queues, q.name)
	}
}

// add puts a new job into the store.
func (s *Store) add(row store.Job) *job {
	j := &job{Job: row, queue: s.queue(row.Queue)}
	j.queue.jobs++
	s.jobs.add(j)
	s.place(j)
	if s.tx != nil {
		s.tx.onRollback(func() { s.remove(j) })
	}
	return j
}

// remove takes a job out of the store.
func (s *Store) remove(j *job) {
	j.leave()
	s.jobs.remove(j.ID)
	j.queue.jobs--
	s.forgetIfIdle(j.queue)
}

// pick takes a job out of its line, so that it can be changed. What it was comes back if the transaction is rolled back.
func (s *Store) pick(j *job) {
	if s.tx != nil {
		s.rememberFor(s.tx, j)
	}
	j.leave()
}

func (s *Store) rememberFor(tx *transaction, j *job) {
	row, history, by := j.Job, slices.Clone(j.history), j.finishedBy
	tx.onRollback(func() {
		j.leave()
		j.Job, j.history, j.finishedBy = row, history, by
		s.place(j)
	})
}

// place puts a job into the line where its phase belongs, and announces one that can be claimed at once.
func (s *Store) place(j *job) {
	next := j.Next()
	early := next.After(s.last)
	switch j.Phase() {
	case store.Ready:
		j.queue.fresh.of(j.Priority).push(j, next, early)
	case store.Retrying:
		j.queue.retries.of(j.Priority).push(j, next, early)
	case store.InFlight:
		s.leases.push(j, next, false) // as the others, which mostly last equally long
		return
	default:
		return
	}
	if !early {
		s.wake(j.Queue)
	}
}

// lend lets the lease run from now.
func (s *Store) lend(j *job, ttl time.Duration, now time.Time) {
	ttl = ttl.Truncate(store.Resolution)
	j.leaseFor = s.lengths.number(ttl)
	j.LeaseExpiresAt = now.Add(ttl)
}

// lengths are those of leases, which are few: a job keeps the number of its own.
type lengths struct {
	known  []time.Duration // the first is the longest that can be, which stands for others where no number is left
	places map[time.Duration]uint16
}

func newLengths(longest time.Duration) lengths {
	return lengths{known: []time.Duration{longest}, places: map[time.Duration]uint16{longest: 0}}
}

func (l *lengths) number(length time.Duration) uint16 {
	n, known := l.places[length]
	if !known && len(l.known) <= math.MaxUint16 {
		n = uint16(len(l.known))
		l.known, l.places[length] = append(l.known, length), n
	}
	return n
}

// begin writes a claim into the history.
func (j *job) begin(now time.Time) {
	if len(j.history) == store.MaxAttemptsKept {
		j.history = j.history[1:]
	}
	j.history = append(j.history, store.Attempt{Token: j.Token, Worker: j.Worker, StartedAt: now})
}

// end writes the end of the latest claim into the history.
func (j *job) end(ending store.Ending, reason string, now time.Time) {
	latest := &j.history[len(j.history)-1]
	latest.EndedAt, latest.Ending, latest.Error = now, ending, reason
}

// row is the job for a caller, who may do with it as he likes.
func (j *job) row() store.Job {
	row := j.Job
	row.Payload = bytes.Clone(row.Payload)
	row.Tags = slices.Clone(row.Tags)
	row.Checkpoint = bytes.Clone(row.Checkpoint)
	row.Progress = bytes.Clone(row.Progress)
	row.Result = bytes.Clone(row.Result)
	return row
}

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

	finishedBy uint8  // how its holder ended the lease that has the job's token: an index of ways, and perhaps moved
	leaseFor   uint16 // how long its lease was when it was given or extended: see lengths
}

// moved says that the latest attempt of the history is the record's no more: the job was requeued.
const moved = 1 << 7

// ways are those in which a holder ends its lease.
var ways = []store.FinishedBy{store.NotFinished, store.FinishedByAck, store.FinishedByFail, store.FinishedBySnooze, store.FinishedByRelease}

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

// find is the job with the id and its record, or nil and nil.
func (s *Store) find(id int64) (*job, *store.Record) {
	j := s.jobs.get(id)
	if j == nil {
		return nil, nil
	}
	return j, s.record(j)
}

// record is the job as the contract's life of a job sees it, until the next one is asked for.
func (s *Store) record(j *job) *store.Record {
	s.work = store.Record{Job: j.Job, Epoch: s.epoch, FinishedBy: ways[j.finishedBy&^moved], LeaseFor: s.lengths.known[j.leaseFor]}
	if n := len(j.history); n > 0 && j.finishedBy&moved == 0 {
		latest := &j.history[n-1]
		s.work.ClaimToken, s.work.ClaimedAt, s.work.EndedAt, s.work.Ending = latest.Token, latest.StartedAt, latest.EndedAt, latest.Ending
	}
	return &s.work
}

// change makes the job what its record has become.
func (s *Store) change(j *job, r *store.Record) {
	if s.tx != nil {
		s.rememberFor(s.tx, j)
	}
	moves := j.State != r.State || !j.Next().Equal(r.Next())
	if moves {
		j.leave()
	}
	lives := !j.Terminal()
	j.Job, j.finishedBy = r.Job, uint8(slices.Index(ways, r.FinishedBy))
	if r.LeaseFor != s.lengths.known[j.leaseFor] {
		j.leaseFor = s.lengths.number(r.LeaseFor)
	}
	j.note(r)
	if lives && j.Terminal() {
		s.release(j)
	}
	if moves {
		s.place(j)
	}
}

// note writes the latest attempt of the record into the history.
func (j *job) note(r *store.Record) {
	latest, kept := r.Latest()
	last := len(j.history) - 1
	switch {
	case !kept:
		j.finishedBy |= moved
	case last < 0 || j.history[last].Token != latest.Token:
		j.history = append(j.history[max(0, last+2-store.MaxAttemptsKept):], latest)
	default:
		j.history[last] = latest
	}
}

// rememberFor notes what the job is, for the case that the transaction is rolled back.
func (s *Store) rememberFor(tx *transaction, j *job) {
	row, history, by, length := j.Job, slices.Clone(j.history), j.finishedBy, j.leaseFor
	tx.onRollback(func() {
		j.leave()
		j.Job, j.history, j.finishedBy, j.leaseFor = row, history, by, length
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

package memory

import (
	"bytes"
	"math"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A job is a row of the store and its place in a line.
type job struct {
	store.Job
	past *past // nil until it is claimed

	// Where it stands, so that it can step out from anywhere. The narrow fields keep a job within 512 bytes: beyond, the
	// collector takes far longer to look at it.
	line   *line // or nil
	index  int32 // in the fifo or in the heap
	inFifo bool

	finishedBy uint8  // how the holder of Token ended its lease: an index into ways, perhaps with the bit moved
	leaseFor   uint16 // the length of its lease when it was granted or last extended, as a number in lengths
}

// A past is the attempts of a job, the oldest first.
type past struct {
	attempts []store.Attempt
	first    [1]store.Attempt // their room as long as there is one, which is nearly always so
}

// moved means that the record no longer has the latest attempt of the history, because the job was requeued.
const moved = 1 << 7

// ways lists the ways in which a holder can end its lease.
var ways = []store.FinishedBy{store.NotFinished, store.FinishedByAck, store.FinishedByFail, store.FinishedBySnooze, store.FinishedByRelease}

// A queue has the jobs of one queue name.
type queue struct {
	name    string
	paused  bool
	policy  store.Policy
	jobs    int // in any state
	fresh   lane
	retries lane
}

// A lane has the fresh jobs or the retries of a queue that wait: one line for each priority, the highest first.
type lane [store.MaxPriority - store.MinPriority + 1]line

func (l *lane) of(priority int) *line { return &l[store.MaxPriority-priority] }

// queue returns the queue with this name, and creates it if necessary.
func (s *Store) queue(name string) *queue {
	q := s.queues[name]
	if q == nil {
		q = &queue{name: name}
		s.queues[name] = q
	}
	return q
}

// forgetIfIdle drops a queue without jobs that is not paused and never had a policy.
func (s *Store) forgetIfIdle(q *queue) {
	if q.jobs == 0 && !q.paused && q.policy.Version == 0 {
		delete(s.queues, q.name)
	}
}

// add adds a new job to the store.
func (s *Store) add(row store.Job) *job {
	j := &job{Job: row}
	s.queue(row.Queue).jobs++
	s.jobs.add(j)
	s.place(j)
	if s.tx != nil {
		s.tx.onRollback(func() { s.remove(j) })
	}
	return j
}

// remove removes a job from the store.
func (s *Store) remove(j *job) {
	s.stepOut(j)
	s.jobs.remove(j.ID)
	q := s.queue(j.Queue)
	q.jobs--
	s.forgetIfIdle(q)
}

// find returns the job with the id and its record, or nil and nil.
func (s *Store) find(id int64) (*job, *store.Record) {
	j := s.jobs.get(id)
	if j == nil {
		return nil, nil
	}
	return j, s.record(j)
}

// record returns the job as a record of the contract. The record is valid until the next call of record.
func (s *Store) record(j *job) *store.Record {
	r := &s.work // set field by field, because a literal would be copied once more
	r.Job, r.Epoch, r.FinishedBy, r.LeaseFor = j.Job, s.epoch, ways[j.finishedBy&^moved], s.lengths.known[j.leaseFor]
	var latest store.Attempt
	if j.past != nil && j.finishedBy&moved == 0 {
		latest = j.past.attempts[len(j.past.attempts)-1]
	}
	r.ClaimToken, r.EndedAt, r.Ending, r.Reason = latest.Token, latest.EndedAt, latest.Ending, ""
	if latest.Ending == store.EndSnoozed {
		r.Reason = latest.Error
	}
	return r
}

// change writes what an operation has made of the job's record.
func (s *Store) change(j *job, r *store.Record) {
	if s.tx != nil {
		s.rememberFor(s.tx, j)
	}
	moves := j.State != r.State || !store.NextOf(&j.Job).Equal(store.NextOf(&r.Job)) ||
		j.Priority != r.Priority || j.Extras != r.Extras
	if moves {
		s.stepOut(j)
	}
	lives := !store.TerminalOf(&j.Job)
	j.Job, j.finishedBy = r.Job, uint8(slices.Index(ways, r.FinishedBy))
	if r.LeaseFor != s.lengths.known[j.leaseFor] {
		j.leaseFor = s.lengths.number(r.LeaseFor)
	}
	j.note(r)
	if lives && store.TerminalOf(&j.Job) {
		s.release(j)
	}
	if moves {
		s.place(j)
	}
}

// note writes the latest attempt of the record into the history.
func (j *job) note(r *store.Record) {
	latest, kept := r.Latest()
	if !kept {
		j.finishedBy |= moved
		return
	}
	if j.past == nil {
		j.past = &past{first: [1]store.Attempt{latest}}
		j.past.attempts = j.past.first[:]
		return
	}
	attempts := j.past.attempts
	if last := len(attempts) - 1; attempts[last].Token != latest.Token {
		j.past.attempts = append(attempts[max(0, last+2-store.MaxAttemptsKept):], latest)
	} else {
		attempts[last] = latest
	}
}

// history is a copy of the attempts.
func (j *job) history() []store.Attempt {
	if j.past == nil {
		return nil
	}
	return slices.Clone(j.past.attempts)
}

// rememberFor keeps the present job, so that a rollback of the transaction can restore it.
func (s *Store) rememberFor(tx *transaction, j *job) {
	row, history, by, length := j.Job, j.history(), j.finishedBy, j.leaseFor
	tx.onRollback(func() {
		s.stepOut(j)
		j.Job, j.past, j.finishedBy, j.leaseFor = row, nil, by, length
		if len(history) > 0 {
			j.past = &past{attempts: history}
		}
		s.place(j)
	})
}

// place puts a job into the line of its phase, and wakes its queue if the job can be claimed at once.
func (s *Store) place(j *job) {
	next := store.NextOf(&j.Job)
	early := next.After(s.last)
	phase := store.PhaseOf(&j.Job)
	if (phase == store.Ready || phase == store.Retrying) && s.expect(j) {
		return
	}
	switch phase {
	case store.Ready:
		s.queue(j.Queue).fresh.of(j.Priority).push(j, early)
	case store.Retrying:
		s.queue(j.Queue).retries.of(j.Priority).push(j, early)
	case store.InFlight:
		s.leases.push(j, false) // as the others, which mostly last equally long
		return
	default:
		return
	}
	if !early {
		s.wake(store.Wakeup{Queue: j.Queue})
	}
}

// lengths numbers the lengths of leases. There are few different ones, so each job keeps only the number of its own.
type lengths struct {
	known  []time.Duration // the first is the maximum; it also stands for every length that found no number free
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

// row returns a copy of the job that the caller may change.
func (j *job) row() store.Job {
	row := j.Job
	row.Payload = bytes.Clone(row.Payload)
	row.Tags = slices.Clone(row.Tags)
	row.Extras = row.Extras.Clone()
	row.Checkpoint = bytes.Clone(row.Checkpoint)
	row.Progress = bytes.Clone(row.Progress)
	row.Result = bytes.Clone(row.Result)
	return row
}

package memory

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// A job is a row of the store and its place in a line. It has what every job has, in few bytes: many of them wait at the same time,
// and the collector looks at each. Times are stamps, and names that many jobs have are behind a pointer.
type job struct {
	ID, token  int64
	claimToken int64 // of the latest attempt; zero if there is none, or if it was moved into the history

	queue   *queue
	sort    *sort
	payload []byte
	worker  string
	rare    *rare // nil for most jobs

	enqueuedAt, runAt, claimedAt stamp
	until                        stamp // RetryAt, LeaseExpiresAt or FinishedAt, whichever the phase has
	endedAt                      stamp // when the latest attempt ended

	// Where it stands, so that it can step out from anywhere.
	line  *line // or nil
	index int32 // in the fifo or in the heap

	attempts, retries int32
	leaseFor          uint16 // the length of its lease when it was granted or last extended, as a number in lengths
	priority          int8
	phase             phase
	ending            uint8 // how the latest attempt ended: an index into endings
	finishedBy        uint8 // how the holder of token ended its lease: an index into ways
	inFifo            bool
}

// A sort is what many jobs of a kind have in common.
type sort struct {
	policy
	jobs int // that have it
}

type policy struct {
	kind       string
	maxRetries int
	backoff    store.Backoff
	timeout    time.Duration
}

// A rare is what few jobs have. Nobody changes it, because jobs that were remembered for a rollback share it.
type rare struct {
	tags                       []string
	trace                      string
	uniqueKey                  string
	uniqueFor                  time.Duration
	extras                     *store.Extras
	checkpoint, progress       []byte
	checkpointSeq, progressSeq int64
	result                     []byte
	error                      string // why the latest failed attempt failed
	reason                     string // why the latest attempt was put off
	past                       []store.Attempt
}

// none is what most jobs have.
var none rare

// A stamp is a time of the contract, in microseconds since the zero time.
type stamp int64

const unixStamp = 62135596800 * stamp(time.Second/time.Microsecond) // of the begin of Unix time

func stampOf(t time.Time) stamp { return stamp(t.UnixMicro()) + unixStamp }

func (at stamp) time() time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.UnixMicro(at.unix()).UTC()
}

// unix returns the microseconds of Unix time.
func (at stamp) unix() int64 { return int64(at - unixStamp) }

// A phase is an index into store.Phases.
type phase uint8

const (
	blocked phase = iota
	ready
	inFlight
	retrying
	succeeded
	dead
	cancelled
)

func phaseOf(j *store.Job) phase { return phase(slices.Index(store.Phases, store.PhaseOf(j))) }

func (p phase) terminal() bool { return p >= succeeded }
func (p phase) waits() bool    { return p == ready || p == retrying }
func (p phase) expires() bool  { return p.waits() || p == blocked }

// state returns what Job.State is in the phase.
func (p phase) state() store.State {
	if p == retrying || p == dead {
		return store.Failed
	}
	return store.Phases[p]
}

// ways lists the ways in which a holder can end its lease, and endings how an attempt can end.
var (
	ways    = []store.FinishedBy{store.NotFinished, store.FinishedByAck, store.FinishedByFail, store.FinishedBySnooze, store.FinishedByRelease}
	endings = []store.Ending{
		store.NotEnded, store.EndSucceeded, store.EndFailed, store.EndSnoozed, store.EndReleased, store.EndExpired, store.EndCancelled,
	}
)

// A queue has the jobs of one queue name.
type queue struct {
	name    string
	paused  bool
	policy  store.Policy
	jobs    int            // in any state
	leased  int            // in flight
	held    bool           // a claim has left out jobs because of the policy, and no lease has ended since
	claims  store.ClaimLog // if the policy sets Rate
	fresh   lane
	retries lane
	keyed   *keyed // the waiting jobs with a limit key, if claims find jobs by key
}

// lane returns the lane of the jobs in the phase, which is ready or retrying.
func (q *queue) lane(p phase) *lane {
	if p == ready {
		return &q.fresh
	}
	return &q.retries
}

// lineFor returns the line in which the job waits.
func (q *queue) lineFor(j *job) *line {
	if q.keyed.has(j) {
		return q.keyed.lineFor(j)
	}
	return q.lane(j.phase).of(j.priority)
}

// A lane has the fresh jobs or the retries of a queue that wait: one line for each priority, the highest first.
type lane [priorities]line

const priorities = store.MaxPriority - store.MinPriority + 1

func (l *lane) of(priority int8) *line { return &l[lineOf(priority)] }

// lineOf returns which line of a lane has the priority.
func lineOf(priority int8) int { return store.MaxPriority - int(priority) }

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

// sortOf returns the sort of such jobs, and counts one more.
func (s *Store) sortOf(j *store.Job) *sort {
	p := policy{j.Kind, j.MaxRetries, j.Backoff, j.Timeout}
	if s.latest == nil || s.latest.policy != p { // most jobs are like the one before
		if s.latest = s.sorts[p]; s.latest == nil {
			p.kind = strings.Clone(p.kind) // which may be a part of a longer string
			s.latest = &sort{policy: p}
			s.sorts[p] = s.latest
		}
	}
	s.latest.jobs++
	return s.latest
}

func (s *Store) leaveSort(of *sort) {
	if of.jobs--; of.jobs > 0 {
		return
	}
	delete(s.sorts, of.policy)
	if s.latest == of {
		s.latest = nil
	}
}

// add adds a new job to the store. The store has the slices of the row from then on.
func (s *Store) add(row *store.Job) *job {
	j := s.jobs.add(row.ID)
	j.queue, j.sort = s.queue(row.Queue), s.sortOf(row)
	j.queue.jobs++
	j.enqueuedAt = stampOf(row.EnqueuedAt)
	j.write(row)
	if row.Extras != nil {
		j.rare = s.latestRare // jobs with the same extras mostly come together and have nothing else
	}
	j.rare = j.rareOf(row, "", nil)
	s.latestRare = j.rare
	s.count(j, 1)
	s.place(j)
	if s.tx != nil {
		s.tx.onRollback(func() { s.remove(j) })
	}
	return j
}

// remove removes a job from the store.
func (s *Store) remove(j *job) {
	s.stepOut(j)
	s.order(j, false)
	q := j.queue
	s.leaveSort(j.sort)
	s.forgetWaits(j.ID)
	s.count(j, -1)
	s.forgetGroup(j.group())
	s.jobs.remove(j.ID)
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

// record returns the job as a record of the contract. The record is valid until the next call of record. It shares the
// documents of the store.
func (s *Store) record(j *job) *store.Record {
	r := &s.work // set field by field, because a literal would be copied once more
	j.read(&r.Job)
	r.Epoch, r.FinishedBy, r.LeaseFor = s.epoch, ways[j.finishedBy], s.lengths.known[j.leaseFor]
	r.ClaimToken, r.EndedAt, r.Ending, r.Reason = j.claimToken, j.endedAt.time(), endings[j.ending], j.rares().reason
	return r
}

// rares returns what the job has of what few jobs have.
func (j *job) rares() *rare {
	if j.rare == nil {
		return &none
	}
	return j.rare
}

// read sets every field of the row.
func (j *job) read(row *store.Job) {
	row.ID, row.Token = j.ID, j.token
	row.Queue, row.Kind, row.MaxRetries, row.Backoff, row.Timeout = j.queue.name, j.sort.kind, j.sort.maxRetries, j.sort.backoff, j.sort.timeout
	row.Payload, row.Worker, row.Priority = j.payload, j.worker, int(j.priority)
	row.State, row.Attempts, row.Retries = j.phase.state(), int(j.attempts), int(j.retries)
	row.EnqueuedAt, row.RunAt, row.ClaimedAt = j.enqueuedAt.time(), j.runAt.time(), j.claimedAt.time()
	row.RetryAt, row.LeaseExpiresAt, row.FinishedAt = time.Time{}, time.Time{}, time.Time{}
	*j.phase.until(row) = j.until.time()
	has := j.rares()
	row.Tags, row.Trace, row.UniqueKey, row.UniqueFor, row.Extras = has.tags, has.trace, has.uniqueKey, has.uniqueFor, has.extras
	row.Checkpoint, row.CheckpointSeq, row.Progress, row.ProgressSeq = has.checkpoint, has.checkpointSeq, has.progress, has.progressSeq
	row.Result, row.Error = has.result, has.error
}

// until returns the time of the row that the phase has. Of a ready or blocked job it is one that is always zero.
func (p phase) until(row *store.Job) *time.Time {
	switch p {
	case blocked, ready, retrying:
		return &row.RetryAt
	case inFlight:
		return &row.LeaseExpiresAt
	default:
		return &row.FinishedAt
	}
}

// write takes over what can change of a row, apart from what is rare.
func (j *job) write(row *store.Job) {
	j.phase = phaseOf(row)
	j.token, j.payload, j.worker, j.priority = row.Token, row.Payload, row.Worker, int8(row.Priority)
	j.attempts, j.retries = int32(row.Attempts), int32(row.Retries)
	j.runAt, j.claimedAt, j.until = stampOf(row.RunAt), stampOf(row.ClaimedAt), stampOf(*j.phase.until(row))
}

// rareOf returns what the row has of what few jobs have.
func (j *job) rareOf(row *store.Job, reason string, past []store.Attempt) *rare {
	has := j.rares()
	if slices.Equal(has.tags, row.Tags) && has.trace == row.Trace && has.uniqueKey == row.UniqueKey && has.uniqueFor == row.UniqueFor &&
		has.extras == row.Extras && has.checkpointSeq == row.CheckpointSeq && has.progressSeq == row.ProgressSeq &&
		bytes.Equal(has.checkpoint, row.Checkpoint) && bytes.Equal(has.progress, row.Progress) && bytes.Equal(has.result, row.Result) &&
		has.error == row.Error && has.reason == reason && latestToken(has.past) == latestToken(past) {
		return j.rare
	}
	return &rare{
		row.Tags, row.Trace, row.UniqueKey, row.UniqueFor, row.Extras, row.Checkpoint, row.Progress, row.CheckpointSeq, row.ProgressSeq,
		row.Result, row.Error, reason, past,
	}
}

func latestToken(past []store.Attempt) int64 {
	if len(past) == 0 {
		return 0
	}
	return past[len(past)-1].Token
}

// change writes what an operation has made of the job's record.
func (s *Store) change(j *job, r *store.Record) {
	if s.tx != nil {
		s.rememberFor(s.tx, j)
	}
	next := phaseOf(&r.Job)
	moves := j.phase != next || j.next() != stampOf(store.NextOf(&r.Job)) ||
		int(j.priority) != r.Priority || j.rares().extras != r.Extras
	if moves {
		s.stepOut(j)
	}
	lived, leased := !j.phase.terminal(), j.phase == inFlight
	s.countInGroup(j, -1)
	if leased && next != inFlight {
		s.countLease(j, -1)
	}
	past := j.rares().past
	if j.claimToken != 0 && j.claimToken != r.ClaimToken {
		past = append(past[max(0, len(past)+1-store.MaxAttemptsKept):], j.latestAttempt())
	}
	j.rare = j.rareOf(&r.Job, r.Reason, past)
	j.write(&r.Job)
	j.claimToken, j.endedAt, j.ending = r.ClaimToken, stampOf(r.EndedAt), uint8(slices.Index(endings, r.Ending))
	j.finishedBy = uint8(slices.Index(ways, r.FinishedBy))
	if r.LeaseFor != s.lengths.known[j.leaseFor] {
		j.leaseFor = s.lengths.number(r.LeaseFor)
	}
	s.countInGroup(j, 1)
	if !leased && next == inFlight {
		s.countLease(j, 1)
	}
	if leased && j.phase != inFlight && j.queue.held {
		j.queue.held = s.tx != nil // which may be rolled back
		s.wake(store.Wakeup{Queue: j.queue.name})
	}
	if lived && j.phase.terminal() {
		s.release(j)
		s.ended(store.EndOf(&r.Job))
		s.leaves(&r.Job, false)
	}
	if moves {
		s.place(j)
	}
}

// latestAttempt returns the attempt that the row itself has.
func (j *job) latestAttempt() store.Attempt {
	r := store.Record{ClaimToken: j.claimToken, EndedAt: j.endedAt.time(), Ending: endings[j.ending], Reason: j.rares().reason}
	r.Worker, r.ClaimedAt, r.Error = j.worker, j.claimedAt.time(), j.rares().error
	latest, _ := r.Latest()
	return latest
}

// history is a copy of the attempts, the oldest first.
func (j *job) history() []store.Attempt {
	past := slices.Clone(j.rares().past)
	if j.claimToken == 0 {
		return past
	}
	return append(past[max(0, len(past)+1-store.MaxAttemptsKept):], j.latestAttempt())
}

// rememberFor keeps the present job, so that a rollback of the transaction can restore it.
func (s *Store) rememberFor(tx *transaction, j *job) {
	before := *j
	tx.onRollback(func() {
		s.stepOut(j)
		s.count(j, -1)
		*j = before
		j.line = nil
		s.count(j, 1)
		s.place(j)
	})
}

// next returns store.NextOf of the job.
func (j *job) next() stamp {
	switch {
	case j.phase == ready:
		return j.runAt
	case j.phase.terminal():
		return 0
	default:
		return j.until
	}
}

// place puts a job into the line of its phase, and wakes its queue if the job can be claimed at once.
func (s *Store) place(j *job) {
	early := j.at() > s.last.UnixMicro()
	s.order(j, !j.phase.terminal())
	if j.phase.expires() && s.expect(j) {
		return
	}
	switch j.phase {
	case ready, retrying:
		j.queue.lineFor(j).push(j, early)
	case inFlight:
		s.leases.push(j, false) // as the others, which mostly last equally long
		return
	default:
		return
	}
	if !early {
		s.wake(store.Wakeup{Queue: j.queue.name})
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
	var row store.Job
	j.read(&row)
	row.Payload = bytes.Clone(row.Payload)
	j.own(&row)
	return row
}

// own replaces what the row shares with the store, apart from the payload.
func (j *job) own(row *store.Job) {
	if j.rare == nil {
		return
	}
	row.Tags = slices.Clone(row.Tags)
	row.Extras = row.Extras.Clone()
	row.Checkpoint = bytes.Clone(row.Checkpoint)
	row.Progress = bytes.Clone(row.Progress)
	row.Result = bytes.Clone(row.Result)
}

// weight returns the total size of the documents in bytes.
func (j *job) weight() int {
	has := j.rares()
	return len(j.payload) + len(has.checkpoint) + len(has.progress) + len(has.result)
}

// expired reports whether a claim at now may not take the job any more, although it waits.
func (j *job) expired(now time.Time) bool {
	at := j.expiresAt()
	return !at.IsZero() && !at.After(now) && j.phase.expires()
}

// group returns the name of its group, or "" if it is in none.
func (j *job) group() string {
	if e := j.rares().extras; e != nil {
		return e.Group
	}
	return ""
}

// limitKey returns its limit key, or "" if it has none.
func (j *job) limitKey() string {
	if e := j.rares().extras; e != nil {
		return e.LimitKey
	}
	return ""
}

func (j *job) expiresAt() time.Time {
	if e := j.rares().extras; e != nil {
		return e.ExpiresAt
	}
	return time.Time{}
}

// Documents of up to smallDoc bytes share a block of blockSize, which lives as long as one of them is used.
const (
	smallDoc  = 128
	blockSize = 1024
)

// A copier copies documents. Small ones are allocated together.
type copier struct{ block []byte }

// clone returns a copy of the document. The next small ones are expected to have so many bytes in all, with this one.
func (c *copier) clone(doc []byte, expected int) []byte {
	if len(doc) == 0 || len(doc) > smallDoc {
		return bytes.Clone(doc)
	}
	if cap(c.block)-len(c.block) < len(doc) {
		c.block = make([]byte, 0, min(blockSize, max(expected, len(doc))))
	}
	begin := len(c.block)
	c.block = append(c.block, doc...)
	return c.block[begin:len(c.block):len(c.block)] // an append to it must not write into the next one
}

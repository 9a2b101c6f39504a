package bbolt

import (
	"bytes"
	"fmt"

	"github.com/seed-ed332417/jq/contract"
)

// A job is a row of the bucket jobs. Its payload is in another bucket, so that a heartbeat need not write it again.
type job struct {
	contract.Record

	stood, expires place // its current places in the indexes
}

// job returns the job with the id, or nil if there is none.
func (t *txn) job(id int64) *job {
	if raw := t.in(jobs).Get(number(id)); raw != nil {
		return t.decodeJob(raw)
	}
	return nil
}

// indexed returns the job whose id ends the key of an index.
func (t *txn) indexed(key []byte) *job {
	j := t.job(lastNumber(key))
	if j == nil {
		t.fail(fmt.Errorf("%w: an index has job %d, which is not there", errDamaged, lastNumber(key)))
		return &job{}
	}
	return j
}

func (t *txn) decodeJob(raw []byte) *job {
	j := decode[job](t, jobs, raw)
	j.Epoch, j.stood, j.expires = t.epoch, placeOf(j.Job), expiryOf(j.Job)
	return &j
}

// whole returns the job with its payload, for a caller.
func (t *txn) whole(j *job) contract.Job {
	row := j.Job
	row.Payload = bytes.Clone(t.in(payloads).Get(number(j.ID)))
	return row
}

// weight returns the size in bytes of the job's documents, including the payload.
func (t *txn) weight(j *job) int { return j.Weight() + len(t.in(payloads).Get(number(j.ID))) }

// add stores a new job.
func (t *txn) add(row contract.Job) {
	t.putRaw(payloads, number(row.ID), row.Payload)
	row.Payload = nil
	t.countJobs(row.Queue, 1)
	t.save(&job{Record: contract.Record{Job: row}})
}

// save writes a changed job, and moves it to its new places in the indexes.
func (t *txn) save(j *job) {
	if j.stood.in == leases && j.State != contract.InFlight && t.queue(j.Queue).Policy.MaxInFlight > 0 {
		t.woken[contract.Wakeup{Queue: j.Queue}] = true // there is room
	}
	t.move(&j.stood, placeOf(j.Job))
	t.move(&j.expires, expiryOf(j.Job))
	t.put(jobs, number(j.ID), j)
	if j.Claimable(t.now) {
		t.woken[contract.Wakeup{Queue: j.Queue}] = true
	}
}

// move moves a job from one place to another.
func (t *txn) move(from *place, to place) {
	if to == *from {
		return
	}
	if from.in != "" {
		t.remove(from.in, []byte(from.key))
	}
	if to.in != "" {
		t.putRaw(to.in, []byte(to.key), nil)
	}
	*from = to
}

// saveEnded saves a job whose lease has ended, or that was cancelled.
func (t *txn) saveEnded(j *job) {
	if j.Terminal() {
		t.release(j)
	}
	t.save(j)
}

// drop deletes a terminal job and its history.
func (t *txn) drop(j *job) {
	for _, key := range t.attemptKeys(j.ID) {
		t.remove(attempts, key)
	}
	t.remove(payloads, number(j.ID))
	t.remove(jobs, number(j.ID))
	t.countJobs(j.Queue, -1)
}

// moveAttempt moves the latest attempt from the job's row into the history, before the row loses it.
func (t *txn) moveAttempt(of contract.Record) {
	if latest, kept := of.Latest(); kept {
		t.put(attempts, pair(of.ID, latest.Token), latest)
	}
}

// forgetAttempts makes room for another attempt of the job. A job has at most as many attempts as its token, so most need no count.
func (t *txn) forgetAttempts(j *job) {
	if j.Token < contract.MaxAttemptsKept {
		return
	}
	if kept := t.attemptKeys(j.ID); len(kept) >= contract.MaxAttemptsKept {
		t.remove(attempts, kept[0])
	}
}

// attemptKeys returns the keys of the job's attempts, the oldest first.
func (t *txn) attemptKeys(id int64) [][]byte {
	var list [][]byte
	c := t.in(attempts).Cursor()
	for key, _ := c.Seek(number(id)); bytes.HasPrefix(key, number(id)); key, _ = c.Next() {
		list = append(list, bytes.Clone(key))
	}
	return list
}

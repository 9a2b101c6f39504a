package bbolt

import (
	"bytes"
	"fmt"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
)

// A job is a row of the bucket of jobs. Its payload is kept apart, so that a heartbeat need not write it again.
type job struct {
	contract.Record

	stood place // where the index has it
}

// job returns the job with the id, or nil if there is none.
func (t *txn) job(id int64) *job {
	if raw := t.in(jobs).Get(number(id)); raw != nil {
		return t.decodeJob(raw)
	}
	return nil
}

// indexed returns the job that the key of an index ends with.
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
	j.Epoch, j.stood = t.epoch, placeOf(j.Job)
	return &j
}

// whole is the job for a caller, with its payload.
func (t *txn) whole(j *job) jq.Job {
	row := j.Job
	row.Payload = bytes.Clone(t.in(payloads).Get(number(j.ID)))
	return row
}

// weight is how many bytes the job's documents have, the payload among them.
func (t *txn) weight(j *job) int { return j.Weight() + len(t.in(payloads).Get(number(j.ID))) }

// add puts a new job into the store.
func (t *txn) add(row jq.Job) {
	t.putRaw(payloads, number(row.ID), row.Payload)
	row.Payload = nil
	t.countJobs(row.Queue, 1)
	t.save(&job{Record: contract.Record{Job: row}})
}

// save writes a job that has changed, and moves it to the place where it now belongs.
func (t *txn) save(j *job) {
	to := placeOf(j.Job)
	if to != j.stood && j.stood.in != "" {
		t.remove(j.stood.in, []byte(j.stood.key))
	}
	if to != j.stood && to.in != "" {
		t.putRaw(to.in, []byte(to.key), nil)
	}
	j.stood = to
	t.put(jobs, number(j.ID), j)
	if j.Claimable(t.now) {
		t.woken[j.Queue] = true
	}
}

// settle saves a job whose lease has ended, or that was cancelled.
func (t *txn) settle(j *job) {
	if j.Terminal() {
		t.release(j)
	}
	t.save(j)
}

// drop takes a terminal job out of the store, with its history.
func (t *txn) drop(j *job) {
	for _, key := range t.attemptKeys(j.ID) {
		t.remove(attempts, key)
	}
	t.remove(payloads, number(j.ID))
	t.remove(jobs, number(j.ID))
	t.countJobs(j.Queue, -1)
}

// moveAttempt moves the latest attempt of a job that is about to forget it.
func (t *txn) moveAttempt(of contract.Record) {
	if latest, kept := of.Latest(); kept {
		t.put(attempts, pair(of.ID, latest.Token), latest)
	}
}

// forgetAttempts makes room for another attempt of the job. It has no more of them than its token says, so that most need no counting.
func (t *txn) forgetAttempts(j *job) {
	if j.Token < contract.MaxAttemptsKept {
		return
	}
	if kept := t.attemptKeys(j.ID); len(kept) >= contract.MaxAttemptsKept {
		t.remove(attempts, kept[0])
	}
}

// attemptKeys are the keys of the job's attempts, the oldest first.
func (t *txn) attemptKeys(id int64) [][]byte {
	var list [][]byte
	c := t.in(attempts).Cursor()
	for key, _ := c.Seek(number(id)); bytes.HasPrefix(key, number(id)); key, _ = c.Next() {
		list = append(list, bytes.Clone(key))
	}
	return list
}

package kv

import (
	"bytes"
	"fmt"

	"github.com/seed-ed332417/jq/contract"
)

// A row is the value of a job.
type row struct {
	Record contract.Record
	Apart  [4]int `json:",omitzero"` // bytes of each document that has keys of its own, and is missing in the record
	Kept   int    `json:",omitzero"` // attempts in the table of attempts
	Room   bool   `json:",omitzero"` // its latest claim was under MaxInFlight
}

// A job is a row in use.
type job struct {
	contract.Record
	apart [4]int
	kept  int
	room  bool

	read                   Item  // its row, if that was read on a walk
	lived                  bool  // as it was read
	place, expires, member entry // where it stands in the indexes
	spots                  spots // where it stands among the jobs of its limit key
}

// The documents of a job, as they are counted in a row and in keys.
const (
	payload = iota
	checkpoint
	progress
	result
)

func (j *job) document(which int) *[]byte {
	return [...]*[]byte{&j.Payload, &j.Checkpoint, &j.Progress, &j.Result}[which]
}

// short is the longest document that stands in the row. A change of the row writes it again.
const short = 1 << 10

// weight returns the size in bytes of the job's documents.
func (j *job) weight() int {
	w := j.Weight()
	for _, size := range j.apart {
		w += size
	}
	return w
}

// job returns the job with the id, or nil if there is none, and guards it.
func (t *txn) job(id int64) *job {
	k := key(rows, number(id))
	raw, ok := t.peek(k)
	t.guard(k)
	if !ok {
		return nil
	}
	return t.decodeJob(raw)
}

// fetchJobs reads the rows in one trip.
func (t *txn) fetchJobs(ids []int64) {
	keys := make([][]byte, len(ids))
	for i, id := range ids {
		keys[i] = key(rows, number(id))
	}
	t.fetch(keys...)
}

// indexed returns the jobs whose ids end the keys of an index.
func (t *txn) indexed(items []Item) []*job {
	ids := make([]int64, len(items))
	for i, item := range items {
		ids[i] = lastNumber(item.Key)
	}
	t.fetchJobs(ids)
	var jobs []*job
	for _, id := range ids {
		j := t.job(id)
		if j == nil {
			t.fail(fmt.Errorf("%w: an index has job %d, which is not there", errDamaged, id))
			return nil
		}
		jobs = append(jobs, j)
	}
	return jobs
}

func (t *txn) decodeJob(raw []byte) *job {
	r := decode[row](t, key(rows), raw)
	j := &job{Record: r.Record, apart: r.Apart, kept: r.Kept, room: r.Room}
	if j.State == contract.InFlight && j.Token <= contract.Floor(t.meta.Ended) { // Fence has ended its lease
		j.Token = contract.NextToken(j.Token, t.meta.Ended)
	}
	j.Epoch, j.place, j.expires, j.member, j.lived = t.meta.Epoch, placeOf(j, t.s.shards), expiryOf(j), memberOf(j), !j.Terminal()
	j.spots = t.meta.Modes[j.Queue].spotsOf(j)
	return j
}

// whole returns the jobs with all of their documents, for a caller.
func (t *txn) whole(jobs []*job) []contract.Job {
	var keys [][]byte
	for _, j := range jobs {
		for which, size := range j.apart {
			if size > 0 {
				keys = append(keys, documentKey(j.ID, which))
			}
		}
	}
	t.fetch(keys...)
	var list []contract.Job
	for _, j := range jobs {
		list = append(list, t.join(j))
	}
	return list
}

// join returns a copy of the job with the documents that stand apart.
func (t *txn) join(j *job) contract.Job {
	whole := &job{Record: j.Record}
	for which, size := range j.apart {
		if size == 0 {
			continue
		}
		doc, _ := t.peek(documentKey(j.ID, which))
		if len(doc) != size {
			t.fail(fmt.Errorf("%w: of a document of job %d, %d of %d bytes are there", errDamaged, j.ID, len(doc), size))
		}
		*whole.document(which) = bytes.Clone(doc)
	}
	return whole.Job
}

func documentKey(id int64, which int) []byte { return key(documents, number(id), []byte{byte(which)}) }

// add stores a new job.
func (t *txn) add(j *job) {
	t.absent(key(rows, number(j.ID))) // or a ticket that was handed out twice would replace a job
	t.putRaw(key(newest, number(^j.ID)), nil)
	t.putRaw(key(ofQueue, []byte(j.Queue), []byte{0}, number(j.ID)), nil)
	if j.Group() != "" {
		t.keepWaits()
	}
	t.save(j)
}

// save writes a changed job, and moves it to its new places in the indexes.
func (t *txn) save(j *job) {
	for which := range j.apart {
		t.saveDocument(j, which)
	}
	if j.place.key != "" && table(j.place.key[0]) == leases && j.State != contract.InFlight && j.room {
		t.woken[contract.Wakeup{Queue: j.Queue}] = true // there is room
	}
	was := j.place.key
	t.move(&j.place, placeOf(j, t.s.shards))
	t.moved(was, j.place.key)
	t.use(j)
	t.moveSpots(j)
	t.move(&j.expires, expiryOf(j))
	t.write(j)
	if j.Claimable(t.now) {
		t.added[j.Queue] = true
	}
	if end, is := contract.EndOf(&j.Job); is && j.lived {
		t.ended(j, end)
	}
	t.moveMember(j)
	j.lived = !j.Terminal()
}

// write writes the row of a job that stays in its places.
func (t *txn) write(j *job) { t.put(key(rows, number(j.ID)), row{j.Record, j.apart, j.kept, j.room}) }

// use notes that the line of a waiting job is in use. All calls that are under way conflict with the first one that does.
func (t *txn) use(j *job) {
	l, waits := lineOfJob(j)
	if !waits || t.meta.Lines&(1<<l.bit()) != 0 {
		return
	}
	t.meta.Lines |= 1 << l.bit()
	t.saveMeta(layout)
}

// saveDocument writes a document that is new and too long for the row to a key of its own. One that is not in the record stays as it is.
func (t *txn) saveDocument(j *job, which int) {
	doc := j.document(which)
	switch {
	case len(*doc) > short:
		t.putRaw(documentKey(j.ID, which), *doc)
		j.apart[which] = len(*doc)
		*doc = nil
	case len(*doc) > 0:
		t.dropDocument(j, which)
	}
}

// dropDocument removes a document that has a key of its own.
func (t *txn) dropDocument(j *job, which int) {
	if j.apart[which] > 0 {
		t.remove(documentKey(j.ID, which))
		j.apart[which] = 0
	}
}

// move moves a job in an index.
func (t *txn) move(from *entry, to entry) {
	if to == *from {
		return
	}
	if from.key != "" && from.key != to.key {
		t.remove([]byte(from.key))
	}
	if to.key != "" {
		t.putRaw([]byte(to.key), []byte(to.value))
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

// droppedAtOnce is how many attempts, and marks of waits, a call deletes, so that its change is not too large for an engine.
const droppedAtOnce = 3_000

// drop deletes terminal jobs, their histories and their waits. It leaves many of these to forget.
func (t *txn) drop(jobs []*job) {
	var asked []Range
	room := t.dropWaits(jobs, droppedAtOnce)
	for _, j := range jobs {
		switch room -= j.kept; {
		case j.kept == 0:
		case room >= 0:
			asked = append(asked, attemptsOf(j.ID))
		default:
			t.putRaw(endOf(t.now, attempts, string(number(j.ID))), nil)
		}
	}
	for _, history := range t.scan(asked...) {
		for _, a := range history {
			t.remove(a.Key)
		}
	}
	for _, j := range jobs {
		for which := range j.apart {
			t.dropDocument(j, which)
		}
		t.dropMember(j)
		t.remove(key(newest, number(^j.ID)))
		t.remove(key(ofQueue, []byte(j.Queue), []byte{0}, number(j.ID)))
		t.remove(key(rows, number(j.ID)))
	}
}

func attemptsOf(id int64) Range {
	r := under(key(attempts, number(id)))
	r.KeysOnly = true
	return r
}

// moveAttempt moves the latest attempt of the record from the job's row into the history, before the row loses it.
func (t *txn) moveAttempt(j *job, of contract.Record) {
	if latest, kept := of.Latest(); kept {
		t.put(key(attempts, number(j.ID), number(latest.Token)), latest)
		j.kept++
	}
}

// forgetAttempts makes room for another attempt of each job.
func (t *txn) forgetAttempts(jobs []*job) {
	var full []*job
	var asked []Range
	for _, j := range jobs {
		if j.kept >= contract.MaxAttemptsKept {
			oldest := attemptsOf(j.ID)
			oldest.Limit = 1
			full, asked = append(full, j), append(asked, oldest)
		}
	}
	for i, found := range t.scan(asked...) {
		for _, a := range found {
			t.remove(a.Key)
			full[i].kept--
		}
	}
}

package kv

import (
	"encoding/binary"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// layout is the version of the keys and values below, withWaits that of a store in which a job has waited for others, or was in a group, withKeys that of one
// with a policy that has to do with limit keys, and withMarks that of one that had a mark: a program that does not know of these must not use it.
const (
	layout    = 2
	withWaits = 3
	withKeys  = 4
	withMarks = 5
)

// known reports whether this package knows the layout.
func known(of int) bool { return of >= layout && of <= withMarks }

// A table is the first byte of its keys. Numbers and times in keys are encoded so that they sort by value. Values are JSON
// unless a comment says otherwise; "none" is an empty value.
type table byte

// The tables, each with its key.
const (
	metas     table = 'm' // the key of the table alone: what concerns the whole store
	rows      table = 'j' // id: the job, without its longer documents
	documents table = 'd' // id, document: the bytes of a document that is too long for the row
	attempts  table = 'h' // id, token: an attempt; the latest one is in the row instead
	newest    table = 'i' // inverted id: none. An index of the jobs, the latest first
	ofQueue   table = 'o' // queue, NUL, id: none. An index of the jobs by queue
	waiting   table = 'w' // queue, NUL, lane, priority, shard, due time, id: what a claim must know of a job that can be claimed when it is due; see the type waits
	expiries  table = 'x' // ExpiresAt, id: none. An index of waiting jobs that expire
	leases    table = 'l' // end, id: the length of the lease, a number, and the queue. An index of jobs in flight
	uniques   table = 'u' // unique key: its holder
	freed     table = 'f' // the key of the table alone: none. Put when windows of unique keys are forgotten
	requests  table = 'r' // request key: its answer
	ends      table = 'e' // time, table, key: none. An index of the values that end, by when; for the attempts of a deleted job, the key is its id
	queues    table = 'q' // name: whether the queue is paused, and its policy
	claims    table = 'c' // queue: the claims of a queue with a limit
	schedules table = 's' // name: the schedule
	workers   table = 'b' // name: the worker
	activity  table = 'a' // width, overall or each, begin, queue, NUL, kind: the sums of a span of that width
	cancels   table = 'z' // queue: until when it stays. Put when leases are cancelled, for those who watch
	needs     table = 'n' // id: the waits of the job
	waiters   table = 'y' // what is waited for, id: none. An index of the jobs that wait or have waited for it
	notes     table = 't' // what is waited for: what its waiters are still to be told
	groups    table = 'g' // name: the group, as long as it exists
	members   table = 'p' // group, NUL, sort, id: none. An index of the jobs by group
	gates     table = 'v' // group: none. Put by those who add to the group
	ticks     table = 'B' // the key of the table alone: the time of the engine; see the type tick
	lefts     table = 'k' // the key of the table alone: none. Put when a call leaves something to settle, for those who watch

	// What follows is there for queues whose claims find jobs by limit key.
	lined    table = 'F' // queue, NUL, limit key, NUL, lane, priority, due time, id: see the type waits. An index of waiting jobs
	slots    table = 'S' // queue, NUL, limit key, NUL, id: none. An index of jobs in flight
	ranks    table = 'O' // queue, NUL, limit key, NUL, id: none. An index of live jobs in ordered queues
	joins    table = 'G' // queue, NUL, limit key: none. Put when a job gets a rank
	hints    table = 'H' // queue, NUL, limit key, NUL, lane, priority, due time, id: none. Put when claims must look at the key
	stands   table = 'K' // queue, NUL, limit key: where the key stands, and where its lines begin
	standing table = 'R' // queue, NUL, lane, place, limit key: none. An index of the keys that have room and due jobs, as claims take from them
	later    table = 'L' // queue, NUL, due time, limit key: none. An index of the keys that have room, and jobs that are not due
	turnsOf  table = 'T' // queue: how many claims have given turns
)

// key returns a key of the table.
func key(t table, parts ...[]byte) []byte {
	k := []byte{byte(t)}
	for _, p := range parts {
		k = append(k, p...)
	}
	return k
}

// named returns the key of a name.
func named(t table, name string) []byte { return key(t, []byte(name)) }

// under returns the range of the keys with the prefix.
func under(prefix []byte) Range { return Range{From: prefix, To: following(prefix)} }

// following returns the first key after all that begin with the prefix. The prefix begins with a table, which is a letter, so there is one.
func following(prefix []byte) []byte {
	end := append([]byte{}, prefix...)
	for end[len(end)-1] == 0xff {
		end = end[:len(end)-1]
	}
	end[len(end)-1]++
	return end
}

// upTo returns the range of the keys with the prefix whose next bytes, a moment, are no later than the given one.
func upTo(prefix []byte, until time.Time, limit int) Range {
	return Range{From: prefix, To: append(append([]byte{}, prefix...), moment(until.Add(contract.Resolution))...), Limit: limit}
}

// number encodes an id, a token or a length for a key.
func number(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func numberAt(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }

// lastNumber decodes the number at the end of a key.
func lastNumber(key []byte) int64 { return numberAt(key[len(key)-8:]) }

// sign makes negative numbers sort before the others.
const sign = 1 << 63

// moment encodes a time for a key. Times before 1970 are negative numbers.
func moment(t time.Time) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(t.UnixMicro())^sign)
}

// momentAt decodes the moment at the offset of a key.
func momentAt(key []byte, offset int) time.Time {
	return time.UnixMicro(int64(binary.BigEndian.Uint64(key[offset:]) ^ sign)).UTC()
}

// A lane is one of the two ways to wait.
type lane byte

const (
	retries lane = 'r'
	fresh   lane = 'f'
)

// A line is a lane with a priority, as part of a key. A higher priority sorts first.
type line [2]byte

func lineOf(l lane, priority int) line { return line{byte(l), byte(contract.MaxPriority - priority)} }

// bit returns the line's place in the order of a claim: 19 lines of retries, then 19 of fresh jobs.
func (l line) bit() int {
	if lane(l[0]) == fresh {
		return priorities + int(l[1])
	}
	return int(l[1])
}

const priorities = contract.MaxPriority - contract.MinPriority + 1

// Lines are a set of lines, each by its bit.
type lines uint64

// of returns the lines of a lane in the order of a claim.
func (s lines) of(l lane) (list []line) {
	for p := contract.MaxPriority; p >= contract.MinPriority; p-- {
		if one := lineOf(l, p); s&(1<<one.bit()) != 0 {
			list = append(list, one)
		}
	}
	return list
}

// all returns the lines in the order of a claim.
func (s lines) all() []line { return append(s.of(retries), s.of(fresh)...) }

// On an engine that several processes share, the jobs of a line stand in shards, by a hash of their ids, so that stores that claim at once can keep out
// of each other's way. One store needs no more than one shard, and so reads less for a claim.
const (
	sharedShards = 16
	golden       = 0x9E3779B97F4A7C15 // 2⁶⁴ divided by the golden ratio: ids that follow each other get different shards
)

func shardOf(id int64, shards int) byte { return byte(uint64(id) * golden >> 32 % uint64(shards)) }

// inShard returns the prefix of the keys of jobs that wait in one queue, line and shard.
func inShard(queue string, l line, shard byte) []byte {
	return key(waiting, []byte(queue), []byte{0, l[0], l[1], shard})
}

// A waits is what a claim must know of a waiting job before it reads the row. Its value has both numbers, the second as a moment.
type waits struct {
	weight  int       // bytes of the documents
	expires time.Time // zero if it does not
}

func (w waits) encode() []byte {
	raw := number(int64(w.weight))
	if !w.expires.IsZero() {
		raw = append(raw, moment(w.expires)...)
	}
	return raw
}

// decodeWaits returns false if the value is not one.
func decodeWaits(raw []byte) (w waits, ok bool) {
	switch len(raw) {
	case 16:
		w.expires = momentAt(raw, 8)
	case 8:
	default:
		return w, false
	}
	w.weight = int(numberAt(raw))
	return w, true
}

// An entry is a key of an index with its value. The zero entry means none.
type entry struct{ key, value string }

// expiryOf returns the entry of a waiting job that expires, or none.
func expiryOf(j *job) entry {
	if j.ExpiresAt().IsZero() || j.Terminal() || j.State == contract.InFlight {
		return entry{}
	}
	return entry{key: string(key(expiries, moment(j.ExpiresAt()), number(j.ID)))}
}

// The sorts of jobs in a group.
const (
	liveMember = 'l'
	deadMember = 'd'
	overMember = 'o' // succeeded or cancelled
)

// memberOf returns the entry of a job in its group, or none.
func memberOf(j *job) entry {
	if j.Group() == "" {
		return entry{}
	}
	sort := byte(liveMember)
	switch {
	case j.Phase() == contract.Dead:
		sort = deadMember
	case j.Terminal():
		sort = overMember
	}
	return entry{key: string(append(membersOf(j.Group(), sort), number(j.ID)...))}
}

// membersOf returns the prefix of the keys of the jobs of a group, of the given sorts.
func membersOf(group string, sorts ...byte) []byte {
	return key(members, []byte(group), []byte{0}, sorts)
}

// What is waited for begins with its sort.
const (
	aJob   = 'j'
	aGroup = 'p'
)

func waitersOfJob(id int64) []byte { return key(waiters, []byte{aJob}, number(id)) }
func waitersOfGroup(group string) []byte {
	return key(waiters, []byte{aGroup}, []byte(group), []byte{0})
}
func notesOfJob(id int64) []byte      { return key(notes, []byte{aJob}, number(id)) } // and the token of each end
func noteOfGroup(group string) []byte { return key(notes, []byte{aGroup}, []byte(group)) }

// lineOfJob returns where a job waits, and false if it does not.
func lineOfJob(j *job) (line, bool) {
	switch j.Phase() {
	case contract.Ready:
		return lineOf(fresh, j.Priority), true
	case contract.Retrying:
		return lineOf(retries, j.Priority), true
	default:
		return line{}, false
	}
}

// placeOf returns the entry where the job belongs by its phase, or none.
func placeOf(j *job, shards int) entry {
	at := append(moment(j.Next()), number(j.ID)...)
	if l, is := lineOfJob(j); is {
		return entry{string(append(inShard(j.Queue, l, shardOf(j.ID, shards)), at...)), string(waits{j.weight(), j.ExpiresAt()}.encode())}
	}
	if j.State == contract.InFlight {
		return entry{string(key(leases, at)), string(number(int64(j.LeaseFor))) + j.Queue}
	}
	return entry{}
}

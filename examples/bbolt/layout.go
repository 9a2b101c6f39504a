package bbolt

import (
	"encoding/binary"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/seed-ed332417/jq/contract"
)

// A bucket is a part of the file; its keys are sorted byte by byte. Numbers and times in keys are encoded so that they
// sort by value. Values are JSON, except payloads; the keys of an index have no value.
type bucket string

// The buckets, each with its key.
const (
	jobs     bucket = "jobs"     // id: the job, without its payload. The sequence of the bucket is the latest id
	payloads bucket = "payloads" // id: the payload, which never changes
	attempts bucket = "attempts" // id, token: an attempt; the latest one is in the row of its job instead
	waiting  bucket = "waiting"  // queue, NUL, lane, priority, due time, id: an index of jobs that can be claimed when they are due
	expiries bucket = "expiries" // ExpiresAt, id: an index of waiting jobs that expire
	leases   bucket = "leases"   // end, id: an index of jobs in flight
	keys     bucket = "keys"     // unique key: its holder
	requests bucket = "requests" // request key: its answer
	ends     bucket = "ends"     // time, keys or requests, key: an index of the two above, by when they end
	queues   bucket = "queues"   // name: how many jobs it has, whether it is paused, and its policy
	workers  bucket = "workers"  // name: the worker
	activity bucket = "activity" // width, overall or each, begin, queue, NUL, kind: the sums of a span of that width
	epochs   bucket = "epochs"   // present: the epoch; missing before the first Fence
)

// present is the only key of the bucket epochs.
const present = "present"

func makeBuckets(db *bolt.DB) error {
	return db.Update(func(tx *bolt.Tx) error {
		for _, b := range []bucket{jobs, payloads, attempts, waiting, expiries, leases, keys, requests, ends, queues, workers, activity, epochs} {
			if _, err := tx.CreateBucketIfNotExists([]byte(b)); err != nil {
				return err
			}
		}
		return nil
	})
}

// number encodes an id or a token for a key.
func number(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// pair encodes two numbers for a key.
func pair(a, b int64) []byte { return binary.BigEndian.AppendUint64(number(a), uint64(b)) }

// lastNumber decodes the number at the end of a key.
func lastNumber(key []byte) int64 { return int64(binary.BigEndian.Uint64(key[len(key)-8:])) }

// moment encodes a time for a key. Times before 1970 are negative numbers, so it inverts the sign.
func moment(t time.Time) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(t.UnixMicro())^1<<63)
}

// momentAt returns the encoded moment at the offset in the key.
func momentAt(key []byte, offset int) string { return string(key[offset : offset+8]) }

// A lane is one of the two ways to wait.
type lane byte

const (
	retries lane = 'r'
	fresh   lane = 'f'
)

// line returns the prefix of the keys of jobs that wait in one queue, lane and priority. A higher priority sorts first.
func line(queue string, l lane, priority int) []byte {
	return append([]byte(queue), 0, byte(l), byte(contract.MaxPriority-priority))
}

// A place is the position of a job in an index. The zero place means none.
type place struct {
	in  bucket
	key string
}

// expiryOf returns the place of a waiting job that expires in the index of those, or no place.
func expiryOf(j contract.Job) place {
	if j.ExpiresAt().IsZero() || j.Terminal() || j.State == contract.InFlight {
		return place{}
	}
	return place{expiries, string(append(moment(j.ExpiresAt()), number(j.ID)...))}
}

// placeOf returns the place where the job belongs.
func placeOf(j contract.Job) place {
	at := append(moment(j.Next()), number(j.ID)...)
	switch j.Phase() {
	case contract.Ready:
		return place{waiting, string(append(line(j.Queue, fresh, j.Priority), at...))}
	case contract.Retrying:
		return place{waiting, string(append(line(j.Queue, retries, j.Priority), at...))}
	case contract.InFlight:
		return place{leases, string(at)}
	default:
		return place{}
	}
}

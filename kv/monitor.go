package kv

import (
	"bytes"
	"context"
	"slices"

	"github.com/seed-ed332417/jq/contract"
)

// Ping reads the key that concerns the whole store.
func (s *Store) Ping(ctx context.Context) error {
	_, err := call(ctx, s, nil, ask{}, func(*txn) struct{} { return struct{}{} })
	return err
}

// duesAtOnce is of how many heads OldestDue reads in one trip, and headsAtOnce how many entries of each. More are read only if all of these have
// expired.
const (
	duesAtOnce  = 2000
	headsAtOnce = 2
)

// OldestDue returns the queues from which a claim could take a job, each with the earliest due time of its jobs. It takes a trip for each queue
// that has waiting jobs, and one for the heads of several.
func (s *Store) OldestDue(ctx context.Context) (contract.Due, error) {
	return call(ctx, s, nil, ask{}, func(t *txn) contract.Due {
		found := contract.Due{Now: t.now}
		known := t.meta.Lines.all()
		for names := range slices.Chunk(t.queuesIn(waiting), max(1, duesAtOnce/s.shards/max(1, len(known)))) {
			found.Queues = append(found.Queues, t.oldestOf(names, known)...)
		}
		return found
	})
}

func (t *txn) oldestOf(names []string, known []line) (due []contract.QueueDue) {
	var asked []Range
	for _, name := range names {
		for _, l := range known {
			asked = append(asked, t.s.headsOf(name, l, t.meta.Marks[markOfLine(name, l)], t.now, func(int) int { return headsAtOnce })...)
		}
	}
	found, each := headed(asked, t.scan(asked...)), len(known)*t.s.shards
	for i, name := range names {
		if first := t.earliest(found[i*each : (i+1)*each]); first != nil {
			due = append(due, contract.QueueDue{Queue: name, OldestDue: dueOf(first.items[0].Key)})
		}
	}
	return due
}

// queuesIn returns the queues that a table has keys of, which begin with their names. It takes a trip for each queue, and none for each key.
func (t *txn) queuesIn(in table) (names []string) {
	r := under(key(in))
	r.Limit, r.KeysOnly = 1, true
	for {
		found := t.scan(r)[0]
		if len(found) == 0 {
			return names
		}
		name := found[0].Key[1:bytes.IndexByte(found[0].Key, 0)]
		names = append(names, string(name))
		r.From = key(in, name, []byte{1})
	}
}

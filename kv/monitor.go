package kv

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// Ping reads the key that concerns the whole store.
func (s *Store) Ping(ctx context.Context) error {
	_, err := call(ctx, s, nil, ask{}, func(t *txn) struct{} {
		if t.meta.Layout != layout {
			t.fail(fmt.Errorf("%w: it says that its keys have the layout %d", errDamaged, t.meta.Layout))
		}
		return struct{}{}
	})
	return err
}

// headsAtOnce is how many entries of each line OldestDue reads first. More are read only if all of these have expired. And queuesAtOnce is of how
// many queues it reads them in one trip.
const (
	headsAtOnce  = 4
	queuesAtOnce = 50
)

// OldestDue returns the queues from which a claim could take a job, each with the earliest due time of its jobs. It reads the heads of the lines of
// each queue that has waiting jobs, and takes a trip for each such queue and one for the heads of every 50.
func (s *Store) OldestDue(ctx context.Context) (contract.Due, error) {
	return call(ctx, s, nil, ask{}, func(t *txn) contract.Due {
		found := contract.Due{Now: t.now}
		for names := range slices.Chunk(t.queuesIn(waiting), queuesAtOnce) {
			found.Queues = append(found.Queues, t.oldestOf(names)...)
		}
		return found
	})
}

func (t *txn) oldestOf(names []string) (due []contract.QueueDue) {
	var asked []Range
	for _, name := range names {
		asked = append(asked, lines(contract.ClaimRequest{Queue: name, Limit: headsAtOnce}, t.now)...)
	}
	heads, each := t.scan(asked...), len(asked)/len(names)
	for i, name := range names {
		if oldest := t.oldest(asked[i*each:(i+1)*each], heads[i*each:(i+1)*each]); !oldest.IsZero() {
			due = append(due, contract.QueueDue{Queue: name, OldestDue: oldest})
		}
	}
	return due
}

// oldest returns the earliest due time in the lines, or zero.
func (t *txn) oldest(asked []Range, heads [][]Item) (oldest time.Time) {
	for i, r := range asked {
		for item := range t.claimable(r, heads[i]) {
			if due := dueOf(item.Key); oldest.IsZero() || due.Before(oldest) {
				oldest = due
			}
			break
		}
	}
	return oldest
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

package kv

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/contract"
)

// RecoverExpiredLeases ends leases that have expired, the oldest first.
func (s *Store) RecoverExpiredLeases(ctx context.Context, req contract.RecoverRequest) ([]contract.Recovered, error) {
	refused := req.Check()
	if refused == nil {
		s.walk(ctx, markOfLeases)
	}
	var m mark
	var until time.Time
	first := ask{ranges: func(now time.Time) []Range {
		m, until = s.latest.Load().Marks[markOfLeases], now.Add(-req.Grace.Truncate(contract.Resolution))
		return []Range{ended(now), m.upTo(key(leases), until, req.Limit)}
	}}
	recovered, err := inTurn(ctx, s, string(leases), refused, first, func(t *txn) []contract.Recovered {
		t.forget(t.first[0])
		expired := t.first[1]
		if is := t.meta.Marks[markOfLeases]; is.before(m) {
			expired = t.scan(is.upTo(key(leases), until, req.Limit))[0]
		}
		brought := t.bringBack(req.Limit)
		var recovered []contract.Recovered
		for _, j := range t.indexed(expired) {
			if brought[j.ID] || j.LeaseExpiresAt.After(t.now.Add(-req.Grace.Truncate(contract.Resolution))) {
				continue
			}
			recovered = append(recovered, j.Recover(t.now))
			t.saveEnded(j)
		}
		return recovered
	})
	if err == nil {
		s.moveLeft(ctx)
	}
	return recovered, err
}

// bringBack restarts, from now, the leases that a clock gave while it was ahead, and returns their jobs.
func (t *txn) bringBack(limit int) map[int64]bool {
	mark, must := t.s.present.MustLook()
	if !must {
		return nil
	}
	var ahead []Item // the latest ones, for the keys rise
	later := Range{From: key(leases, moment(t.now.Add(contract.MaxSetBack))), To: following(key(leases))}
	for item := range t.each(later) {
		length := time.Duration(numberAt(item.Value))
		if _, is := contract.LeaseAhead(momentAt(item.Key, 1), length, t.s.maxLease, t.now); !is {
			continue
		}
		if ahead = append(ahead, item); len(ahead) > limit {
			ahead = ahead[1:]
		}
	}
	brought := map[int64]bool{}
	for _, j := range t.indexed(ahead) {
		j.Lend(min(j.LeaseFor, t.s.maxLease), t.now)
		t.save(j)
		brought[j.ID] = true
	}
	if len(ahead) < limit && t.err == nil {
		t.after = func() { t.s.present.Looked(mark) }
	}
	return brought
}

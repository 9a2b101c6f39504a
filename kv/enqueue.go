package kv

import (
	"cmp"
	"context"

	"github.com/seed-ed332417/jq/contract"
)

// Enqueue adds all of the jobs or none.
func (s *Store) Enqueue(ctx context.Context, req contract.EnqueueRequest) ([]contract.Enqueued, error) {
	first := ask{tickets: len(req.Jobs)}
	if req.RequestKey != "" {
		first.keys = append(first.keys, named(requests, req.RequestKey))
	}
	for _, n := range req.Jobs {
		if n.UniqueKey != "" {
			first.keys = append(first.keys, named(uniques, n.UniqueKey))
		}
	}
	return call(ctx, s, cmp.Or(req.Check(), contract.RefuseWaits(req)), first, func(t *txn) []contract.Enqueued {
		if len(req.Jobs) == 0 {
			return nil
		}
		if given, ok := t.answered(req); ok {
			return given
		}
		if err := contract.CheckExpiry(req.Jobs, t.now); err != nil {
			t.fail(err)
			return nil
		}
		t.fetchHolders(req.Jobs)
		answers := make([]contract.Enqueued, len(req.Jobs))
		for i, n := range req.Jobs {
			answers[i] = t.enqueue(n)
		}
		t.remember(req, answers)
		return answers
	})
}

func (t *txn) enqueue(n contract.NewJob) contract.Enqueued {
	if h, held := t.holder(n.UniqueKey); held {
		duplicate := contract.Enqueued{ID: h.ID, Duplicate: true}
		if j := t.job(h.ID); j != nil {
			duplicate.State = j.State
			if duplicate.Replaced = j.Replace(n, t.now); duplicate.Replaced {
				t.dropDocument(j, checkpoint)
				t.dropDocument(j, progress)
				t.save(j)
			}
		}
		return duplicate
	}
	j := n.Row(contract.Floor(t.meta.Epoch)+t.ticket(), t.now)
	t.add(j)
	if j.UniqueKey != "" {
		t.hold(j)
	}
	return contract.Enqueued{ID: j.ID, State: j.State}
}

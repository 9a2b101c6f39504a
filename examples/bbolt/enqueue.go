package bbolt

import (
	"cmp"
	"context"

	"github.com/seed-ed332417/jq/contract"
)

// Enqueue adds all of the jobs or none.
func (s *Store) Enqueue(ctx context.Context, req contract.EnqueueRequest) ([]contract.Enqueued, error) {
	return write(ctx, s, cmp.Or(req.Check(), contract.RefuseWaits(req)), func(t *txn) []contract.Enqueued {
		if len(req.Jobs) == 0 {
			return nil
		}
		t.forget()
		if given, ok := t.answered(req); ok {
			return given
		}
		if err := contract.CheckExpiry(req.Jobs, t.now); err != nil {
			t.fail(err)
			return nil
		}
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
				t.putRaw(payloads, number(j.ID), j.Payload)
				j.Payload = nil
				t.save(j)
			}
		}
		return duplicate
	}
	id, err := t.in(jobs).NextSequence()
	t.fail(err)
	row := n.Row(int64(id), t.now)
	t.add(row)
	if row.UniqueKey != "" {
		t.hold(row)
	}
	return contract.Enqueued{ID: row.ID, State: row.State}
}

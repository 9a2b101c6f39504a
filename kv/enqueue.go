package kv

import (
	"context"

	"github.com/seed-ed332417/jq/contract"
)

// Enqueue adds all of the jobs or none.
func (s *Store) Enqueue(ctx context.Context, req contract.EnqueueRequest) ([]contract.Enqueued, error) {
	first := ask{tickets: len(req.Jobs)}
	if req.RequestKey != "" {
		first.keys = append(first.keys, named(requests, req.RequestKey))
	}
	windows := false
	for _, n := range req.Jobs {
		if n.UniqueKey != "" {
			first.keys = append(first.keys, named(uniques, n.UniqueKey))
			windows = windows || n.UniqueFor > 0
		}
	}
	if windows {
		first.keys = append(first.keys, key(freed))
	}
	for _, name := range groupsNamed(req) {
		first.keys = append(first.keys, named(groups, name), named(gates, name))
	}
	refused := req.Check()
	if err := s.linkAhead(ctx, refused, req.Jobs); err != nil {
		return nil, err
	}
	return call(ctx, s, refused, first, func(t *txn) []contract.Enqueued {
		if len(req.Jobs) == 0 {
			return nil
		}
		if given, ok := t.answered(req); ok {
			return given
		}
		t.fetchJobs(jobsNamed(req.Jobs))
		exists := func(id int64) bool { return t.job(id) != nil }
		if err := contract.CheckNew(req.Jobs, t.now, exists, t.orderedOf(contract.Prioritized(req.Jobs))); err != nil {
			t.fail(err)
			return nil
		}
		t.fetchHolders(req.Jobs)
		t.expect(req)
		answers := make([]contract.Enqueued, len(req.Jobs))
		for i, n := range req.Jobs {
			answers[i] = t.enqueue(n, func(item int) int64 { return answers[item].ID })
		}
		t.arrived(req)
		t.remember(req, answers)
		return answers
	})
}

// enqueue adds a job, unless it is a duplicate. The argument item returns the id of an earlier item of the call.
func (t *txn) enqueue(n contract.NewJob, item func(i int) int64) contract.Enqueued {
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
	j := &job{Record: contract.Record{Job: n.Row(t.id(), t.now)}}
	if len(n.After) > 0 {
		t.await(j, n.KeptWaits(item))
	}
	t.add(j)
	if j.UniqueKey != "" && (j.UniqueFor > 0 || !j.Terminal()) {
		t.hold(j.Job)
	}
	return contract.Enqueued{ID: j.ID, State: j.State}
}

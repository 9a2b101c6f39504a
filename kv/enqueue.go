package kv

import (
	"context"

	"github.com/seed-ed332417/jq/contract"
)

// Enqueue adds all of the jobs or none.
func (s *Store) Enqueue(ctx context.Context, req contract.EnqueueRequest) ([]contract.Enqueued, error) {
	first, weight := ask{tickets: len(req.Jobs)}, 0
	if req.RequestKey != "" {
		first.keys = append(first.keys, named(requests, req.RequestKey))
	}
	windows, waits := false, false
	for _, n := range req.Jobs {
		weight += itemWeight + len(n.Payload)
		waits = waits || len(n.After) > 0
		if n.UniqueKey != "" {
			first.uniques = append(first.uniques, n.UniqueKey)
			windows = windows || n.UniqueFor > 0
		}
	}
	if windows {
		first.keys = append(first.keys, key(freed))
	}
	about := groupsNamed(req)
	for _, name := range about {
		first.keys = append(first.keys, named(groups, name), named(gates, name))
	}
	refused := req.Check()
	if err := s.linkAhead(ctx, refused, req.Jobs); err != nil {
		return nil, err
	}
	if waits || len(about) > 0 {
		weight = smallWeight + 1 // it reads more, and others would wait for that
	}
	return together(ctx, s, &s.adds, refused, weight, first, func(t *txn) []contract.Enqueued {
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

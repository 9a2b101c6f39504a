package doctor

import (
	"slices"

	"github.com/seed-ed332417/jq/internal/store"
)

// missed returns the names of those silent workers that somebody must look after. Nobody needs to look after a worker whose work
// goes on without it: each of its queues has a living worker, and it holds no lease.
func (e *examination) missed(registry store.Registry, silent []store.Worker) ([]string, error) {
	if len(silent) == 0 {
		return nil, nil
	}
	alone := map[string]bool{} // queues of silent workers without a living worker
	for _, w := range silent {
		for _, q := range w.Queues {
			alone[q] = true
		}
	}
	alive := false
	err := store.EachWorker(e.ctx, registry, func(w store.Worker) {
		if w.Stale {
			return
		}
		alive = true
		for _, q := range w.Queues {
			delete(alone, q)
		}
	})
	var names []string
	for _, w := range silent {
		left := slices.ContainsFunc(w.Queues, func(q string) bool { return alone[q] })
		if !alive || left || e.busy[w.Name] {
			names = append(names, w.Name)
		}
	}
	return names, err
}

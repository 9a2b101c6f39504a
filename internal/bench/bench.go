// Package bench measures what a store and the runtime on it can do, by the calls that applications make.
//
// A run has a queue of its own, takes nothing from other queues, and deletes its jobs at the end. It counts only if the store
// says afterwards that each job has ended as it should: otherwise it is an error that names what is missing. Which database it
// is, nothing here asks: what a store can tell of its costs it tells as a [store.Accountant].
//
// The history of attempts can not be switched off, so that what it costs is in every figure, and in none alone.
package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-ed332417/jq"
)

// Names of workloads.
const (
	Enqueue      = "enqueue"
	Drain        = "drain"
	Continuous   = "continuous"
	Latency      = "latency"
	Backlog      = "backlog"
	HeldSnapshot = "held-snapshot"
	HTTP         = "http"
	Idle         = "idle"
)

// A workload runs once, and says what it has measured.
type workload struct {
	about    string
	run      func(ctx context.Context, r *run) ([]Part, error)
	defaults Options
}

func workloads() map[string]workload {
	return map[string]workload{
		Enqueue:      {"producers add jobs, one per call or in batches", enqueueing, Options{Jobs: 50_000, Producers: 16, Batch: 1}},
		Drain:        {"workers run a backlog of jobs until none is left", draining, Options{Jobs: 50_000}},
		Continuous:   {"producers add jobs while workers run them", continuing, Options{}},
		Latency:      {"time from the enqueue call to the handler, at a fixed rate", waiting, Options{Producers: 16, Concurrency: 10, Buffer: -1}},
		Backlog:      {"claims from a store with many waiting, scheduled or finished jobs", piling, Options{Jobs: 1_000_000}},
		HeldSnapshot: {"continuous, without and with a snapshot that another session holds open", holding, Options{}},
		HTTP:         {"continuous, directly and through a server on loopback", serving, Options{}},
		Idle:         {"cost of an idle worker, and memory of jobs in flight", idling, Options{Jobs: 1_000}},
	}
}

// Workloads are the names of all workloads.
func Workloads() []string { return slices.Sorted(maps.Keys(workloads())) }

// About is what a workload does, in a line.
func About(name string) string { return workloads()[name].about }

// Run runs one round of a workload on the store, and returns what it has measured. It deletes its jobs also when it fails or
// the context ends, unless it is to keep them.
func Run(ctx context.Context, s jq.Store, options Options) (result Result, err error) {
	o, err := options.filled()
	if err != nil {
		return Result{}, err
	}
	r := newRun(s, o)
	defer func() {
		if err = errors.Join(err, r.remove(ctx)); err != nil {
			err = fmt.Errorf("%s: %w", o.Workload, err)
		}
	}()
	parts, err := workloads()[o.Workload].run(ctx, r)
	if err != nil {
		return Result{}, err
	}
	return Result{Workload: o.Workload, Queue: r.queue, Parts: parts}, nil
}

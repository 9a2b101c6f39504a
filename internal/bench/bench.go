// Package bench measures a store, and the runtime on it, through the calls that applications make.
//
// A run has its own queue and deletes its jobs at the end. It counts only if the store then reports that each job has ended as
// it should; otherwise it returns an error that says what is missing. The package does not know which database it measures; a
// store that can report its costs is a [store.Accountant].
//
// Users cannot turn the history of attempts off, so every figure includes its cost.
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
	Flows        = "flows"
	Keys         = "keys"
	Limits       = "limits"
	Fairness     = "fairness"
)

// A workload runs once and returns what it has measured.
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
		Flows:        {"jobs that wait for others: their cost, when they go on, and a cancellation of many", flowing, Options{Jobs: 100_000, Producers: 16}},
		Keys:         {"claims from a queue with MaxPerKey, beside a plain one: many keys, a big one, full ones", keying, Options{Jobs: 1_000_000, Batch: 10}},
		Limits:       {"claims and acks with limits that never bind, by 1, 8 and 32 claimers", limited, Options{Jobs: 100_000, Batch: 10}},
		Fairness:     {"how long the jobs of 49 tenants wait without and with a flood of another, whose jobs are 90 % of all, on a fair and on a plain queue", sharing, Options{Producers: 16, Concurrency: 10, Buffer: -1}},
	}
}

// Workloads returns the names of all workloads.
func Workloads() []string { return slices.Sorted(maps.Keys(workloads())) }

// About describes a workload in one line.
func About(name string) string { return workloads()[name].about }

// Run runs one round of a workload on the store and returns what it has measured. It deletes its jobs even if it fails or the
// context ends, unless Options.Keep is set.
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

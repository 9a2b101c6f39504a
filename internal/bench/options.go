package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Options says what to run. Zero fields have defaults, which depend on the workload. check has their limits.
type Options struct {
	Workload    string
	Jobs        int           // for enqueue, drain, backlog, idle, flows, keys and limits
	Duration    time.Duration // for continuous, held-snapshot, http, latency, idle and fairness: of each part; fairness takes ten times as long for the last one
	Concurrency int           // concurrent handlers
	Buffer      int           // jobs claimed ahead of them; negative means none
	Producers   int           // goroutines that enqueue
	Batch       int           // jobs in each of their calls, and in each claim of backlog, keys and limits
	Payload     int           // bytes per job
	Rate        float64       // for latency: jobs per second
	Keep        bool          // leave the jobs in the store

	// Progress is called now and then, by one goroutine at a time.
	Progress func(Progress)

	// Profile is called when a measurement begins, and stop when it ends, so that a profile covers nothing else.
	Profile func() (stop func() error, err error)

	beside   int           // for backlog: how many jobs wait in each scene
	patience time.Duration // for flows: how long the jobs that need a cancelled one may take to be cancelled
}

// Progress is how far a run has come.
type Progress struct {
	Doing string
	Jobs  int64   // done so far
	Part  float64 // from 0 to 1, or negative if unknown
}

// Filled returns the options with the workload's defaults, or an [OptionError].
func (o Options) Filled() (Options, error) { return o.filled() }

func (o Options) filled() (Options, error) {
	w, ok := workloads()[o.Workload]
	if !ok {
		return o, &OptionError{"workload", fmt.Sprintf("%q is unknown: want one of %s", o.Workload, strings.Join(Workloads(), ", "))}
	}
	fill(&o.Jobs, w.defaults.Jobs)
	fill(&o.Duration, 10*time.Second)
	fill(&o.Concurrency, w.defaults.Concurrency)
	fill(&o.Concurrency, 100)
	fill(&o.Buffer, w.defaults.Buffer)
	fill(&o.Buffer, 1_000)
	fill(&o.Producers, w.defaults.Producers)
	fill(&o.Producers, 4)
	fill(&o.Batch, w.defaults.Batch)
	fill(&o.Batch, 100)
	fill(&o.Payload, 100)
	fill(&o.Rate, 100)
	fill(&o.beside, 50_000)
	fill(&o.patience, 10*time.Minute)
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.Profile == nil {
		o.Profile = func() (func() error, error) { return func() error { return nil }, nil }
	}
	return o, o.check()
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// An OptionError says which option is invalid, and why.
type OptionError struct {
	Option string
	Rule   string
}

func (e *OptionError) Error() string { return fmt.Sprintf("jq: option %s %s", e.Option, e.Rule) }

func (o Options) check() error {
	rules := []struct {
		broken bool
		option string
		rule   string
	}{
		{o.Jobs < 0 || o.Jobs > 1_000_000_000, "jobs", "must be 1 to 1000000000"},
		{o.Duration < 0 || o.Duration > 24*time.Hour, "duration", "must be more than 0, and 24h at most"},
		{o.Concurrency < 0 || o.Concurrency > 100_000, "concurrency", "must be 1 to 100000"},
		{o.Buffer > 100_000, "buffer", "must be 100000 at most"},
		{o.Producers < 0 || o.Producers > 10_000, "producers", "must be 1 to 10000"},
		{o.Batch < 0 || o.Batch > store.MaxItems, "batch", fmt.Sprintf("must be 1 to %d", store.MaxItems)},
		{o.Payload < len(document(0, 0)) || o.Payload > store.MaxDocBytes, "payload",
			fmt.Sprintf("must be %d to %d", len(document(0, 0)), store.MaxDocBytes)},
		{o.Batch*o.Payload > store.MaxCallBytes-reserve, "payload", "and batch make a call too large: want 7 MiB at most"},
		{!(o.Rate > 0 && o.Rate <= 1e6), "rate", "must be more than 0, and 1000000 at most"},
		{o.Workload == Latency && o.Rate*o.Duration.Seconds() < 1, "rate", "must let a job be enqueued within the duration"},
		{o.Workload == Latency && o.Rate*o.Duration.Seconds() > 1e8, "rate", "and duration make more than 100000000 jobs"},
		{o.Workload == Idle && o.Jobs > 100_000, "jobs", "must be 100000 at most: all are in flight at once"},
	}
	for _, r := range rules {
		if r.broken {
			return &OptionError{r.option, r.rule}
		}
	}
	return nil
}

// reserve is the size of a call without its payloads.
const reserve = 1 << 20

// most returns how many jobs fit into one call, with these payloads.
func (o Options) most() int { return min(store.MaxItems, (store.MaxCallBytes-reserve)/o.Payload) }

// document returns a payload of that size with a number in it.
func document(number, size int) []byte {
	const frame = `{"number":%d,"text":"%s"}`
	bare := fmt.Sprintf(frame, number, "")
	return fmt.Appendf(nil, frame, number, slices.Repeat([]byte("x"), max(0, size-len(bare))))
}

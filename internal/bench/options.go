package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ed332417/jq/internal/store"
)

// Options say what to run. What is zero has a default, by workload: the least and the most that can be stand in check.
type Options struct {
	Workload    string
	Jobs        int           // enqueue, drain, backlog and idle: so many
	Duration    time.Duration // continuous, held-snapshot, http, latency and idle: for so long, each part
	Concurrency int           // handlers at once
	Buffer      int           // jobs claimed ahead of them; negative: none
	Producers   int           // goroutines that enqueue
	Batch       int           // jobs a call of theirs, and a claim of backlog
	Payload     int           // bytes a job
	Rate        float64       // latency: jobs a second
	Keep        bool          // leave the jobs in the store

	// Progress is told now and then how far the run is. It is called by one goroutine at a time.
	Progress func(Progress)

	// Profile is called when a measurement begins, and stop when it ends: what comes before and after is not of interest.
	Profile func() (stop func() error, err error)

	beside int // backlog: so many jobs wait in each scene
}

// Progress is how far a run is.
type Progress struct {
	Doing string
	Jobs  int64   // done so far
	Part  float64 // of what is to be done: 0 to 1, and negative where that is not known
}

// Filled is the options with the defaults of the workload, or an [OptionError].
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

// An OptionError says which option can not be as it is, and why.
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

// reserve is for what a call has beside its payloads.
const reserve = 1 << 20

// most is how many jobs a call takes, whatever their payloads.
func (o Options) most() int { return min(store.MaxItems, (store.MaxCallBytes-reserve)/o.Payload) }

// document is a payload with a number in it, as long as that.
func document(number, size int) []byte {
	const frame = `{"number":%d,"text":"%s"}`
	bare := fmt.Sprintf(frame, number, "")
	return fmt.Appendf(nil, frame, number, slices.Repeat([]byte("x"), max(0, size-len(bare))))
}

package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/store"
)

// Options are described where users meet them: jq.ServerOptions has the same fields.
type Options struct {
	Name   string
	Queues map[string]QueueOptions

	Slots      int
	Buffer     int
	RetryShare float64
	Poll       time.Duration

	Lease time.Duration
	Beat  time.Duration

	Timeout      time.Duration
	AbandonAfter time.Duration
	MaxAbandoned int
	UnknownFor   time.Duration

	CommitSize     int
	CommitAfter    time.Duration
	MaxUncommitted int

	RecoverEvery time.Duration
	RecoverGrace time.Duration
	RecoverLimit int

	RetainEvery time.Duration

	DrainFor time.Duration

	Clock    clock.Clock
	Logger   *slog.Logger
	Observer Observer
}

// QueueOptions say how much of a server one queue gets.
type QueueOptions struct {
	Weight int // its share among the queues that have jobs, 1000 at most: zero means 1
	Slots  int // at most so many of its jobs at once, buffered ones included: zero means no limit but the server's
}

// An OptionError says which option contradicts what.
type OptionError struct {
	Field string
	Rule  string
}

func (e *OptionError) Error() string { return fmt.Sprintf("jq: option %s %s", e.Field, e.Rule) }

// The defaults, and the bounds that are not those of the contract.
const (
	DefaultQueue        = "default"
	DefaultSlots        = 10
	DefaultRetryShare   = 0.2
	DefaultPoll         = time.Second
	DefaultLease        = 30 * time.Second
	DefaultTimeout      = 15 * time.Minute
	DefaultAbandonAfter = 10 * time.Second
	DefaultUnknownFor   = time.Hour
	DefaultCommitSize   = 500
	DefaultCommitAfter  = 5 * time.Millisecond
	DefaultRecoverEvery = 10 * time.Second
	DefaultRecoverLimit = 100
	DefaultRetainEvery  = time.Minute
	DefaultDrainFor     = 30 * time.Second

	leastLease  = 10 * time.Millisecond
	leastPeriod = time.Millisecond // of what is done again and again
	mostHeld    = 1_000_000        // slots, and jobs in the buffer
	mostWeight  = 1000
)

// filled is the options with a default wherever they are zero, or why they can not be.
func (o Options) filled() (Options, error) {
	if o.Name == "" {
		o.Name = processName()
	}
	if o.Queues == nil { // an empty map names none
		o.Queues = map[string]QueueOptions{DefaultQueue: {}}
	}
	fill(&o.Slots, DefaultSlots)
	fill(&o.RetryShare, DefaultRetryShare)
	fill(&o.Poll, DefaultPoll)
	fill(&o.Lease, DefaultLease)
	fill(&o.Beat, o.Lease/3)
	fill(&o.Timeout, DefaultTimeout)
	fill(&o.AbandonAfter, DefaultAbandonAfter)
	fill(&o.MaxAbandoned, o.Slots)
	fill(&o.UnknownFor, DefaultUnknownFor)
	fill(&o.CommitSize, DefaultCommitSize)
	fill(&o.CommitAfter, DefaultCommitAfter)
	fill(&o.MaxUncommitted, 2*(o.Slots+o.Buffer)+1000)
	fill(&o.RecoverEvery, DefaultRecoverEvery)
	fill(&o.RecoverLimit, DefaultRecoverLimit)
	fill(&o.RetainEvery, DefaultRetainEvery)
	fill(&o.DrainFor, DefaultDrainFor)
	if o.Clock == nil {
		o.Clock = clock.New()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Observer == nil {
		o.Observer = Unobserved{}
	}
	return o, o.check()
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// A rule is what an option has to keep to.
type rule struct {
	broken bool
	field  string
	says   string
}

func (o Options) check() error {
	for _, r := range slices.Concat(o.countRules(), o.timeRules(), o.queueRules()) {
		if r.broken {
			return &OptionError{r.field, r.says}
		}
	}
	if err := (store.Worker{Name: o.Name}).Check(); err != nil {
		return &OptionError{"Name", wrongWith(err)}
	}
	return nil
}

func (o Options) countRules() []rule {
	ofCall := fmt.Sprintf("must be 1 to %d", store.MaxItems)
	return []rule{
		{o.Slots < 1, "Slots", "must be 1 at least, or nothing would run"},
		{o.Slots > mostHeld, "Slots", fmt.Sprintf("must be %d at most", mostHeld)},
		{o.Buffer < 0, "Buffer", "must not be negative"},
		{o.Buffer > mostHeld, "Buffer", fmt.Sprintf("must be %d at most", mostHeld)},
		{!(o.RetryShare <= 1), "RetryShare", "must be at most 1; negative means none"}, // so is what is no number
		{o.CommitSize < 1 || o.CommitSize > store.MaxItems, "CommitSize", ofCall},
		{o.MaxUncommitted < 1, "MaxUncommitted", "must be 1 at least, or nothing would be fetched"},
		{o.RecoverLimit < 1 || o.RecoverLimit > store.MaxItems, "RecoverLimit", ofCall},
	}
}

func (o Options) timeRules() []rule {
	return slices.Concat(
		within("Poll", o.Poll, leastPeriod, ""),
		within("Lease", o.Lease, leastLease, ""),
		within("Beat", o.Beat, leastPeriod, ""),
		[]rule{{
			o.Beat >= o.Lease, "Beat",
			fmt.Sprintf("of %v must be shorter than the Lease of %v, or every lease would run out", o.Beat, o.Lease),
		}},
		within("Timeout", o.Timeout, 0, ""),
		within("AbandonAfter", o.AbandonAfter, 0, ""),
		within("UnknownFor", o.UnknownFor, 0, ""),
		within("CommitAfter", o.CommitAfter, 0, ""),
		within("RecoverEvery", o.RecoverEvery, leastPeriod, "never"),
		within("RecoverGrace", o.RecoverGrace, 0, ""),
		within("RetainEvery", o.RetainEvery, leastPeriod, "never"),
		within("DrainFor", o.DrainFor, 0, ""),
	)
}

// within are the bounds of a time: the least, unless it is negative and that has a meaning, and the longest of the contract.
func within(field string, value, least time.Duration, negative string) []rule {
	low := fmt.Sprintf("must be %v at least", least)
	switch {
	case negative != "":
		low += "; negative means " + negative
	case least == 0:
		low = "must not be negative"
	}
	return []rule{
		{value < least && (value >= 0 || negative == ""), field, low},
		{value > store.MaxDuration, field, fmt.Sprintf("must be %v at most", store.MaxDuration)},
	}
}

func (o Options) queueRules() []rule {
	rules := []rule{{len(o.Queues) > store.MaxItems, "Queues", fmt.Sprintf("must be %d at most", store.MaxItems)}}
	for _, name := range slices.Sorted(maps.Keys(o.Queues)) { // of two errors the same one each time
		q, field := o.Queues[name], fmt.Sprintf("Queues[%q]", name)
		if err := store.CheckQueue(name); err != nil {
			rules = append(rules, rule{true, field, wrongWith(err)})
		}
		rules = append(rules,
			rule{q.Weight < 0 || q.Weight > mostWeight, field + ".Weight", fmt.Sprintf("must be 0 to %d; 0 means 1", mostWeight)},
			rule{q.Slots < 0, field + ".Slots", "must not be negative"},
			rule{
				q.Slots > o.Slots+o.Buffer, field + ".Slots",
				fmt.Sprintf("of %d is more than the server's %d, buffer included", q.Slots, o.Slots+o.Buffer),
			},
		)
	}
	return rules
}

// wrongWith is the rule of the contract that a check has found to be broken.
func wrongWith(err error) string {
	if invalid, ok := errors.AsType[*store.InvalidError](err); ok {
		return invalid.Rule
	}
	return err.Error()
}

// processName tells processes apart, also those of containers that all have the same host name and process id.
func processName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "worker"
	}
	host = strings.ToValidUTF8(host[:min(len(host), store.MaxNameBytes/2)], "")
	return fmt.Sprintf("%s-%d-%06x", host, os.Getpid(), rand.IntN(1<<24))
}

// Quiet is a logger that says nothing.
func Quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

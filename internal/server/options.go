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

	"github.com/seed-ed332417/jq/internal/policy"
	"github.com/seed-ed332417/jq/internal/store"
)

// Options configures a server. A zero field means the default that its comment names.
type Options struct {
	// Name identifies this server in the list of workers, and in the jobs that it claims. Default: the host name, the process id and a
	// random part.
	Name string
	// Queues names the queues that this server claims from, at most 1,000. An empty map that is not nil means none: such a server only
	// recovers expired leases and deletes old jobs. Default: the queue "default".
	Queues map[string]QueueOptions
	// Slots is how many handlers run at the same time. Default: 10.
	Slots int
	// Timeout is how long a handler may run, for jobs that set no timeout themselves. Default: 15 minutes.
	Timeout time.Duration
	// UnknownKindTimeout is how long this server leaves a job of a kind for which it has no handler to other servers, before the job
	// fails. Default: 1 hour.
	UnknownKindTimeout time.Duration

	Claim     ClaimOptions     // how the server looks for jobs
	Lease     LeaseOptions     // how long a claimed job belongs to this server
	Abandon   AbandonOptions   // what happens to handlers that do not return
	Commit    CommitOptions    // how the server writes the results of handlers
	Recovery  RecoveryOptions  // how the server takes over the jobs of servers that died
	Retention RetentionOptions // how often the server deletes finished jobs
	Schedules ScheduleOptions  // how often the server looks for schedules that are due
	Shutdown  ShutdownOptions  // how the server stops

	// Clock drives the timers of the server. Due times and leases follow the clock of the store. Default: the system clock.
	Clock clock.Clock
	// Logger receives the server's log. Default: slog.Default().
	Logger *slog.Logger
	// Observer receives events, for metrics. Default: none.
	Observer Observer
}

// QueueOptions configures how much of a server one queue gets.
type QueueOptions struct {
	// Weight is the queue's share of the claims while several queues have jobs, at most 1,000. Default: 1.
	Weight int
	// Slots is how many jobs of this queue the server holds at the same time, running or buffered. Default: no limit of its own.
	Slots int
	// Policy is what this program declares the queue's policy to be, with its Owner and the version in Declared. The server declares it before it
	// claims: see Client.DeclarePolicy. If the store refuses it, the server stops. Default: the policy stays as it is.
	Policy *store.Policy
}

// ClaimOptions configures how a server looks for jobs.
type ClaimOptions struct {
	// Buffer is how many jobs the server claims ahead of free slots. With many short jobs, a buffer saves waiting for the store. With
	// long jobs, it keeps jobs from other servers that could run them. Default: none.
	Buffer int
	// PollInterval is the longest pause between two looks into a queue that was empty, or whose jobs the store announces. If it announces
	// new jobs, the server looks at once, or after Interval. Default: 1 second.
	PollInterval time.Duration
	// Interval is the least time between two claims from a queue for which jobs were announced, when the first of them has taken all that
	// was due. Jobs that come one by one are then claimed together, which costs the store less, and wait longer. Default: none, so the
	// server claims at once.
	Interval time.Duration
	// RetryShare is the part of all claims that goes to retries while fresh jobs wait, at most 1. Negative: none. Default: 0.2.
	RetryShare float64
}

// LeaseOptions configures the leases by which a server holds jobs.
type LeaseOptions struct {
	// Duration is how long a lease lasts without a heartbeat. When a server dies, its jobs are recovered after this time. Default: 30
	// seconds.
	Duration time.Duration
	// Heartbeat is the time between two heartbeats, each of which extends all leases of the server. It must be at most half of Duration.
	// Default: a third of Duration.
	Heartbeat time.Duration
}

// AbandonOptions configures what a server does about handlers that do not return.
type AbandonOptions struct {
	// Timeout is how long to wait for a handler after its context is cancelled. Then the server abandons the handler and reuses its
	// slot. Default: 10 seconds.
	Timeout time.Duration
	// MaxHandlers is how many abandoned handlers may run beside the slots. Beyond that, an abandoned handler keeps its slot, and Ready
	// reports that the process should be restarted. Negative: none. Default: as many as Slots.
	MaxHandlers int
}

// CommitOptions configures how a server writes the results of handlers: many with one call of the store.
type CommitOptions struct {
	// Size is how many results the server collects before it writes them at once, at most 1,000. Default: 500.
	Size int
	// MaxDelay is how long a result waits for others, as long as other handlers run. Default: 5 milliseconds.
	MaxDelay time.Duration
	// Interval is the least time between two writes, unless Size or MaxUncommitted results have gathered or the server stops. The results of
	// jobs that end one by one are then written together, which costs the store less. Retries and callers of Client.Wait wait for the write,
	// and if the process dies meanwhile, more of these jobs run again. Default: none.
	Interval time.Duration
	// MaxUncommitted is how many results may wait to be written. At this number the server claims no more jobs. Default: 1,000, and
	// twice the sum of Slots and Buffer.
	MaxUncommitted int
}

// RecoveryOptions configures how a server recovers expired leases: a job whose server died is retried or becomes dead.
type RecoveryOptions struct {
	// Interval is the time between two searches for expired leases. Negative: never, which leaves the jobs of dead servers to other
	// servers. Default: 10 seconds.
	Interval time.Duration
	// Grace is how long a lease must have been expired before the server recovers it. Default: none.
	Grace time.Duration
	// Limit is how many leases one call of the store recovers, at most 1,000. After a full call the server makes the next one at once.
	// Default: 100.
	Limit int
}

// RetentionOptions configures when a server deletes finished jobs. How long they are kept is a policy of their queue, which is in the
// store and applies to all servers.
type RetentionOptions struct {
	// Interval is the time between two deletions. Negative: never, which leaves deletion to other servers. Default: 1 minute.
	Interval time.Duration
}

// ScheduleOptions configures when a server enqueues the jobs of schedules.
type ScheduleOptions struct {
	// Interval is the time between two searches for schedules that are due. While none is due soon, the server searches five times
	// less often. Negative: never, which leaves schedules to other servers. Default: 1 second.
	Interval time.Duration
}

// ShutdownOptions configures how a server stops.
type ShutdownOptions struct {
	// DrainTimeout is how long Stop waits for handlers before it cancels their contexts. Default: 30 seconds.
	DrainTimeout time.Duration
}

// An OptionError says which server option is invalid, and why.
type OptionError struct {
	Field string // the path of the option, such as Lease.Duration
	Rule  string // what the option must be
}

func (e *OptionError) Error() string { return fmt.Sprintf("jq: option %s %s", e.Field, e.Rule) }

// The defaults, and the limits that are not those of the contract.
const (
	DefaultQueue              = "default"
	DefaultSlots              = 10
	DefaultRetryShare         = 0.2
	DefaultPollInterval       = time.Second
	DefaultLease              = 30 * time.Second
	DefaultTimeout            = 15 * time.Minute
	DefaultAbandonTimeout     = 10 * time.Second
	DefaultUnknownKindTimeout = time.Hour
	DefaultCommitSize         = 500
	DefaultCommitMaxDelay     = 5 * time.Millisecond
	DefaultRecoveryInterval   = 10 * time.Second
	DefaultRecoveryLimit      = 100
	DefaultRetentionInterval  = time.Minute
	DefaultScheduleInterval   = time.Second
	DefaultDrainTimeout       = 30 * time.Second

	minLease    = 10 * time.Millisecond
	minInterval = time.Millisecond // of what the server repeats
	maxHeld     = 1_000_000        // slots, and jobs in the buffer
	maxWeight   = 1000
)

// withDefaults returns the options with a default in every zero field, or an OptionError.
func (o Options) withDefaults() (Options, error) {
	fill(&o.Name, processName())
	if o.Queues == nil { // an empty map means no queues
		o.Queues = map[string]QueueOptions{DefaultQueue: {}}
	}
	o.Queues = maps.Clone(o.Queues) // the caller may change its own
	for name, q := range o.Queues {
		if q.Policy != nil {
			p := *q.Policy
			q.Policy = &p
			o.Queues[name] = q
		}
	}
	fill(&o.Slots, DefaultSlots)
	fill(&o.Claim.RetryShare, DefaultRetryShare)
	fill(&o.Claim.PollInterval, DefaultPollInterval)
	fill(&o.Lease.Duration, DefaultLease)
	fill(&o.Lease.Heartbeat, o.Lease.Duration/3)
	fill(&o.Timeout, DefaultTimeout)
	fill(&o.Abandon.Timeout, DefaultAbandonTimeout)
	fill(&o.Abandon.MaxHandlers, o.Slots)
	fill(&o.UnknownKindTimeout, DefaultUnknownKindTimeout)
	fill(&o.Commit.Size, DefaultCommitSize)
	fill(&o.Commit.MaxDelay, DefaultCommitMaxDelay)
	fill(&o.Commit.MaxUncommitted, 2*(o.Slots+o.Claim.Buffer)+1000)
	fill(&o.Recovery.Interval, DefaultRecoveryInterval)
	fill(&o.Recovery.Limit, DefaultRecoveryLimit)
	fill(&o.Retention.Interval, DefaultRetentionInterval)
	fill(&o.Schedules.Interval, DefaultScheduleInterval)
	fill(&o.Shutdown.DrainTimeout, DefaultDrainTimeout)
	fill(&o.Clock, clock.New())
	fill(&o.Logger, slog.Default())
	fill[Observer](&o.Observer, NopObserver{})
	return o, o.check()
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// A rule is a condition on one option.
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
		return &OptionError{"Name", ruleOf(err)}
	}
	return nil
}

func (o Options) countRules() []rule {
	ofCall := fmt.Sprintf("must be 1 to %d", store.MaxItems)
	return []rule{
		{o.Slots < 1, "Slots", "must be at least 1; otherwise nothing would run"},
		{o.Slots > maxHeld, "Slots", fmt.Sprintf("must be at most %d", maxHeld)},
		{o.Claim.Buffer < 0, "Claim.Buffer", "must not be negative"},
		{o.Claim.Buffer > maxHeld, "Claim.Buffer", fmt.Sprintf("must be at most %d", maxHeld)},
		{!(o.Claim.RetryShare <= 1), "Claim.RetryShare", "must be at most 1; negative means none"}, // false for NaN
		{o.Commit.Size < 1 || o.Commit.Size > store.MaxItems, "Commit.Size", ofCall},
		{o.Commit.MaxUncommitted < 1, "Commit.MaxUncommitted", "must be at least 1; otherwise nothing would be claimed"},
		{o.Recovery.Limit < 1 || o.Recovery.Limit > store.MaxItems, "Recovery.Limit", ofCall},
	}
}

func (o Options) timeRules() []rule {
	return slices.Concat(
		timeBounds("Claim.PollInterval", o.Claim.PollInterval, minInterval, ""),
		timeBounds("Claim.Interval", o.Claim.Interval, 0, ""),
		timeBounds("Lease.Duration", o.Lease.Duration, minLease, ""),
		timeBounds("Lease.Heartbeat", o.Lease.Heartbeat, minInterval, ""),
		[]rule{{
			o.Lease.Heartbeat > o.Lease.Duration/2, "Lease.Heartbeat",
			fmt.Sprintf("of %v must be at most half of Lease.Duration, which is %v; otherwise a lease would expire if a single heartbeat failed", o.Lease.Heartbeat, o.Lease.Duration),
		}},
		timeBounds("Timeout", o.Timeout, 0, ""),
		timeBounds("Abandon.Timeout", o.Abandon.Timeout, 0, ""),
		timeBounds("UnknownKindTimeout", o.UnknownKindTimeout, 0, ""),
		timeBounds("Commit.MaxDelay", o.Commit.MaxDelay, 0, ""),
		timeBounds("Commit.Interval", o.Commit.Interval, 0, ""),
		timeBounds("Recovery.Interval", o.Recovery.Interval, minInterval, "never"),
		timeBounds("Recovery.Grace", o.Recovery.Grace, 0, ""),
		timeBounds("Retention.Interval", o.Retention.Interval, minInterval, "never"),
		timeBounds("Schedules.Interval", o.Schedules.Interval, minInterval, "never"),
		timeBounds("Shutdown.DrainTimeout", o.Shutdown.DrainTimeout, 0, ""),
	)
}

// timeBounds returns the rules for a duration: at least the given one, unless it is negative and that has a meaning, and at most the
// longest of the contract.
func timeBounds(field string, value, least time.Duration, negative string) []rule {
	low := fmt.Sprintf("must be at least %v", least)
	switch {
	case negative != "":
		low += "; negative means " + negative
	case least == 0:
		low = "must not be negative"
	}
	return []rule{
		{value < least && (value >= 0 || negative == ""), field, low},
		{value > store.MaxDuration, field, fmt.Sprintf("must be at most %v", store.MaxDuration)},
	}
}

func (o Options) queueRules() []rule {
	rules := []rule{{len(o.Queues) > store.MaxItems, "Queues", fmt.Sprintf("must be at most %d", store.MaxItems)}}
	for _, name := range slices.Sorted(maps.Keys(o.Queues)) { // sorted, so that the same error is reported each time
		q, field := o.Queues[name], fmt.Sprintf("Queues[%q]", name)
		if err := store.CheckQueue(name); err != nil {
			rules = append(rules, rule{true, field, ruleOf(err)})
		}
		rules = append(rules,
			rule{q.Weight < 0 || q.Weight > maxWeight, field + ".Weight", fmt.Sprintf("must be 0 to %d; 0 means 1", maxWeight)},
			rule{q.Slots < 0, field + ".Slots", "must not be negative"},
			rule{
				q.Slots > o.Slots+o.Claim.Buffer, field + ".Slots",
				fmt.Sprintf("of %d is more than the %d of the server, including its buffer", q.Slots, o.Slots+o.Claim.Buffer),
			},
		)
		if q.Policy != nil {
			if err := policy.Check(*q.Policy); err != nil {
				rules = append(rules, rule{true, field + ".Policy", policyRule(err)})
			}
		}
	}
	return rules
}

// policyRule also names the field of the policy.
func policyRule(err error) string {
	if invalid, ok := errors.AsType[*store.InvalidError](err); ok {
		return invalid.Field + " " + invalid.Rule
	}
	return err.Error()
}

// ruleOf returns the rule of the contract that a check found broken.
func ruleOf(err error) string {
	if invalid, ok := errors.AsType[*store.InvalidError](err); ok {
		return invalid.Rule
	}
	return err.Error()
}

// processName returns a name that tells processes apart, even in containers with the same host name and process id.
func processName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "worker"
	}
	host = strings.ToValidUTF8(host[:min(len(host), store.MaxNameBytes/2)], "")
	return fmt.Sprintf("%s-%d-%06x", host, os.Getpid(), rand.IntN(1<<24))
}

// Quiet returns a logger that logs nothing.
func Quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

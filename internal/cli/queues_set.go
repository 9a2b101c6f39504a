package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/wire"
)

// policyFlags are the flags of queues set. Settings whose flag is not given do not change.
type policyFlags struct {
	succeeded  retentionFlag
	cancelled  retentionFlag
	dead       retentionFlag
	limit      limitFlag
	perKey     limitFlag
	rate       rateFlag
	fair       bool
	fairGiven  bool
	ordered    bool
	orderGiven bool
	disown     bool
}

func (a *app) queuesSet() *cobra.Command {
	p := policyFlags{limit: limitFlag{greatest: contract.MaxLimit}, perKey: limitFlag{greatest: contract.MaxKeyLimit}}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "set QUEUE",
		Short: "change the policy of a queue and print it",
		Long: "Change the policy of a queue and print it. The store keeps the policy, and every process that serves the store applies it.\n" +
			"Settings that you do not give stay as they are.\n\n" +
			"AGE is a duration of at least one hour, such as 48h; or keep, to keep jobs until you remove them; or default.\n\n" +
			"NUMBER is how many jobs may be in flight at once, in all processes together; or none. A job counts until its lease has ended.\n" +
			"With --max-per-key, it is how many jobs with the same limit key may be: see enqueue --limit-key.\n\n" +
			"With --fair, the limit keys of the queue take turns, so that one customer with many jobs does not hold up the others. Jobs with a higher\n" +
			"priority still come first.\n\n" +
			"With --ordered, the jobs with the same limit key run one at a time, in the order of their ids. Each holds back the later ones, also while it\n" +
			"waits for a retry, until it has succeeded, is dead, or is cancelled. A job with a limit key must then have no priority.\n\n" +
			"RATE is how many jobs may be claimed in how long, in all processes together, such as 100/1m; or none. Each claim counts, also that of\n" +
			"a retry. All of them may be claimed at once: 100/1m allows 100 jobs in the first second and then none for the rest of the minute.\n\n" +
			"A program can declare the policy, with its own name and a version. What you set stays until it declares a higher version. No other program\n" +
			"can declare the policy of the queue, until you take it from this one with --disown.",
		Args:    takes(1, 1, "a queue"),
		Example: "  SELF queues set mail --retain-succeeded 48h --retain-dead keep\n  SELF queues set mail --retain-succeeded default\n  SELF queues set mail --max-in-flight 10 --max-per-key 3\n  SELF queues set mail --fair\n  SELF queues set devices --ordered\n  SELF queues set mail --rate 100/1m\n  SELF queues set mail --disown",
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Var(&p.succeeded, "retain-succeeded", "how long to keep succeeded jobs; default means "+keptFor(jq.DefaultRetainSucceeded))
	f.Var(&p.cancelled, "retain-cancelled", "how long to keep cancelled jobs; default means "+keptFor(jq.DefaultRetainCancelled))
	f.Var(&p.dead, "retain-dead", "how long to keep dead jobs; default means "+keptFor(jq.DefaultRetainDead))
	f.Var(&p.limit, "max-in-flight", "how many jobs of the queue may be in flight at once; none means any number")
	f.Var(&p.perKey, "max-per-key", "how many jobs with the same limit key may be in flight at once; none means any number")
	f.BoolVar(&p.fair, "fair", false, "let limit keys take turns; --fair=false means that jobs come in the order of their due times")
	f.BoolVar(&p.ordered, "ordered", false, "run the jobs of each limit key one at a time, in order; --ordered=false ends the order")
	f.Var(&p.rate, "rate", "how many jobs of the queue may be claimed in how long; none means any number")
	f.BoolVar(&p.disown, "disown", false, "let any program declare the policy: take it from the one that has")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		if err := contract.CheckQueue(names[0]); err != nil {
			return usageError{fieldError(err)}
		}
		p.fairGiven, p.orderGiven = f.Changed("fair"), f.Changed("ordered")
		if !p.given() {
			return misuse("nothing to set: give a flag such as --max-per-key 3, or see the policy with queues ls")
		}
		return a.using(cmd.Context(), toRead, func(s jq.Store) error {
			var before jq.Policy
			policy, err := changedPolicy(cmd.Context(), jq.NewClient(s, nil), names[0], func(current jq.Policy) jq.Policy {
				before = current
				return p.applied(current)
			})
			if err != nil {
				return err
			}
			if asJSON {
				return wire.Encode(a.out, policy)
			}
			return a.showPolicy(names[0], policy, policy != before)
		})
	}
	return cmd
}

// given reports whether there is a flag that sets something.
func (f *policyFlags) given() bool {
	return f.succeeded.given || f.cancelled.given || f.dead.given || f.limit.given || f.perKey.given || f.fairGiven || f.orderGiven || f.rate.given || f.disown
}

// applied returns the policy with the flags applied.
func (f *policyFlags) applied(p jq.Policy) jq.Policy {
	for flag, field := range map[*retentionFlag]*time.Duration{
		&f.succeeded: &p.RetainSucceeded, &f.cancelled: &p.RetainCancelled, &f.dead: &p.RetainDead,
	} {
		if flag.given {
			*field = flag.age
		}
	}
	if f.limit.given {
		p.MaxInFlight = f.limit.most
	}
	if f.perKey.given {
		p.MaxPerKey = f.perKey.most
	}
	if f.fairGiven {
		p.Fair = f.fair
	}
	if f.orderGiven {
		p.Ordered = f.ordered
	}
	if f.rate.given {
		p.Rate = f.rate.rate
	}
	if f.disown {
		p.Owner, p.Declared = "", 0
	}
	return p
}

// changedPolicy changes the policy of the queue. If another client changes the policy at the same time, it reads the policy again
// and retries, so that neither change is lost.
func changedPolicy(ctx context.Context, client *jq.Client, queue string, change func(jq.Policy) jq.Policy) (jq.Policy, error) {
	const tries = 10
	for try := 1; ; try++ {
		current, err := client.Policy(ctx, queue)
		if err != nil {
			return jq.Policy{}, err
		}
		next := change(current)
		if next == current {
			return current, nil
		}
		set, err := client.SetPolicy(ctx, queue, next)
		if !errors.Is(err, jq.ErrConflict) || try == tries {
			return set, err
		}
	}
}

func (a *app) showPolicy(queue string, p jq.Policy, changed bool) error {
	fmt.Fprintf(a.out, "queue %s: policy version %d\n", printable(queue), p.Version)
	table := newTable(a.out)
	for _, one := range settingsOf(p) {
		text := keptFor(one.age)
		if one.age == 0 {
			text = keptFor(p.Retention(one.state)) + " (default)"
		}
		row(table, one.name, text)
	}
	for _, one := range limitsOf(p) {
		row(table, one.name, cmp.Or(one.text, one.unset+" (default)"))
	}
	if p.Owner != "" {
		row(table, "declared", fmt.Sprintf("%s, version %d", p.Owner, p.Declared))
	}
	if err := table.Flush(); err != nil || p.Owner == "" || !changed {
		return err
	}
	_, err := fmt.Fprintf(a.out, "the program %s has declared version %d: your change stays until it declares a higher one\n", printable(p.Owner), p.Declared)
	return err
}

// A limit is a field of a policy about claims.
type limit struct {
	name  string
	text  string // empty if the policy does not set it
	unset string // what it is then
}

func limitsOf(p jq.Policy) []limit {
	return []limit{
		{"max_in_flight", atMost(p.MaxInFlight), "none"},
		{"max_per_key", atMost(p.MaxPerKey), "none"},
		{"fair", yes(p.Fair), "no"},
		{"ordered", yes(p.Ordered), "no"},
		{"rate", rateText(p.Rate), "none"},
	}
}

func yes(on bool) string {
	if !on {
		return ""
	}
	return "yes"
}

func atMost(jobs int) string {
	if jobs == 0 {
		return ""
	}
	return strconv.Itoa(jobs)
}

func rateText(r jq.Rate) string {
	if r == (jq.Rate{}) {
		return ""
	}
	return fmt.Sprintf("%d/%v", r.N, r.Per)
}

// A setting is a field of a policy, with the state it applies to.
type setting struct {
	name  string
	state jq.State
	age   time.Duration // zero means the default
}

func settingsOf(p jq.Policy) []setting {
	return []setting{
		{"retain_succeeded", jq.Succeeded, p.RetainSucceeded},
		{"retain_cancelled", jq.Cancelled, p.RetainCancelled},
		{"retain_dead", jq.Dead, p.RetainDead},
	}
}

// policyInShort formats the settings of the policy that are not the default.
func policyInShort(p jq.Policy) string {
	var parts []string
	for _, one := range settingsOf(p) {
		if one.age != 0 {
			parts = append(parts, one.name+"="+keptFor(one.age))
		}
	}
	for _, one := range limitsOf(p) {
		if one.text != "" {
			parts = append(parts, one.name+"="+one.text)
		}
	}
	return strings.Join(parts, " ")
}

func keptFor(age time.Duration) string {
	if age == jq.KeepForEver {
		return wire.Keep
	}
	return age.String()
}

// A retentionFlag parses how long to keep finished jobs.
type retentionFlag struct {
	given bool
	age   time.Duration // zero means the default
}

// String implements pflag.Value. It is empty so that help shows no default.
func (r *retentionFlag) String() string { return "" }

// Type returns the name of the value in help.
func (r *retentionFlag) Type() string { return "AGE" }

// Set parses the value.
func (r *retentionFlag) Set(text string) error {
	r.given = true
	switch text {
	case "default":
		r.age = 0
		return nil
	case wire.Keep:
		r.age = jq.KeepForEver
		return nil
	}
	age, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("want a duration such as 48h, keep or default")
	}
	if age < contract.MinRetention || age > contract.MaxDuration {
		return fmt.Errorf("must be %v to %v, keep or default", contract.MinRetention, contract.MaxDuration)
	}
	r.age = age
	return nil
}

// A limitFlag parses how many jobs may be in flight at once.
type limitFlag struct {
	greatest int // that it may be
	given    bool
	most     int // zero means any number
}

// String implements pflag.Value. It is empty so that help shows no default.
func (l *limitFlag) String() string { return "" }

// Type returns the name of the value in help.
func (l *limitFlag) Type() string { return "NUMBER" }

// Set parses the value.
func (l *limitFlag) Set(text string) error {
	l.given = true
	if text == "none" {
		l.most = 0
		return nil
	}
	most, err := strconv.Atoi(text)
	if err != nil || most < 1 || most > l.greatest {
		return fmt.Errorf("must be 1 to %d, or none", l.greatest)
	}
	l.most = most
	return nil
}

// A rateFlag parses how many jobs may be claimed in how long.
type rateFlag struct {
	given bool
	rate  jq.Rate // zero means any number
}

// String implements pflag.Value. It is empty so that help shows no default.
func (r *rateFlag) String() string { return "" }

// Type returns the name of the value in help.
func (r *rateFlag) Type() string { return "RATE" }

// Set parses the value.
func (r *rateFlag) Set(text string) error {
	r.given = true
	if text == "none" {
		r.rate = jq.Rate{}
		return nil
	}
	n, per, _ := strings.Cut(text, "/")
	number, err := strconv.Atoi(n)
	span, unreadable := time.ParseDuration(per)
	if err != nil || unreadable != nil {
		return errors.New("want a number of jobs and a duration, such as 100/1m, or none")
	}
	if number < 1 || number > contract.MaxRate || span < contract.MinPer || span > contract.MaxPer {
		return fmt.Errorf("must be 1 to %d jobs in %v to %v, or none", contract.MaxRate, contract.MinPer, contract.MaxPer)
	}
	r.rate = jq.Rate{N: number, Per: span}
	return nil
}

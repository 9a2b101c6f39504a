package server

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// The zero options are fine, and each of them has the default that is documented: R51.
func TestZeroOptionsAreTheDefaults(t *testing.T) {
	o, err := Options{}.filled()
	require.NoError(t, err)
	require.NotNil(t, o.Clock)
	require.Equal(t, slog.Default(), o.Logger)
	name := o.Name
	o.Name, o.Clock, o.Logger = "", nil, nil
	assert.Equal(t, Options{
		Queues: map[string]QueueOptions{"default": {}},
		Slots:  10, Buffer: 0, RetryShare: 0.2, Poll: time.Second,
		Lease: 30 * time.Second, Beat: 10 * time.Second,
		Timeout: 15 * time.Minute, AbandonAfter: 10 * time.Second, MaxAbandoned: 10, UnknownFor: time.Hour,
		CommitSize: 500, CommitAfter: 5 * time.Millisecond, MaxUncommitted: 1020,
		RecoverEvery: 10 * time.Second, RecoverGrace: 0, RecoverLimit: 100,
		RetainEvery: time.Minute,
		DrainFor:    30 * time.Second,
		Observer:    Unobserved{},
	}, o)
	again, err := Options{}.filled()
	require.NoError(t, err)
	assert.NotEqual(t, name, again.Name, "processes are told apart")
	require.NoError(t, (store.Worker{Name: name}).Check())
}

// Defaults follow what was chosen: the beat the lease, the caps the slots and the buffer.
func TestDefaultsFollowWhatWasChosen(t *testing.T) {
	o, err := Options{Lease: time.Minute, Slots: 7, Buffer: 3}.filled()
	require.NoError(t, err)
	assert.Equal(t, 20*time.Second, o.Beat)
	assert.Equal(t, 7, o.MaxAbandoned)
	assert.Equal(t, 1020, o.MaxUncommitted)
}

// What was chosen stays as it is, and no map of the caller's is changed.
func TestChosenOptionsStay(t *testing.T) {
	queues := map[string]QueueOptions{"a": {Weight: 2, Slots: 3}}
	in := Options{
		Name: "me", Queues: queues, Slots: 3, Buffer: 4, RetryShare: -1, Poll: 5, Lease: 6, Beat: 7, Timeout: 8, AbandonAfter: 9,
		MaxAbandoned: -1, UnknownFor: 11, CommitSize: 12, CommitAfter: 13, MaxUncommitted: 14, RecoverEvery: -1, RecoverGrace: 16,
		RecoverLimit: 17, RetainEvery: 18, DrainFor: 19,
	}
	for _, d := range []*time.Duration{
		&in.Poll, &in.Lease, &in.Beat, &in.Timeout, &in.AbandonAfter,
		&in.UnknownFor, &in.CommitAfter, &in.RecoverGrace, &in.RetainEvery, &in.DrainFor,
	} {
		*d *= time.Second
	}
	in.Beat = time.Second
	out, err := in.filled()
	require.NoError(t, err)
	out.Clock, out.Logger, out.Observer = nil, nil, nil
	assert.Equal(t, in, out)
	assert.Equal(t, map[string]QueueOptions{"a": {Weight: 2, Slots: 3}}, queues)
}

// A contradiction is an error at construction, which names the field and the rule: R51. Each case is beside its limit, where
// the options are fine.
func TestContradictionsAreRefused(t *testing.T) {
	const tenYears = store.MaxDuration
	cases := []struct {
		field string
		rule  string
		wrong func(o *Options)
		right func(o *Options)
	}{
		{"Slots", "1 at least", func(o *Options) { o.Slots = -1 }, func(o *Options) { o.Slots = 1 }},
		{"Slots", "1000000 at most", func(o *Options) { o.Slots = mostHeld + 1 }, func(o *Options) { o.Slots = mostHeld }},
		{"Slots", "1000000 at most", func(o *Options) { o.Slots = math.MaxInt }, func(o *Options) { o.Slots = 2 }},
		{"Buffer", "not be negative", func(o *Options) { o.Buffer = -1 }, func(o *Options) { o.Buffer = 0 }},
		{"Buffer", "1000000 at most", func(o *Options) { o.Buffer = mostHeld + 1 }, func(o *Options) { o.Buffer = mostHeld }},
		{"RetryShare", "at most 1", func(o *Options) { o.RetryShare = 1.001 }, func(o *Options) { o.RetryShare = 1 }},
		{
			"RetryShare", "at most 1",
			func(o *Options) { o.RetryShare = math.NaN() }, func(o *Options) { o.RetryShare = math.Inf(-1) },
		},
		{
			"Poll", "1ms at least",
			func(o *Options) { o.Poll = time.Millisecond - 1 }, func(o *Options) { o.Poll = time.Millisecond },
		},
		{"Poll", "1ms at least", func(o *Options) { o.Poll = -1 }, func(o *Options) { o.Poll = tenYears }},
		{"Lease", "10ms at least", func(o *Options) { o.Lease = leastLease - 1 }, func(o *Options) { o.Lease = leastLease }},
		{"Lease", "at most", func(o *Options) { o.Lease = tenYears + 1 }, func(o *Options) { o.Lease = tenYears }},
		{"Beat", "1ms at least", func(o *Options) { o.Beat = 1 }, func(o *Options) { o.Beat = time.Millisecond }},
		{
			"Beat", "shorter than the Lease of 30s",
			func(o *Options) { o.Beat = 30 * time.Second }, func(o *Options) { o.Beat = 30*time.Second - 1 },
		},
		{
			"Beat", "shorter than the Lease of 5s",
			func(o *Options) { o.Lease, o.Beat = 5*time.Second, 6*time.Second },
			func(o *Options) { o.Lease, o.Beat = 7*time.Second, 6*time.Second },
		},
		{"Timeout", "not be negative", func(o *Options) { o.Timeout = -1 }, func(o *Options) { o.Timeout = 1 }},
		{"AbandonAfter", "not be negative", func(o *Options) { o.AbandonAfter = -1 }, func(o *Options) { o.AbandonAfter = 1 }},
		{"UnknownFor", "not be negative", func(o *Options) { o.UnknownFor = -1 }, func(o *Options) { o.UnknownFor = 1 }},
		{"CommitSize", "1 to 1000", func(o *Options) { o.CommitSize = -1 }, func(o *Options) { o.CommitSize = 1 }},
		{"CommitSize", "1 to 1000", func(o *Options) { o.CommitSize = 1001 }, func(o *Options) { o.CommitSize = 1000 }},
		{"CommitAfter", "not be negative", func(o *Options) { o.CommitAfter = -1 }, func(o *Options) { o.CommitAfter = 1 }},
		{"MaxUncommitted", "1 at least", func(o *Options) { o.MaxUncommitted = -1 }, func(o *Options) { o.MaxUncommitted = 1 }},
		{"RecoverEvery", "1ms at least", func(o *Options) { o.RecoverEvery = 1 }, func(o *Options) { o.RecoverEvery = -1 }},
		{
			"RecoverGrace", "not be negative",
			func(o *Options) { o.RecoverGrace = -1 }, func(o *Options) { o.RecoverGrace = tenYears },
		},
		{
			"RecoverGrace", "at most",
			func(o *Options) { o.RecoverGrace = tenYears + 1 }, func(o *Options) { o.RecoverGrace = tenYears },
		},
		{"RecoverLimit", "1 to 1000", func(o *Options) { o.RecoverLimit = -1 }, func(o *Options) { o.RecoverLimit = 1 }},
		{"RecoverLimit", "1 to 1000", func(o *Options) { o.RecoverLimit = 1001 }, func(o *Options) { o.RecoverLimit = 1000 }},
		{"RetainEvery", "1ms at least; negative means never", func(o *Options) { o.RetainEvery = 1 }, func(o *Options) { o.RetainEvery = -1 }},
		{"RetainEvery", "at most", func(o *Options) { o.RetainEvery = tenYears + 1 }, func(o *Options) { o.RetainEvery = tenYears }},
		{"DrainFor", "not be negative", func(o *Options) { o.DrainFor = -1 }, func(o *Options) { o.DrainFor = 1 }},
		{
			"Name", "255",
			func(o *Options) { o.Name = strings.Repeat("x", 256) }, func(o *Options) { o.Name = strings.Repeat("x", 255) },
		},
		{"Name", "UTF-8", func(o *Options) { o.Name = "\xff" }, func(o *Options) { o.Name = "ÿ" }},
		{"Queues", "1000 at most", withMany(1001), withMany(1000)},
		{`Queues[""]`, "not be empty", with("", QueueOptions{}), with("x", QueueOptions{})},
		{`Queues["a\x00"]`, "NUL", with("a\x00", QueueOptions{}), with("a", QueueOptions{})},
		{`Queues["a"].Weight`, "0 to 1000", with("a", QueueOptions{Weight: -1}), with("a", QueueOptions{Weight: 0})},
		{`Queues["a"].Weight`, "0 to 1000", with("a", QueueOptions{Weight: 1001}), with("a", QueueOptions{Weight: 1000})},
		{`Queues["a"].Slots`, "not be negative", with("a", QueueOptions{Slots: -1}), with("a", QueueOptions{Slots: 0})},
		{`Queues["a"].Slots`, "of 11 is more than the server's 10", with("a", QueueOptions{Slots: 11}), with("a", QueueOptions{Slots: 10})},
	}
	tried := map[string]bool{}
	for _, c := range cases {
		var wrong, right Options
		c.wrong(&wrong)
		c.right(&right)
		_, err := right.filled()
		require.NoError(t, err, "%s beside its limit", c.field)
		s, err := New(nil, nil, wrong)
		require.Nil(t, s)
		option, ok := errors.AsType[*OptionError](err)
		require.True(t, ok, "%s: %v", c.field, err)
		assert.Equal(t, c.field, option.Field)
		assert.Contains(t, option.Rule, c.rule)
		assert.Contains(t, err.Error(), "jq: option "+c.field+" ")
		assert.NotContains(t, err.Error(), "\n")
		tried[strings.SplitN(c.field, "[", 2)[0]] = true
	}
	unlimited := []string{"MaxAbandoned", "Clock", "Logger", "Observer"} // any value means something
	for field := range reflect.TypeFor[Options]().Fields() {
		assert.NotEqual(t, slices.Contains(unlimited, field.Name), tried[field.Name], "is %s tried?", field.Name)
	}
}

func with(name string, q QueueOptions) func(o *Options) {
	return func(o *Options) { o.Queues = map[string]QueueOptions{name: q} }
}

func withMany(n int) func(o *Options) {
	return func(o *Options) {
		o.Queues = map[string]QueueOptions{}
		for i := range n {
			o.Queues[fmt.Sprint(i)] = QueueOptions{}
		}
	}
}

// No time may be longer than the contract knows, so that no sum overflows and no call of the store is refused for it.
func TestNoTimeIsLongerThanTheContractKnows(t *testing.T) {
	times := map[string]bool{}
	for field := range reflect.TypeFor[Options]().Fields() {
		if field.Type != reflect.TypeFor[time.Duration]() {
			continue
		}
		times[field.Name] = true
		o := Options{}
		if field.Name == "Beat" {
			o.Lease = store.MaxDuration
		}
		reflect.ValueOf(&o).Elem().FieldByIndex(field.Index).SetInt(math.MaxInt64)
		_, err := o.filled()
		option, ok := errors.AsType[*OptionError](err)
		require.True(t, ok, "%s: %v", field.Name, err)
		assert.Equal(t, field.Name, option.Field)
		assert.Contains(t, option.Rule, "at most")
	}
	assert.Len(t, times, 11, "%v", slices.Sorted(maps.Keys(times)))
}

// Of several contradictions the same one is named each time.
func TestFirstContradictionIsNamed(t *testing.T) {
	o := Options{Queues: map[string]QueueOptions{}}
	for _, name := range []string{"c", "b", "a", "d"} {
		o.Queues[name] = QueueOptions{Weight: -1}
	}
	for range 20 {
		_, err := o.filled()
		require.ErrorContains(t, err, `Queues["a"].Weight`)
	}
}

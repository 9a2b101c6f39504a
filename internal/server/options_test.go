package server

import (
	"errors"
	"fmt"
	"iter"
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

// The zero options are valid, and each has its documented default: R51.
func TestZeroOptionsAreTheDefaults(t *testing.T) {
	o, err := Options{}.withDefaults()
	require.NoError(t, err)
	require.NotNil(t, o.Clock)
	require.Equal(t, slog.Default(), o.Logger)
	name := o.Name
	o.Name, o.Clock, o.Logger = "", nil, nil
	assert.Equal(t, Options{
		Queues: map[string]QueueOptions{"default": {}},
		Slots:  10, Timeout: 15 * time.Minute, UnknownKindTimeout: time.Hour,
		Claim:     ClaimOptions{Buffer: 0, PollInterval: time.Second, RetryShare: 0.2},
		Lease:     LeaseOptions{Duration: 30 * time.Second, Heartbeat: 10 * time.Second},
		Abandon:   AbandonOptions{Timeout: 10 * time.Second, MaxHandlers: 10},
		Commit:    CommitOptions{Size: 500, MaxDelay: 5 * time.Millisecond, MaxUncommitted: 1020},
		Recovery:  RecoveryOptions{Interval: 10 * time.Second, Grace: 0, Limit: 100},
		Retention: RetentionOptions{Interval: time.Minute},
		Schedules: ScheduleOptions{Interval: time.Second},
		Shutdown:  ShutdownOptions{DrainTimeout: 30 * time.Second},
		Observer:  NopObserver{},
	}, o)
	again, err := Options{}.withDefaults()
	require.NoError(t, err)
	assert.NotEqual(t, name, again.Name, "processes are told apart")
	require.NoError(t, (store.Worker{Name: name}).Check())
}

// Defaults depend on other options: the heartbeat on the lease, the limits on the slots and the buffer.
func TestDefaultsFollowWhatWasChosen(t *testing.T) {
	o, err := Options{Lease: LeaseOptions{Duration: time.Minute}, Slots: 7, Claim: ClaimOptions{Buffer: 3}}.withDefaults()
	require.NoError(t, err)
	assert.Equal(t, 20*time.Second, o.Lease.Heartbeat)
	assert.Equal(t, 7, o.Abandon.MaxHandlers)
	assert.Equal(t, 1020, o.Commit.MaxUncommitted)
}

// Options that are set stay as they are, and the caller's map is not changed.
func TestChosenOptionsStay(t *testing.T) {
	queues := map[string]QueueOptions{"a": {Weight: 2, Slots: 3}}
	in := Options{
		Name: "me", Queues: queues, Slots: 3, Timeout: 8, UnknownKindTimeout: 11,
		Claim:     ClaimOptions{Buffer: 4, RetryShare: -1, PollInterval: 5, Interval: 21},
		Lease:     LeaseOptions{Duration: 6, Heartbeat: 7},
		Abandon:   AbandonOptions{Timeout: 9, MaxHandlers: -1},
		Commit:    CommitOptions{Size: 12, MaxDelay: 13, Interval: 22, MaxUncommitted: 14},
		Recovery:  RecoveryOptions{Interval: -1, Grace: 16, Limit: 17},
		Retention: RetentionOptions{Interval: 18},
		Schedules: ScheduleOptions{Interval: 20},
		Shutdown:  ShutdownOptions{DrainTimeout: 19},
	}
	for _, d := range []*time.Duration{
		&in.Claim.PollInterval, &in.Claim.Interval, &in.Lease.Duration, &in.Lease.Heartbeat, &in.Timeout, &in.Abandon.Timeout,
		&in.UnknownKindTimeout, &in.Commit.MaxDelay, &in.Commit.Interval, &in.Recovery.Grace, &in.Retention.Interval, &in.Schedules.Interval, &in.Shutdown.DrainTimeout,
	} {
		*d *= time.Second
	}
	in.Lease.Heartbeat = time.Second
	out, err := in.withDefaults()
	require.NoError(t, err)
	out.Clock, out.Logger, out.Observer = nil, nil, nil
	assert.Equal(t, in, out)
	assert.Equal(t, map[string]QueueOptions{"a": {Weight: 2, Slots: 3}}, queues)
}

// An invalid option is an error at construction, which names the field and the rule: R51. Each case lies just beside its limit, where
// the options are valid.
func TestContradictionsAreRefused(t *testing.T) {
	const tenYears = store.MaxDuration
	cases := []struct {
		field string
		rule  string
		wrong func(o *Options)
		right func(o *Options)
	}{
		{"Slots", "at least 1", func(o *Options) { o.Slots = -1 }, func(o *Options) { o.Slots = 1 }},
		{"Slots", "at most 1000000", func(o *Options) { o.Slots = maxHeld + 1 }, func(o *Options) { o.Slots = maxHeld }},
		{"Slots", "at most 1000000", func(o *Options) { o.Slots = math.MaxInt }, func(o *Options) { o.Slots = 2 }},
		{"Claim.Buffer", "not be negative", func(o *Options) { o.Claim.Buffer = -1 }, func(o *Options) { o.Claim.Buffer = 0 }},
		{"Claim.Buffer", "at most 1000000", func(o *Options) { o.Claim.Buffer = maxHeld + 1 }, func(o *Options) { o.Claim.Buffer = maxHeld }},
		{"Claim.RetryShare", "at most 1", func(o *Options) { o.Claim.RetryShare = 1.001 }, func(o *Options) { o.Claim.RetryShare = 1 }},
		{
			"Claim.RetryShare", "at most 1",
			func(o *Options) { o.Claim.RetryShare = math.NaN() }, func(o *Options) { o.Claim.RetryShare = math.Inf(-1) },
		},
		{
			"Claim.PollInterval", "at least 1ms",
			func(o *Options) { o.Claim.PollInterval = time.Millisecond - 1 }, func(o *Options) { o.Claim.PollInterval = time.Millisecond },
		},
		{"Claim.PollInterval", "at least 1ms", func(o *Options) { o.Claim.PollInterval = -1 }, func(o *Options) { o.Claim.PollInterval = tenYears }},
		{"Claim.Interval", "not be negative", func(o *Options) { o.Claim.Interval = -1 }, func(o *Options) { o.Claim.Interval = 1 }},
		{"Lease.Duration", "at least 10ms", func(o *Options) { o.Lease.Duration = minLease - 1 }, func(o *Options) { o.Lease.Duration = minLease }},
		{"Lease.Duration", "at most", func(o *Options) { o.Lease.Duration = tenYears + 1 }, func(o *Options) { o.Lease.Duration = tenYears }},
		{"Lease.Heartbeat", "at least 1ms", func(o *Options) { o.Lease.Heartbeat = 1 }, func(o *Options) { o.Lease.Heartbeat = time.Millisecond }},
		{
			"Lease.Heartbeat", "at most half of Lease.Duration, which is 30s",
			func(o *Options) { o.Lease.Heartbeat = 15*time.Second + 1 }, func(o *Options) { o.Lease.Heartbeat = 15 * time.Second },
		},
		{
			"Lease.Heartbeat", "at most half of Lease.Duration, which is 5s",
			func(o *Options) { o.Lease.Duration, o.Lease.Heartbeat = 5*time.Second, 6*time.Second },
			func(o *Options) { o.Lease.Duration, o.Lease.Heartbeat = 12*time.Second, 6*time.Second },
		},
		{"Timeout", "not be negative", func(o *Options) { o.Timeout = -1 }, func(o *Options) { o.Timeout = 1 }},
		{"Abandon.Timeout", "not be negative", func(o *Options) { o.Abandon.Timeout = -1 }, func(o *Options) { o.Abandon.Timeout = 1 }},
		{"UnknownKindTimeout", "not be negative", func(o *Options) { o.UnknownKindTimeout = -1 }, func(o *Options) { o.UnknownKindTimeout = 1 }},
		{"Commit.Size", "1 to 1000", func(o *Options) { o.Commit.Size = -1 }, func(o *Options) { o.Commit.Size = 1 }},
		{"Commit.Size", "1 to 1000", func(o *Options) { o.Commit.Size = 1001 }, func(o *Options) { o.Commit.Size = 1000 }},
		{"Commit.MaxDelay", "not be negative", func(o *Options) { o.Commit.MaxDelay = -1 }, func(o *Options) { o.Commit.MaxDelay = 1 }},
		{"Commit.Interval", "not be negative", func(o *Options) { o.Commit.Interval = -1 }, func(o *Options) { o.Commit.Interval = 1 }},
		{"Commit.MaxUncommitted", "at least 1", func(o *Options) { o.Commit.MaxUncommitted = -1 }, func(o *Options) { o.Commit.MaxUncommitted = 1 }},
		{"Recovery.Interval", "at least 1ms", func(o *Options) { o.Recovery.Interval = 1 }, func(o *Options) { o.Recovery.Interval = -1 }},
		{
			"Recovery.Grace", "not be negative",
			func(o *Options) { o.Recovery.Grace = -1 }, func(o *Options) { o.Recovery.Grace = tenYears },
		},
		{
			"Recovery.Grace", "at most",
			func(o *Options) { o.Recovery.Grace = tenYears + 1 }, func(o *Options) { o.Recovery.Grace = tenYears },
		},
		{"Recovery.Limit", "1 to 1000", func(o *Options) { o.Recovery.Limit = -1 }, func(o *Options) { o.Recovery.Limit = 1 }},
		{"Recovery.Limit", "1 to 1000", func(o *Options) { o.Recovery.Limit = 1001 }, func(o *Options) { o.Recovery.Limit = 1000 }},
		{"Retention.Interval", "at least 1ms; negative means never", func(o *Options) { o.Retention.Interval = 1 }, func(o *Options) { o.Retention.Interval = -1 }},
		{"Schedules.Interval", "at least 1ms; negative means never", func(o *Options) { o.Schedules.Interval = 1 }, func(o *Options) { o.Schedules.Interval = -1 }},
		{"Schedules.Interval", "at most", func(o *Options) { o.Schedules.Interval = tenYears + 1 }, func(o *Options) { o.Schedules.Interval = tenYears }},
		{"Retention.Interval", "at most", func(o *Options) { o.Retention.Interval = tenYears + 1 }, func(o *Options) { o.Retention.Interval = tenYears }},
		{"Shutdown.DrainTimeout", "not be negative", func(o *Options) { o.Shutdown.DrainTimeout = -1 }, func(o *Options) { o.Shutdown.DrainTimeout = 1 }},
		{
			"Name", "255",
			func(o *Options) { o.Name = strings.Repeat("x", 256) }, func(o *Options) { o.Name = strings.Repeat("x", 255) },
		},
		{"Name", "UTF-8", func(o *Options) { o.Name = "\xff" }, func(o *Options) { o.Name = "ÿ" }},
		{"Queues", "at most 1000", withMany(1001), withMany(1000)},
		{`Queues[""]`, "not be empty", with("", QueueOptions{}), with("x", QueueOptions{})},
		{`Queues["a\x00"]`, "NUL", with("a\x00", QueueOptions{}), with("a", QueueOptions{})},
		{`Queues["a"].Weight`, "0 to 1000", with("a", QueueOptions{Weight: -1}), with("a", QueueOptions{Weight: 0})},
		{`Queues["a"].Weight`, "0 to 1000", with("a", QueueOptions{Weight: 1001}), with("a", QueueOptions{Weight: 1000})},
		{`Queues["a"].Slots`, "not be negative", with("a", QueueOptions{Slots: -1}), with("a", QueueOptions{Slots: 0})},
		{`Queues["a"].Slots`, "of 11 is more than the 10 of the server", with("a", QueueOptions{Slots: 11}), with("a", QueueOptions{Slots: 10})},
	}
	tried := map[string]bool{}
	for _, c := range cases {
		var wrong, right Options
		c.wrong(&wrong)
		c.right(&right)
		_, err := right.withDefaults()
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
	unlimited := []string{"Abandon.MaxHandlers", "Clock", "Logger", "Observer"} // any value means something
	for path := range optionFields() {
		assert.NotEqual(t, slices.Contains(unlimited, path), tried[path], "is %s tried?", path)
	}
}

// optionFields yields the path of each option, such as Lease.Duration, and its field.
func optionFields() iter.Seq2[string, reflect.StructField] {
	return func(yield func(string, reflect.StructField) bool) {
		for _, field := range reflect.VisibleFields(reflect.TypeFor[Options]()) {
			if field.Type.Kind() != reflect.Struct {
				if !yield(field.Name, field) {
					return
				}
				continue
			}
			for inner := range field.Type.Fields() {
				inner.Index = append(slices.Clone(field.Index), inner.Index...)
				if !yield(field.Name+"."+inner.Name, inner) {
					return
				}
			}
		}
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

// No duration may be longer than the contract allows, so that no sum overflows and the store refuses no call because of it.
func TestNoTimeIsLongerThanTheContractKnows(t *testing.T) {
	times := map[string]bool{}
	for path, field := range optionFields() {
		if field.Type != reflect.TypeFor[time.Duration]() {
			continue
		}
		times[path] = true
		o := Options{}
		if path == "Lease.Heartbeat" {
			o.Lease.Duration = store.MaxDuration
		}
		reflect.ValueOf(&o).Elem().FieldByIndex(field.Index).SetInt(math.MaxInt64)
		_, err := o.withDefaults()
		option, ok := errors.AsType[*OptionError](err)
		require.True(t, ok, "%s: %v", path, err)
		assert.Equal(t, path, option.Field)
		assert.Contains(t, option.Rule, "at most")
	}
	assert.Len(t, times, 14, "%v", slices.Sorted(maps.Keys(times)))
}

// If several options are invalid, the error names the same one each time.
func TestFirstContradictionIsNamed(t *testing.T) {
	o := Options{Queues: map[string]QueueOptions{}}
	for _, name := range []string{"c", "b", "a", "d"} {
		o.Queues[name] = QueueOptions{Weight: -1}
	}
	for range 20 {
		_, err := o.withDefaults()
		require.ErrorContains(t, err, `Queues["a"].Weight`)
	}
}

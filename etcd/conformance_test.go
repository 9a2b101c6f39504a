//go:build unix

package etcd_test

import (
	"context"
	"maps"
	"testing"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/spread"
	"github.com/seed-ed332417/jq/jqtest"
	"github.com/seed-ed332417/jq/kv"
)

// engines has a prefix of its own for each.
var engines = jqtest.EngineAdapter{New: func(context.Context) (*jqtest.EnginePlace, error) {
	p, err := newPlace()
	if err != nil {
		return nil, err
	}
	return &jqtest.EnginePlace{
		Open:   func(context.Context) (kv.Engine, error) { return p.connect() },
		Remove: func() error { return p.remove(context.Background()) },
	}, nil
}}

func TestEngine(t *testing.T) { jqtest.Engine(t, engines) }

// The suite on three members, which do not wait for their disks.
func TestConformance(t *testing.T) { jqtest.Run(t, jqtest.EngineStores(engines)) }

// The cases on three stores, each of which makes every third call, to a member of its own.
func TestConformanceOfSeveralStores(t *testing.T) {
	const (
		noClock = "each store keeps its own latest time, like stores in several processes without a clock in common"
		noRoom  = "a store tells of room under a limit in its own process: servers elsewhere find it when they look"
	)
	exclude := jqtest.KVExclusions()
	maps.Copy(exclude, map[string]string{
		"Time/NowStandsStillWhileTheClockIsBehindALittle": noClock, "Time/FollowsToTheMicrosecond": noClock, "Ahead/ByWhenItWasGivenToTheMicrosecond": noClock,
		"Ahead/LeaseOfAClockThatWasAheadRunsFromNow": noClock, // a store that has not seen the clock ahead looks for such leases within 30 s of real time
		"Notify/FollowsRoom":                         noRoom, "Notify/FollowsRoomUnderARate": noRoom,
	})
	jqtest.Cases(t, jqtest.Adapter{New: newSpread, Exclude: exclude})
}

func TestHistoriesOnSeveralStores(t *testing.T) {
	jqtest.Linear(t, jqtest.Adapter{New: newSpread, Exclude: jqtest.KVExclusions()}, 100)
}

func newSpread(ctx context.Context, clk clock.Clock) (*jqtest.Instance, error) {
	p, err := newPlace()
	if err != nil {
		return nil, err
	}
	p.engines = 1 // each at a member of its own
	open := func(ctx context.Context) (contract.Store, error) { return spread.Open(ctx, 3, clk, p.connect) }
	return jqtest.Reopened(ctx, open, func() error { return p.remove(context.Background()) })
}

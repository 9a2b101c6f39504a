//go:build unix

package etcd_test

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/spread"
	"github.com/seed-ed332417/jq/jqtest"
	"github.com/seed-ed332417/jq/kv"
)

// The suite on three members, which do not wait for their disks.
func TestConformance(t *testing.T) {
	jqtest.Run(t, jqtest.Adapter{Exclude: jqtest.KVExclusions(), New: func(ctx context.Context, clk clock.Clock) (*jqtest.Instance, error) {
		return newInstance(ctx, func(ctx context.Context, p *place) (contract.Store, error) {
			e, err := p.connect()
			if err != nil {
				return nil, err
			}
			return kv.Open(ctx, e, &kv.Options{Clock: clk})
		})
	}})
}

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
	return newInstance(ctx, func(ctx context.Context, p *place) (contract.Store, error) {
		if p.engines == 0 {
			p.engines = 1 // each at a member of its own
		}
		return spread.Open(ctx, 3, clk, p.connect)
	})
}

// newInstance opens a store at an empty place.
func newInstance(ctx context.Context, open func(context.Context, *place) (contract.Store, error)) (*jqtest.Instance, error) {
	p, err := newPlace()
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, p)
	if err != nil {
		return nil, err
	}
	return &jqtest.Instance{
		Store: s,
		Reopen: func(ctx context.Context) (contract.Store, error) {
			if err := s.Close(); err != nil {
				return nil, err
			}
			s, err = open(ctx, p)
			return s, err
		},
		Remove: func() error { return errors.Join(s.Close(), p.remove(context.Background())) },
	}, nil
}

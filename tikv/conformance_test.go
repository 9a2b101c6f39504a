package tikv_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/tikv/client-go/v2/txnkv"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/spread"
	"github.com/seed-ed332417/jq/jqtest"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/tikv"
)

// engines has a cluster of its own for each.
var engines = jqtest.EngineAdapter{New: func(context.Context) (*jqtest.EnginePlace, error) {
	p, err := newPlace()
	if err != nil {
		return nil, err
	}
	return &jqtest.EnginePlace{
		Open:   func(context.Context) (kv.Engine, error) { return p.connect() },
		Remove: p.cluster.Stop,
	}, nil
}}

func TestEngine(t *testing.T) { jqtest.Engine(t, engines) }

// The suite on clusters of three stores and several regions.
func TestConformance(t *testing.T) { jqtest.Run(t, jqtest.EngineStores(engines)) }

// The cases on three stores, each of which makes every third call.
func TestConformanceOfSeveralStores(t *testing.T) {
	const (
		noClock = "each store keeps its own latest time, like stores in several processes without a clock in common"
		noWatch = "TiKV does not tell of commits: listeners in other processes find out when they look"
	)
	exclude := jqtest.KVExclusions()
	maps.Copy(exclude, map[string]string{
		"Time/NowStandsStillWhileTheClockIsBehindALittle": noClock, "Time/FollowsToTheMicrosecond": noClock, "Ahead/ByWhenItWasGivenToTheMicrosecond": noClock,
		"Ahead/LeaseOfAClockThatWasAheadRunsFromNow": noClock, // a store that has not seen the clock ahead looks for such leases within 30 s of real time
		"Notify/": noWatch,
	})
	delete(exclude, "Notify/FollowsTheCommitOfACallersTransaction")
	jqtest.Cases(t, jqtest.Adapter{New: newSpread, Exclude: exclude})
}

// Histories of three stores, while regions are divided and led by other stores.
func TestHistoriesOnSeveralStores(t *testing.T) {
	jqtest.Linear(t, jqtest.Adapter{New: newSpread, Exclude: jqtest.KVExclusions()}, 100)
}

func newSpread(ctx context.Context, clk clock.Clock) (*jqtest.Instance, error) {
	p, err := newPlace()
	if err != nil {
		return nil, err
	}
	p.wire = moving(p)
	open := func(ctx context.Context) (contract.Store, error) { return spread.Open(ctx, 3, clk, p.connect) }
	return jqtest.Reopened(ctx, open, p.cluster.Stop)
}

// serversVariable names the servers of PD of a real cluster, such as 127.0.0.1:2379.
const serversVariable = "JQ_TIKV_PD"

// onCluster has a prefix of its own in a real cluster for each.
func onCluster(servers string) jqtest.EngineAdapter {
	var places atomic.Int64
	run := time.Now().UnixNano()
	return jqtest.EngineAdapter{New: func(context.Context) (*jqtest.EnginePlace, error) {
		prefix := fmt.Sprintf("jq-test-%d-%d", run, places.Add(1))
		connect := func() (*txnkv.Client, error) { return txnkv.NewClient(strings.Split(servers, ",")) }
		return &jqtest.EnginePlace{
			Open: func(context.Context) (kv.Engine, error) {
				client, err := connect()
				if err != nil {
					return nil, err
				}
				return tikv.New(client, prefix)
			},
			Remove: func() error {
				client, err := connect()
				if err != nil {
					return err
				}
				_, err = client.DeleteRange(context.Background(), []byte(prefix+"\x00"), []byte(prefix+"\x02"), 1)
				return errors.Join(err, client.Close())
			},
		}, nil
	}}
}

// The suite on a real cluster.
func TestConformanceOnACluster(t *testing.T) {
	servers := os.Getenv(serversVariable)
	if servers == "" {
		t.Skip(serversVariable + " names no servers of PD, such as 127.0.0.1:2379: the other tests run on a cluster inside the process")
	}
	t.Run("Engine", func(t *testing.T) { jqtest.Engine(t, onCluster(servers)) })
	jqtest.Run(t, jqtest.EngineStores(onCluster(servers)))
}

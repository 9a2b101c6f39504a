package tikv_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"

	"github.com/pingcap/log"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tikv/client-go/v2/tikvrpc"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/tikv"
	"github.com/seed-ed332417/jq/tikv/internal/tikvtest"
)

// TestMain fails where a test has left a goroutine behind.
func TestMain(m *testing.M) {
	log.ReplaceGlobals(zap.NewNop(), &log.ZapProperties{}) // the client writes a line for each conflict
	code := m.Run()
	var stopped error
	if shown != nil {
		stopped = shown.Stop()
	}
	if err := errors.Join(stopped, goleak.Find(ended)); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// ended is a goroutine of the cluster's memory, which ends a second after it.
var ended = goleak.IgnoreTopFunction("github.com/pingcap/goleveldb/leveldb.(*DB).mpoolDrain")

// A place is a cluster of a test's own. Its first keys are in one region, and its later ones in others, which other stores lead.
type place struct {
	cluster *tikvtest.Cluster
	prefix  string
	wire    tikvtest.Wire
	stale   atomic.Int64 // requests that were refused because the region was elsewhere
}

func newPlace() (*place, error) {
	c, err := tikvtest.Start()
	if err != nil {
		return nil, err
	}
	p := &place{cluster: c, prefix: "jobs"}
	for _, first := range []string{"k", "i", "m", "w"} { // of tables of the kit
		c.Split([]byte(p.prefix + "\x00" + first))
	}
	return p, nil
}

// with returns the same place behind a wire.
func (p *place) with(w tikvtest.Wire) *place {
	return &place{cluster: p.cluster, prefix: p.prefix, wire: w}
}

func (p *place) connect() (kv.Engine, error) {
	client, err := p.cluster.Client(p.wire)
	if err != nil {
		return nil, err
	}
	return tikv.New(client, p.prefix)
}

func engineAt(t *testing.T, p *place) kv.Engine {
	t.Helper()
	e, err := p.connect()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return e
}

// moving divides regions and makes other stores lead them, every so many requests.
func moving(p *place) tikvtest.Wire {
	const (
		moves  = 40
		splits = 400
	)
	var requests atomic.Int64
	return func(_ *tikvrpc.Request, send tikvtest.Request) (*tikvrpc.Response, error) {
		n := requests.Add(1)
		key := fmt.Appendf(nil, "%s\x00%c", p.prefix, 'a'+rand.IntN(26)) // of a table of the kit
		switch {
		case n%splits == 0:
			p.cluster.Split(append(key, byte(rand.IntN(256))))
		case n%moves == 0:
			p.cluster.Move(key)
		}
		answer, err := send()
		if err == nil {
			if elsewhere, _ := answer.GetRegionError(); elsewhere != nil {
				p.stale.Add(1)
			}
		}
		return answer, err
	}
}

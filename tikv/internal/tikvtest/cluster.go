// Package tikvtest runs a cluster of TiKV inside the process of a test: the one that the client of TiKV brings for its own tests. It has no network, no
// disk and no copies, but it has transactions, locks, regions and stores as the client sees them.
package tikvtest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/tikv/client-go/v2/testutils"
	"github.com/tikv/client-go/v2/tikv"
	"github.com/tikv/client-go/v2/tikvrpc"
	"github.com/tikv/client-go/v2/txnkv"
	"github.com/tikv/client-go/v2/util/codec"
	pd "github.com/tikv/pd/client"
)

// stores is how many stores a cluster has.
const stores = 3

// A Cluster has three stores. At first it has one region, of which each store has a copy.
type Cluster struct {
	rpc  *testutils.MockClient
	mock *testutils.MockCluster
	pd   pd.Client

	resolving sync.Mutex // taken before mu

	mu      sync.Mutex          // guards what follows
	regions int                 // how often one was divided
	locked  map[uint64][][]byte // by the timestamps of transactions: the keys that they have locked
}

// Start starts a cluster that has no keys. The caller must stop it.
func Start() (*Cluster, error) {
	rpc, mock, placement, err := testutils.NewMockTiKV("", nil)
	if err != nil {
		return nil, fmt.Errorf("starting a cluster: %w", err)
	}
	testutils.BootstrapWithMultiStores(mock, stores)
	return &Cluster{rpc: rpc, mock: mock, pd: placement, locked: map[uint64][][]byte{}}, nil
}

// Stop stops the cluster, when all clients are closed.
func (c *Cluster) Stop() error {
	c.pd.Close()
	return c.rpc.Close()
}

// A Request makes a request of a client.
type Request func() (*tikvrpc.Response, error)

// A Wire stands between a client and the stores. It may leave out a request or its answer.
type Wire func(request *tikvrpc.Request, send Request) (*tikvrpc.Response, error)

// Client returns a client of the cluster. The caller must close it. The wire may be nil.
func (c *Cluster) Client(w Wire) (*txnkv.Client, error) {
	hijack := func(inner tikv.Client) tikv.Client { return &client{Client: inner, cluster: c, wire: w} }
	s, err := tikv.NewTestTiKVStore(c.rpc, placement{c.pd}, hijack, nil, 0)
	if err != nil {
		return nil, fmt.Errorf("connecting to a cluster: %w", err)
	}
	return &txnkv.Client{KVStore: s}, nil
}

// A placement is the PD of all clients of a cluster, so none of them closes it.
type placement struct{ pd.Client }

func (placement) Close() {}

// A client belongs to one engine, and its stores to all of them.
type client struct {
	tikv.Client
	cluster *Cluster
	wire    Wire
	closed  atomic.Bool
}

func (c *client) Close() error {
	c.closed.Store(true)
	return nil
}

func (c *client) SendRequest(ctx context.Context, address string, request *tikvrpc.Request, wait time.Duration) (*tikvrpc.Response, error) {
	if c.closed.Load() {
		return nil, errClosed
	}
	send := func() (*tikvrpc.Response, error) {
		if answer := c.cluster.note(request); answer != nil {
			return answer, nil
		}
		return c.Client.SendRequest(ctx, address, request, wait)
	}
	if c.wire == nil {
		return send()
	}
	return c.wire(request, send)
}

// note remembers the keys that transactions lock, and takes away the locks of one that has ended by these keys.
func (c *Cluster) note(request *tikvrpc.Request) *tikvrpc.Response {
	switch request.Type {
	case tikvrpc.CmdPrewrite:
		c.mu.Lock()
		defer c.mu.Unlock()
		of := request.Prewrite().GetStartVersion()
		for _, m := range request.Prewrite().GetMutations() {
			c.locked[of] = append(c.locked[of], m.Key)
		}
	case tikvrpc.CmdResolveLock:
		if r := request.ResolveLock(); len(r.GetTxnInfos()) == 0 && c.resolve(r) {
			return &tikvrpc.Response{Resp: &kvrpcpb.ResolveLockResponse{}}
		}
	}
	return nil
}

// resolve takes away the locks of a transaction that has ended, and reports false if that is left to the store. The store would look through all of its
// region for each of them, and hold up everybody meanwhile. A real one has its locks apart, and finds them soon.
func (c *Cluster) resolve(r *kvrpcpb.ResolveLockRequest) bool {
	c.resolving.Lock()
	defer c.resolving.Unlock()
	c.mu.Lock()
	keys, known := c.locked[r.GetStartVersion()]
	c.mu.Unlock()
	if !known {
		return false
	}
	var err error
	switch {
	case len(keys) == 0: // for another lock
	case r.GetCommitVersion() > 0:
		err = c.rpc.MvccStore.Commit(keys, r.GetStartVersion(), r.GetCommitVersion())
	default:
		err = c.rpc.MvccStore.Rollback(keys, r.GetStartVersion())
	}
	if err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.locked[r.GetStartVersion()] = c.locked[r.GetStartVersion()][len(keys):] // others may have been locked since
	return true
}

var errClosed = fmt.Errorf("the client is closed")

// Split divides the region that has the key there, unless it begins there.
func (c *Cluster) Split(key []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	encoded := codec.EncodeBytes(nil, key)
	region, leader, _, _ := c.mock.GetRegionByKey(encoded)
	if bytes.Equal(region.StartKey, encoded) {
		return
	}
	peers := c.mock.AllocIDs(len(region.Peers))
	at := 0
	for i, p := range region.Peers {
		if p.Id == leader.Id {
			at = i
		}
	}
	c.regions++
	c.mock.Split(region.Id, c.mock.AllocID(), key, peers, peers[(at+c.regions)%len(peers)]) // led by another store, as a rule
}

// Move makes another store the leader of the region that has the key.
func (c *Cluster) Move(key []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	region, leader, _, _ := c.mock.GetRegionByKey(codec.EncodeBytes(nil, key))
	for i, p := range region.Peers {
		if p.Id == leader.Id {
			c.mock.ChangeLeader(region.Id, region.Peers[(i+1)%len(region.Peers)].Id)
			return
		}
	}
}

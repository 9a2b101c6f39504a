// Package etcd keeps jobs in a cluster of etcd v3, so that they survive the loss of a machine. It is an engine for package kv.
//
//	store, err := etcd.Open(ctx, "etcd://a:2379,b:2379,c:2379/jobs", nil)
//
// Any number of processes can open the same store at once. Each commit is on most members of the cluster before a call returns.
//
// # The cluster
//
// Start each member with these flags, because one call of a store can change thousands of keys, and etcd refuses such calls by default:
//
//	--max-txn-ops 50000 --max-request-bytes 33554432 --auto-compaction-mode periodic --auto-compaction-retention 5m
//
// Open checks the first two on one member, and says which flag is missing.
//
// # When a member fails
//
// A store asks one member, and the next one when that one fails. Reads are made again. A commit is sent once: if no answer comes within three seconds, or
// more if it is large, the call fails with contract.ErrInDoubt. While no leader is elected, which takes one or two seconds by default, reads wait. Without
// most of the members, all calls fail.
//
// # Restoring
//
// Ids of jobs come from revisions of the cluster. So if you restore a snapshot, raise the revision (etcdutl snapshot restore --bump-revision
// 1000000000 --mark-compacted), and then fence the store.
package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/seed-ed332417/jq/kv"
)

// Open opens the store at a URL. Name all members: the store asks one of them, and the next one when that one fails. All keys of the store begin with the
// prefix and a byte of zero or one. Options may be nil.
//
//	etcd://a:2379,b:2379,c:2379/jobs
//	etcds://jobs:PASSWORD@a:2379,b:2379,c:2379/jobs?ca=ca.pem&cert=client.pem&key=client-key.pem
//
// The second form is for TLS. A user and its password can stand in both; special characters are written as %XX. The files are optional: of authorities for the
// members' certificates, instead of the system's, and of the client's own certificate and its key, which are read again for each connection.
//
// For anything else, give New a configuration and its engine to kv.Open.
func Open(ctx context.Context, address string, options *kv.Options) (*kv.Store, error) {
	l, err := parse(address)
	if err != nil {
		return nil, fmt.Errorf("jq: the URL of a store on etcd: %w", err)
	}
	config, err := l.config()
	if err != nil {
		return nil, fmt.Errorf("jq: the URL of a store on etcd: %w", err)
	}
	e, err := New(ctx, config, l.prefix)
	if err != nil {
		return nil, err
	}
	return kv.Open(ctx, e, options)
}

// longestPrefix bounds what the prefix adds to the bytes of a commit.
const longestPrefix = 100

func checkPrefix(prefix string) error {
	if prefix == "" || len(prefix) > longestPrefix || strings.ContainsAny(prefix, "\x00\x01") {
		return fmt.Errorf("the prefix must have 1 to %d bytes, and none of them zero or one", longestPrefix)
	}
	return nil
}

// New connects to a cluster and returns an engine for kv.Open, which keeps its keys under the prefix. The engine has clients of its own, one for each
// member that it asks, because it depends on their settings: a client that repeats commits by itself would make two jobs of one. So New sets
// MaxUnaryRetries, and raises MaxCallSendMsgSize and MaxCallRecvMsgSize. It sets a logger that is silent if the configuration has none, and timeouts if
// it has none.
//
// New asks one member whether it takes commits as large as a store makes, and returns an error that names the flags if it does not.
func New(ctx context.Context, config clientv3.Config, prefix string) (*Engine, error) {
	if err := checkPrefix(prefix); err != nil {
		return nil, fmt.Errorf("jq: a store on etcd: %w", err)
	}
	if len(config.Endpoints) == 0 {
		return nil, errors.New("jq: the configuration of a client of etcd needs at least one of Endpoints")
	}
	e := connect(config, prefix)
	if err := e.check(ctx); err != nil {
		return nil, fmt.Errorf("jq: connecting to etcd at %s: %w", strings.Join(config.Endpoints, ", "), err)
	}
	return e, nil
}

func connect(config clientv3.Config, prefix string) *Engine {
	config.MaxUnaryRetries = 1 // how often a request is made
	config.MaxCallSendMsgSize = max(config.MaxCallSendMsgSize, largestRequest)
	config.MaxCallRecvMsgSize = math.MaxInt32
	config.DialTimeout = cmp.Or(config.DialTimeout, 2*time.Second)
	config.DialKeepAliveTime = cmp.Or(config.DialKeepAliveTime, 10*time.Second)
	config.DialKeepAliveTimeout = cmp.Or(config.DialKeepAliveTimeout, 3*time.Second)
	config.Logger = cmp.Or(config.Logger, zap.NewNop())
	return &Engine{members: newMembers(config), prefix: prefix, alarm: usual}
}

// flags are what members of a cluster need.
const flags = "start each member of etcd with --max-txn-ops 50000 --max-request-bytes 33554432"

// largestRequest is more than a commit can have: its keys stand in it with the prefix, and each of them needs some bytes more. It is less than the
// flags allow.
const largestRequest = kv.MinBytes + kv.MinKeys*(longestPrefix+64)

// check finds out whether a member takes as large a commit as a store makes. If it fails, it closes the client.
func (e *Engine) check(ctx context.Context) error {
	request := e.largest()
	err := e.members.repeat(ctx, func(ctx context.Context, m member) error { return request(ctx, m.Client) })
	if err != nil {
		_ = e.Close() // the first error says more
	}
	return advised(err)
}

// largest returns a request as large as a commit can be, which compares and changes nothing.
func (e *Engine) largest() func(context.Context, *clientv3.Client) error {
	compares := make([]clientv3.Cmp, kv.MinKeys)
	for i := range compares {
		compares[i] = clientv3.Compare(clientv3.ModRevision(e.item(nil)), "=", 1)
	}
	// The first compare fails, because there is no such key, so the others cost only their way to the member.
	compares[1] = clientv3.Compare(clientv3.Value(e.item(nil)), "=", strings.Repeat("x", kv.MinBytes+kv.MinKeys*64))
	return func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Txn(ctx).If(compares...).Commit()
		return err
	}
}

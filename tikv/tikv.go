// Package tikv keeps jobs in a cluster of TiKV, so that one store can be larger and faster than one machine. It is an engine for package kv.
//
//	store, err := tikv.Open(ctx, "tikv://a:2379,b:2379,c:2379/jobs", nil)
//
// Any number of processes can open the same store at once. Each commit is on most copies of its regions before a call returns.
//
// It passes the conformance suite on the cluster that the client of TiKV runs inside a process for tests. Nobody has run it on a real cluster yet.
//
// # When a server fails
//
// The client asks again, where the regions have moved. If the answer to the request that decides a commit is lost, the call fails with
// contract.ErrInDoubt. A process that ends in the middle of a commit leaves locks, which the next call on the same keys takes away, after three seconds or up to
// twenty if the commit is large.
//
// # Old values
//
// TiKV keeps every earlier value of a key until somebody collects it. TiDB does that. Without it, a program must call the method GC of the client
// from time to time, with a timestamp of ten minutes ago or earlier. PD has what that needs from version 9 on.
package tikv

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tikv/client-go/v2/txnkv"

	"github.com/seed-ed332417/jq/kv"
)

// Open opens the store at a URL. Name all servers of PD, which know the other ones. All keys of the store begin with the prefix and a byte of zero or one. Options may
// be nil.
//
//	tikv://a:2379,b:2379,c:2379/jobs
//
// TLS is part of the configuration that all clients of a process share: see config.UpdateGlobal of the client. The client logs through package
// github.com/pingcap/log, by default to standard output.
//
// For anything else, such as a keyspace, give New a client and its engine to kv.Open.
func Open(ctx context.Context, address string, options *kv.Options) (*kv.Store, error) {
	l, err := parse(address)
	if err != nil {
		return nil, fmt.Errorf("jq: the URL of a store on TiKV: %w", err)
	}
	client, err := connect(ctx, l.hosts)
	if err != nil {
		return nil, fmt.Errorf("jq: connecting to TiKV by PD at %s: %w", strings.Join(l.hosts, ", "), err)
	}
	e, err := New(client, l.prefix)
	if err != nil {
		return nil, err
	}
	return kv.Open(ctx, e, options)
}

// connect returns a client. If the context ends before there is one, the client goes on to look for PD for a minute or more, and is closed then.
func connect(ctx context.Context, hosts []string) (*txnkv.Client, error) {
	type answer struct {
		client *txnkv.Client
		err    error
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	answers := make(chan answer, 1)
	go func() {
		client, err := txnkv.NewClient(hosts)
		answers <- answer{client, err}
	}()
	select {
	case a := <-answers:
		return a.client, a.err
	case <-ctx.Done():
		go func() {
			if a := <-answers; a.err == nil {
				_ = a.client.Close() // nobody has used it
			}
		}()
		return nil, ctx.Err()
	}
}

// longestPrefix bounds what the prefix adds to the bytes of a commit.
const longestPrefix = 100

func checkPrefix(prefix string) error {
	if prefix == "" || len(prefix) > longestPrefix || strings.ContainsAny(prefix, "\x00\x01") {
		return fmt.Errorf("the prefix must have 1 to %d bytes, and none of them zero or one", longestPrefix)
	}
	return nil
}

// New returns an engine for kv.Open, which keeps its keys under the prefix. It closes the client when it is closed.
func New(client *txnkv.Client, prefix string) (*Engine, error) {
	if client == nil {
		return nil, errors.New("jq: a store on TiKV needs a client")
	}
	if err := checkPrefix(prefix); err != nil {
		return nil, fmt.Errorf("jq: a store on TiKV: %w", err)
	}
	return &Engine{client: client, prefix: prefix, oldest: oldest}, nil
}

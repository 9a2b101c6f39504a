//go:build unix

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/seed-ed332417/jq/etcd"
	"github.com/seed-ed332417/jq/etcd/internal/etcdtest"
	"github.com/seed-ed332417/jq/kv"
)

// TestMain builds the server first, since the time of tests is bounded. It fails where a test has left a goroutine behind.
func TestMain(m *testing.M) {
	if err := etcdtest.Build(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := errors.Join(shared.stop(), goleak.Find()); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// A common cluster is for all tests that break nothing. It starts when the first one needs it.
type common struct {
	once    sync.Once
	folder  string
	cluster *etcdtest.Cluster
	err     error
	cases   atomic.Int64
}

var shared common

func (c *common) start() (*etcdtest.Cluster, error) {
	c.once.Do(func() {
		if c.folder, c.err = os.MkdirTemp("", "jq-etcd-"); c.err == nil {
			c.cluster, c.err = etcdtest.Start(context.Background(), c.folder, etcdtest.Options{NoSync: true})
		}
	})
	return c.cluster, c.err
}

func (c *common) stop() (err error) {
	if c.cluster != nil {
		err = c.cluster.Stop()
	}
	if c.folder != "" {
		err = errors.Join(err, os.RemoveAll(c.folder))
	}
	return err
}

// A place is a prefix of a test's own in the common cluster.
type place struct {
	cluster *etcdtest.Cluster
	prefix  string
	engines int
}

func newPlace() (*place, error) {
	c, err := shared.start()
	if err != nil {
		return nil, err
	}
	return &place{cluster: c, prefix: fmt.Sprint("case-", shared.cases.Add(1))}, nil
}

// connect returns an engine. The first one asks any member, and the others one each, in turn.
func (p *place) connect() (kv.Engine, error) {
	endpoints := p.cluster.Endpoints()
	if n := p.engines; n > 0 {
		endpoints = endpoints[n%len(endpoints):][:1]
	}
	p.engines++
	return etcd.Connect(clientv3.Config{Endpoints: endpoints}, p.prefix), nil
}

// remove deletes the keys.
func (p *place) remove(ctx context.Context) error {
	var errs []error
	for _, end := range []string{"\x00", "\x01"} {
		_, err := p.cluster.Client().Delete(ctx, p.prefix+end, clientv3.WithPrefix())
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// engine returns one with a prefix of its own.
func engine(t *testing.T) kv.Engine {
	t.Helper()
	p, err := newPlace()
	require.NoError(t, err)
	return engineAt(t, p)
}

func engineAt(t *testing.T, p *place) kv.Engine {
	t.Helper()
	e, err := p.connect()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	return e
}

// start starts a cluster for a test that breaks it.
func start(t *testing.T, o etcdtest.Options) *etcdtest.Cluster {
	t.Helper()
	c, err := etcdtest.Start(t.Context(), t.TempDir(), o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Stop()) })
	return c
}

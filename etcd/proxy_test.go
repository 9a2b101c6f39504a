//go:build unix

package etcd_test

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/etcd/internal/etcdtest"
)

// A proxy is the network between stores and one member. It can swallow what goes over it, in either direction, until it is mended. Then all its
// connections end, with what it has swallowed.
type proxy struct {
	listener net.Listener
	member   string // HOST:PORT
	all      sync.WaitGroup

	mu       sync.Mutex // guards what follows
	conns    map[net.Conn]bool
	requests bool // they are swallowed
	answers  bool // they are swallowed
	closed   bool
}

// proxies opens one for each member, and returns the URLs of all.
func proxies(t *testing.T, c *etcdtest.Cluster) (all []*proxy, endpoints []string) {
	t.Helper()
	for _, member := range c.Endpoints() {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		p := &proxy{listener: listener, member: strings.TrimPrefix(member, "http://"), conns: map[net.Conn]bool{}}
		p.all.Go(p.accept)
		t.Cleanup(func() { assert.NoError(t, p.close()) })
		all, endpoints = append(all, p), append(endpoints, "http://"+listener.Addr().String())
	}
	return all, endpoints
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // it is closed
		}
		member, err := net.Dial("tcp", p.member)
		if err != nil {
			_ = client.Close() // as the member does
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[member] = true, true
		if p.closed {
			p.drop()
		}
		p.mu.Unlock()
		p.all.Go(func() { p.carry(member, client, &p.requests) })
		p.all.Go(func() { p.carry(client, member, &p.answers) })
	}
}

// carry brings what comes from one side to the other, unless it is swallowed.
func (p *proxy) carry(to, from net.Conn, swallowed *bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		gone := *swallowed
		p.mu.Unlock()
		if n > 0 && !gone {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				err = failed
			}
		}
		if err != nil {
			_, _ = to.Close(), from.Close() // one of them has ended
			p.mu.Lock()
			delete(p.conns, to)
			delete(p.conns, from)
			p.mu.Unlock()
			return
		}
	}
}

// swallow begins to swallow.
func (p *proxy) swallow(requests, answers bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests, p.answers = requests, answers
}

// mend ends all connections, and lets new ones work.
func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop()
	p.requests, p.answers = false, false
}

// drop ends all connections. The caller has locked mu.
func (p *proxy) drop() {
	for c := range p.conns {
		_ = c.Close() // it may have ended
	}
}

func (p *proxy) close() error {
	p.mu.Lock()
	p.closed = true
	p.drop()
	p.mu.Unlock()
	err := p.listener.Close()
	p.all.Wait()
	return err
}

//go:build unix

package chaos

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A proxy is the network between one process and the database. It can break, and it can hold up what goes over it.
type proxy struct {
	listener net.Listener
	server   string
	all      sync.WaitGroup

	mu       sync.Mutex // guards what follows
	conns    map[net.Conn]bool
	requests chan struct{} // closed while requests go through
	replies  chan struct{} // closed while replies go through
	closed   bool
}

func openProxy(t *testing.T, server string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, server: server, conns: map[net.Conn]bool{}, requests: make(chan struct{}), replies: make(chan struct{})}
	close(p.requests)
	close(p.replies)
	p.all.Go(p.accept)
	return p
}

func (p *proxy) port() int { return p.listener.Addr().(*net.TCPAddr).Port }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // it is closed
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.keep(client, server) {
			return
		}
		p.all.Go(func() { p.carry(server, client, func() chan struct{} { return p.requests }) })
		p.all.Go(func() { p.carry(client, server, func() chan struct{} { return p.replies }) })
	}
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
		if p.closed {
			_ = c.Close()
		}
	}
	return !p.closed
}

// carry brings what comes from one side to the other, while the gate is open.
func (p *proxy) carry(to, from net.Conn, gate func() chan struct{}) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		open := gate()
		p.mu.Unlock()
		<-open
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range []net.Conn{to, from} {
		_ = c.Close()
		delete(p.conns, c)
	}
}

// cut breaks every connection, and says how many sides that were.
func (p *proxy) cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.conns)
	for c := range p.conns {
		_ = c.Close()
	}
	return n
}

// hold holds up replies, and requests as well if nothing is to go through.
func (p *proxy) hold(requests bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replies = make(chan struct{})
	if requests {
		p.requests = make(chan struct{})
	}
}

// flow lets everything through that was held up.
func (p *proxy) flow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, gate := range []chan struct{}{p.requests, p.replies} {
		select {
		case <-gate:
		default:
			close(gate)
		}
	}
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.flow()
	p.cut()
	p.all.Wait()
}

package postgres

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// A name leads to a standby for a while. Connections that were opened meanwhile stay.
func TestConnectionsToAStandbyAreLeft(t *testing.T) {
	t.Parallel()
	primary := ownServer(t, lasting)
	require.NoError(t, openOn(t, primary.DSN, "first").Close())
	standby := standbyOf(t, primary)
	name := newName(t, primary.DSN)
	s := openOn(t, name.dsn, "store")
	enqueue(t, s, 1)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())

	name.leadTo(t, standby.DSN)
	_, err = s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	require.Error(t, err, "a standby takes no writes")
	_, err = s.DB().BeginTx(t.Context(), nil)
	require.Error(t, err, "a standby takes no writes")

	name.leadTo(t, "") // to the primary for new connections; those to the standby stay
	_, err = s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	assert.NoError(t, err, "the store's own connections")
	tx, err = s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err, "callers' connections")
	_, err = s.InTx(tx).Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	assert.NoError(t, err, "callers' connections")
	require.NoError(t, tx.Rollback())
}

// A name is an address that leads to one server, and then to another.
type name struct {
	dsn   string
	first string // the socket of the server to begin with

	mu     sync.Mutex // guards what follows
	to     string     // the socket of the present one
	conns  []net.Conn
	damage func(sent []byte) (whole int, instead []byte) // what to send in place of the rest; may be nil
}

func newName(t *testing.T, dsn string) *name {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &name{first: socketOf(t, dsn), to: socketOf(t, dsn)}
	n.dsn = fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=disable", listener.Addr().(*net.TCPAddr).Port)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // it is closed
			}
			all.Go(func() { n.serve(conn) })
		}
	})
	t.Cleanup(func() {
		assert.NoError(t, listener.Close())
		n.cut()
		all.Wait()
	})
	return n
}

func socketOf(t *testing.T, dsn string) string {
	t.Helper()
	config, err := pq.NewConfig(dsn)
	require.NoError(t, err)
	return fmt.Sprintf("%s/.s.PGSQL.%d", config.Host, config.Port)
}

func (n *name) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	n.mu.Lock()
	server, err := net.Dial("unix", n.to)
	if err == nil {
		n.conns = append(n.conns, conn, server)
	}
	n.mu.Unlock()
	if err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { n.answer(conn, server); _ = conn.Close() })
	_, _ = io.Copy(server, conn)
	_ = server.Close()
	back.Wait()
}

// answer copies what the server sends, until the connection ends or what was sent is damaged.
func (n *name) answer(conn, server net.Conn) {
	buffer := make([]byte, 1<<20)
	for {
		size, err := server.Read(buffer)
		if err != nil {
			return
		}
		n.mu.Lock()
		damage := n.damage
		n.mu.Unlock()
		whole, instead := size, []byte(nil)
		if damage != nil {
			whole, instead = damage(buffer[:size])
		}
		if _, err := conn.Write(append(buffer[:whole:whole], instead...)); err != nil || instead != nil {
			return
		}
	}
}

// breakOff damages what the server sends, from now on.
func (n *name) breakOff(damage func(sent []byte) (whole int, instead []byte)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.damage = damage
}

// leadTo lets the name lead to another server, and ends all connections. Empty, it leads to the first one again, and ends none.
func (n *name) leadTo(t *testing.T, dsn string) {
	t.Helper()
	to := n.first
	if dsn != "" {
		to = socketOf(t, dsn)
	}
	n.mu.Lock()
	n.to = to
	n.mu.Unlock()
	if dsn != "" {
		n.cut()
	}
}

func (n *name) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conn := range n.conns {
		_ = conn.Close()
	}
	n.conns = nil
}

package postgres

import (
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// A name leads to a standby for a while; connections that were opened meanwhile stay.
func TestConnectionsToAStandbyAreLeft(t *testing.T) {
	t.Parallel()
	primary := ownServer(t, lasting)
	require.NoError(t, openOn(t, primary.DSN, "first").Close())
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, standby.Stop()) })
	addr := func(c *pgtest.Cluster) (string, string) {
		config, err := pq.NewConfig(c.DSN)
		require.NoError(t, err)
		if config.Host[0] == '/' {
			return "unix", config.Host + "/.s.PGSQL." + strconv.Itoa(int(config.Port))
		}
		return "tcp", net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	}
	var mu sync.Mutex
	target := primary
	var conns []net.Conn
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	dials := 0
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			to := target
			conns = append(conns, c)
			dials++
			mu.Unlock()
			n, a := addr(to)
			up, err := net.Dial(n, a)
			if err != nil {
				_ = c.Close()
				continue
			}
			go func() { _, _ = io.Copy(up, c); _ = up.Close() }()
			go func() { _, _ = io.Copy(c, up); _ = c.Close() }()
		}
	}()
	config, err := pq.NewConfig(primary.DSN)
	require.NoError(t, err)
	_ = config
	port := l.Addr().(*net.TCPAddr).Port
	s, err := Open(t.Context(), "host=127.0.0.1 port="+strconv.Itoa(port)+" user=postgres dbname=postgres sslmode=disable", nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	enqueue(t, s, 1)
	tx, err := s.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	mu.Lock()
	target = standby
	for _, c := range conns {
		_ = c.Close()
	}
	dials = 0
	mu.Unlock()
	began := time.Now()
	_, err = s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	t.Logf("own on a standby: %v after %v, %d dials", err, time.Since(began), dials)
	require.Error(t, err)
	_, err = s.DB().BeginTx(t.Context(), nil)
	require.Error(t, err)
	mu.Lock()
	target = primary
	mu.Unlock()
	_, err = s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	assert.NoError(t, err, "own")
	for range 3 {
		tx, err = s.DB().BeginTx(t.Context(), nil)
		if !assert.NoError(t, err, "callers") {
			time.Sleep(300 * time.Millisecond)
			continue
		}
		_, err = s.InTx(tx).Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
		assert.NoError(t, err, "callers")
		require.NoError(t, tx.Rollback())
	}
}

// Package redistest starts servers of Redis for tests.
package redistest

import (
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
)

// Start starts a server of the test's own, which ends with the test, and returns its address. The test is skipped if Redis is not
// installed.
func Start(t *testing.T) (addr string) {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed")
	}
	port, err := pgtest.FreePort()
	require.NoError(t, err)
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	server := exec.Command(program, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "")
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait() // returns that it was killed
	})
	require.Eventually(t, func() bool { return answers(addr) }, 30*time.Second, 10*time.Millisecond, "redis-server does not answer")
	return addr
}

func answers(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	answer := make([]byte, len("+PONG"))
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, err = conn.Write([]byte("PING\r\n"))
	if err == nil {
		_, err = conn.Read(answer)
	}
	return err == nil && string(answer) == "+PONG"
}

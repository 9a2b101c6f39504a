//go:build unix

package outside

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-ed332417/jq"
)

// The test binary is also the programs that these tests run.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "play" {
		if err := play(os.Args[2], os.Args[3]); err != nil {
			slog.Error("the program failed", "error", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// play is one of the programs. Each one connects to the test, which tells it what to do and sees when it is gone.
func play(role, address string) error {
	switch role {
	case "worker":
		return playWorker(address)
	case "process 1", "subreaper":
		return playReaper(role, address)
	case "child":
	case "parent":
		return playParent(address, exec.Command(os.Args[0], "play", "child", address), os.Stdout)
	case "parent of a quiet child":
		return playParent(address, exec.Command(os.Args[0], "play", "child", address), nil)
	case "parent of a child that leaves", "parent of a quiet child that leaves":
		child := exec.Command(os.Args[0], "play", "child", address)
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if role == "parent of a child that leaves" {
			return playParent(address, child, os.Stdout)
		}
		return playParent(address, child, nil)
	}
	return obey(address, role)
}

// obey does what the test says. SIGTERM it only reports.
func obey(address, role string) error {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintln(conn, role)
	go func() {
		for range told {
			fmt.Fprintln(conn, "told to stop")
		}
	}()
	orders := bufio.NewScanner(conn)
	for orders.Scan() {
		order, rest, _ := strings.Cut(orders.Text(), " ")
		switch order {
		case "out":
			fmt.Fprintln(os.Stdout, rest)
		case "err":
			fmt.Fprintln(os.Stderr, rest)
		case "pid":
			fmt.Fprintln(conn, os.Getpid())
		case "exit":
			code, err := strconv.Atoi(rest)
			if err != nil {
				return err
			}
			os.Exit(code)
		}
		fmt.Fprintln(conn, "done")
	}
	return fmt.Errorf("the test is gone: %w", orders.Err())
}

func playParent(address string, child *exec.Cmd, output *os.File) error {
	if output != nil {
		child.Stdout, child.Stderr = output, output
	}
	if err := child.Start(); err != nil {
		return err
	}
	return obey(address, "parent")
}

// playWorker works on one job, by a program.
func playWorker(address string) error {
	handle, err := Program("'"+os.Args[0]+"' play child "+address, nil)
	if err != nil {
		return err
	}
	s := jq.NewMemory(nil)
	if _, err := jq.NewClient(s, nil).Enqueue(context.Background(), mail(`{}`), nil); err != nil {
		return err
	}
	var h jq.Handlers
	h.Otherwise(handle)
	server, err := jq.NewServer(s, &h, nil)
	if err != nil {
		return err
	}
	return server.Run(context.Background())
}

// A stage is where the test meets its programs.
type stage struct {
	t        *testing.T
	listener *net.TCPListener
}

func newStage(t *testing.T) *stage {
	t.Helper()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return &stage{t, listener}
}

// line is the command line of a program.
func (s *stage) line(role string) string {
	self, err := os.Executable()
	require.NoError(s.t, err)
	return fmt.Sprintf("'%s' play '%s' %s", self, role, s.listener.Addr())
}

// enter waits for so many programs to connect, and returns them by their roles.
func (s *stage) enter(n int) map[string]*player {
	s.t.Helper()
	players := map[string]*player{}
	for range n {
		require.NoError(s.t, s.listener.SetDeadline(time.Now().Add(patience)))
		conn, err := s.listener.Accept()
		require.NoError(s.t, err)
		s.t.Cleanup(func() { _ = conn.Close() })
		require.NoError(s.t, conn.SetDeadline(time.Now().Add(patience)))
		p := &player{s.t, conn, bufio.NewScanner(conn)}
		require.True(s.t, p.lines.Scan(), "a program has connected, and has not said who it is: %v", p.lines.Err())
		players[p.lines.Text()] = p
	}
	require.Len(s.t, players, n)
	return players
}

// A player is a program under way.
type player struct {
	t     *testing.T
	conn  net.Conn
	lines *bufio.Scanner
}

func (p *player) says(want string) {
	p.t.Helper()
	require.True(p.t, p.lines.Scan(), "the program is gone, and has not said %q: %v", want, p.lines.Err())
	require.Equal(p.t, want, p.lines.Text())
}

func (p *player) does(order string) {
	p.t.Helper()
	_, err := fmt.Fprintln(p.conn, order)
	require.NoError(p.t, err)
	p.says("done")
}

func (p *player) exits(code int) {
	p.t.Helper()
	_, err := fmt.Fprintln(p.conn, "exit", code)
	require.NoError(p.t, err)
	p.isGone()
}

// isGone waits until the program has ended, when the system closes its connection.
func (p *player) isGone() {
	p.t.Helper()
	require.False(p.t, p.lines.Scan(), "the program lives, and says %q", p.lines.Text())
	if err := p.lines.Err(); err != nil {
		require.ErrorIs(p.t, err, syscall.ECONNRESET)
	}
}

package outside

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-ed332417/jq"
)

// playReaper runs programs as process 1 does, or as a process that asks for orphans in its place.
func playReaper(role, address string) error {
	reaper := &Reaper{}
	begin := reaper.Start
	if role == "subreaper" {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return err
		}
		begin = reaper.begin
	} else if os.Getpid() != 1 {
		return fmt.Errorf("this is process %d, not 1", os.Getpid())
	}
	stop := begin(slog.Default())
	defer stop()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintln(conn, role)
	orders := bufio.NewScanner(conn)
	for orders.Scan() {
		order, rest, _ := strings.Cut(orders.Text(), " ")
		switch order {
		case "run":
			go func() { fmt.Fprintln(conn, "ran:", runOnce(reaper, rest)) }()
		case "burst":
			fmt.Fprintln(conn, "burst:", burst(reaper))
		case "children":
			fmt.Fprintln(conn, childrenByState())
		case "leave":
			return nil
		}
	}
	return fmt.Errorf("the test is gone: %w", orders.Err())
}

// runOnce runs the program for a job.
func runOnce(reaper *Reaper, line string) error {
	handle, err := Program(line, &ProgramOptions{Reaper: reaper})
	if err != nil {
		return err
	}
	return handle(context.Background(), &jq.Run{Job: jq.Job{ID: 1, Payload: []byte(`{}`)}})
}

// The first goroutine of a program that is played stays on the first thread, to which the system gives orphans.
func init() {
	if len(os.Args) == 4 && os.Args[1] == "play" {
		runtime.LockOSThread()
	}
}

// burst runs many short programs at once, each of which leaves a child behind, and says what was wrong with the first end. Some of
// the programs are children of the first thread, where the orphans are.
func burst(reaper *Reaper) error {
	var wrong atomic.Pointer[error]
	run := func(code int) {
		for range 25 {
			err := runOnce(reaper, fmt.Sprintf("sh -c '(exit 9) & exit %d'", code))
			if want := fmt.Sprintf("sh: exit status %d, and nothing on its standard error", code); err == nil || err.Error() != want {
				err = fmt.Errorf("want %q, not %w", want, err)
				wrong.CompareAndSwap(nil, &err)
			}
		}
	}
	var others sync.WaitGroup
	for i := range 8 {
		others.Go(func() { run(40 + i) })
	}
	run(50)
	others.Wait()
	reaper.programs.Range(func(pid, _ any) bool {
		err := fmt.Errorf("program %v has ended, and is still known", pid)
		wrong.CompareAndSwap(nil, &err)
		return false
	})
	if err := wrong.Load(); err != nil {
		return *err
	}
	return nil
}

// childrenByState are this process's children: "7=S 8=Z".
func childrenByState() string {
	pids, err := children()
	if err != nil {
		return err.Error()
	}
	var list []string
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if _, rest, ok := strings.Cut(string(stat), ") "); err == nil && ok {
			list = append(list, fmt.Sprintf("%d=%c", pid, rest[0]))
		}
	}
	return strings.Join(list, " ")
}

// Process 1 waits for what programs leave behind, and takes no program's end away from its job.
func TestOrphansDoNotStayAsZombies(t *testing.T) {
	t.Parallel()
	for role, prefix := range map[string][]string{"process 1": namespace(), "subreaper": nil} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			self, err := os.Executable()
			require.NoError(t, err)
			if len(prefix) > 0 {
				if said, err := exec.CommandContext(t.Context(), prefix[0], append(prefix[1:], "true")...).CombinedOutput(); err != nil {
					t.Skipf("no process can be made process 1 of a namespace here: %s: %v: %s", strings.Join(prefix, " "), err, said)
				}
			}
			s := newStage(t)
			line := append(append([]string{}, prefix...), self, "play", role, s.listener.Addr().String())
			command := exec.CommandContext(t.Context(), line[0], line[1:]...)
			command.Stderr = os.Stderr
			require.NoError(t, command.Start())
			first := s.enter(1)[role]
			first.reaps(s)
			first.tell("leave")
			assert.NoError(t, command.Wait())
		})
	}
}

// namespace is the command that runs another one as process 1.
func namespace() []string {
	command := []string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"}
	if os.Geteuid() != 0 {
		command = append(command, "--user", "--map-root-user")
	}
	return command
}

// reaps lets the process run programs that leave children behind.
func (p *player) reaps(s *stage) {
	p.t.Helper()
	// The child is there before its end, so that it is the end of an orphan, which no program's end is near.
	p.tell("run " + s.line("parent of a quiet child that leaves"))
	players := s.enter(2)
	child := players["child"]
	players["parent"].exits(0)
	p.says("ran: <nil>")
	child.tell("pid")
	require.True(p.t, child.lines.Scan(), "the child is gone: %v", child.lines.Err())
	pid := child.lines.Text()
	child.says("done")
	p.tell("children")
	require.True(p.t, p.lines.Scan(), "the reaper is gone: %v", p.lines.Err())
	require.Contains(p.t, " "+p.lines.Text(), " "+pid+"=", "the child that was left behind did not become one of the reaper")
	child.exits(3)
	p.hasNoChild()

	p.tell("burst")
	p.says("burst: <nil>")
	p.hasNoChild()
}

// hasNoChild waits until the process has no children, neither running nor zombies.
func (p *player) hasNoChild() {
	p.t.Helper()
	last := "not asked"
	require.Eventually(p.t, func() bool {
		_, err := fmt.Fprintln(p.conn, "children")
		if err != nil || !p.lines.Scan() {
			last = fmt.Sprint("no answer: ", err, p.lines.Err())
			return false
		}
		last = p.lines.Text()
		return last == ""
	}, patience, time.Millisecond, "children stay")
	assert.Empty(p.t, last)
}

func (p *player) tell(order string) {
	p.t.Helper()
	_, err := fmt.Fprintln(p.conn, order)
	require.NoError(p.t, err)
}

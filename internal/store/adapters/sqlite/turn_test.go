package sqlite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

// holdTurn is a process that stands still in the middle of a write, until its input ends.
func holdTurn(path string, in io.Reader, out io.Writer) error {
	ctx := context.Background()
	s, err := Open(ctx, path, &Options{Name: "holder work"})
	if err != nil {
		return err
	}
	err = s.writer.do(ctx, load{}, func(t *txn) error {
		fmt.Fprintln(out, "holds")
		_, err := bufio.NewReader(in).ReadString('\n')
		if err == nil {
			_, err = t.enqueue(newJobs(1))
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.Close()
}

// seedAndStay adds jobs and keeps the store open until its input ends.
func seedAndStay(path string, in io.Reader, out io.Writer) error {
	ctx := context.Background()
	s, err := Open(ctx, path, nil)
	if err != nil {
		return err
	}
	if _, err := s.Enqueue(ctx, newJobs(20)); err != nil {
		return err
	}
	fmt.Fprintln(out, "added")
	_, err = io.Copy(io.Discard, in)
	return errors.Join(err, s.Close())
}

// stop stops the process, as a paused container is.
func (c *child) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, c.Process.Signal(syscall.SIGSTOP))
	stopped(t, c)
}

// D5: a stopped process that held the turn stopped every other one without limit and without a word.
func TestStoppedProcessWithTheTurnIsNamed(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, nil)
	enqueue(t, s, 1)
	c := start(t, "hold", path)
	require.True(t, c.out.Scan(), "the process holds the turn")
	c.stop(t)
	begin := time.Now()
	_, err := s.Enqueue(t.Context(), newJobs(1))
	require.ErrorIs(t, err, store.ErrUnavailable)
	assert.NotContains(t, err.Error(), "\n")
	host, hostErr := os.Hostname()
	require.NoError(t, hostErr)
	assert.Contains(t, err.Error(), fmt.Sprintf("process %d (holder work on %s) holds the turn to write for ", c.Process.Pid, host))
	assert.Contains(t, err.Error(), fmt.Sprintf("it is stopped: let it go on (kill -CONT %d) or end it (kill -9 %[1]d)", c.Process.Pid))
	assert.GreaterOrEqual(t, time.Since(begin), DefaultBusyTimeout)
	assertPageShows(t, err, c.Process.Pid, host)
	assert.Less(t, DefaultBusyTimeout, 30*time.Second/3, "a heartbeat of a lease by default is sooner answered than due again")

	assert.Equal(t, int64(1), countIn(t, s, store.Ready), "readers go on")
	other := openAt(t, path, nil)
	assert.Equal(t, int64(1), countIn(t, other, store.Ready), "a store that needs no migration opens")
	_, err = SchemaVersion(t.Context(), path)
	require.NoError(t, err)
	_, err = other.Examine(t.Context())
	require.NoError(t, err)
	require.NoError(t, other.Backup(t.Context(), path+".backup"))

	require.NoError(t, c.Process.Signal(syscall.SIGCONT))
	_, err = fmt.Fprintln(c.in)
	require.NoError(t, err)
	require.NoError(t, c.Wait())
	enqueue(t, s, 1)
	assert.Equal(t, int64(3), countIn(t, s, store.Ready), "what was refused was not added later")
}

// assertPageShows compares an error with the one in the guide, as commands print it: there it is broken into lines.
func assertPageShows(t *testing.T, err error, pid int, host string) {
	t.Helper()
	page, read := os.ReadFile("../../../../docs/guides/sqlite.md")
	require.NoError(t, read)
	said := strings.NewReplacer(strconv.Itoa(pid), "4711", "(holder work on "+host+")", "(jobq work on alpha)").Replace(strings.TrimPrefix(err.Error(), "jq: "))
	said = regexp.MustCompile(`for [0-9.]+s,`).ReplaceAllString(said, "for 12.3s,")
	blocks := strings.Split(strings.ReplaceAll(string(page), "\n", " "), " ``` ")
	assert.Contains(t, blocks, said)
}

// short is a wait that tests can sit out.
var short = &Options{BusyTimeout: 200 * time.Millisecond}

// D5: whoever has waited is answered, also those who came later, and heartbeats.
func TestEveryCallIsAnsweredBesideAStoppedProcess(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, short)
	enqueue(t, s, 1)
	jobs, err := s.FetchAndClaim(t.Context(), claimOf(1))
	require.NoError(t, err)
	c := start(t, "hold", path)
	require.True(t, c.out.Scan())
	c.stop(t)
	answers := make(chan error, 20)
	for range cap(answers) / 2 {
		go func() {
			_, err := s.Enqueue(t.Context(), newJobs(1))
			answers <- err
		}()
		go func() {
			_, err := s.Extend(t.Context(), []store.Lease{jobs[0].Lease()}, time.Minute)
			answers <- err
		}()
	}
	for range cap(answers) {
		select {
		case err := <-answers:
			assert.ErrorContains(t, err, "(holder work on ")
		case <-time.After(time.Minute):
			require.Fail(t, "a call waits without limit")
		}
	}
	require.NoError(t, c.Process.Signal(syscall.SIGKILL)) // also a stopped process is ended by that
	require.Error(t, c.Wait())
	enqueue(t, s, 1)
	assert.Equal(t, int64(1), countIn(t, s, store.Ready))
	intact(t, s)
}

// D5: a store that has to be made or migrated waits no longer than a call does.
func TestOpenBesideAStoppedProcessIsBounded(t *testing.T) {
	path := newPath(t)
	c := start(t, "hold", path)
	require.True(t, c.out.Scan())
	c.stop(t)
	require.NoError(t, os.Truncate(path+".lock", 129)) // which leaves no name, and no note of the file
	require.NoError(t, os.WriteFile(path+".lock", nil, 0o600))
	line, err := refused(t, path, short)
	assert.ErrorIs(t, err, store.ErrUnavailable)
	assert.Contains(t, line, fmt.Sprintf("process %d (", c.Process.Pid), "the system knows who it is")
	require.NoError(t, c.Process.Kill())
	require.Error(t, c.Wait())
	openAt(t, path, short)
}

// D5: a program that knows nothing of turns is named too.
func TestStrangerWithTheWriteLockIsNamed(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path, short)
	enqueue(t, s, 1)
	c := start(t, "sql", path)
	c.say(t, `BEGIN IMMEDIATE`)
	name := programOf(c.Process.Pid)
	require.NotEmpty(t, name)
	want := fmt.Sprintf("process %d (%s) holds the file's write lock, it may be stopped: ", c.Process.Pid, name)
	_, err := s.Enqueue(t.Context(), newJobs(1))
	require.ErrorIs(t, err, store.ErrUnavailable)
	assert.ErrorContains(t, err, want)

	// Another process that waits for the stranger has the turn meanwhile: it is not the one to blame.
	other := openAt(t, path, &Options{BusyTimeout: time.Minute})
	waits := make(chan error)
	go func() {
		_, err := other.Enqueue(t.Context(), newJobs(1))
		waits <- err
	}()
	until(t, "the other has the turn", other.turn.taken)
	_, err = s.Enqueue(t.Context(), newJobs(1))
	require.ErrorIs(t, err, store.ErrUnavailable)
	assert.ErrorContains(t, err, want)
	c.kill(t)
	require.NoError(t, <-waits)
	assert.Equal(t, int64(2), countIn(t, s, store.Ready))
}

// A caller's own transaction that stays open is named as such.
func TestOwnTransactionWithTheWriteLockIsNamed(t *testing.T) {
	s := openAt(t, newPath(t), short)
	tx := hold(t, s)
	_, err := s.Enqueue(t.Context(), newJobs(1))
	require.ErrorIs(t, err, store.ErrUnavailable)
	assert.ErrorContains(t, err, fmt.Sprintf("a transaction of this process (%d, ", os.Getpid()))
	require.NoError(t, tx.Rollback())
	enqueue(t, s, 1)
}

// Nothing that is written beside the store is taken for more than a name.
func TestHolderIsReadWithCare(t *testing.T) {
	path := newPath(t)
	for _, text := range []string{"", "\x00held", "\x00" + string(make([]byte, 600)), "\x00file \x1b[2J\nx"} {
		require.NoError(t, os.WriteFile(path+".lock", []byte(text), 0o600))
		lock := newTurn(path, "")
		pid, _, _ := lock.holder()
		assert.Zero(t, pid, "%q", text)
		assert.Contains(t, lock.blocker(), "another process holds the turn")
		assert.NotContains(t, lock.file(), "\x1b")
	}
	lock := newTurn(path, "name\n\x1b[2J"+string(make([]byte, 1000)))
	ok, err := lock.try()
	require.NoError(t, err)
	require.True(t, ok)
	pid, since, who := lock.holder()
	assert.Equal(t, os.Getpid(), pid)
	assert.WithinDuration(t, time.Now(), since, time.Minute)
	assert.Regexp(t, `^name\?\?\[2J\?+$`, who)
	require.NoError(t, lock.close())
}

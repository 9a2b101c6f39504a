package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/figures"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
)

const (
	shareRounds = 40
	shareBatch  = 10
)

// share is one of several processes on one file: once told to begin, it enqueues, claims and acks, and prints what it
// claimed, how long its slowest call took and how long all of it.
func share(path string, in io.Reader, out io.Writer) error {
	ctx := context.Background()
	s, err := Open(ctx, path, &Options{BusyTimeout: time.Minute}) // eight processes migrate at once; how long calls take is looked at below
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "open")
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return err
	}
	var slowest time.Duration
	timed := func(call func() error) error {
		at := time.Now()
		defer func() { slowest = max(slowest, time.Since(at)) }()
		return call()
	}
	begin := time.Now()
	for range shareRounds {
		var jobs []store.Job
		for _, call := range []func() error{
			func() error { _, err := s.Enqueue(ctx, newJobs(shareBatch)); return err },
			func() (err error) { jobs, err = s.FetchAndClaim(ctx, claimOf(shareBatch)); return err },
			func() error { _, err := s.Ack(ctx, acksOf(jobs)); return err },
		} {
			if err := timed(call); err != nil {
				return err
			}
		}
		for _, j := range jobs {
			fmt.Fprintln(out, "claimed", j.ID, j.Token)
		}
	}
	fmt.Fprintln(out, "slowest", slowest.Microseconds(), time.Since(begin).Microseconds())
	return s.Close()
}

func TestEightProcessesShareOneFile(t *testing.T) {
	const processes = 8
	path := newPath(t)
	children := make([]*child, processes)
	for i := range children {
		children[i] = start(t, "share", path) // all at once on a file that is not there yet
	}
	for _, c := range children {
		require.True(t, c.out.Scan(), "a process opened the store")
	}
	var mu sync.Mutex // guards what follows
	claimed := map[string]int{}
	var slowest, quickest, longest time.Duration
	var all sync.WaitGroup
	for _, c := range children {
		_, err := fmt.Fprintln(c.in)
		require.NoError(t, err)
		all.Go(func() {
			for c.out.Scan() {
				var us, total int64
				mu.Lock()
				if n, _ := fmt.Sscanf(c.out.Text(), "slowest %d %d", &us, &total); n == 2 {
					took := time.Duration(total) * time.Microsecond
					slowest, longest = max(slowest, time.Duration(us)*time.Microsecond), max(longest, took)
					if quickest == 0 || took < quickest {
						quickest = took
					}
				} else {
					claimed[c.out.Text()]++
				}
				mu.Unlock()
			}
			assert.NoError(t, c.Wait(), "no error reaches a caller")
		})
	}
	all.Wait()
	for line, times := range claimed {
		assert.Equal(t, 1, times, line)
	}
	s := openAt(t, path, nil)
	assert.Equal(t, int64(processes*shareRounds*shareBatch), countIn(t, s, store.Succeeded)+countIn(t, s, store.Ready), "none is lost")
	assert.Equal(t, int64(len(claimed)), countIn(t, s, store.Succeeded), "what was claimed was acked")
	intact(t, s)
	assert.Less(t, slowest, 5*time.Second)
	figures.Print(t, "%d processes on one file, %d jobs each: slowest call %v, done after %v (first) and %v (last)",
		processes, shareRounds*shareBatch, slowest.Round(time.Millisecond), quickest.Round(time.Millisecond), longest.Round(time.Millisecond))
}

// writeOn writes until it is killed, and says of each call that it was answered.
func writeOn(path string, _ io.Reader, out io.Writer) error {
	ctx := context.Background()
	s, err := Open(ctx, path, nil)
	if err != nil {
		return err
	}
	for {
		added, err := s.Enqueue(ctx, newJobs(1+rand.IntN(20)))
		if err != nil {
			return err
		}
		for _, e := range added {
			fmt.Fprintln(out, "ready", e.ID, 0)
		}
		jobs, err := s.FetchAndClaim(ctx, claimOf(1+rand.IntN(20)))
		if err != nil {
			return err
		}
		for _, j := range jobs {
			fmt.Fprintln(out, "in_flight", j.ID, j.Token)
		}
		outcomes, err := s.Ack(ctx, acksOf(jobs))
		if err != nil {
			return err
		}
		for _, o := range outcomes {
			fmt.Fprintln(out, "succeeded", o.ID, o.Token)
		}
	}
}

// A ledger is what a process was answered: the furthest that each job has come.
type ledger map[int64]store.Job

var rank = map[store.State]int{store.Ready: 0, store.InFlight: 1, store.Succeeded: 2}

func (l ledger) note(t *testing.T, line string) {
	t.Helper()
	var j store.Job
	_, err := fmt.Sscan(line, &j.State, &j.ID, &j.Token)
	require.NoError(t, err, line)
	if known, ok := l[j.ID]; !ok || rank[j.State] > rank[known.State] {
		l[j.ID] = j
	}
}

// check finds every acknowledged job where it was acknowledged to be, or further on its way.
func (l ledger) check(t *testing.T, s *Store) {
	t.Helper()
	found := ledger{}
	filter := store.Filter{}
	for page := (store.Page{Limit: store.MaxItems}); ; {
		part, err := s.List(t.Context(), filter, page)
		require.NoError(t, err)
		for _, j := range part.Jobs {
			found[j.ID] = j
		}
		if page.Cursor = part.Next; page.Cursor == "" {
			break
		}
	}
	for id, want := range l {
		got, there := found[id]
		require.True(t, there, "job %d was acknowledged as %s, and is not there", id, want.State)
		require.GreaterOrEqual(t, rank[got.State], rank[want.State], "job %d was acknowledged as %s, and is %s", id, want.State, got.State)
		require.GreaterOrEqual(t, got.Token, want.Token, "the token of job %d", id)
	}
}

// readSome reads a random number of answers.
func (c *child) readSome(t *testing.T, into ledger, most int) {
	t.Helper()
	for range 1 + rand.IntN(most) {
		if !c.out.Scan() {
			return
		}
		into.note(t, c.out.Text())
	}
}

func TestKilledProcessLosesNothingAcknowledged(t *testing.T) {
	kills := 50
	if race.Enabled {
		kills = 15
	}
	path := newPath(t)
	acknowledged := ledger{}
	for range kills {
		c := start(t, "write", path)
		c.readSome(t, acknowledged, 200)
		require.NoError(t, c.Process.Signal(syscall.SIGKILL))
		for c.out.Scan() { // what it had written before it died was acknowledged too
			acknowledged.note(t, c.out.Text())
		}
		require.Error(t, c.Wait())
	}
	s := openAt(t, path, nil)
	intact(t, s)
	acknowledged.check(t, s)
	figures.Print(t, "%d processes killed in the middle of writing, %d acknowledged jobs, 0 lost", kills, len(acknowledged))
	figures.Count(t, "kills", kills)
	figures.Count(t, "jobs", len(acknowledged))
}

func TestCopyOfAnyMomentIsSound(t *testing.T) {
	copies := 20
	if race.Enabled {
		copies = 5
	}
	path, folder := newPath(t), t.TempDir()
	c := start(t, "write", path)
	acknowledged := ledger{}
	for i := range copies {
		c.readSome(t, acknowledged, 2000)
		require.NoError(t, c.Process.Signal(syscall.SIGSTOP))
		stopped(t, c)
		whole, torn := filepath.Join(folder, fmt.Sprint(i, "-whole")), filepath.Join(folder, fmt.Sprint(i, "-torn"))
		for _, to := range []string{whole, torn} {
			copyFile(t, path, to)
			copyFile(t, path+"-wal", to+"-wal")
		}
		require.NoError(t, c.Process.Signal(syscall.SIGCONT))

		s := openAt(t, whole, nil)
		intact(t, s)
		acknowledged.check(t, s)

		// A loss of power may leave any part of what was being appended.
		size, err := os.Stat(torn + "-wal")
		require.NoError(t, err)
		require.NoError(t, os.Truncate(torn+"-wal", rand.Int64N(size.Size()+1)))
		intact(t, openAt(t, torn, nil))
	}
	require.NoError(t, c.Process.Kill())
	require.Error(t, c.Wait())
	figures.Print(t, "%d copies of a file in use, and %d with a torn log: all sound", copies, copies)
	figures.Count(t, "copies", 2*copies)
}

// stopped waits until the process stands still.
func stopped(t *testing.T, c *child) {
	t.Helper()
	var status syscall.WaitStatus
	_, err := syscall.Wait4(c.Process.Pid, &status, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, status.Stopped(), "the process was stopped")
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, content, 0o600))
}

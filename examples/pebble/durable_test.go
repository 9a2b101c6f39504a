package jqpebble

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/kv"
)

// childPath names the folder in the environment of the child.
const childPath = "JQPEBBLE_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		enqueueForEver(path)
	}
	os.Exit(m.Run())
}

// enqueueForEver prints the id and payload of each job that was answered, until somebody kills the process.
func enqueueForEver(path string) {
	s, err := Open(context.Background(), path, nil)
	if err != nil {
		panic(err)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				lines, err := enqueue(context.Background(), s, fmt.Sprintf("%d-%d-%d", os.Getpid(), g, n))
				if err != nil {
					panic(err)
				}
				if _, err := os.Stdout.WriteString(lines); err != nil {
					panic(err)
				}
			}
		})
	}
	wg.Wait()
}

// enqueue adds one to three jobs, and returns a line for each.
func enqueue(ctx context.Context, s contract.Store, name string) (lines string, err error) {
	var req contract.EnqueueRequest
	for i := range 1 + rand.IntN(3) {
		req.Jobs = append(req.Jobs, contract.NewJob{Queue: "q", Kind: "k", Payload: fmt.Appendf(nil, `"%s-%d"`, name, i)})
	}
	added, err := s.Enqueue(ctx, req)
	for i, a := range added {
		lines += fmt.Sprintf("%d %s\n", a.ID, req.Jobs[i].Payload)
	}
	return lines, err
}

func TestKilledProcessLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs")
	var answered []string
	for round := range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		child := exec.CommandContext(ctx, os.Args[0])
		child.Env = append(os.Environ(), childPath+"="+path)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		killAt := len(answered) + 100 + rand.IntN(2000)
		lines := bufio.NewScanner(out)
		for lines.Scan() { // also reads what was printed before the kill took effect
			if answered = append(answered, lines.Text()); len(answered) == killAt {
				require.NoError(t, child.Process.Signal(syscall.SIGKILL))
			}
		}
		require.EqualError(t, child.Wait(), "signal: killed")
		require.NoError(t, ctx.Err(), "the child prints too little")
		cancel()

		s, err := Open(t.Context(), path, nil)
		require.NoError(t, err)
		requireKept(t, s, answered)
		t.Logf("after kill %d: all of %d jobs are there", round+1, len(answered))
		require.NoError(t, s.Close())
	}
}

// requireKept looks up each line, and checks that a new job gets a greater id.
func requireKept(t *testing.T, s contract.Store, lines []string) {
	t.Helper()
	var last int64
	for _, line := range lines {
		var id int64
		var payload string
		_, err := fmt.Sscan(line, &id, &payload)
		require.NoError(t, err, line)
		j, err := s.Get(t.Context(), id)
		require.NoError(t, err, line)
		require.Equal(t, payload, string(j.Payload))
		last = max(last, id)
	}
	added, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{{Queue: "after", Kind: "k", Payload: []byte(`1`)}}})
	require.NoError(t, err)
	require.Greater(t, added[0].ID, last)
}

// The file system keeps only what was synced, and a random part of the rest. What a caller was told, also by Get, must be there.
func TestLostPowerLosesNothing(t *testing.T) {
	for round := range 20 {
		fs := vfs.NewCrashableMem()
		s := openOn(t, fs)
		var mu sync.Mutex
		var answered []string
		var after *vfs.MemFS
		stop := load(t, s, 8, 5+rand.IntN(200), func(lines string) {
			mu.Lock()
			defer mu.Unlock()
			if after == nil {
				answered = append(answered, strings.Split(strings.TrimSpace(lines), "\n")...)
			}
		})
		mu.Lock()
		after = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, uint64(round)))})
		mu.Unlock()
		stop()
		require.NoError(t, s.Close())

		again := openOn(t, after)
		requireKept(t, again, answered)
		assert.NoError(t, again.Close())
	}
}

// What a look shows is still there after the power was lost, also if the call that wrote it has not returned.
func TestNobodySeesWhatACrashUndoes(t *testing.T) {
	for round := range 50 {
		fs := vfs.NewCrashableMem()
		s := openOn(t, fs)
		stop := load(t, s, 4, 1+rand.IntN(30), func(string) {})
		seen, err := s.List(t.Context(), contract.Filter{}, contract.Page{Limit: 1000})
		require.NoError(t, err)
		after := fs.CrashClone(vfs.CrashCloneCfg{RNG: rand.New(rand.NewPCG(2, uint64(round)))})
		stop()
		require.NoError(t, s.Close())

		again := openOn(t, after)
		for _, j := range seen.Jobs {
			_, err := again.Get(t.Context(), j.ID)
			require.NoError(t, err)
		}
		assert.NoError(t, again.Close())
	}
}

// load enqueues from so many goroutines at once, until stop is called. It returns after so many calls were answered.
func load(t *testing.T, s contract.Store, callers, calls int, answered func(lines string)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	some := make(chan struct{})
	var all sync.WaitGroup
	for g := range callers {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				lines, err := enqueue(ctx, s, fmt.Sprintf("%d-%d", g, n))
				if err != nil {
					continue // the last one is cancelled
				}
				answered(lines)
				select {
				case some <- struct{}{}:
				case <-ctx.Done():
				default: // enough were counted
				}
			}
		})
	}
	late := time.After(time.Minute)
	for range calls {
		select {
		case <-some:
		case <-late:
			t.Fatal("the store answers too little")
		}
	}
	return func() {
		cancel()
		all.Wait()
	}
}

func openOn(t *testing.T, fs vfs.FS) *kv.Store {
	e, err := openEngine("jobs", fs, slog.Default())
	require.NoError(t, err)
	s, err := kv.Open(t.Context(), e, nil)
	require.NoError(t, err)
	return s
}

//go:build unix

package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The layers of the module in testdata.
var (
	storm = layer{"a storm", ".", "^TestStorm$", "kills", 6, true, "JQ_TOY=a strong wind", ""}
	empty = layer{"an empty one", ".", "^TestEmpty$", runs, 1, false, "", ""}
	slow  = layer{"a slow one", ".", "^TestSlow$", "kills", 2, false, "", ""}
)

// toy is a copy of the module in testdata.
func toy(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.CopyFS(root, os.DirFS("testdata/toy")))
	return root
}

// chaos runs the command to its end.
func chaos(t *testing.T, root string, layers []layer, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out strings.Builder
	err := run(ctx, ctx, layers, append([]string{"-root", root}, args...), &out)
	return out.String(), err
}

// kept is the sums that are kept.
func kept(t *testing.T, root string) state {
	t.Helper()
	s, err := readState(filepath.Join(root, ".cache", "chaos", "sums.json"))
	require.NoError(t, err)
	return s
}

func TestRunsGoOnUntilTheGoalIsReached(t *testing.T) {
	root := toy(t)
	printed, err := chaos(t, root, []layer{storm, empty}, "-share", "0.5")
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"kills": 3, runs: 1}, kept(t, root).of(storm).Counts)
	assert.Regexp(t, `(?m)^\| a storm \| 3 kills in 1 runs, \d+s \| nothing \| 0 \| .make chaos FLAGS="-layers 'a storm'". \|$`, printed)
	assert.Contains(t, printed, "by revision: 2 of unknown.")

	_, err = chaos(t, root, []layer{storm, empty})
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"kills": 6, runs: 2}, kept(t, root).of(storm).Counts, "what was there is added to")
	assert.Equal(t, map[string]int{runs: 1}, kept(t, root).of(empty).Counts, "a goal that is reached is left alone")

	printed, err = chaos(t, root, []layer{storm, empty}, "-share", "2", "-for", "0s")
	require.NoError(t, err)
	assert.Contains(t, printed, "time is up")
	assert.Equal(t, 2, kept(t, root).of(storm).Counts[runs])
}

func TestSumsNameEachRevision(t *testing.T) {
	s := &sum{Counts: map[string]int{}}
	at := time.Date(2030, 1, 2, 3, 4, 0, 0, time.UTC)
	for i, rev := range []string{"a", "a", "b", "a"} {
		s.add(rev, map[string]int{"kills": 5}, at.Add(time.Duration(i)*time.Hour), at.Add(time.Duration(i)*time.Hour+time.Minute))
	}
	assert.Equal(t, map[string]int{"kills": 20, runs: 4}, s.Counts)
	assert.Equal(t, 4*time.Minute, s.Took)
	assert.Equal(t, "Runs from 2030-01-02 03:04 to 2030-01-02 06:05, by revision: 3 of a, 1 of b.", period([]*sum{s}))
}

func TestFailedRunIsKeptWithItsSeed(t *testing.T) {
	root := toy(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, "faulty"), nil, 0o600))
	printed, err := chaos(t, root, []layer{storm})
	require.ErrorIs(t, err, errFound)
	seed := regexp.MustCompile(`JQ_CHAOS_SEED=(\d+) JQ_TOY='a strong wind' go -C \. test `).FindStringSubmatch(err.Error())
	require.NotNil(t, seed, err.Error())
	failures := kept(t, root).of(storm).Failures
	require.Len(t, failures, 1, "the first failure ends it")
	log, err := os.ReadFile(filepath.Join(root, ".cache", "chaos", failures[0].Log))
	require.NoError(t, err)
	assert.Contains(t, string(log), "the seed is "+seed[1])
	assert.Contains(t, string(log), "with a strong wind")
	assert.Contains(t, string(log), "job 7 is lost")
	assert.Contains(t, printed, "| failed: 1 ("+failures[0].Log+" at unknown) | 1 |")

	require.NoError(t, os.Remove(filepath.Join(root, "faulty")))
	printed, err = chaos(t, root, []layer{storm})
	require.NoError(t, err)
	assert.Contains(t, printed, "failed: 1", "what was found stays in the sums")
}

func TestRunThatTriesNothingFails(t *testing.T) {
	root := toy(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, "empty"), nil, 0o600))
	_, err := chaos(t, root, []layer{empty})
	require.ErrorIs(t, err, errFound)
	assert.ErrorContains(t, err, "the disk is missing")
}

// What a layer needs may be missing on this machine. Its absence is said, and the other layers run.
func TestLayerThatLacksItsProgramsIsLeftOut(t *testing.T) {
	const variable = "JQ_TOY_PROGRAMS"
	needy := empty
	needy.name, needy.needs = "a needy one", variable
	root := toy(t)
	t.Setenv(variable, "")
	printed, err := chaos(t, root, []layer{needy, empty})
	require.NoError(t, err)
	assert.Contains(t, printed, "left out: a needy one, because "+variable+" is not set\n")
	assert.Equal(t, 0, kept(t, root).of(needy).Counts[runs])
	assert.Equal(t, 1, kept(t, root).of(empty).Counts[runs])

	t.Setenv(variable, root)
	printed, err = chaos(t, root, []layer{needy, empty})
	require.NoError(t, err)
	assert.NotContains(t, printed, "left out")
	assert.Equal(t, 1, kept(t, root).of(needy).Counts[runs])
}

// TestSignals ends the command while a run is under way: gently, which lets the run end, and at once, which forgets it.
func TestSignals(t *testing.T) {
	root := toy(t)
	for _, name := range []string{"pipe", "other"} {
		require.NoError(t, syscall.Mkfifo(filepath.Join(root, name), 0o600))
	}
	for _, k := range []struct {
		claim  string
		gently bool
		kills  int
	}{
		{"BrokenOffRunDoesNotCount", false, 0},
		{"RunUnderWayEnds", true, 1},
	} {
		t.Run(k.claim, func(t *testing.T) {
			now, kill := context.WithCancel(t.Context())
			soon, stop := context.WithCancel(now)
			ended := make(chan error, 1)
			var out strings.Builder
			go func() { ended <- run(now, soon, []layer{slow}, []string{"-root", root}, &out) }()
			under, err := os.Open(filepath.Join(root, "pipe")) // as soon as the test has begun
			require.NoError(t, err)
			defer func() { _ = under.Close() }()
			stop()
			if k.gently {
				require.NoError(t, os.WriteFile(filepath.Join(root, "other"), nil, 0o600))
			} else {
				kill()
			}
			select {
			case err = <-ended:
			case <-time.After(time.Minute):
				require.Fail(t, "the command does not end")
			}
			kill()
			assert.Equal(t, k.gently, err == nil, "%v", err)
			assert.Equal(t, k.kills, kept(t, root).of(slow).Counts["kills"])
		})
	}
}

// Each layer names tests that there are.
func TestLayersHaveTests(t *testing.T) {
	for _, l := range layers {
		pattern, err := regexp.Compile(l.tests)
		require.NoError(t, err)
		files, err := filepath.Glob(filepath.Join("../../../..", l.folder, "*_test.go"))
		require.NoError(t, err)
		found := false
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, test := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllStringSubmatch(string(source), -1) {
				found = found || pattern.MatchString(test[1])
			}
		}
		assert.True(t, found, "%s: %s has no test %s", l.name, l.folder, l.tests)
	}
}

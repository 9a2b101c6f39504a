package main

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// toy is a copy of the module in testdata.
func toy(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.CopyFS(root, os.DirFS("testdata/toy")))
	return root
}

// mutate runs the command, and returns what it printed and the mutants that are known now, by line and kind.
func mutate(t *testing.T, root string, args ...string) (string, map[string]string) {
	t.Helper()
	var printed strings.Builder
	kept := filepath.Join(t.TempDir(), "found.json")
	args = append([]string{"-root", root, "-packages", ".", "-n", "1000", "-grace", "3s", "-json", kept}, args...)
	require.NoError(t, run(t.Context(), args, &printed), printed.String())
	_, err := os.Stat(kept)
	require.NoError(t, err)
	states, err := filepath.Glob(filepath.Join(root, ".cache", "mutants", "*-seed-*.json"))
	require.NoError(t, err)
	found := map[string]string{}
	for _, path := range states {
		s, err := readState(path)
		require.NoError(t, err)
		for _, r := range s.Results {
			found[r.Kind+": "+cmp.Or(r.Is, r.Was)] = r.Outcome
		}
	}
	return printed.String(), found
}

func TestMutantsOfTheToy(t *testing.T) {
	root := toy(t)
	before, err := sumOf(root, ".")
	require.NoError(t, err)
	printed, found := mutate(t, root)
	want := map[string]string{
		"swap + and -: func Sum(a, b int) int { return a - b }":           killed,
		"move a boundary: func Adult(age int) bool { return age > 18 }":   survived,
		"be off by one: func Adult(age int) bool { return age >= 19 }":    survived,
		"move a boundary: for n >= 0 {":                                   survived,
		"swap ++ and --: n++":                                             hung,
		"move a boundary: if a >= b {":                                    equivalent,
		"negate a condition: if !(a > b) {":                               killed,
		"swap && and ||: func Untested(a, b bool) bool { return a || b }": unreached,
		"return no error: return 0, nil":                                  killed,
		"be off by one: return all[1], nil":                               killed,
		"swap ++ and --: c.n--":                                           killed,
		"remove a lock: c.mu.Lock()":                                      survived,
		"remove a lock: g.mu.Lock()":                                      killed,
		"remove a defer: defer c.mu.Unlock()":                             killed,
		"change a duration: const Patience = 3 * time.Minute":             killed,
		"be off by one: const Patience = 4 * time.Second":                 survived,
	}
	for mutant, outcome := range want {
		assert.Equal(t, outcome, found[mutant], mutant)
	}
	assert.Contains(t, printed, "toy.go:19: survived: move a boundary\n\t- func Adult(age int) bool { return age >= 18 }\n\t+ func Adult(age int) bool { return age > 18 }")
	after, err := sumOf(root, ".")
	require.NoError(t, err)
	assert.Equal(t, before, after, "the sources")

	printed, again := mutate(t, root)
	assert.Equal(t, found, again)
	assert.NotContains(t, printed, "killed     ", "what is known is not tried again")
}

func TestTimeIsUp(t *testing.T) {
	root := toy(t)
	printed, found := mutate(t, root, "-for", "0s")
	assert.Contains(t, printed, "time is up")
	assert.Empty(t, found)
}

func TestSeedDraws(t *testing.T) {
	s := &session{options: options{root: toy(t), seed: 1}}
	order := func(seed uint64) (kinds []string) {
		s.seed = seed
		l, err := s.line(t.Context(), target{".", []string{"."}})
		require.NoError(t, err)
		for _, m := range l.left {
			kinds = append(kinds, m.id())
		}
		return kinds
	}
	first, again, other := order(1), order(1), order(2)
	assert.Equal(t, first, again)
	assert.NotEqual(t, first, other)
	assert.ElementsMatch(t, first, other)
}

func TestLockIsLeftOutAsAWhole(t *testing.T) {
	source, err := os.ReadFile("testdata/toy/toy.go")
	require.NoError(t, err)
	found, err := find("toy.go", source)
	require.NoError(t, err)
	n := 0
	for _, m := range found {
		if m.Kind == "remove a lock" {
			n++
			before, after := strings.Count(string(source), ".mu."), strings.Count(string(m.apply(source)), ".mu.")
			assert.Equal(t, 2, before-after)
		}
	}
	assert.Equal(t, 2, n)
}

func TestSubtestsAreFoundByTheNextElement(t *testing.T) {
	const output = "=== RUN   TestA\n=== RUN   TestA/Cases\n=== RUN   TestA/Cases/Tx/One\n=== PAUSE TestA/Cases/Tx/One\n" +
		"=== RUN   TestA/Cases/Tx/Two\n=== RUN   TestA/Cases/Save/One\n"
	assert.Equal(t, []string{"TestA/Cases"}, subtests("TestA", []byte(output)))
	assert.Equal(t, []string{"TestA/Cases/Tx", "TestA/Cases/Save"}, subtests("TestA/Cases", []byte(output)))
	assert.Equal(t, "^TestA$/^Cases$/^Tx$", unit{Name: "TestA/Cases/Tx"}.pattern())
}

func TestFaultsInSQL(t *testing.T) {
	const query = "package p\n\nconst q = `\n\tSELECT id\n\tFROM jobs\n\tWHERE at <= $1 AND done IS NULL\n\tORDER BY at DESC\n\tFOR UPDATE SKIP LOCKED`\n"
	found, err := find("q.go", []byte(query))
	require.NoError(t, err)
	var lines []string
	for _, m := range found {
		assert.True(t, m.outside)
		lines = append(lines, m.Is)
	}
	assert.ElementsMatch(t, []string{
		"WHERE at < $1 AND done IS NULL", "WHERE at <= $1 OR done IS NULL", "WHERE at <= $1 AND done IS NOT NULL",
		"ORDER BY at", "`", "FOR UPDATE`",
	}, lines)
}

// What is excused must be there, or the file would grow for ever.
func TestExcusesAreOfMutantsThatThereAre(t *testing.T) {
	all, err := readExcuses("equivalent.txt")
	require.NoError(t, err)
	for _, e := range all {
		source, err := os.ReadFile(filepath.Join("..", "..", e.file))
		require.NoError(t, err)
		found, err := find(e.file, source)
		require.NoError(t, err)
		there := false
		for _, m := range found {
			there = there || e.covers(m)
		}
		assert.True(t, there, "%s: %s", e.file, e.is)
		assert.NotEmpty(t, e.why)
	}
}

func TestFileOfExcusesMustBeWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "equivalent.txt")
	require.NoError(t, os.WriteFile(path, []byte("a.go\n- x\n+ y\n"), 0o600))
	_, err := readExcuses(path)
	assert.ErrorContains(t, err, "want the file")
}

func TestReportCanBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	s := state{path: path, Results: map[string]result{"a": {mutation: mutation{File: "x.go", Line: 3}, Outcome: survived}}}
	require.NoError(t, s.write())
	again, err := readState(path)
	require.NoError(t, err)
	assert.Equal(t, s, again)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, json.Valid(text))
}

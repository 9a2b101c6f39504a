package race_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	selection = regexp.MustCompile(`(?:-run |longer=|later=|slow=|forms=)'(\^[^']*(?:Test|Fuzz)[^']*)'`)
	test      = regexp.MustCompile(`^(Test|Fuzz)\w+`)
)

// The second lane runs these without the detector, whole but for cases of the suite.
var whole = regexp.MustCompile(`(^|/)(chaos|tikv)/`)

// A test that asks for the detector leaves work to a pass without it. One of the lanes must select it there by its name, or nothing
// does that work.
func TestWhatIsLeftOutUnderTheDetectorRunsWithoutIt(t *testing.T) {
	var lanes []*regexp.Regexp
	for _, script := range []string{"test", "test-all", "passes"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "scripts", script))
		require.NoError(t, err)
		for _, run := range selection.FindAllStringSubmatch(string(text), -1) {
			lanes = append(lanes, regexp.MustCompile(run[1]))
		}
	}
	found := 0
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") || whole.MatchString(filepath.ToSlash(path)) {
			return err
		}
		source, err := os.ReadFile(path)
		for function := range strings.SplitSeq(string(source), "\nfunc ") {
			name := test.FindString(function)
			if name == "" || !strings.Contains(function, "race."+"Enabled") {
				continue
			}
			found++
			selected := slices.ContainsFunc(lanes, func(lane *regexp.Regexp) bool { return lane.MatchString(name) })
			assert.True(t, selected, "%s of %s is left out or shortened under the race detector, and no lane selects it in another pass", name, path)
		}
		return err
	})
	require.NoError(t, err)
	assert.Greater(t, found, 10, "tests that ask for the detector")
}

package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
)

// opened is what a kind was asked to open.
type opened struct {
	url     string
	options Options
}

// clay is a kind of store that keeps its jobs in memory, and notes what it opens.
func clay(notes *[]opened) Kind {
	return Kind{
		Name: "clay", Schemes: []string{"clay", "clays"}, Form: "clay://HOST/NAME", Flags: "[?ca=FILE]",
		Check: func(url string) error {
			if !strings.Contains(url, "/jobs") {
				return errors.New("it must end with /jobs")
			}
			return nil
		},
		Open: func(_ context.Context, url string, o Options) (jq.Store, error) {
			*notes = append(*notes, opened{url, o})
			if o.NoMigrate {
				return nil, errors.New("jq: there is none yet")
			}
			return jq.NewMemory(nil), nil
		},
		Backup: "copy it by hand", Restore: "write it by hand",
	}
}

// runWith runs a command of a program that has the kinds, and returns its exit code and both outputs.
func runWith(t *testing.T, all []Kind, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), append([]string{"jobq"}, args...), quiet(&out, &err), all...)
	return code, out.String(), err.String()
}

// A main adds a kind of store: help names it, commands open it with what their flags say, and those that do not fit say what to do instead. No
// output has the password.
func TestAddedKind(t *testing.T) {
	const url, shown = "CLAY://me:SECRET@a:1,b:2/jobs?ca=SECRET", "clay://me@a:1,b:2/jobs"
	for name, k := range map[string]struct {
		args           []string
		code           int
		stdout, stderr string
		opens          int
	}{
		"it is opened to write": {
			[]string{"enqueue", "mail", "--store", url}, exitOK, "added job 1 to queue default\n", "", 1,
		},
		"it is not created to read": {
			[]string{"stats", "--store", url}, exitFailed, "", "jobq stats: " + shown + ": there is none yet\n", 1,
		},
		"doctor looks for no schema": {
			[]string{"doctor", "--store", url}, exitFailed, "", "jobq doctor: " + shown + ": there is none yet\n", 1,
		},
		"migrate up creates it": {
			[]string{"migrate", "up", "--store", url}, exitOK, shown + " is there; a store on clay has no schema to migrate\n", "", 1,
		},
		"migrate status has nothing to show": {
			[]string{"migrate", "status", "--store", url}, exitFailed, "",
			"jobq migrate status: " + shown + " has no schema: each program checks the layout of its keys when it opens the store\n", 0,
		},
		"backup": {
			[]string{"backup", "x.db", "--store", url}, exitFailed, "", "jobq backup: this command cannot back up a store on clay: copy it by hand\n", 0,
		},
		"restore": {
			[]string{"restore", "x.db", "--store", url}, exitFailed, "", "jobq restore: this command cannot restore a store on clay: write it by hand\n", 0,
		},
		"conformance": {
			[]string{"conformance", "--store", url}, exitFailed, "",
			"jobq conformance: this command does not run the suite on clay: the tests of its module do\n", 0,
		},
		"a wrong URL": {
			[]string{"stats", "--store", "clays://me:SECRET@a"}, exitUsage, "",
			"jobq stats: --store: not the URL of a store on clay: it must end with /jobs; want clay://HOST/NAME; see jobq stats --help\n", 0,
		},
		"another kind": {
			[]string{"stats", "--store", "mud://me:SECRET@a"}, exitUsage, "",
			"jobq stats: --store: unknown kind of store \"mud\": want memory:, sqlite:PATH, postgres://USER@HOST/DATABASE or clay://HOST/NAME; see jobq stats --help\n", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var notes []opened
			code, stdout, stderr := runWith(t, []Kind{clay(&notes)}, k.args...)
			assert.Equal(t, k.code, code)
			assert.Equal(t, k.stdout, stdout)
			assert.Equal(t, k.stderr, stderr)
			require.Len(t, notes, k.opens)
			if k.opens > 0 {
				assert.Equal(t, url, notes[0].url)
			}
		})
	}
}

func TestAddedKindInHelp(t *testing.T) {
	var notes []opened
	_, with, _ := runWith(t, []Kind{clay(&notes)}, "help")
	assert.Contains(t, with, "max_conns=N],\n")
	assert.Contains(t, with, "or clay://HOST/NAME[?ca=FILE] (env JQ_STORE, DATABASE_URL)")
	_, without, _ := runWith(t, nil, "help")
	assert.NotContains(t, without, "clay")
}

// What the flags of a command say reaches the store.
func TestAddedKindGetsTheFlags(t *testing.T) {
	var notes []opened
	code, _, stderr := runWith(t, []Kind{clay(&notes)}, "serve", "--store", "clay://a/jobs", "--max-lease", "7m", "--no-migrate")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "there is none yet")
	require.Len(t, notes, 1)
	assert.Equal(t, 7*time.Minute, notes[0].options.MaxLease)
	assert.True(t, notes[0].options.NoMigrate)
	assert.NotNil(t, notes[0].options.Logger)
}

// A program without the kind names the program that has it.
func TestKindOfAnotherProgram(t *testing.T) {
	for scheme, program := range elsewhere {
		code, stdout, stderr := runWith(t, nil, "stats", "--store", scheme+"://me:SECRET@a:1/jobs")
		assert.Equal(t, exitUsage, code)
		assert.Empty(t, stdout)
		assert.Equal(t, "jobq stats: --store: this program opens no "+scheme+": URLs, but another one does: "+
			"go install "+program+"@latest; see jobq stats --help\n", stderr)

		own := Kind{Name: "own", Schemes: []string{scheme}, Form: "own:", Check: func(string) error { return nil }, Open: clay(new([]opened)).Open}
		code, stdout, stderr = runWith(t, []Kind{own}, "enqueue", "mail", "--store", scheme+"://a/jobs")
		assert.Equal(t, exitOK, code, stderr)
		assert.Equal(t, "added job 1 to queue default\n", stdout)
	}
}

// What is shown of a URL has no password and no parameter.
func TestURLsWithoutSecrets(t *testing.T) {
	for text, want := range map[string]string{
		"etcd://a:1,b:2/jobs":                     "etcd://a:1,b:2/jobs",
		"ETCDS://me:SECRET@a:1/jobs?key=SECRET":   "etcds://me@a:1/jobs",
		"etcd://me:SEC@RET@a:1/jobs":              "etcd://me@a:1/jobs",
		"etcd://me@a:1/jobs/more":                 "etcd://me@a:1/jobs/more",
		"etcd://:SECRET@a:1":                      "etcd://@a:1",
		"etcds://me:SECRET@a:1/a%2Fb?ca=x&key=/y": "etcds://me@a:1/a%2Fb",
	} {
		assert.Equal(t, want, withoutSecrets(text), text)
	}
}

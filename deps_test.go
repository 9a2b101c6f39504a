package jq_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/seed-ed332417/jq"

// A rule keeps a package from what it must not import. A path that ends in "..." means everything below it as well.
type rule struct {
	pkg    string // of this module, "" being the root
	not    string // of this module if it begins with "./", else any import path
	deep   bool   // also by way of others
	reason string
}

var importRules = []rule{
	{"...", "unsafe", false, "tests run without the checks of unsafe pointers: see scripts/passes"},
	{"internal/store", "./...", true, "the contract stands on nothing of ours"},
	{"internal/store", "github.com/...", true, "an adapter's author needs the contract without anybody's library"},
	{"internal/store/adapters/...", "./internal/conformance/...", true, "a store does not know how it is proved"},
	{"internal/store/adapters/...", "./internal/server/...", true, "a store does not know who uses it"},
	{"internal/store/adapters/...", "./", true, "a store is below the library"},
	{"internal/store/adapters/memory", "./internal/store/adapters/...", true, "adapters do not see each other"},
	{"internal/store/adapters/sqlite", "./internal/store/adapters/...", true, "adapters do not see each other"},
	{"internal/store/adapters/postgres/...", "./internal/store/adapters/memory/...", true, "adapters do not see each other"},
	{"internal/store/adapters/postgres/...", "./internal/store/adapters/remote/...", true, "adapters do not see each other"},
	{"internal/store/adapters/postgres/...", "./internal/store/adapters/sqlite/...", true, "adapters do not see each other"},
	{"internal/store/adapters/postgres/cursor", "database/sql", false, "where claims begin is decided without SQL"},
	{"internal/store/adapters/postgres/cursor", "context", false, "where claims begin is decided at once"},
	{"internal/store/adapters/memory", "./internal/store/sqlkit", true, "memory has no rows"},
	{"internal/store/sqlkit", "./internal/store/adapters/...", true, "what adapters share knows none of them"},
	{"internal/store/sqlkit", "modernc.org/...", true, "what adapters share knows no dialect"},
	{"internal/store/sqlkit", "github.com/lib/pq", true, "what adapters share knows no dialect"},
	{"internal/store/bykey", "./internal/store/adapters/...", true, "what adapters share knows none of them"},
	{"internal/store/bykey", "./internal/store/sqlkit", true, "jobs are chosen without SQL: the kit does so too"},
	{"internal/store/bykey", "context", false, "jobs are chosen at once"},
	{"internal/store/wake", "./internal/store/adapters/...", true, "what adapters share knows none of them"},
	{"internal/store/wake", "./internal/store/sqlkit", true, "wake-ups are no rows: the store in memory has them too"},
	{"internal/store/wake", "github.com/jmoiron/...", true, "wake-ups are no rows: the store in memory has them too"},
	{"internal/conformance", "./internal/store/adapters/...", true, "the suite knows no adapter"},
	{"internal/conformance/model", "./internal/store/adapters/...", true, "the model is a second reading of the contract, not a copy of the first"},
	{"internal/conformance", "pgregory.net/rapid", true, "it registers flags where it is linked"},
	{"contract", "./", true, "a store is below the library: its author needs none of it"},
	{"contract", "./internal/store/adapters/...", true, "the contract stands on no adapter"},
	{"contract", "./internal/server/...", true, "a store does not know who uses it"},
	{"kv", "./", true, "a store is below the library"},
	{"kv", "./internal/store/adapters/...", true, "the kit stands on the contract, as stores outside do"},
	{"kv", "./internal/store/sqlkit", true, "the kit has no SQL"},
	{"kv", "./internal/conformance/...", true, "a store does not know how it is proved"},
	{"kv", "testing", true, "what applications import links no testing"},
	{"contract", "testing", true, "what applications import links no testing"},
	{"", "testing", true, "what applications import links no testing"},
	{"", "github.com/lib/pq", true, "the doors link drivers, the root does not"},
	{"", "modernc.org/...", true, "the doors link drivers, the root does not"},
	{"", "./internal/store/adapters/sqlite", true, "the doors open stores on disk, the root does not"},
	{"", "./internal/store/adapters/postgres", true, "the doors open stores on servers, the root does not"},
	{"", "github.com/prometheus/...", true, "metrics are linked by whoever wants them: jqprom"},
	{"", "go.opentelemetry.io/...", true, "traces are linked by whoever wants them: jqotel"},
	{"internal/server", "./internal/store/adapters/...", true, "the runtime knows the contract, and no adapter"},
	{"internal/server", "./", true, "the runtime is below the library"},
	{"internal/await", "./internal/store/adapters/...", true, "who waits knows the contract, and no adapter"},
	{"internal/await", "./", true, "the runtime tells of ends, and is below the library"},
	{"jqprom", "go.opentelemetry.io/...", true, "one way to observe does not bring the other"},
	{"jqprom", "testing", true, "what applications import links no testing"},
	{"jqotel", "github.com/prometheus/...", true, "one way to observe does not bring the other"},
	{"jqotel", "go.opentelemetry.io/otel/sdk/...", true, "the application chooses the SDK"},
	{"sqlite", "github.com/lib/pq", true, "a door links its own driver only"},
	{"sqlite", "testing", true, "what applications import links no testing"},
	{"postgres", "modernc.org/...", true, "a door links its own driver only"},
	{"postgres", "github.com/jackc/...", true, "pgx is for tests"},
	{"postgres", "testing", true, "what applications import links no testing"},
	{"cmd/jobq", "github.com/stretchr/...", true, "the suite takes a testing.TB, and the command links no more of tests than that"},
	{"cmd/jobq", "./internal/conformance/model", true, "broken stores are for tests"},
	{"cmd/jobq", "./internal/conformance/random", true, "random sequences link a library that registers flags"},
	{"cmd/jobq", "./internal/pgtest/...", true, "the tests' servers are for tests"},
	{"cmd/jobq", "pgregory.net/rapid", true, "it registers flags when it is imported"},
	{"cmd/jobq", "github.com/rogpeppe/...", true, "scripts are for tests"},
	{"", "github.com/spf13/...", true, "a library has no command line"},
	{"internal/wire", "./internal/store/adapters/...", true, "the wire knows the contract, and no adapter"},
	{"internal/wire", "./internal/httpapi", true, "both sides of HTTP stand on the wire"},
	{"internal/store/adapters/remote", "./internal/store/adapters/...", true, "adapters do not see each other"},
	{"internal/store/adapters/remote", "./internal/store/sqlkit", true, "what goes over HTTP has no rows"},
	{"internal/store/adapters/remote", "./internal/httpapi", true, "the two sides of HTTP meet on the wire alone"},
	{"internal/httpapi", "./internal/store/adapters/sqlite", true, "the API knows stores by their contract"},
	{"internal/httpapi", "./internal/store/adapters/postgres", true, "the API knows stores by their contract"},
	{"internal/httpapi", "./internal/store/adapters/remote", true, "the two sides of HTTP meet on the wire alone"},
	{"internal/httpapi", "github.com/prometheus/...", true, "metrics are handed in"},
	{"internal/httpapi", "testing", true, "no binary links testing"},
	{"internal/doctor", "./internal/store/adapters/...", true, "what a database has to say comes through the contract's Examiner"},
	{"internal/bench", "./internal/store/adapters/sqlite", true, "what is measured is any store: costs come through the contract's Accountant"},
	{"internal/bench", "./internal/store/adapters/postgres", true, "what is measured is any store: costs come through the contract's Accountant"},
	{"internal/bench", "./internal/server", false, "what is measured is what applications use"},
	{"internal/bench", "testing", true, "no binary links testing"},
	{"remote", "modernc.org/...", true, "a door links its own driver only"},
	{"remote", "github.com/lib/pq", true, "a door links its own driver only"},
	{"remote", "./internal/httpapi", true, "a client links no server"},
	{"remote", "testing", true, "what applications import links no testing"},
	{"", "./internal/store/adapters/remote", true, "the doors open stores elsewhere, the root does not"},
	{"internal/graph", "./internal/store/adapters/...", true, "a graph is read through the contract, from any store"},
	{"internal/wire", "./", true, "stores stand on it, which are below the library"},
	{"internal/outside", "./internal/server", false, "programs and webhooks are run through the library, as anybody's handlers are"},
}

func TestImportRules(t *testing.T) {
	direct, deep := imports(t, "{{.Imports}}"), imports(t, "{{.Deps}}")
	for _, r := range importRules {
		list := direct
		if r.deep {
			list = deep
		}
		matched := false
		for pkg, imported := range list {
			if !covers(r.pkg, pkg) {
				continue
			}
			matched = true
			for _, path := range imported {
				own, ours := strings.CutPrefix(path, module)
				own = strings.TrimPrefix(own, "/")
				if path == module+"/"+pkg || pkg == "" && path == module {
					continue
				}
				if not, local := strings.CutPrefix(r.not, "./"); local {
					assert.False(t, ours && covers(not, own), "%q imports %q: %s", pkg, path, r.reason)
				} else {
					assert.False(t, covers(r.not, path), "%q imports %q: %s", pkg, path, r.reason)
				}
			}
		}
		assert.True(t, matched, "the rule for %q fits no package", r.pkg)
	}
}

// covers says whether the pattern means the path.
func covers(pattern, path string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "..."); ok {
		return strings.HasPrefix(path+"/", prefix)
	}
	return pattern == path
}

// imports asks the go command what each package of this module imports.
func imports(t *testing.T, field string) map[string][]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.ImportPath}} "+field, "./...").Output()
	require.NoError(t, err)
	list := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		path, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		pkg := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
		list[pkg] = strings.Fields(strings.Trim(rest, "[]"))
	}
	return list
}

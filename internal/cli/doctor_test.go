package cli

import (
	"bytes"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/store/adapters/sqlite"
)

// doctor reports a store that a newer program has migrated, and neither opens nor changes it.
func TestDoctorFindsASchemaAheadOfTheProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "jq.db")
	onPostgres, base := database(t)
	for kind, k := range map[string]struct {
		url, migrations string
		db              func() *sql.DB
	}{
		"sqlite": {"sqlite:" + file, "migrations", func() *sql.DB {
			s, err := sqlite.Open(t.Context(), file, nil)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, s.Close()) })
			return s.DB().DB
		}},
		"postgres": {base, "jq.migrations", func() *sql.DB { return onPostgres }},
	} {
		t.Run(kind, func(t *testing.T) {
			jqOn := func(args ...string) (code int, out, errs string) {
				var stdout, stderr bytes.Buffer
				code = run(t.Context(), append([]string{"jobq", "--store", k.url}, args...), quiet(&stdout, &stderr))
				return code, stdout.String(), stderr.String()
			}
			code, _, errs := jqOn("migrate", "up")
			require.Equal(t, exitOK, code, errs)
			_, out, _ := jqOn("doctor") // reports that the test server of Postgres has unsafe settings
			require.NotContains(t, out, "other_schema")

			_, err := k.db().Exec(`INSERT INTO ` + k.migrations + ` (version, name) SELECT 1000, 'of the future'`)
			require.NoError(t, err)
			code, out, errs = jqOn("doctor")
			assert.Equal(t, exitFailed, code)
			assert.Regexp(t, `^other_schema: .+ has schema 1000, but this program knows schema \d+\n`+
				`    the schema of the store is newer than this program: update the program\n$`, out)
			assert.Equal(t, "jobq doctor: 1 finding\n", errs)
			_, out, _ = jqOn("doctor", "--json")
			assert.Contains(t, out, `{"findings":[{"name":"other_schema",`)
			_, _, errs = jqOn("migrate", "status")
			assert.Equal(t, "jobq migrate status: the schema of the store is newer than this program: update the program\n", errs)
			_, _, errs = jqOn("stats")
			assert.Contains(t, errs, "update the program", "opening the store")
		})
	}
}

// doctor also reports a store with an older schema.
func TestDoctorFindsASchemaBehindTheProgram(t *testing.T) {
	at := place{shown: "sqlite:jq.db"}
	assert.Empty(t, schemaFinding(at, contract.Schema{Version: 3, Newest: 3}))
	assert.Equal(t, []contract.Finding{{
		Name:   "other_schema",
		Detail: "sqlite:jq.db has schema 2, but this program knows schema 3",
		Advice: "the schema of the store is older than this program: run migrate up",
	}}, schemaFinding(at, contract.Schema{Version: 2, Newest: 3}))
}

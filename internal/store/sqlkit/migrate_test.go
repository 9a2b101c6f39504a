package sqlkit_test

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

func files(names ...string) fstest.MapFS {
	folder := fstest.MapFS{"migrations/README": {}, "0001_elsewhere.sql": {}}
	for _, name := range names {
		folder["migrations/"+name] = &fstest.MapFile{Data: []byte("-- " + name)}
	}
	return folder
}

func TestMigrationsComeInTheirOrder(t *testing.T) {
	steps, err := sqlkit.Migrations(files("0002_more_jobs.sql", "0001_jobs.sql"))
	require.NoError(t, err)
	assert.Equal(t, []sqlkit.Migration{
		{Version: 1, Name: "jobs", SQL: "-- 0001_jobs.sql"},
		{Version: 2, Name: "more_jobs", SQL: "-- 0002_more_jobs.sql"},
	}, steps)
}

func TestMigrationsAreNumberedWithoutAGap(t *testing.T) {
	for name, c := range map[string][]string{
		"Gap":      {"0001_jobs.sql", "0003_more.sql"},
		"Twice":    {"0001_jobs.sql", "0001_more.sql"},
		"Zero":     {"0000_jobs.sql"},
		"NoNumber": {"jobs.sql"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := sqlkit.Migrations(files(c...))
			assert.ErrorContains(t, err, "want number")
		})
	}
}

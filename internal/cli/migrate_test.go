package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/sqlite"
)

// A watched is a log that is read while a command writes it.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// Schemas 9 to 14 of Postgres break earlier programs, so workers of schema 8 are waited for.
func TestMigrateUpWaitsForEarlierPrograms(t *testing.T) {
	db, url := database(t)
	jobq := func(args ...string) (int, string) {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"jobq", "--store", url}, args...), quiet(&stdout, &stderr))
		return code, stdout.String() + stderr.String()
	}
	do := func(statements ...string) {
		t.Helper()
		for _, s := range statements {
			_, err := db.Exec(s)
			require.NoError(t, err, s)
		}
	}
	toSchema8 := func() {
		t.Helper()
		do(`DROP FUNCTION jq.hint(), jq.next_slot CASCADE`,
			`DROP SEQUENCE jq.turns`,
			`DROP TABLE jq.keys, jq.hints, jq.ordered`,
			`DROP INDEX jq.jobs_ready_by_key, jq.jobs_retrying_by_key`,
			`DROP TABLE jq.claims`,
			`ALTER TABLE jq.queues DROP COLUMN max_per_key, DROP COLUMN keys_known, DROP COLUMN rate_n, DROP COLUMN rate_per, DROP COLUMN fair, DROP COLUMN ordered`,
			`ALTER TABLE jq.policies DROP COLUMN max_per_key, DROP COLUMN rate_n, DROP COLUMN rate_per, DROP COLUMN owner, DROP COLUMN declared, DROP COLUMN fair, DROP COLUMN ordered`,
			`ALTER TABLE jq.jobs DROP COLUMN limit_key`,
			`DROP INDEX jq.jobs_blocked_by_id`,
			`DROP TABLE jq.waits, jq.ends, jq.looks, jq.gone, jq.open_groups, jq.spoils, jq.group_runs, jq.group_counts`,
			`ALTER TABLE jq.jobs DROP COLUMN links, DROP COLUMN group_name`,
			`ALTER TABLE jq.jobs RENAME COLUMN unleased_state TO state`,
			`ALTER TABLE jq.jobs
				DROP COLUMN rules,
				ADD COLUMN max_retries integer,
				ADD COLUMN backoff_base bigint,
				ADD COLUMN backoff_cap bigint,
				ADD COLUMN backoff_jitter smallint,
				ADD COLUMN timeout bigint`,
			`CREATE INDEX jobs_leased ON jq.jobs (lease_expires_at, id) WHERE state = 'in_flight'`,
			`DROP TABLE jq.leases`,
			`DROP TABLE jq.slots`,
			`ALTER TABLE jq.queues DROP COLUMN max_in_flight, DROP COLUMN limit_version, DROP COLUMN counted, DROP COLUMN first_slot`,
			`ALTER TABLE jq.policies DROP COLUMN max_in_flight`,
			`DELETE FROM jq.migrations WHERE version >= 9`,
			`INSERT INTO jq.workers (name, pid, slots, running, stale_after, beat_at, host)
				VALUES ('mail-1', 4711, 1, 0, 3600000000, now(), 'one.example')`)
	}
	code, said := jobq("migrate", "up")
	require.Equal(t, exitOK, code, said)
	toSchema8()
	for _, command := range [][]string{{"migrate", "up", "--wait", "0"}, {"enqueue", "k"}, {"serve", "--addr", "127.0.0.1:0"}} {
		code, said = jobq(command...)
		assert.Equal(t, exitFailed, code)
		assert.Contains(t, said, "these still run: mail-1 (host one.example, pid 4711): stop them and run jobq migrate up")
	}
	code, said = jobq("enqueue", "k", "--no-migrate")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, said, "run jobq migrate up")

	log, ended := &watched{}, make(chan int)
	go func() { ended <- run(t.Context(), []string{"jobq", "--store", url, "migrate", "up"}, quiet(log, log)) }()
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "pid 4711") }, time.Minute, time.Millisecond, "it says for whom it waits")
	do(`DELETE FROM jq.workers`)
	select {
	case code := <-ended:
		assert.Equal(t, exitOK, code, log.String())
	case <-time.After(time.Minute):
		t.Fatal("the worker has left, and it still waits")
	}
	assert.Contains(t, log.String(), "from schema 8 to ")

	toSchema8()
	code, said = jobq("migrate", "up", "--force")
	assert.Equal(t, exitOK, code, said)
	assert.Contains(t, said, "from schema 8 to ")
}

// All commands work with a newer schema that is compatible.
func TestANewerSchemaThatIsCompatible(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	s, err := sqlite.Open(t.Context(), path, nil)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, do(t, path, `INSERT INTO migrations (version, name, least) VALUES (99, 'future', 2)`).Close())
	for _, c := range [][2]string{
		{"migrate status", "has schema 99 of "}, {"migrate status --json", `"schema":99`},
		{"migrate up", "has schema 99, which a newer program has made; this program works with it"},
		{"doctor", ""}, {"enqueue k", "added job 1"}, {"stats", "default"},
	} {
		var stdout, stderr bytes.Buffer
		args := append([]string{"jobq", "--store", "sqlite:" + path}, strings.Fields(c[0])...)
		assert.Equal(t, exitOK, run(t.Context(), args, quiet(&stdout, &stderr)), "%s: %s", c[0], stderr.String())
		assert.Contains(t, stdout.String(), c[1])
	}
}

//go:build unix

package cli

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
)

// blockTests names the test that runs each block of the README and the guides that is neither Go nor a transcript: the page, how the
// first line of the block begins, and the test.
var blockTests = []struct{ page, begins, test string }{
	{"etcd.md", "etcd --max-txn-ops", "etcd/TestPageStartsMembers"},
	{"first-job.md", "go mod init", "internal/release/TestTagsCanBeInstalled"},
	{"flows.md", "curl --silent", "examples/flows/TestProgramsReadResults"},
	{"high-availability.md", "# on the primary", "internal/cli/TestPageSetsUpStandbys"},
	{"high-availability.md", "bootstrap:", "internal/chaos/TestGuideShowsTheSettingsOfPatroni"},
	{"migrate-from-river.md", "SELECT state", "examples/migrate/fromriver/TestPageCountsWhatIsLeft"},
	{"migrate-from-sidekiq.md", "class WelcomeMail", "examples/guides/sidekiq/TestRubyOfThePage"},
	{"migrate-from-sidekiq.md", "JQ.enqueue(", "examples/guides/sidekiq/TestRubyOfThePage"},
	{"migrate-from-sidekiq.md", "# JQ enqueues", "examples/guides/sidekiq/TestPageShowsTheScripts"},
	{"migrate-from-sidekiq.md", "def self.perform_async", "examples/guides/sidekiq/TestRubyOfThePage"},
	{"migrate-from-sidekiq.md", "def move(", "examples/guides/sidekiq/TestPageShowsTheScripts"},
	{"other-languages.md", "# client.py", "examples/http/TestTheGuideShowsTheClients"},
	{"other-languages.md", "// client.mjs", "examples/http/TestTheGuideShowsTheClients"},
	{"postgres.md", "psql --set", "internal/cli/TestPageGivesTheLeastRights"},
	{"programs.md", "# resize.sh", "internal/cli/TestGuidesShowWhatCommandsPrint"},
	{"programs.md", "ORDERS_DATABASE_URL", "internal/cli/TestPageGivesAProgramItsDatabase"},
	{"python-nightly.md", "# nightly.py", "internal/cli/TestGuidesShowWhatCommandsPrint"},
	{"python-nightly.md", "jobq schedules set", "internal/cli/TestPageChoosesPauses"},
	{"security.md", "jobq serve", "internal/cli/TestPageServesWithTLS"},
	{"sqlite.md", "systemctl stop", "internal/cli/TestPageRestores"},
	{"sqlite.md", "store unavailable", "internal/store/adapters/sqlite/TestStoppedProcessWithTheTurnIsNamed"},
	{"webhooks.md", "export JQ_WEBHOOK_SECRET", "internal/cli/TestPageMakesASecret"},
	{"webhooks.md", "import base64", "internal/outside/TestCodeForReceiversTellsTrueRequestsFromForgedOnes"},
	{"webhooks.md", "const crypto", "internal/outside/TestCodeForReceiversTellsTrueRequestsFromForgedOnes"},
	{"write-a-store.md", "go doc", "internal/cli/TestPageReadsTheContract"},
	{"write-a-store.md", "--- FAIL", "examples/bbolt/TestPageShowsACaseThatFails"},
}

// fencedBlock is a block of a page, with its language. A block of a list is indented.
var fencedBlock = regexp.MustCompile("(?ms)^( *)```(\\w*)\n(.*?)^ *```$")

// otherBlocks returns the blocks of a page that are neither Go nor transcripts.
func otherBlocks(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var blocks []string
	for _, found := range fencedBlock.FindAllStringSubmatch(string(text), -1) {
		if indent, language, block := found[1], found[2], found[3]; language != "go" && language != "console" {
			blocks = append(blocks, regexp.MustCompile("(?m)^"+indent).ReplaceAllString(block, ""))
		}
	}
	return blocks
}

// blockOf returns the block of a guide that begins so.
func blockOf(t *testing.T, page, begins string) string {
	t.Helper()
	for _, block := range otherBlocks(t, "../../docs/guides/"+page) {
		if strings.HasPrefix(block, begins) {
			return block
		}
	}
	require.Fail(t, "no such block", "%s has no block that begins with %q", page, begins)
	return ""
}

func TestEachBlockIsRun(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/guides/*.md")
	require.NoError(t, err)
	found := make([]int, len(blockTests))
	for _, page := range append(pages, "../../README.md") {
		for _, block := range otherBlocks(t, page) {
			at := -1
			for i, b := range blockTests {
				if b.page == filepath.Base(page) && strings.HasPrefix(block, b.begins) {
					at = i
				}
			}
			if assert.GreaterOrEqual(t, at, 0, "%s has a block that no test runs. Write one, and name it in blockTests:\n%s", page, block) {
				found[at]++
			}
		}
	}
	for i, b := range blockTests {
		assert.Equal(t, 1, found[i], "blocks of %s that begin with %q", b.page, b.begins)
		assert.True(t, declared(t, b.test), "%s does not exist, which is to run the block of %s that begins with %q", b.test, b.page, b.begins)
	}
}

// newScript is a transcript for the blocks of a page: the shell ends at the first command that fails. It skips the test if one of the
// programs is missing.
func newScript(t *testing.T, programs ...string) *transcript {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed: the block of the page is not run", program)
		}
	}
	p := newTranscript(t)
	p.exports = "set -e\n"
	return p
}

// script runs the block and returns what it prints.
func (p *transcript) script(block string) string {
	p.Helper()
	printed, err := p.try(block)
	require.NoError(p, err, "%s\n%s", block, printed)
	return printed
}

// try is script for a block that may fail.
func (p *transcript) try(block string) (string, error) {
	ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
	defer cancel()
	printed, err := p.shell(ctx, block).CombinedOutput()
	return string(printed), err
}

// refused runs a command that must fail, and say why.
func (p *transcript) refused(command, why string) {
	p.Helper()
	printed, err := p.try(command)
	require.Error(p, err, "%s\n%s", command, printed)
	assert.Contains(p, printed, why, command)
}

// untilPrinted runs a command again until it prints the text, for half a minute at most.
func (p *transcript) untilPrinted(command, text string) {
	p.Helper()
	printed := ""
	eventually(func() bool {
		printed, _ = p.try(command) // what it prints tells
		return strings.Contains(printed, text)
	})
	require.Contains(p, printed, text, command)
}

// write writes a file that can be run.
func (p *transcript) write(name, text string) {
	p.Helper()
	require.NoError(p, os.WriteFile(filepath.Join(p.folder, name), []byte(text), 0o700))
}

// on lets commands reach the servers of Postgres: the hosts of a page stand for them. It returns the block without these hosts.
func (p *transcript) on(block string, servers ...*pgtest.Cluster) string {
	p.Helper()
	var hosts []string
	for _, c := range servers {
		host, _, _ := strings.Cut(strings.TrimPrefix(c.DSN, "host="), " ")
		hosts = append(hosts, host)
	}
	p.env = append(p.env, "PGHOST="+strings.Join(hosts, ","), "PGPORT=5432", "PGUSER=postgres", "PGSSLMODE=disable")
	return regexp.MustCompile(`(postgres://\w+@)[a-z,]+/`).ReplaceAllString(block, "$1/")
}

// startPostgres starts a server that no other test uses, with an empty database jobs.
func startPostgres(t *testing.T, o pgtest.Options) (*pgtest.Cluster, *sql.DB) {
	t.Helper()
	c, err := pgtest.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Stop()) })
	db := connected(t, c.DSN)
	_, err = db.Exec(`CREATE DATABASE jobs`)
	require.NoError(t, err)
	return c, db
}

func connected(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() }) // its server may be gone
	return db
}

// The page of Postgres makes two roles. The role of the server enqueues, and it may not change the schema.
func TestPageGivesTheLeastRights(t *testing.T) {
	t.Parallel()
	p := newScript(t, "psql")
	c, super := startPostgres(t, pgtest.Options{})
	deploy, err := filepath.Abs("../../deploy")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(deploy, filepath.Join(p.folder, "deploy")))
	block := p.on(blockOf(t, "postgres.md", "psql --set"), c)
	p.write("jobq.toml", "[serve]\naddr = \"127.0.0.1:"+p.port+"\"\n")
	p.env = append(p.env, "JQ_CONFIG=jobq.toml")
	p.serve(block, "CREATE ROLE\n")
	p.untilPrinted("jobq enqueue hello --server http://127.0.0.1:7070", "added job 1 to queue default")
	var users string
	require.NoError(t, super.QueryRow(`SELECT string_agg(DISTINCT usename, ' ') FROM pg_stat_activity WHERE datname = 'jobs'`).Scan(&users))
	assert.Equal(t, "jq_app", users, "as whom the server calls Postgres")
	app := c.DSN + " dbname=jobs user=jq_app"
	for _, denied := range []string{`CREATE TABLE jq.more (id bigint)`, `TRUNCATE jq.jobs`, `DROP TABLE jq.jobs`} {
		_, err = connected(t, app).Exec(denied)
		assert.ErrorContains(t, err, "42501", denied)
	}
	var owner string
	require.NoError(t, connected(t, app).QueryRow(`SELECT tableowner FROM pg_tables WHERE schemaname = 'jq' AND tablename = 'jobs'`).Scan(&owner))
	assert.Equal(t, "jq_owner", owner)
}

// After the commands of the page, commits wait for one of two standbys, and doctor finds no fault. When one of them is gone, doctor says
// so. When the primary is gone and a standby is promoted, the same address leads to it.
func TestPageSetsUpStandbys(t *testing.T) {
	t.Parallel()
	p := newScript(t, "psql")
	a, db := startPostgres(t, pgtest.Options{Durable: true})
	_, err := db.Exec(`CREATE ROLE jobs LOGIN`)
	require.NoError(t, err)
	_, err = db.Exec(`ALTER DATABASE jobs OWNER TO jobs`)
	require.NoError(t, err)
	standby := func(name string) *pgtest.Cluster {
		c, err := a.Standby(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Stop()) })
		of := connected(t, c.DSN)
		_, err = of.Exec(`ALTER SYSTEM SET primary_conninfo = '` + a.DSN + ` application_name=` + name + `'`)
		require.NoError(t, err)
		_, err = of.Exec(`SELECT pg_reload_conf()`)
		require.NoError(t, err)
		return c
	}
	b, c := standby("b"), standby("c")
	asked := func(query, want string) {
		t.Helper()
		got := ""
		eventually(func() bool {
			require.NoError(t, db.QueryRow(query).Scan(&got))
			return got == want
		})
		require.Equal(t, want, got, query)
	}
	asked(`SELECT coalesce(string_agg(application_name, ' ' ORDER BY application_name), '') FROM pg_stat_replication WHERE state = 'streaming'`, "b c")
	block := p.on(blockOf(t, "high-availability.md", "# on the primary"), a, b, c)
	store, found := strings.CutPrefix(regexp.MustCompile(`(?m)^export JQ_STORE=.*$`).FindString(block), "export ")
	require.True(t, found)
	p.script(store + " jobq migrate up")
	p.untilPrinted(block, "no problems")
	asked(`SHOW synchronous_standby_names`, "ANY 1 (b, c)")
	asked(`SELECT string_agg(application_name || ' ' || sync_state, ', ' ORDER BY application_name) FROM pg_stat_replication`, "b quorum, c quorum")

	require.NoError(t, c.Stop())
	p.untilPrinted(store+" jobq doctor || true", "no_spare_standby")
	require.NoError(t, a.Crash(t.Context()))
	require.NoError(t, b.Promote(t.Context()))
	p.untilPrinted(store+" jobq enqueue hello || true", "added job")
}

// A program gets the address of its own database, and not that of the jobs.
func TestPageGivesAProgramItsDatabase(t *testing.T) {
	t.Parallel()
	p := newScript(t, "python3")
	p.write("worker.py", "import os, json\nprint(json.dumps([os.environ.get(n) for n in ('ORDERS_DATABASE_URL', 'DATABASE_URL', 'JQ_STORE')]))\n")
	p.env = append(p.env, "JQ_STORE=sqlite:jobs.db", "DATABASE_URL=postgres://secret@127.0.0.1:1/jobs")
	p.script("jobq enqueue order")
	p.serve(blockOf(t, "programs.md", "ORDERS_DATABASE_URL"), "")
	p.untilPrinted("jobq jobs show 1", `["postgres://orders@db/orders", null, null]`)
}

// The schedule of the page has the retries and pauses that the page says.
func TestPageChoosesPauses(t *testing.T) {
	t.Parallel()
	p := newScript(t)
	p.script(blockOf(t, "python-nightly.md", "jobq schedules set"))
	var listed struct {
		Schedules []struct {
			Name, Cron, Timezone, Overlap string
			Job                           json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal([]byte(p.script("jobq schedules ls --json")), &listed))
	require.Len(t, listed.Schedules, 1)
	s := listed.Schedules[0]
	assert.Equal(t, []string{"nightly", "0 2 * * *", "Europe/Berlin", "skip"}, []string{s.Name, s.Cron, s.Timezone, s.Overlap})
	assert.JSONEq(t, `{"queue":"default","kind":"report","payload":{"to":"ada@example.org"},"max_retries":5,
		"backoff":{"base":"1m0s","cap":"30m0s","jitter":10}}`, string(s.Job))
}

// The server of the page speaks only TLS and admits only who has a token. The worker of the page runs the job.
func TestPageServesWithTLS(t *testing.T) {
	t.Parallel()
	p := newScript(t)
	page, err := os.ReadFile("../../docs/guides/security.md")
	require.NoError(t, err)
	for _, s := range stepsOf(t, string(page))[:4] { // they make the tokens
		p.step(s)
	}
	at := func(name string) string { return filepath.Join(p.folder, name) }
	ours, theirs := newAuthority(t), newAuthority(t)
	ours.pair(at("cert.pem"), at("key.pem"), "server", x509.ExtKeyUsageServerAuth)
	require.NoError(t, os.WriteFile(at("ca.pem"), ours.pem, 0o600))
	require.NoError(t, os.WriteFile(at("other.pem"), theirs.pem, 0o600))
	p.env = append(p.env, "JQ_CA=ca.pem")
	p.write("mail", "#!/bin/sh\ncat >sent\n")
	block := strings.ReplaceAll(blockOf(t, "security.md", "jobq serve"), "jobs.example.org", "127.0.0.1")
	lines := strings.Split(strings.TrimSpace(block), "\n")
	require.Len(t, lines, 2, "a server and a worker")
	p.serve(lines[0], "created the store sqlite:jq.db\nserving on https://")
	p.serve(lines[1], "working on ")

	const enqueue = `jobq enqueue welcome '{"to":"Ada"}' --queue mail-de --server https://127.0.0.1:7070`
	p.refused(enqueue, "HTTP 401")
	p.refused("JQ_TOKEN=$(cat shop.token) JQ_CA=other.pem "+enqueue, "certificate")
	p.refused("JQ_TOKEN=$(cat shop.token) "+strings.Replace(enqueue, "https:", "http:", 1), "jobq enqueue: ")
	p.refused("JQ_TOKEN=$(cat mailer.token) "+enqueue, "HTTP 403")
	p.script("JQ_TOKEN=$(cat shop.token) " + enqueue)
	p.untilPrinted("cat sent || true", `{"to":"Ada"}`)
}

// The commands of the page put a backup in the place of the store of a service. A stand-in for systemctl starts and stops a real server.
func TestPageRestores(t *testing.T) {
	t.Parallel()
	p := newScript(t, "curl")
	p.service()
	p.script("systemctl start jobq")
	const server = " --server http://127.0.0.1:7070"
	p.untilPrinted("jobq enqueue monday"+server, "added job 1")
	p.script("mkdir backups; jobq backup backups/monday.db; jobq enqueue tuesday" + server)
	block := strings.ReplaceAll(blockOf(t, "sqlite.md", "systemctl stop"), "/backups/", "backups/")
	p.refused("jobq restore backups/monday.db", "has the store")
	p.script(block)
	p.untilPrinted("jobq jobs ls"+server, "monday")
	assert.NotContains(t, p.script("jobq jobs ls"+server), "tuesday")
	p.script("systemctl stop jobq")
}

// service puts a systemctl into the search path that starts and stops one server in the folder.
func (p *transcript) service() {
	p.Helper()
	bin := p.TempDir()
	at := slices.IndexFunc(p.env, func(variable string) bool { return strings.HasPrefix(variable, "PATH=") })
	p.env[at] = "PATH=" + bin + string(os.PathListSeparator) + strings.TrimPrefix(p.env[at], "PATH=")
	var mu sync.Mutex // guards running
	var running *exec.Cmd
	act := func(order string) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case order == "/start/jobq" && running == nil:
			running = p.shell(context.WithoutCancel(p.Context()), "exec jobq serve --addr 127.0.0.1:7070")
			return running.Start()
		case order == "/stop/jobq" && running != nil:
			err := running.Process.Signal(syscall.SIGTERM)
			_ = running.Wait() // a signal may have come before it could end well
			running = nil
			return err
		}
		return os.ErrInvalid
	}
	orders := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := act(r.URL.Path); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}))
	p.Cleanup(orders.Close)
	p.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if running != nil {
			_ = running.Process.Kill()
			_ = running.Wait()
		}
	})
	require.NoError(p, os.WriteFile(filepath.Join(bin, "systemctl"), []byte("#!/bin/sh\nexec curl --fail --max-time 60 "+orders.URL+"/$1/$2\n"), 0o700))
}

// The secret of the page has a key of 32 bytes, and the worker signs with it.
func TestPageMakesASecret(t *testing.T) {
	t.Parallel()
	p := newScript(t, "openssl")
	type delivery struct {
		header http.Header
		body   string
	}
	got := make(chan delivery, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // the signature tells
		select {
		case got <- delivery{r.Header, string(body)}:
		default: // a repeat
		}
	}))
	t.Cleanup(receiver.Close)
	p.script(`jobq enqueue mail '{"to":"Ada"}'`)
	p.serve(blockOf(t, "webhooks.md", "export JQ_WEBHOOK_SECRET")+`echo "$JQ_WEBHOOK_SECRET" >secret
jobq work --allow 127.0.0.0/8 --http `+receiver.URL, "working on ")
	var d delivery
	select {
	case d = <-got:
	case <-time.After(time.Minute):
		require.Fail(t, "no request came within a minute")
	}
	secret, err := os.ReadFile(filepath.Join(p.folder, "secret"))
	require.NoError(t, err)
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(string(secret)), "whsec_"))
	require.NoError(t, err, string(secret))
	assert.Len(t, key, 32)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(d.header.Get("webhook-id") + "." + d.header.Get("webhook-timestamp") + "." + d.body))
	assert.Equal(t, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)), d.header.Get("webhook-signature"))
	assert.JSONEq(t, `{"to":"Ada"}`, d.body)
}

// The commands of the page print the contract.
func TestPageReadsTheContract(t *testing.T) {
	t.Parallel()
	p := newScript(t, "less")
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	p.folder = root
	lines := strings.Split(strings.TrimSpace(blockOf(t, "write-a-store.md", "go doc")), "\n")
	require.Len(t, lines, 3)
	for i, want := range []string{"SetPaused(true) has returned", "FetchAndClaim(ctx context.Context", "type Record = store.Record"} {
		assert.Contains(t, p.script(lines[i]), want, lines[i])
	}
}

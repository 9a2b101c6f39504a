package cli

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/internal/conformance/model"
	"github.com/seed-ed332417/jq/internal/pgtest"
)

func TestConformanceNamesTheSentenceThatWasBroken(t *testing.T) {
	broken := conformance.Adapter{New: func(_ context.Context, clk clock.Clock) (*conformance.Instance, error) {
		return &conformance.Instance{Store: liar{jq.NewMemory(&jq.MemoryOptions{Clock: clk})}}, nil
	}}
	trial := trial{run: "^Finish/", parallel: 4}
	cases, err := trial.cases()
	require.NoError(t, err)
	var out bytes.Buffer
	a := &app{std: quiet(&out, &out), out: bufio.NewWriter(&out)}
	assert.ErrorContains(t, a.prove(t.Context(), broken, cases, trial), "the store breaks the contract in ")
	require.NoError(t, a.out.Flush())
	assert.Contains(t, out.String(), "FAIL  Finish/")
	assert.Contains(t, out.String(), `the contract says: "`)
	assert.Regexp(t, `\n  internal/conformance/cases_\w+\.go:\d+: `, out.String(), "the line of the case")
	assert.Regexp(t, `the calls on the store, from the 1. of \d+:\n +Enqueue \{Jobs:`, out.String())
	assert.Regexp(t, `\n[1-9]\d* cases passed, [1-9]\d* failed, `, out.String())
}

// A store that passes every case, one call after the other, can still lose updates of calls made at the same time.
func TestConformanceShowsTheHistoryThatNoOrderExplains(t *testing.T) {
	broken := conformance.Adapter{New: func(_ context.Context, clk clock.Clock) (*conformance.Instance, error) {
		return &conformance.Instance{Store: model.New(clk, model.ClaimUnlocked)}, nil
	}}
	var out bytes.Buffer
	a := &app{std: quiet(&out, &out), out: bufio.NewWriter(&out)}
	trial := trial{run: "^Delete/", parallel: 2, histories: 300}
	cases, err := trial.cases()
	require.NoError(t, err)
	err = a.proveAll(t.Context(), broken, cases, trial)
	assert.EqualError(t, err, "the store breaks the contract in a history of calls made at the same time")
	require.NoError(t, a.out.Flush())
	assert.Regexp(t, ` cases passed, 0 failed, .*\nFAIL  histories\n  history with seed \d+: .* is not linearizable:\n`, out.String())
	assert.Contains(t, out.String(), "✗", "what has no place")
}

func TestConformanceOfTooFewHistoriesFails(t *testing.T) {
	idle := conformance.Adapter{New: func(_ context.Context, clk clock.Clock) (*conformance.Instance, error) {
		return &conformance.Instance{Store: idler{jq.NewMemory(&jq.MemoryOptions{Clock: clk})}}, nil
	}}
	var out bytes.Buffer
	a := &app{std: quiet(&out, &out), out: bufio.NewWriter(&out)}
	err := a.proveHistories(t.Context(), idle, 3)
	assert.ErrorContains(t, err, "too little has met in the histories, ask for more by --histories: overlapping claims: in 0 of 3")
}

// An idler has jobs only for who asks for many, as the reader does after a history: nothing can be wrong with what it does meanwhile, and
// nothing is proved by it.
type idler struct{ jq.Store }

func (i idler) FetchAndClaim(ctx context.Context, req contract.ClaimRequest) ([]jq.Job, error) {
	if req.Limit < contract.MaxItems {
		return nil, nil
	}
	return i.Store.FetchAndClaim(ctx, req)
}

func TestConformanceEndsWhenItIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitFailed, run(ctx, []string{"jobq", "conformance"}, quiet(&stdout, &stderr)))
	assert.Equal(t, "jobq conformance: interrupted\n", stderr.String())
	assert.Empty(t, stdout.String())
}

func TestCommandsWorkOnPostgres(t *testing.T) {
	db, base := database(t)
	jqOn := func(want int, args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"jobq", "--store", base}, args...), quiet(&stdout, &stderr))
		require.Equal(t, want, code, "%q: %s", args, stderr.String())
		return stdout.String() + stderr.String()
	}
	assert.Equal(t, "added job 1 to queue default\n", jqOn(exitOK, "enqueue", "welcome", `{"name":"Ada"}`))
	assert.Contains(t, jqOn(exitOK, "jobs", "ls"), "1    ready  default  welcome  0 ")
	assert.Equal(t, "job 1: cancelled\n", jqOn(exitOK, "jobs", "cancel", "1"))
	assert.Equal(t, "1 job removed\n", jqOn(exitOK, "jobs", "rm", "--state", "cancelled", "--yes"))
	assert.Contains(t, jqOn(exitOK, "fence", "--all"), "this is epoch 1, and every lease has ended")
	assert.Contains(t, jqOn(exitOK, "enqueue", "welcome"), "added job 4294967297 ")

	assert.Contains(t, jqOn(exitOK, "conformance", "--run", "^(Registry/Beat|Reopen/Leases)"), " cases passed, 0 failed, ")
	var left []string
	require.NoError(t, sqlxStrings(db, &left, `SELECT nspname FROM pg_namespace WHERE nspname LIKE 'jq%'`))
	assert.Equal(t, []string{"jq"}, left, "the schemas of the cases are dropped")
}

// database makes one for the test, and returns its URL.
func database(t *testing.T) (*sql.DB, string) {
	t.Helper()
	server, err := sql.Open("postgres", pgtest.DSN(t))
	require.NoError(t, err)
	name := fmt.Sprintf("jq_cmd_%x", time.Now().UnixNano())
	_, err = server.Exec(`CREATE DATABASE ` + name)
	require.NoError(t, err)
	own := storeURL(pgtest.DSN(t), name)
	db, err := sql.Open("postgres", own)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, db.Close())
		_, err := server.Exec(`DROP DATABASE ` + name + ` WITH (FORCE)`)
		assert.NoError(t, err)
		assert.NoError(t, server.Close())
	})
	return db, own
}

// storeURL is a DSN as a URL, of another database on the same server.
func storeURL(dsn, database string) string {
	if u, err := url.Parse(dsn); err == nil && u.Scheme != "" {
		u.Path = database
		return u.String()
	}
	query := url.Values{}
	for pair := range strings.FieldsSeq(dsn) { // as package pgtest writes it
		key, value, _ := strings.Cut(pair, "=")
		query.Set(key, value)
	}
	query.Set("dbname", database)
	return "postgres:///?" + query.Encode()
}

func sqlxStrings(db *sql.DB, into *[]string, query string) error {
	rows, err := db.Query(query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return err
		}
		*into = append(*into, s)
	}
	return rows.Err()
}

// The suite needs stores of its own, which no server gives.
func TestConformanceOfAServer(t *testing.T) {
	var stdout, stderr bytes.Buffer
	args := []string{"jobq", "conformance", "--server", "http://127.0.0.1:1", "--run", "^Claim/DelayedJobIsHidden"}
	assert.Equal(t, exitFailed, run(t.Context(), args, quiet(&stdout, &stderr)))
	assert.Equal(t, "jobq conformance: this command makes a store for each case, so it needs the store itself: name it with --store\n", stderr.String())
}

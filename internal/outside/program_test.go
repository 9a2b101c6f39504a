//go:build unix

package outside

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/store"
)

// script is a handler that runs a script.
func script(t *testing.T, text string, o *ProgramOptions) jq.HandlerFunc {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	handle, err := Program("sh '"+path+"'", o)
	require.NoError(t, err)
	return handle
}

// R31: how a program ends decides what becomes of the job.
func TestExitDecidesWhatBecomesOfTheJob(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]fate{
		`true`:                                {Phase: jq.Succeeded},
		`echo '{"sent":  1}'`:                 {Phase: jq.Succeeded, Result: `{"sent":  1}`},
		`echo done; echo careful >&2`:         {Phase: jq.Succeeded, Result: `"done"`},
		`echo half; echo no mail >&2; exit 1`: {Phase: jq.Retrying, Error: "sh: exit status 1: no mail", Next: time.Minute},
		`exit 3`:                              {Phase: jq.Retrying, Error: "sh: exit status 3, and nothing on its standard error", Next: time.Minute},
		`kill -9 $$`:                          {Phase: jq.Retrying, Error: "sh: signal: killed, and nothing on its standard error", Next: time.Minute},
		`kill -15 $$`:                         {Phase: jq.Retrying, Error: "sh: signal: terminated, and nothing on its standard error", Next: time.Minute},
		`echo no such user >&2; exit 65`:      {Phase: jq.Dead, Error: "sh: exit status 65: no such user"},
		`echo too early >&2; exit 75`:         {Phase: jq.Ready, Next: 3 * time.Hour},
		`printf 'bad \377' >&2; exit 1`:       {Phase: jq.Retrying, Error: "sh: exit status 1: bad \uFFFD", Next: time.Minute},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, want, fateOf(once(t, script(t, text, &ProgramOptions{Snooze: 3 * time.Hour}), mail(`{}`))))
		})
	}
}

func TestProgramIsToldOfItsJob(t *testing.T) {
	t.Parallel()
	env := []string{"PATH=" + os.Getenv("PATH"), "JQ_TOKEN=secret", "DATABASE_URL=secret", "JQ_SERVER=http://u:secret@jq.example.com"}
	handle := script(t, `cat; echo; env | grep -E '^(JQ_|DATABASE|TRACE)' | sort`, &ProgramOptions{Env: env})
	ran := once(t, handle, mail(`{"to":  "Ada"}`))
	got, err := jq.Result[string](ran.After)
	require.NoError(t, err)
	assert.Equal(t, []string{`{"to":  "Ada"}`, "JQ_ATTEMPT=1", "JQ_JOB_ID=1", "JQ_KIND=mail", "JQ_LEASE_TOKEN=1", "JQ_QUEUE=post",
		"JQ_SERVER=http://jq.example.com", "TRACEPARENT=" + trace}, strings.Split(got, "\n"))
}

// R3: a result beyond the limit fails the job for good. What follows it is read all the same, or the program would wait for ever.
func TestOutputIsTheResultUpToItsLimit(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		`printf '"'; head -c 1048574 /dev/zero | tr '\0' x; echo '"'`: true,
		`printf '"'; head -c 1048575 /dev/zero | tr '\0' x; echo '"'`: false,
		`head -c 1048574 /dev/zero | tr '\0' x`:                       true,
		`head -c 1048575 /dev/zero | tr '\0' x`:                       false, // with its quotes it is too long
		`head -c 8000000 /dev/zero | tr '\0' x`:                       false,
	} {
		after := once(t, script(t, text, nil), mail(`{}`)).After
		if ok {
			assert.Len(t, after.Result, store.MaxDocBytes, text)
			assert.Equal(t, jq.Succeeded, after.Phase(), "%s: %s", text, after.Error)
		} else {
			assert.Equal(t, jq.Dead, after.Phase(), text)
			assert.Contains(t, after.Error, "the result is longer than 1048576 bytes", text)
		}
	}
}

func TestEndOfTheErrorsIsKeptAndSaysSo(t *testing.T) {
	t.Parallel()
	after := once(t, script(t, `i=0; while [ $i -lt 3000 ]; do echo "line $i" >&2; i=$((i+1)); done; exit 1`, nil), mail(`{}`)).After
	assert.True(t, strings.HasPrefix(after.Error, "sh: exit status 1: (cut) … "), "%.40s", after.Error)
	assert.True(t, strings.HasSuffix(after.Error, "line 2998\nline 2999"))
	assert.InDelta(t, keptOfErrors, len(after.Error), 50)
}

func TestErrorsAreLoggedAsTheyCome(t *testing.T) {
	t.Parallel()
	logged := newRecord()
	once(t, script(t, "echo one >&2; printf two >&2", &ProgramOptions{Logger: slog.New(logged)}), mail(`{}`))
	assert.Equal(t, "DEBUG jq: program says job=1 kind=mail line=one", <-logged.lines)
	assert.Equal(t, "DEBUG jq: program says job=1 kind=mail line=two", <-logged.lines)
	assert.Empty(t, logged.lines)
}

// A payload that fills the pipe does not hold up the end of a program that reads none of it.
func TestProgramNeedNotReadItsPayload(t *testing.T) {
	t.Parallel()
	doc, err := json.Marshal(strings.Repeat("x", 1_000_000))
	require.NoError(t, err)
	assert.Equal(t, fate{Phase: jq.Succeeded, Result: `"done"`}, fateOf(once(t, script(t, "echo done", nil), mail(string(doc)))))
	counted := fateOf(once(t, script(t, "wc -c", nil), mail(string(doc))))
	assert.Equal(t, fate{Phase: jq.Succeeded, Result: "1000002"}, counted)
}

func TestProgramThatCanNotBeRunIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o600))
	for line, want := range map[string]string{
		"":                       "jq: the command line is empty: name the program to run",
		"''":                     `jq: there is no program "" to run`,
		"no-such-program-4711 a": `jq: there is no program "no-such-program-4711" to run: executable file not found in $PATH`,
		"/no/such/program":       `jq: there is no program "/no/such/program" to run: stat /no/such/program: no such file or directory`,
		plain:                    "permission denied",
		"cat | sort":             "no shell reads it",
	} {
		_, err := Program(line, nil)
		assert.ErrorContains(t, err, want, line)
	}
	_, err := Program("true", &ProgramOptions{Snooze: -1, Grace: -1})
	assert.EqualError(t, err, "jq: Snooze must be 0 to 87600h0m0s, not -1ns\njq: Grace must be 0 to 87600h0m0s, not -1ns")
}

// A program that is missing for a while, as in the middle of a deployment, costs a retry.
func TestProgramThatHasGoneIsAFailure(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700))
	handle, err := Program(path, nil)
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	got := fateOf(once(t, handle, mail(`{}`)))
	assert.Equal(t, jq.Retrying, got.Phase)
	assert.Contains(t, got.Error, "the program could not be started: fork/exec "+path+": no such file or directory")
}

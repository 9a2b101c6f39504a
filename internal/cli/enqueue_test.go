package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/bubble"
	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/jqtest"
	"github.com/seed-ed332417/jq/sqlite"
)

// A flakyStore returns errors for the first calls, and applies some of those calls.
type flakyStore struct {
	jq.Store
	errs  []error
	takes time.Duration // the time of each call
	calls []jq.EnqueueRequest
}

func (s *flakyStore) Enqueue(ctx context.Context, req jq.EnqueueRequest) ([]jq.Enqueued, error) {
	s.calls = append(s.calls, req)
	if len(s.errs) == 0 {
		return s.Store.Enqueue(ctx, req)
	}
	<-time.NewTimer(s.takes).C
	err := s.errs[0]
	s.errs = s.errs[1:]
	if errors.Is(err, jq.ErrInDoubt) {
		if _, lost := s.Store.Enqueue(ctx, req); lost != nil {
			return nil, lost
		}
	}
	return nil, err
}

func oneJob(key string) jq.EnqueueRequest {
	return jq.EnqueueRequest{Jobs: []jq.NewJob{{Queue: "q", Kind: "k", Payload: []byte("1")}}, RequestKey: key}
}

func jobsIn(t *testing.T, s jq.Store) int64 {
	t.Helper()
	counts, err := s.Count(t.Context(), jq.Filter{})
	require.NoError(t, err)
	return sum(counts).Jobs[jq.Ready]
}

func TestEnqueueIsRepeatedUnderItsKey(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &flakyStore{Store: jqtest.NewStore(t), errs: []error{jq.ErrUnavailable, jq.ErrInDoubt, jq.ErrInDoubt}}
		began := time.Now()
		added, err := enqueueRetrying(t.Context(), s, oneJob("key"))
		require.NoError(t, err)
		assert.Equal(t, []jq.Enqueued{{ID: 1, State: jq.Ready}}, added)
		assert.Equal(t, int64(1), jobsIn(t, s), "jobs after two answers were lost")
		assert.Equal(t, 700*time.Millisecond, time.Since(began))
	})
}

func TestEnqueueWithoutKeyIsNotRepeatedWhenItsAnswerIsLost(t *testing.T) {
	s := &flakyStore{Store: jqtest.NewStore(t), errs: []error{jq.ErrInDoubt}}
	_, err := enqueueRetrying(t.Context(), s, oneJob(""))
	require.ErrorIs(t, err, jq.ErrInDoubt)
	assert.ErrorContains(t, err, "--request-key")
	assert.Len(t, s.calls, 1)
}

func TestEnqueueGivesUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &flakyStore{Store: jqtest.NewStore(t), errs: make([]error, 100)}
		for i := range s.errs {
			s.errs[i] = jq.ErrUnavailable
		}
		_, err := enqueueRetrying(t.Context(), s, oneJob("key"))
		require.ErrorIs(t, err, jq.ErrUnavailable)
		assert.Len(t, s.calls, 1+maxRepeats)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = enqueueRetrying(ctx, s, oneJob("key"))
		require.ErrorIs(t, err, jq.ErrUnavailable)
		assert.Len(t, s.calls, 2+maxRepeats, "the call is not repeated again")
	})
}

// While another process holds an SQLite file, each try takes as long as the default of --busy-timeout.
func TestEnqueueWaitsForAnotherProcessOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &flakyStore{Store: jqtest.NewStore(t), errs: []error{jq.ErrUnavailable}, takes: sqlite.DefaultBusyTimeout}
		began := time.Now()
		_, err := enqueueRetrying(t.Context(), s, oneJob("key"))
		require.ErrorIs(t, err, jq.ErrUnavailable)
		assert.Len(t, s.calls, 1)
		assert.Equal(t, 5*time.Second, time.Since(began))
	})
}

// loading returns a load into the store, and its output.
func loading(s jq.Store, key string) (*load, *bytes.Buffer) {
	var out bytes.Buffer
	a := &app{std: quiet(&out, &out), out: bufio.NewWriter(&out)}
	return newLoad(a, s, order{job: jq.NewJob{Queue: "q"}, requestKey: key}, 0), &out
}

func TestLinesAreSentInBatches(t *testing.T) {
	s := &flakyStore{Store: jqtest.NewStore(t)}
	l, out := loading(s, "import")
	require.NoError(t, l.run(t.Context(), strings.NewReader(strings.Repeat(`{"kind":"k"}`+"\n", 2001))))
	require.NoError(t, l.app.out.Flush())
	assert.Equal(t, "added 2001 jobs\n", out.String())
	var sizes []int
	var keys []string
	for _, c := range s.calls {
		sizes, keys = append(sizes, len(c.Jobs)), append(keys, c.RequestKey)
	}
	assert.Equal(t, []int{1000, 1000, 1}, sizes)
	assert.Equal(t, []string{"import/1", "import/2", "import/3"}, keys)
}

func TestLargeLinesAreSentInMoreBatches(t *testing.T) {
	s := &flakyStore{Store: jqtest.NewStore(t)}
	l, _ := loading(s, "")
	heavy := fmt.Sprintf(`{"kind":"k","payload":"%s"}`+"\n", strings.Repeat("x", 1<<20-2))
	require.NoError(t, l.run(t.Context(), strings.NewReader(strings.Repeat(heavy, 9))))
	assert.Len(t, s.calls, 2, "nine payloads of one megabyte exceed the limit of a call")
	assert.Equal(t, int64(9), jobsIn(t, s))
	assert.NotEqual(t, s.calls[0].RequestKey, s.calls[1].RequestKey)

	l, _ = loading(s, "")
	long := strings.Repeat(" ", maxLine) + "\n"
	assert.EqualError(t, l.run(t.Context(), strings.NewReader("\n"+long)),
		"line 2 is longer than 2097152 bytes; nothing was added")
}

// A call may have fewer waits than a thousand jobs.
func TestLinesAreCutByTheirWaits(t *testing.T) {
	s := &flakyStore{Store: jqtest.NewStore(t)}
	_, err := s.Store.Enqueue(t.Context(), oneJob(""))
	require.NoError(t, err)
	line := fmt.Sprintf(`{"kind":"k","after":[%s]}`+"\n", strings.Join(slices.Repeat([]string{`{"id":"1"}`}, contract.MaxWaits), ","))
	l, _ := loading(s, "")
	require.NoError(t, l.run(t.Context(), strings.NewReader(strings.Repeat(line, 100))))
	require.Len(t, s.calls, 2)
	assert.Equal(t, []int{contract.MaxCallWaits / contract.MaxWaits, 100 - contract.MaxCallWaits/contract.MaxWaits}, []int{len(s.calls[0].Jobs), len(s.calls[1].Jobs)})
}

func TestErrorSaysWhichLinesWereAdded(t *testing.T) {
	lines := strings.Repeat(`{"kind":"k"}`+"\n", 1500)
	s := &flakyStore{Store: jqtest.NewStore(t)}
	l, _ := loading(s, "")
	assert.EqualError(t, l.run(t.Context(), strings.NewReader(lines+"{}\n")),
		"line 1501: kind must not be empty; the lines up to 1000 were added, and none after it")
	assert.Equal(t, int64(1000), jobsIn(t, s))

	closed := &flakyStore{Store: jqtest.NewStore(t)}
	require.NoError(t, closed.Close())
	l, _ = loading(closed, "")
	assert.EqualError(t, l.run(t.Context(), strings.NewReader(lines)), "lines 1 to 1000: jq: store closed; nothing was added")

	other := &flakyStore{Store: jqtest.NewStore(t)}
	_, err := other.Enqueue(t.Context(), oneJob("import/1"))
	require.NoError(t, err)
	l, _ = loading(other, "import")
	assert.ErrorContains(t, l.run(t.Context(), strings.NewReader(lines)), "lines 1 to 1000: jq: invalid: request_key ")
}

// If an answer is lost in the middle of a load, no job is added twice.
func TestLostAnswersOfLinesAddNothingTwice(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &flakyStore{Store: jqtest.NewStore(t), errs: []error{jq.ErrInDoubt, jq.ErrUnavailable, jq.ErrInDoubt}}
		l, _ := loading(s, "")
		require.NoError(t, l.run(t.Context(), strings.NewReader(strings.Repeat(`{"kind":"k"}`+"\n", 1500))))
		assert.Equal(t, int64(1500), jobsIn(t, s))
		assert.Len(t, s.calls, 5)
	})
}

// An error for a lost answer said both "the call may have been applied" and "nothing was added".
func TestLinesInDoubtDoNotSayNothingWasAdded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &flakyStore{Store: jqtest.NewStore(t), errs: make([]error, 100)}
		for i := range s.errs {
			s.errs[i] = jq.ErrInDoubt
		}
		l, _ := loading(s, "")
		err := l.run(t.Context(), strings.NewReader(`{"kind":"k"}`))
		require.ErrorIs(t, err, jq.ErrInDoubt)
		said, key, found := strings.Cut(err.Error(), " --request-key ")
		require.True(t, found, err)
		key, found = strings.CutSuffix(key, ": it adds nothing twice")
		require.True(t, found, err)
		assert.Equal(t, "line 1: jq: answer lost, the call may have been applied; repeat the command with", said)

		s.errs = nil
		l, _ = loading(s, key) // repeat the command
		require.NoError(t, l.run(t.Context(), strings.NewReader(`{"kind":"k"}`)))
		assert.Equal(t, int64(1), jobsIn(t, s))
	})
}

// --lines can be combined with --server.
func TestLinesCanBeSentToAServer(t *testing.T) {
	store := jqtest.NewStore(t)
	url, secret := servedWith(t, store, httpapi.Producer)
	var stdout, stderr bytes.Buffer
	std := quiet(&stdout, &stderr)
	std.in = strings.NewReader(`{"kind":"a"}` + "\n" + `{"kind":"b"}`)
	args := []string{"jobq", "enqueue", "--lines", "-", "--server", url, "--token", secret}
	require.Equal(t, exitOK, run(t.Context(), args, std), stderr.String())
	assert.Equal(t, "added 2 jobs\n", stdout.String())
	assert.Equal(t, int64(2), jobsIn(t, store))
}

// work fails if its token may not claim.
func TestWorkWithAViewersTokenFails(t *testing.T) {
	url, secret := servedWith(t, jqtest.NewStore(t), httpapi.Viewer)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stderr bytes.Buffer
	args := []string{"jobq", "work", "--exec", "cat", "--server", url, "--token", secret}
	require.Equal(t, exitFailed, run(ctx, args, quiet(&stderr, &stderr)))
	require.NoError(t, ctx.Err(), "the command ended on its own")
	assert.Contains(t, stderr.String(), "\njobq work: the store does not permit this server to work: not permitted, nothing was applied: "+
		"the token does not have the role for this: it is that of a viewer, and this is for: worker, operator; give another token (Options.Token, or JQ_TOKEN) (HTTP 403)\n")

	args = []string{"jobq", "enqueue", "mail", "--server", url, "--token", secret}
	began := time.Now()
	require.Equal(t, exitFailed, run(ctx, args, quiet(&stderr, &stderr)))
	assert.Less(t, time.Since(began), 5*time.Second, "the call is not repeated")
}

// servedWith serves the store over HTTP, and returns the URL and a token with the role.
func servedWith(t *testing.T, s jq.Store, role httpapi.Role) (url, secret string) {
	t.Helper()
	secret, token, err := httpapi.NewToken(httpapi.Token{Name: "somebody", Role: role})
	require.NoError(t, err)
	tokens, err := httpapi.ReadTokens(bytes.NewReader(token.Line()))
	require.NoError(t, err)
	api, err := httpapi.New(s, &httpapi.Options{Tokens: tokens, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	server := httptest.NewServer(api)
	t.Cleanup(func() {
		assert.NoError(t, api.Close())
		server.Close()
	})
	return server.URL, secret
}

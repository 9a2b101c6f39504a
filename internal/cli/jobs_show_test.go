package cli

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/jqtest"
)

func TestShowSaysWhyAJobWasPutOff(t *testing.T) {
	s := jqtest.NewStore(t)
	_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{{Queue: "mail", Kind: "welcome", Payload: []byte(`{}`)}}})
	require.NoError(t, err)
	jobs, err := s.FetchAndClaim(t.Context(), contract.ClaimRequest{Queue: "mail", Limit: 1, Worker: "anna", TTL: time.Minute})
	require.NoError(t, err)
	_, err = s.NAck(t.Context(), []contract.NAck{{Lease: jobs[0].Lease(), Form: contract.Snooze, Error: "the mail server is away"}})
	require.NoError(t, err)

	url, secret := servedWith(t, s, httpapi.Viewer)
	var out, stderr bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"jobq", "jobs", "show", "1", "--server", url, "--token", secret}, quiet(&out, &stderr)), stderr.String())
	assert.Regexp(t, `anna .* snoozed +the mail server is away\n`, out.String())
	assert.NotContains(t, out.String(), "\nerror:", "that is for failures")
}

// TestShowWaitsForTheEnd of the job, here over HTTP.
func TestShowWaitsForTheEnd(t *testing.T) {
	s := jqtest.NewStore(t)
	_, err := s.Enqueue(t.Context(), contract.EnqueueRequest{Jobs: []contract.NewJob{{Queue: "mail", Kind: "welcome", Payload: []byte(`{}`)}}})
	require.NoError(t, err)
	url, secret := servedWith(t, s, httpapi.Operator)
	show := func(wait string) (int, string, string) {
		var out, stderr bytes.Buffer
		code := run(t.Context(), []string{"jobq", "jobs", "show", "1", "--wait", wait, "--server", url, "--token", secret}, quiet(&out, &stderr))
		return code, out.String(), stderr.String()
	}
	code, out, stderr := show("10ms")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, out, "job 1: ready\n", "it shows the job as it is")
	assert.Equal(t, "jobq jobs show: job 1 has not ended within 10ms\n", stderr)

	ended := make(chan error, 1)
	go func() {
		_, err := s.Cancel(t.Context(), contract.Filter{IDs: []int64{1}}, 1)
		ended <- err
	}()
	code, out, stderr = show("1m")
	require.NoError(t, <-ended)
	assert.Zero(t, code, stderr)
	assert.Contains(t, out, "job 1: cancelled\n")
}

func TestShowSaysWhatHoldsAJobUp(t *testing.T) {
	for _, c := range []struct {
		w       jq.Waiting
		blocked bool
		text    string
	}{
		{jq.Waiting{ID: 7, State: jq.InFlight}, true, "job 7: in_flight"},
		{jq.Waiting{ID: 7, State: jq.Ready, Any: true}, true, "job 7, until it has ended: ready"},
		{jq.Waiting{ID: 7, State: jq.Succeeded, Met: true}, true, "job 7: met (succeeded)"},
		{jq.Waiting{ID: 7, Any: true, Met: true}, false, "job 7, until it has ended: met (removed)"},
		{jq.Waiting{ID: 7, State: jq.Dead}, true, "job 7: dead; it holds this job up unless somebody requeues it"},
		{jq.Waiting{ID: 7}, true, "job 7: removed; it holds this job up for ever"},
		{jq.Waiting{ID: 7, State: jq.Dead}, false, "job 7: dead"},
		{jq.Waiting{Group: "g", Any: true, State: jq.Cancelled}, true, "group g, until it has ended: spoiled by a cancelled or removed job"},
	} {
		assert.Equal(t, c.text, waitingText(c.w, c.blocked))
	}
}

// TestWaitsOverHTTP are enqueued and shown as on a store.
func TestWaitsOverHTTP(t *testing.T) {
	url, secret := servedWith(t, jqtest.NewStore(t), httpapi.Operator)
	do := func(args ...string) string {
		var out, stderr bytes.Buffer
		code := run(t.Context(), append(append([]string{"jobq"}, args...), "--server", url, "--token", secret), quiet(&out, &stderr))
		return fmt.Sprint(code, " ", out.String(), stderr.String())
	}
	assert.Equal(t, "0 added job 1 to queue default\n", do("enqueue", "a"))
	assert.Equal(t, "0 added job 2 to queue default; it is blocked, because it waits for other jobs\n", do("enqueue", "b", "--after", "1"))
	assert.Equal(t, "1 jobq enqueue: after names job 99, which does not exist\n", do("enqueue", "b", "--after", "99"))
	assert.Contains(t, do("jobs", "show", "2"), "\nwaits for:\n  job 1: ready\n")
	assert.Equal(t, "0 job 1: cancelled\n", do("jobs", "cancel", "1"))
	assert.Contains(t, do("jobs", "show", "2"), "\nerror:\n  job 1, which it needs, was cancelled\n")
}

// A due job that claims pass over says what holds it back, on a store and through a server.
func TestShowSaysWhatHoldsADueJobBack(t *testing.T) {
	s := jqtest.NewStore(t)
	ctx := t.Context()
	_, err := s.SetPolicy(ctx, "devices", contract.Policy{Ordered: true})
	require.NoError(t, err)
	_, err = s.SetPolicy(ctx, "mail", contract.Policy{MaxPerKey: 1})
	require.NoError(t, err)
	for _, queue := range []string{"devices", "devices", "mail", "mail"} {
		_, err := s.Enqueue(ctx, contract.EnqueueRequest{Jobs: []contract.NewJob{{Queue: queue, Kind: "k", Payload: []byte(`{}`), LimitKey: "acme\t1"}}})
		require.NoError(t, err)
	}
	for _, queue := range []string{"devices", "mail"} {
		_, err := s.FetchAndClaim(ctx, contract.ClaimRequest{Queue: queue, Limit: 9, Worker: "anna", TTL: time.Minute})
		require.NoError(t, err)
	}
	require.NoError(t, s.SetPaused(ctx, "mail", true))

	show := func(role httpapi.Role, id string) string {
		url, secret := servedWith(t, s, role)
		var out, stderr bytes.Buffer
		require.Zero(t, run(ctx, []string{"jobq", "jobs", "show", id, "--server", url, "--token", secret}, quiet(&out, &stderr)), stderr.String())
		return out.String()
	}
	assert.Contains(t, show(httpapi.Viewer, "2"), "\n\nheld back:\n"+
		`  its queue devices is ordered, and job 1 of its limit key acme\t1 goes first: it has been in flight for 0s (worker anna)`+"\n\n")
	assert.Contains(t, show(httpapi.Viewer, "4"), "\n\nheld back:\n  its queue mail is paused\n"+
		`  its limit key acme\t1 has as many jobs in flight as its queue mail allows (1): job 3`+"\n\n")
	assert.NotContains(t, show(httpapi.Viewer, "1"), "held back", "it is in flight")
	assert.NotContains(t, show(httpapi.Producer, "4"), "held back", "a producer may not see other jobs")

	require.NoError(t, s.SetPaused(ctx, "mail", false))
	_, err = s.Cancel(ctx, contract.Filter{IDs: []int64{3}}, 1)
	require.NoError(t, err)
	assert.NotContains(t, show(httpapi.Viewer, "4"), "held back")
}

// An unlisted store can read one job, and count, but lists none.
type unlisted struct{ *jqtest.Store }

func (unlisted) List(context.Context, contract.Filter, contract.Page) (contract.JobPage, error) {
	return contract.JobPage{}, fmt.Errorf("%w: the disk is slow", contract.ErrUnavailable)
}

// A job is shown also if the others cannot be read.
func TestShowNeedsNoOtherJobs(t *testing.T) {
	s := unlisted{jqtest.NewStore(t)}
	ctx := t.Context()
	_, err := s.SetPolicy(ctx, "mail", contract.Policy{MaxPerKey: 1})
	require.NoError(t, err)
	_, err = s.Enqueue(ctx, contract.EnqueueRequest{Jobs: []contract.NewJob{{Queue: "mail", Kind: "k", Payload: []byte(`{}`), LimitKey: "acme"}}})
	require.NoError(t, err)
	url, secret := servedWith(t, s, httpapi.Viewer)
	var out, stderr bytes.Buffer
	require.Zero(t, run(ctx, []string{"jobq", "jobs", "show", "1", "--server", url, "--token", secret}, quiet(&out, &stderr)), stderr.String())
	assert.Contains(t, out.String(), "job 1: ready\n")
	assert.Contains(t, stderr.String(), "it is not known whether something holds the job back: ")
}

package cli

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

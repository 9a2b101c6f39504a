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

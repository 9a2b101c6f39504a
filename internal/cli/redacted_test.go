package cli

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/jqtest"
)

// An export without payloads is an error, because it would look like a complete copy.
func TestExportNeedsAnOperator(t *testing.T) {
	s := jqtest.NewStore(t)
	_, err := s.Enqueue(t.Context(), jq.EnqueueRequest{Jobs: []jq.NewJob{{Queue: "mail", Kind: "welcome", Payload: []byte(`{"name":"ada"}`)}}})
	require.NoError(t, err)
	for role, code := range map[httpapi.Role]int{httpapi.Viewer: exitFailed, httpapi.Operator: 0} {
		url, secret := servedWith(t, s, role)
		var out, stderr bytes.Buffer
		assert.Equal(t, code, run(t.Context(), []string{"jobq", "jobs", "export", "--server", url, "--token", secret}, quiet(&out, &stderr)), stderr.String())
		assert.Equal(t, role == httpapi.Operator, bytes.Contains(out.Bytes(), []byte("ada")))
		if role == httpapi.Viewer {
			assert.Empty(t, out.String())
			assert.Contains(t, stderr.String(), "jobs export: your token may not read payloads, which an export needs: use the token of an operator")
		}
		stderr.Reset()
		assert.Equal(t, 0, run(t.Context(), []string{"jobq", "jobs", "show", "1", "--server", url, "--token", secret}, quiet(&out, &stderr)), stderr.String())
		assert.Equal(t, role == httpapi.Viewer, bytes.Contains(stderr.Bytes(), []byte("the role of your token does not allow you to read payloads")))
	}
}

package httpapi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/wire"
)

// TestAListingCanLeaveOutTheDocuments: all of them, and nothing else.
func TestAListingCanLeaveOutTheDocuments(t *testing.T) {
	w := newWorld(t, Options{})
	w.ask("POST", "/v1/jobs", `{"jobs":[{"kind":"k","payload":{"a": 1},"tags":["t"]}]}`)
	job := w.claim(`{"worker":"w","queues":["default"]}`)[0]
	lease := `"id":"` + text(t, job.ID) + `","token":"` + text(t, job.Token) + `"`
	require.Equal(t, 200, w.ask("POST", "/v1/checkpoint", `{"jobs":[{`+lease+`,"seq":1,"checkpoint":{"c": 1},"progress":{"p": 1}}]}`).status)
	require.Equal(t, 200, w.ask("POST", "/v1/ack", `{"jobs":[{`+lease+`,"result":{"r": 1}}]}`).status)

	whole := call[wire.Jobs](w, 200, "GET", "/v1/jobs", "").Jobs[0]
	require.NotEmpty(t, whole.Payload)
	require.NotEmpty(t, whole.Checkpoint)
	require.NotEmpty(t, whole.Progress)
	require.NotEmpty(t, whole.Result)
	whole.Payload, whole.PayloadText, whole.Checkpoint, whole.CheckpointText = nil, nil, nil, nil
	whole.Progress, whole.ProgressText, whole.Result, whole.ResultText = nil, nil, nil, nil
	assert.Equal(t, whole, call[wire.Jobs](w, 200, "GET", "/v1/jobs?documents=false", "").Jobs[0])
}

func text(t *testing.T, id wire.ID) string {
	t.Helper()
	digits, err := id.MarshalText()
	require.NoError(t, err)
	return string(digits)
}

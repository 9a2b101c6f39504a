package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

// BenchmarkJob takes a job through its life by three calls over one connection: enqueue, claim, ack.
func BenchmarkJob(b *testing.B) {
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			s := memory.New(memory.Options{})
			api, err := New(s, nil)
			require.NoError(b, err)
			server := httptest.NewServer(api)
			defer func() {
				require.NoError(b, api.Close())
				server.Close()
				require.NoError(b, s.Close())
			}()
			post := func(path, body string, into any) {
				resp, err := server.Client().Post(server.URL+path, wire.JSON, strings.NewReader(body))
				require.NoError(b, err)
				text, err := io.ReadAll(resp.Body)
				require.NoError(b, err)
				require.NoError(b, resp.Body.Close())
				require.Less(b, resp.StatusCode, http.StatusMultipleChoices, "%s", text)
				if into != nil {
					require.NoError(b, json.Unmarshal(text, into))
				}
			}
			enqueue := `{"jobs":[` + strings.TrimSuffix(strings.Repeat(`{"kind":"k","payload":{"to":"ada@example.org"}},`, batch), ",") + `]}`
			claim := fmt.Sprintf(`{"worker":"w","limit":%d}`, batch)
			b.ReportAllocs()
			for b.Loop() {
				post(wire.PathJobs, enqueue, nil)
				var jobs wire.Jobs
				post(wire.PathClaim, claim, &jobs)
				require.Len(b, jobs.Jobs, batch)
				var ack bytes.Buffer
				for _, j := range jobs.Jobs {
					fmt.Fprintf(&ack, `{"id":"%d","token":"%d"},`, j.ID, j.Token)
				}
				post(wire.PathAck, `{"jobs":[`+strings.TrimSuffix(ack.String(), ",")+`]}`, nil)
			}
			b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}

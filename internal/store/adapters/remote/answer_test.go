package remote

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

// FuzzAnswer shows that whatever comes back is an answer that fits the call, or an error of the contract in one line.
func FuzzAnswer(f *testing.F) {
	f.Add(200, wire.JSON, `{"results":[{"id":"1","status":"ok","state":"succeeded","token":"2"}],"more":1}`, "")
	f.Add(200, wire.JSON, `{"jobs":[{"id":"7","queue":"q","worker":"w","state":"in_flight","token":"3","payload":1}]}`, "")
	f.Add(200, wire.JSON, `{"now":"2026-01-02T03:04:05Z","queues":[{"queue":"q","jobs":{"ready":1}}]}`, "")
	f.Add(201, wire.JSON, `{"jobs":[{"id":"7","state":"ready"}]}`, "")
	f.Add(400, wire.Problem, `{"type":"urn:jq:invalid","status":400,"item":2,"field":"payload","rule":"must\nbe"}`, "")
	f.Add(503, wire.Problem, `{"type":"urn:jq:closed","title":"closing"}`, "")
	f.Add(302, "text/html", "<html>", "https://user:password@example.org/\r\n")
	f.Add(204, "", "", "")
	f.Fuzz(func(t *testing.T, status int, kind, body, location string) {
		answer := func() *http.Response {
			return &http.Response{
				StatusCode: status, ContentLength: -1, Body: io.NopCloser(strings.NewReader(body)),
				Header: http.Header{"Content-Type": {kind}, "Location": {location}},
			}
		}
		check := func(err error) {
			if err == nil {
				return
			}
			if !said(err) {
				err = lost(err, true, false)
				require.NotContains(t, err.Error(), "\n")
			}
			require.True(t, said(err), "%v", err)
			require.NotErrorIs(t, err, store.ErrClosed)
		}
		var results wire.Results
		err := decode(answer(), mostOf(1), &results, outcomesFor([]int64{1}))
		check(err)
		if err == nil {
			require.EqualValues(t, 1, results.Results[0].ID)
		}
		var jobs wire.Jobs
		err = decode(answer(), mostJob, &jobs, claimedBy(claimOf(2)))
		check(err)
		if err == nil {
			require.LessOrEqual(t, len(jobs.Store()), 2)
			for _, j := range jobs.Store() {
				require.Equal(t, "q", j.Queue)
			}
		}
		var counts store.Counts
		err = decode(answer(), mostNames, &counts, func(store.Counts) error { return nil })
		check(err)
		check(nothing(answer()))
	})
}

// FuzzEvents shows that a stream ends with an error and never goes on for ever, and that events come out as they went in.
func FuzzEvents(f *testing.F) {
	f.Add(": jq\n\nevent: wakeup\ndata: {\"queue\":\"q\"}\n\n")
	f.Add("event:wakeup\r\ndata:1\r\ndata: 2\r\n\r\nid: 7\ndata\n\n")
	f.Add("event: wakeup\n\ndata: 1\n\n:\n")
	f.Add(strings.Repeat("x", mostEvent+1))
	f.Add(strings.Repeat("data: x\n", mostEvent))
	f.Fuzz(func(t *testing.T, text string) {
		e := newEvents(strings.NewReader(text))
		var again bytes.Buffer
		var events []event
		for {
			got, err := e.next()
			if err != nil {
				require.True(t, errors.Is(err, io.EOF) || errors.Is(err, errTooLong), "%v", err)
				break
			}
			require.LessOrEqual(t, len(got.data), mostEvent)
			require.NotContains(t, got.name, "\n")
			if got == (event{}) {
				continue
			}
			events = append(events, got)
			if got.name != "" {
				again.WriteString("event: " + got.name + "\n")
			}
			for line := range strings.SplitSeq(got.data, "\n") {
				again.WriteString("data: " + line + "\n")
			}
			again.WriteString("\n")
		}
		back := newEvents(&again)
		for _, want := range events {
			got, err := back.next()
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	})
}

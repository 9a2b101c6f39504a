package wire_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/wire"
)

func TestDecodeNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ name, body, field, rule string }{
		{"Empty", ``, "body", "must be a JSON object, and is empty"},
		{"Truncated", `{"jobs":[{"kind":"k"`, "body", "must be JSON: it ends too early"},
		{"Malformed", `{"jobs":[}`, "body", "must be JSON: invalid character '}' looking for beginning of value (byte 10)"},
		{"Trailing", `{"jobs":[]} {}`, "body", "must be one JSON value, with nothing behind it"},
		{"NoObject", `[]`, "body", "must be an object"},
		{"InvalidUTF8", "{\"jobs\":[{\"kind\":\"\xff\"}]}", "body", "must be valid UTF-8"},
		{"UnknownField", `{"jobs":[{"kind":"k","colour":"red"}]}`, "colour", "is not known here"},
		{"WrongType", `{"jobs":[{"kind":7}]}`, "jobs.kind", "must be a string"},
		{"NoList", `{"jobs":{}}`, "jobs", "must be a list"},
		{"BeyondInt64", `{"jobs":[{"kind":"k","priority":9223372036854775808}]}`, "jobs.priority", "must be a whole number that fits int"},
		{"Fraction", `{"jobs":[{"kind":"k","priority":1.5}]}`, "jobs.priority", "must be a whole number that fits int"},
		{"Duration", `{"jobs":[{"kind":"k","delay":"soon"}]}`, "jobs.delay", `must be a duration such as "30s"`},
		{"BareDuration", `{"jobs":[{"kind":"k","delay":30}]}`, "jobs.delay", `must be a duration such as "30s"`},
		{"Time", `{"jobs":[{"kind":"k","run_at":"tomorrow"}]}`, "jobs.run_at", `must be a time such as "2006-01-02T15:04:05Z"`},
		{"Deep", `{"jobs":[{"kind":"k","payload":` + strings.Repeat("[", 20_000), "body", "must be JSON: invalid character '[' exceeded max depth (byte 10029)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var into wire.Enqueue
			err := wire.Decode([]byte(c.body), &into)
			var invalid *store.InvalidError
			require.ErrorAs(t, err, &invalid)
			assert.Equal(t, c.field, invalid.Field)
			assert.Equal(t, c.rule, invalid.Rule)
		})
	}
}

func TestIDsAreStrings(t *testing.T) {
	for _, text := range []string{`7`, `"seven"`, `""`, `"+7"`, `"07"`, `"9223372036854775808"`, `"1e3"`, `null`, `{}`} {
		var into wire.Acks
		err := wire.Decode([]byte(`{"jobs":[{"id":`+text+`,"token":"1"}]}`), &into)
		var invalid *store.InvalidError
		require.ErrorAs(t, err, &invalid, text)
		assert.Equal(t, "jobs.id", invalid.Field, text)
		assert.Equal(t, "must be a string with a number", invalid.Rule, text)
	}
	for _, n := range []int64{0, -1, 1, 1 << 62} {
		text, err := wire.Marshal(wire.LeaseOf(store.Lease{ID: n, Token: n}))
		require.NoError(t, err)
		var back wire.Lease
		require.NoError(t, wire.Decode(text, &back))
		assert.Equal(t, store.Lease{ID: n, Token: n}, back.Store())
	}
}

func TestDocumentsArriveByteForByte(t *testing.T) {
	for _, doc := range []string{
		`{}`, ` {} `, "\t[ 1, 2 ]\n", `"<&>\u003c  "`, `{"a":1,"a":2}`, `1e400`, `null`, "\"\u2028\"", `{"b": {"c" :"\\\" "}}`,
	} {
		text, err := wire.Marshal(wire.JobOf(store.Job{Payload: []byte(doc), Checkpoint: []byte(doc), Progress: []byte(doc), Result: []byte(doc)}))
		require.NoError(t, err)
		var back wire.Job
		require.NoError(t, wire.Decode(text, &back), string(text))
		job := back.Store()
		for _, got := range [][]byte{job.Payload, job.Checkpoint, job.Progress, job.Result} {
			assert.Equal(t, doc, string(got))
		}
	}
	text, err := wire.Marshal(wire.JobOf(store.Job{Payload: []byte(`{"a":"b"}`)}))
	require.NoError(t, err)
	assert.NotContains(t, string(text), "_text", "the twin is for documents with blanks")
}

// Jobs.marshal writes the same text as the standard encoder.
func TestJobsAreWrittenOneByOne(t *testing.T) {
	large := []byte(`{"<&>": "` + strings.Repeat("x", 100_000) + `"}`)
	job := wire.JobOf(filled[store.Job](t))
	for _, jobs := range []wire.Jobs{
		{Jobs: []wire.Job{}},
		{Jobs: []wire.Job{}, Next: "cursor"},
		{Jobs: []wire.Job{job}},
		{Jobs: []wire.Job{{}, job, {ID: 3, Payload: large, Error: "<\u2028>"}}, Next: "<>"},
		{Jobs: []wire.Job{{Error: string(large)}}},
		{Jobs: []wire.Job{{Trace: string(large)}}},
		wire.JobsOf(slices.Repeat([]store.Job{{Payload: large, Checkpoint: large, Progress: large, Result: large}}, 9)),
	} {
		text, err := wire.Marshal(jobs)
		require.NoError(t, err)
		var want bytes.Buffer
		require.NoError(t, wire.Encode(&want, jobs))
		assert.Equal(t, strings.TrimSuffix(want.String(), "\n"), string(text))
		assert.InDelta(t, len(text), jobs.Size(), 5000)
		if len(text) > len(large) {
			assert.Less(t, cap(text), jobs.Size()*5/4, "it has not outgrown its room")
		}
	}
	_, err := wire.Marshal(wire.Jobs{Jobs: []wire.Job{{Payload: []byte("{")}}})
	require.Error(t, err, "a document that is none")
}

// FuzzDecode checks that an accepted request is encoded again as it was read, and that the error for any other names a field.
func FuzzDecode(f *testing.F) {
	f.Add(`{"jobs":[{"kind":"k","payload":{"a": 1},"queue":"q","delay":"1s"}]}`)
	f.Add(`{"jobs":[{"kind":"k","payload_text":" 1","max_retries":0,"backoff":{"base":"1s"}}]}`)
	f.Add(`{"jobs":[{"kind":"k","run_at":"2026-01-02T03:04:05.000006+01:00","tags":["a"]}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		var first wire.Enqueue
		if err := wire.Decode([]byte(body), &first); err != nil {
			var invalid *store.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.NotEmpty(t, invalid.Field)
			return
		}
		var taken store.EnqueueRequest
		again := wire.Enqueue{Jobs: []wire.NewJob{}}
		for _, n := range first.Jobs {
			job := n.Store(store.NewJob{Payload: []byte("null")})
			taken.Jobs, again.Jobs = append(taken.Jobs, job), append(again.Jobs, wire.NewJobOf(job))
		}
		if taken.Check() != nil { // every store refuses it
			return
		}
		text, err := wire.Marshal(again)
		require.NoError(t, err)
		var second wire.Enqueue
		require.NoError(t, wire.Decode(text, &second), string(text))
		var got store.EnqueueRequest
		for _, n := range second.Jobs {
			got.Jobs = append(got.Jobs, n.Store(store.NewJob{Payload: []byte("null")}))
		}
		require.Equal(t, taken.Fingerprint(), got.Fingerprint(), string(text))
	})
}

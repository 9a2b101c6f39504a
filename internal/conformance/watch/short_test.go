package watch

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed-ed332417/jq/internal/store"
)

// What lies behind the beginning of a value does not change how it is shown.
func TestLargeValuesAreShownAsSmallOnes(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC)
	doc := bytes.Repeat([]byte("x"), 1000)
	job := store.Job{ID: 7, Queue: "q", State: store.Ready, Payload: doc, Tags: []string{"a", "b"}, RunAt: at}
	for _, v := range []any{
		nil, 1, "text", doc, doc[:shown], doc[:shown+1], []byte(nil), []byte{}, make([]byte, 1000), at, job, &job,
		store.JobPage{Jobs: []store.Job{job, job}}, store.JobDetail{Job: job}, []store.Job(nil), make([]store.Outcome, 1000),
		[]any{store.Filter{IDs: make([]int64, 1000)}, 1, nil}, store.EnqueueRequest{Jobs: []store.NewJob{{Payload: doc}}},
		map[string][]byte{"doc": doc}, store.ErrNotFound,
	} {
		assert.Equal(t, shorten(readable(fmt.Sprintf("%+v", v))), Short(v))
		assert.Equal(t, shorten(readable(zeroField.ReplaceAllString(fmt.Sprintf("%+v", v), "$3"))), brief(v))
	}
	assert.Len(t, job.Payload, 1000, "the value stays as it is")
}

func TestDocumentsAreShownAsText(t *testing.T) {
	for doc, want := range map[string]string{
		`{"to": "Zoë"}`: `{Payload:{"to": "Zoë"} }`,
		"{}\n":          `{Payload:"{}\n" }`,
		"\xff":          `{Payload:"\xff" }`,
		"{}":            `{Payload:{} }`,
		"":              `{}`,
	} {
		assert.Equal(t, want, brief(struct {
			Payload []byte
			IDs     []int64
		}{Payload: []byte(doc)}))
	}
	assert.Equal(t, "{IDs:[1 2]}", brief(struct{ IDs []int64 }{[]int64{1, 2}}))
	assert.Equal(t, "{Result:[1 256]}", brief(struct{ Result []int64 }{[]int64{1, 256}}), "numbers that are no bytes")
}

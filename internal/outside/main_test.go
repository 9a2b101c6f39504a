package outside

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/jqtest"
)

// patience is for how long a test waits for what should happen at once.
const patience = time.Minute

// mail is a payload.
func mail(doc string) jq.Payload { return jq.Raw{Name: "mail", Document: json.RawMessage(doc)} }

// once runs a job with the handler until it is run no more, or put off, and returns what became of its first run.
func once(t *testing.T, handle jq.HandlerFunc, payload jq.Payload) jqtest.Ran {
	t.Helper()
	s := jqtest.NewStore(t)
	_, err := jq.NewClient(s, nil).Enqueue(t.Context(), payload, &jq.EnqueueOptions{Queue: "post", Trace: trace,
		Backoff: jq.Backoff{Base: time.Minute, Cap: time.Minute, Jitter: -1}})
	require.NoError(t, err)
	var h jq.Handlers
	h.Otherwise(handle)
	ran := jqtest.Drain(t, s, &h, &jqtest.DrainOptions{Until: jqtest.Epoch})
	require.Len(t, ran, 1)
	return ran[0]
}

const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// A fate is what became of a job.
type fate struct {
	Phase  jq.State
	Result string
	Error  string
	Next   time.Duration // from the run, if it is run again
}

func fateOf(ran jqtest.Ran) fate {
	f := fate{Phase: ran.After.Phase(), Result: string(ran.After.Result), Error: ran.After.Error}
	if next := ran.After.Next(); !next.IsZero() {
		f.Next = next.Sub(ran.At)
	}
	return f
}

// A record keeps what is logged.
type record struct {
	slog.Handler
	lines chan string
}

func newRecord() *record { return &record{slog.DiscardHandler, make(chan string, 100)} }

func (r *record) Enabled(context.Context, slog.Level) bool { return true }

func (r *record) Handle(_ context.Context, rec slog.Record) error {
	line := rec.Level.String() + " " + rec.Message
	rec.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	r.lines <- line
	return nil
}

package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

const (
	leftToOthers = "jq: no handler for this kind here; the job is left to other servers"
	unknownFails = "jq: no handler for this kind on any server; the job fails"
)

// startKnowing starts a server with handlers of its own, as during a deployment.
func (w *world) startKnowing(o Options, handlers map[string]Handler) *Server {
	w.Helper()
	all := w.handlers
	w.handlers = handlers
	s := w.server(o)
	w.handlers = all
	s.lookup = func(kind string) (Handler, bool) { h, ok := handlers[kind]; return h, ok }
	require.NoError(w, s.Start(w.Context()))
	return s
}

// A job of an unknown kind is put off, with a line in the log each time and no retry counted, until a server comes that knows
// it: R40.
func TestUnknownKindIsLeftToOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		id := w.enqueue(1, "new")[0]
		var log bytes.Buffer
		old := w.start(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		w.wait(30 * time.Minute)
		j := w.job(id)
		assert.Equal(w, store.Ready, j.State)
		assert.Zero(w, j.Retries)
		assert.Empty(w, j.Error)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		require.Len(w, lines, len(j.History))
		assert.Less(w, len(lines), 100, "it does not go round and round")
		for _, part := range []string{"level=WARN", leftToOthers, fmt.Sprintf("job=%d", id), "queue=default", "kind=new"} {
			assert.Contains(w, lines[0], part)
		}
		for _, a := range j.History {
			assert.Equal(w, store.EndSnoozed, a.Ending)
			assert.Equal(w, "no handler for kind new", a.Error)
		}
		known := map[string]Handler{"new": func(context.Context, *Run) error { return nil }}
		brought := w.startKnowing(Options{Name: "brought up to date"}, known)
		w.stop(old)
		w.wait(2 * time.Minute)
		j = w.job(id)
		assert.Equal(w, store.Succeeded, j.State)
		assert.Zero(w, j.Retries)
		assert.Equal(w, "brought up to date", j.History[len(j.History)-1].Worker)
		w.stop(brought)
	})
}

// Side by side with servers that do not know the kind, the one that does gets the job in the end.
func TestUnknownKindIsFoundByTheServerThatKnowsIt(t *testing.T) {
	inWorld(t, func(w *world) {
		ids := w.enqueue(20, "new")
		var servers []*Server
		for _, name := range []string{"a", "b"} {
			servers = append(servers, w.start(Options{Name: name}))
		}
		servers = append(servers, w.startKnowing(Options{Name: "c"}, map[string]Handler{"new": func(context.Context, *Run) error { return nil }}))
		w.wait(59 * time.Minute)
		for _, id := range ids {
			require.Equal(w, store.Succeeded, w.job(id).State)
			require.Zero(w, w.job(id).Retries)
		}
		for _, s := range servers {
			w.stop(s)
		}
	})
}

// When nobody has known the kind for so long, the job fails, with the kind in its error, as any failure: R40.
func TestUnknownKindFailsInTheEnd(t *testing.T) {
	for _, unknownFor := range []time.Duration{0, 2 * time.Minute, 5 * time.Hour} {
		inWorld(t, func(w *world) {
			var began time.Time
			id := w.enqueue(1, "new", func(j *store.NewJob) { j.MaxRetries = 0 })[0]
			began = time.Now()
			s := w.start(Options{UnknownKindTimeout: unknownFor, Claim: ClaimOptions{PollInterval: 5 * time.Second}})
			after := s.o.UnknownKindTimeout
			w.wait(after - time.Second)
			assert.Equal(w, store.Ready, w.job(id).State)
			assert.Zero(w, w.log.said(unknownFails))
			w.wait(after/10 + time.Minute)
			j := w.job(id)
			assert.Equal(w, store.Dead, j.Phase())
			assert.Equal(w, "no handler for kind new", j.Error)
			assert.Equal(w, 1, j.Retries)
			assert.WithinRange(w, j.FinishedAt, began.Add(after), began.Add(after+after/10+time.Minute))
			assert.Equal(w, 1, w.log.said(unknownFails))
			w.stop(s)
		})
	}
}

// What counts is for how long nobody has known the kind, and not when the job was enqueued: one that was delayed for a day, or
// that waited a day for a server, has its hour all the same. R40.
func TestOldJobOfAnUnknownKindDoesNotFailAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		waited := w.enqueue(1, "new")[0]
		delayed := w.enqueue(1, "new", func(j *store.NewJob) { j.Delay = 24 * time.Hour })[0]
		w.wait(24*time.Hour + time.Minute)
		s := w.start(Options{})
		w.wait(50 * time.Minute)
		for _, id := range []int64{waited, delayed} {
			assert.Equal(w, store.Ready, w.job(id).State)
			assert.Zero(w, w.job(id).Retries)
		}
		w.stop(s)
	})
}

// Nor does a job fail that has snoozed by itself for hours, where its kind is known, and now meets a server that does not: R40.
func TestSnoozesOfTheHandlerAreNotCounted(t *testing.T) {
	asForUnknown := DefaultUnknownKindTimeout / (store.MaxAttemptsKept / 2)
	for _, every := range []time.Duration{time.Second, asForUnknown, 10 * time.Minute} {
		inWorld(t, func(w *world) {
			id := w.enqueue(1, "polling")[0]
			knows := w.startKnowing(Options{}, map[string]Handler{
				"polling": func(context.Context, *Run) error {
					return &Wish{Form: store.Snooze, Delay: every, Err: errors.New("not yet")}
				},
			})
			w.wait(90 * time.Minute)
			w.stop(knows)
			require.Greater(w, len(w.job(id).History), 5)
			old := w.start(Options{})
			w.wait(50 * time.Minute)
			assert.Positive(w, w.log.said(leftToOthers))
			assert.Zero(w, w.log.said(unknownFails), "snoozed every %v", every)
			assert.Zero(w, w.job(id).Retries)
			w.wait(30 * time.Minute)
			assert.Equal(w, 1, w.log.said(unknownFails), "an hour later it has failed all the same")
			w.stop(old)
		})
	}
}

// Where the store does not tell the history, the job is put off.
func TestUnknownKindWithoutItsHistory(t *testing.T) {
	inWorld(t, func(w *world) {
		id := w.enqueue(1, "new")[0]
		h := w.hook()
		h.every(func(_ context.Context, method string) error {
			if method == "get" {
				return store.ErrUnavailable
			}
			return nil
		})
		s := w.start(Options{UnknownKindTimeout: time.Minute}, h)
		w.wait(10 * time.Minute)
		assert.Equal(w, store.Ready, w.job(id).State)
		h.let()
		w.wait(time.Minute)
		assert.Equal(w, 1, w.job(id).Retries, "now it is seen for how long")
		w.stop(s)
	})
}

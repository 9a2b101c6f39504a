package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
)

const leftOut = "jq: suppressed lines about failed jobs"

// D25: panics, failures and dead jobs left no line in the log.
func TestFailuresLeftNoLineInTheLog(t *testing.T) {
	inWorld(t, func(w *world) {
		w.handlers["fails"] = func(context.Context, *Run) error { return errors.New("mail server away") }
		w.handlers["panics"] = func(context.Context, *Run) error { panic("ouch") }
		w.handlers["snoozes"] = func(context.Context, *Run) error { return &Wish{Form: store.Snooze, Delay: time.Hour} }
		w.handlers["works"] = work(0)
		once := func(j *store.NewJob) {
			j.MaxRetries, j.Payload = 0, []byte(`"secret"`)
		}
		s := w.start(Options{Name: "mine"})
		failing := w.enqueue(1, "fails", func(j *store.NewJob) {
			j.MaxRetries, j.Backoff = 1, store.Backoff{Base: time.Minute, Cap: time.Minute}
		})[0]
		panicking := w.enqueue(1, "panics", once)[0]
		w.enqueue(1, "snoozes", once)
		w.enqueue(1, "works", once)
		w.wait(time.Second)

		failed, dead := w.said(jobFailed), w.said(jobDead)
		require.Len(w, failed, 1)
		assert.Equal(w, []any{failing, "fails", DefaultQueue, int64(1), "mail server away"},
			[]any{failed[0]["job"], failed[0]["kind"], failed[0]["queue"], failed[0]["attempt"], failed[0]["error"]})
		assert.Equal(w, w.job(failing).RetryAt, failed[0]["again_at"])
		require.Len(w, dead, 1)
		assert.Equal(w, []any{panicking, "panic: ouch"}, []any{dead[0]["job"], dead[0]["error"]})
		assert.Contains(w, dead[0]["stack"], "failures_test.go")
		assert.NotContains(w, failed[0], "stack")

		w.wait(2 * time.Minute)
		require.Len(w, w.said(jobDead), 2, "the retry has failed too")
		assert.Equal(w, []any{failing, int64(2)}, []any{w.said(jobDead)[1]["job"], w.said(jobDead)[1]["attempt"]})
		assert.Empty(w, w.said(leftOut))
		w.stop(s)
	})
}

// When all jobs fail at once, the log is limited, and says how many lines it suppressed, even if nothing more happens.
func TestFailuresAreLoggedAtABoundedRate(t *testing.T) {
	for name, ends := range map[string]func(w *world, s *Server){
		"a second later": func(w *world, _ *Server) { w.wait(2 * time.Second) },
		"at the end":     func(w *world, s *Server) { w.stop(s) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.handlers["fails"] = func(context.Context, *Run) error { return errors.New("no luck") }
				w.handlers["dies"] = func(context.Context, *Run) error { return &Wish{Form: store.Never, Err: errors.New("no luck")} }
				s := w.start(Options{Slots: 100})
				w.enqueue(25, "fails", func(j *store.NewJob) {
					j.MaxRetries, j.Backoff = 1, store.Backoff{Base: time.Hour, Cap: time.Hour}
				})
				w.enqueue(15, "dies")
				w.wait(100 * time.Millisecond)
				assert.Len(w, w.said(jobFailed), maxLines)
				assert.Len(w, w.said(jobDead), maxLines)
				assert.Empty(w, w.said(leftOut))
				ends(w, s)
				counts := map[any]any{}
				for _, line := range w.said(leftOut) {
					counts[line["of"]] = line["count"]
				}
				assert.Equal(w, map[any]any{"failed": int64(15), "dead": int64(5)}, counts)
				w.stop(s)
			})
		})
	}
	inWorld(t, func(w *world) { // a new second has lines again
		w.handlers["dies"] = func(context.Context, *Run) error { return &Wish{Form: store.Never, Err: errors.New("no luck")} }
		s := w.start(Options{Slots: 100})
		for range 3 {
			w.enqueue(15, "dies")
			w.wait(1500 * time.Millisecond)
		}
		assert.Len(w, w.said(jobDead), 3*maxLines)
		assert.Len(w, w.said(leftOut), 3)
		w.stop(s)
	})
}

// A job that became dead when its last worker died is logged too, by the server that recovers it.
func TestJobThatDiesByRecoveryIsLogged(t *testing.T) {
	inWorld(t, func(w *world) {
		w.orphanForGood(1)
		s := w.start(Options{})
		w.wait(2 * time.Minute)
		dead := w.said(jobDead)
		require.Len(w, dead, 1)
		assert.Equal(w, store.LeaseExpired.Reason, dead[0]["error"])
		assert.NotEmpty(w, dead[0]["lost_worker"])
		w.stop(s)
	})
}

package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-ed332417/jq/internal/await"
	"github.com/seed-ed332417/jq/internal/store"
)

// job answers with a job. If the client asks for that, it first waits until the job has ended.
func (a *API) job(w *exchange, r *http.Request) error {
	id, err := number("id", r.PathValue("id"))
	if err != nil {
		return err
	}
	wait, err := waitQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	ended := (*store.JobDetail)(nil)
	if wait > 0 {
		done, err := a.lasting() // until the answer is read from the store
		if err != nil {
			return err
		}
		defer done()
		if ended, err = a.awaitEnd(w, r, id, wait); err != nil {
			return err
		}
	}
	return a.showBrief(w, r, func(ctx context.Context) (any, error) {
		if ended != nil {
			err := a.hideWaits(ctx, ended)
			return a.answerJob(*ended), err
		}
		detail, err := a.as(ctx).Get(ctx, id)
		return a.answerJob(detail), err
	})
}

// waitQuery reads how long the client wants to wait for the end of a job.
func waitQuery(raw string) (time.Duration, error) {
	text := ""
	if err := parameters(raw, map[string]*string{"wait": &text}, nil, nil); err != nil || text == "" {
		return 0, err
	}
	wait, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, refuse("wait", `must be a duration such as "30s"`)
	case wait < 0 || wait > maxWait:
		return 0, refuse("wait", fmt.Sprintf("must be 0 to %v", maxWait))
	}
	return wait, nil
}

// awaitEnd waits until the job has ended, and returns it. It returns nil if the time is over first, or the API is closed.
func (a *API) awaitEnd(w *exchange, r *http.Request, id int64, wait time.Duration) (*store.JobDetail, error) {
	found, err := a.look(w, r, id) // a caller must not wait for a job that it may not see
	switch {
	case err != nil:
		return nil, err
	case found.Terminal():
		return &found, w.reserve(int64(found.Weight()) * asAnswer)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer a.clock.AfterFunc(wait, cancel).Stop()
	defer context.AfterFunc(a.life, cancel)()
	if w.bearer != nil {
		defer context.AfterFunc(w.bearer.life, cancel)()
	}
	leave, ok := w.enter(func(s *share) room { return s.polls })
	if !ok {
		return nil, noRoom
	}
	defer leave()
	a.unhurried(w)
	job, err := await.Shared(ctx, a.clock, a.store, id)
	switch {
	case w.refusal() != nil:
		return nil, w.refusal()
	case err == nil:
		return &job, w.reserve(int64(job.Weight()) * asAnswer) // before it waits for its turn to answer
	case ctx.Err() != nil:
		return nil, nil
	default:
		return nil, err
	}
}

// look reads the job as the caller sees it. It waits for its turn among the quick reads.
func (a *API) look(w *exchange, r *http.Request, id int64) (store.JobDetail, error) {
	ctx, cancel := a.within(r.Context())
	defer cancel()
	leave, err := w.wait(ctx, func(s *share) room { return s.briefs })
	if err != nil {
		return store.JobDetail{}, err
	}
	defer leave()
	return a.as(ctx).Get(ctx, id)
}

// hideWaits leaves out of a job that has not come through a view what the caller may not see.
func (a *API) hideWaits(ctx context.Context, d *store.JobDetail) error {
	if v, limited := a.as(ctx).(*view); limited {
		return v.hideWaits(ctx, d)
	}
	return nil
}

package compare

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

const startup = time.Minute // in which a worker gets its first job

// death kills a worker in the middle of a job, starts another one, and returns when that got the job: errSilent if it did not in time.
func death(ctx context.Context, s subject, p peer.Place, quick bool, within time.Duration) (time.Duration, error) {
	if _, err := s.enqueue(ctx, p); err != nil {
		return 0, err
	}
	a, err := startWorker(s, p, quick)
	if err != nil {
		return 0, err
	}
	defer a.kill()
	if err := a.hear(ctx, started, startup); err != nil {
		return 0, err
	}
	a.kill()
	died := time.Now()
	b, err := startWorker(s, p, quick)
	if err != nil {
		return 0, err
	}
	defer b.kill()
	if err := b.hear(ctx, started, within); err != nil {
		return 0, err
	}
	return time.Since(died), nil
}

// Late is what becomes of a job whose first worker reports success while the second one runs the job, which then fails.
type Late struct {
	After state // how the job stands when the first worker has reported, and the second one still runs
	End   state // how it stands when the second one has failed
}

// accepted reports whether the store took the late report.
func (l Late) accepted() bool { return l.After == finished }

// look is how long a report may take to reach the store.
const look = 5 * time.Second

// late stops a worker in the middle of a job until another one has the job, and lets it report then.
func late(ctx context.Context, s subject, p peer.Place) (l Late, err error) {
	id, err := s.enqueue(ctx, p)
	if err != nil {
		return l, err
	}
	a, err := startWorker(s, p, true)
	if err != nil {
		return l, err
	}
	defer a.kill()
	if err := a.hear(ctx, started, startup); err != nil {
		return l, err
	}
	if err := a.stop(); err != nil {
		return l, err
	}
	b, err := startWorker(s, p, true)
	if err != nil {
		return l, err
	}
	defer b.kill()
	if err := b.hear(ctx, started, s.within); err != nil {
		return l, err
	}
	if err := errors.Join(a.tell(succeed), a.resume()); err != nil {
		return l, err
	}
	if err := a.hear(ctx, returned, startup); err != nil {
		return l, err
	}
	if l.After, err = s.becomes(ctx, p, id, running); err != nil {
		return l, err
	}
	a.kill() // or it could run the job next
	if err := b.tell(fail); err != nil {
		return l, err
	}
	if err := b.hear(ctx, returned, startup); err != nil {
		return l, err
	}
	l.End, err = s.becomes(ctx, p, id, l.After)
	return l, err
}

// becomes returns the first state of the job that is another one, or the same state if it stays so.
func (s subject) becomes(ctx context.Context, p peer.Place, id string, from state) (now state, err error) {
	patience, stop := context.WithTimeout(ctx, look)
	defer stop()
	err = peer.Until(patience, func() (bool, error) {
		now, err = s.state(ctx, p, id)
		return now != from, err
	})
	if patience.Err() != nil && ctx.Err() == nil {
		err = nil
	}
	if err != nil {
		return now, fmt.Errorf("%s: %w", s.name, err)
	}
	return now, nil
}

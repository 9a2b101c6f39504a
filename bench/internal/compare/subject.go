// Package compare plays accidents with jq, River and asynq: a worker that is killed, one that comes back late, and a snapshot that somebody
// holds. It says only what it has seen.
package compare

import (
	"context"
	"time"

	"github.com/seed-ed332417/jq/bench/internal/peer"
)

// A subject is a queue in the experiments. Its jobs have no data.
type subject struct {
	name, store string
	own         string        // its settings that make it find dead workers sooner, for people; empty if it has none
	within      time.Duration // how long it takes at most with them
	// enqueue adds one job and returns its id.
	enqueue func(ctx context.Context, p peer.Place) (id string, err error)
	// work runs the jobs one at a time, until the process ends.
	work func(ctx context.Context, p peer.Place, quick bool, handle func() error) error
	// state returns how the job stands in the store.
	state func(ctx context.Context, p peer.Place, id string) (state, error)
}

// A state is how a job stands, in words that fit each queue.
type state string

const (
	waiting  state = "waiting for its next run"
	running  state = "running"
	finished state = "succeeded"
	failed   state = "failed" // for good
)

func subjects() []subject { return []subject{jqSubject(), riverSubject(), asynqSubject()} }

package compare

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/postgres"
)

func jqSubject() subject {
	return subject{
		name: "jq", store: peer.Postgres,
		own: "leases of 5 s, and a look for expired ones every second", within: time.Minute,
		enqueue: func(ctx context.Context, p peer.Place) (string, error) {
			return withJQ(ctx, p, func(store jq.Store) (string, error) {
				added, err := jq.NewClient(store, nil).Enqueue(ctx, peer.Job{}, nil)
				return strconv.FormatInt(added.ID, 10), err
			})
		},
		work: workJQ,
		state: func(ctx context.Context, p peer.Place, id string) (state, error) {
			number, err := strconv.ParseInt(id, 10, 64)
			if err != nil {
				return "", err
			}
			return withJQ(ctx, p, func(store jq.Store) (state, error) {
				job, err := store.Get(ctx, number)
				switch job.Phase() {
				case jq.InFlight:
					return running, err
				case jq.Succeeded:
					return finished, err
				case jq.Dead:
					return failed, err
				}
				return waiting, err
			})
		},
	}
}

func withJQ[T any](ctx context.Context, p peer.Place, do func(jq.Store) (T, error)) (answer T, err error) {
	store, err := postgres.Open(ctx, p.DSN, nil)
	if err != nil {
		return answer, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return do(store)
}

func workJQ(ctx context.Context, p peer.Place, quick bool, handle func() error) error {
	store, err := postgres.Open(ctx, p.DSN, nil)
	if err != nil {
		return err
	}
	options := &jq.ServerOptions{Slots: 1, Logger: slog.New(slog.DiscardHandler)}
	if quick {
		options.Lease.Duration, options.Recovery.Interval = 5*time.Second, time.Second
	}
	var handlers jq.Handlers
	jq.Handle(&handlers, func(context.Context, *jq.Run, peer.Job) error { return handle() })
	server, err := jq.NewServer(store, &handlers, options)
	if err != nil {
		return err
	}
	return server.Start(ctx)
}

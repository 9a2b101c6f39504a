package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/remote"
)

func (a *app) dev() *cobra.Command {
	s := serveFlags{mode: "0600"}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "run a server and a sample worker in one process, to try jq",
		Long: "Serve a store on this machine and run a sample worker in the same process. The worker prints each job of the queue default\n" +
			"and completes it, with its payload as the result. Each start enqueues one sample job. Jobs stay in the store between runs.\n\n" +
			"The sample worker takes every job of the queue. To run your own worker, use serve and work instead.",
		Args:    takesNone(),
		Example: "  SELF dev\n  SELF dev --store sqlite:try.db --addr 127.0.0.1:8080",
	}
	cmd.Flags().StringVar(&s.addr, "addr", "127.0.0.1:7070", "`HOST:PORT` to listen on; port 0 picks a free port")
	a.noMigrate(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if _, socket, _ := socketPath(s.addr); socket || !s.local() {
			return misuse("--addr %q: dev has no tokens, so it listens only on this machine, such as on 127.0.0.1:7070; use serve for other addresses", s.addr)
		}
		a.serves = true
		return a.using(cmd.Context(), toFill, func(store jq.Store) error {
			defer a.announceEnd(cmd.Context())()
			return a.serveAndWork(cmd.Context(), store, &s)
		})
	}
	return cmd
}

// serveAndWork serves the store and runs its jobs until the context ends. The worker is a client of the server, so it stops first.
func (a *app) serveAndWork(ctx context.Context, store jq.Store, s *serveFlags) error {
	ctx, endWork := context.WithCancel(ctx)
	defer endWork()
	serves, endServing := context.WithCancel(context.WithoutCancel(ctx))
	defer endServing()
	var worker sync.WaitGroup
	var workErr error
	s.ready = func(url string) {
		worker.Go(func() {
			defer endServing()
			workErr = a.sample(ctx, url)
		})
	}
	err := a.serving(serves, store, s, &secrets{}, a.logger(slog.LevelWarn))
	endWork()
	worker.Wait()
	return errors.Join(err, workErr)
}

// A hello is the payload of the sample job.
type hello struct {
	Name string `json:"name"`
}

// Kind returns the kind of the sample job.
func (hello) Kind() string { return "hello" }

// sample enqueues a sample job, prints commands to try, and runs jobs until the context ends.
func (a *app) sample(ctx context.Context, url string) error {
	store, err := remote.Open(ctx, url, &remote.Options{Logger: a.logger(slog.LevelWarn)})
	if err != nil {
		return err
	}
	before, err := store.Count(ctx, jq.Filter{})
	if err == nil {
		_, err = jq.NewClient(store, nil).Enqueue(ctx, hello{Name: "ada"}, nil)
	}
	if err != nil {
		return errors.Join(err, store.Close())
	}
	fmt.Fprintf(a.std.err, "serving on %s, with a worker for the queue default; press Ctrl-C to stop\n", url)
	if n := before.Total(); n > 0 {
		fmt.Fprintf(a.std.err, "found %s from earlier runs\n", plural(n))
	}
	fmt.Fprintf(a.std.err, "\nOpen %[1]s in a browser, or try in a second terminal:\n"+
		"  curl --json '{\"jobs\":[{\"kind\":\"hello\",\"payload\":{\"name\":\"you\"}}]}' %[1]s/v1/jobs\n"+
		"  %[2]s jobs ls --server %[1]s\n"+
		"  %[2]s jobs show 1 --server %[1]s\n\n", url, a.path)
	return errors.Join(a.runSamples(ctx, store), store.Close())
}

// runSamples runs a worker that prints and completes each job of the queue default.
func (a *app) runSamples(ctx context.Context, store jq.Store) error {
	var handlers jq.Handlers
	handlers.Otherwise(func(_ context.Context, run *jq.Run) error {
		fmt.Fprintf(a.std.err, "ran job %d, %s %s: attempt %d, token %d\n", run.ID, printable(run.Kind), printable(string(run.Payload)), run.Attempts, run.Token)
		return run.SetResult(json.RawMessage(run.Payload))
	})
	server, err := jq.NewServer(store, &handlers, &jq.ServerOptions{Logger: a.logger(slog.LevelWarn)})
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

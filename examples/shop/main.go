// Shop is a web shop whose work is done by jobs. It takes orders over HTTP, charges cards, packs, writes invoices and ships. The orders
// and their jobs are in one database: an SQLite file, or Postgres.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/jqprom"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:], os.Getenv)
	if err == nil {
		err = run(ctx, o, os.Stdout)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Fatal(err)
	}
}

type options struct {
	addr, database, bank string
	lease                time.Duration
}

func parse(args []string, env func(string) string) (o options, err error) {
	flags := flag.NewFlagSet("shop", flag.ContinueOnError)
	flags.StringVar(&o.addr, "addr", "localhost:8080", "address to listen on")
	flags.StringVar(&o.database, "database", cmp.Or(env("SHOP_DATABASE"), "shop.db"), "SQLite file or postgres:// URL; also by SHOP_DATABASE, because other users of the machine can see flags")
	flags.StringVar(&o.bank, "bank", "", "URL of the bank; without it, a bank in this program that accepts test cards")
	flags.DurationVar(&o.lease, "lease", 30*time.Second, "how long the jobs of a killed process stay its own")
	if err = flags.Parse(args); err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("shop takes only flags, not %q", flags.Args())
	}
	return o, err
}

// run serves the shop until the context ends. Then it answers the requests that it has, lets the running jobs finish, and returns.
func run(ctx context.Context, o options, out io.Writer) error {
	db, err := open(ctx, o.database)
	if err != nil {
		return err
	}
	defer db.Close()
	listener, err := net.Listen("tcp", o.addr)
	if err != nil {
		return err
	}

	metrics := jqprom.New(db, nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	client := jq.NewClient(db, &jq.ClientOptions{Middleware: []jq.EnqueueMiddleware{metrics.Enqueue}})
	if err := putSchedules(ctx, client); err != nil {
		return err
	}

	orders := &table{db.DB()}
	work := &worker{client: client, books: orders, bank: bank(cmp.Or(o.bank, "http://"+listener.Addr().String()+"/bank"))}
	server, err := jq.NewServer(db, work.handlers(), &jq.ServerOptions{
		Queues: queues, Lease: jq.LeaseOptions{Duration: o.lease}, Recovery: jq.RecoveryOptions{Interval: o.lease / 3}, Observer: metrics,
	})
	if err != nil {
		return err
	}
	metrics.Watch(server)

	group, ctx := errgroup.WithContext(ctx)
	web := &http.Server{
		Handler:           (&shop{client, orders}).routes(server.Ready, registry),
		ReadHeaderTimeout: 5 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	group.Go(func() error { return server.Run(ctx) })
	group.Go(func() error {
		if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		late, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer stop()
		return web.Shutdown(late)
	})
	fmt.Fprintf(out, "the shop is open on http://%s; press Ctrl-C to close it\n", listener.Addr())
	slog.Info("started", "worker", server.Name())
	return group.Wait()
}

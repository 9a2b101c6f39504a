package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/jqprom"
)

// probes serves /healthz and /metrics of a worker. A nil *probes serves nothing.
type probes struct {
	api      *httpapi.API
	listener net.Listener
	metrics  *jqprom.Metrics
	log      *slog.Logger
	ready    func(url string)
}

// checkProbes returns an error if other machines could read the metrics and the user has not allowed it.
func (s *serveFlags) checkProbes() error {
	if s.addr == "" {
		return nil
	}
	if _, is, err := socketPath(s.addr); is || err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(s.addr); err != nil {
		return misuse("--addr %q: want HOST:PORT, :PORT for all addresses, or unix:PATH", s.addr)
	}
	if !s.local() && !s.insecure {
		return misuse("--addr %s lets other machines read the metrics: listen on 127.0.0.1, or add --insecure", s.addr)
	}
	return nil
}

// probes listens on the address of the flags, if they have one, and makes the worker's options count for the metrics.
func (a *app) probes(store jq.Store, s *serveFlags, options *jq.ServerOptions) (*probes, error) {
	if s.addr == "" {
		return nil, nil
	}
	p := &probes{metrics: jqprom.New(store, nil), log: options.Logger}
	p.ready = func(url string) { fmt.Fprintf(a.std.err, "serving /healthz and /metrics on %s\n", url) }
	options.Observer = p.metrics
	hosts, loopback := s.names(false)
	if !s.local() { // orchestrators call it by names that the worker does not know, and it answers only with figures
		hosts, loopback = nil, false
	}
	var err error
	p.api, err = httpapi.NewProbes(&httpapi.Options{Hosts: hosts, Loopback: loopback, Logger: p.log, Metrics: metricsOf(p.metrics)})
	if err != nil {
		return nil, err
	}
	if p.listener, err = s.listen(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// close is for probes that do not run.
func (p *probes) close() error {
	if p == nil {
		return nil
	}
	defer p.metrics.Close()
	if p.listener == nil {
		return p.api.Close()
	}
	return errors.Join(p.listener.Close(), p.api.Close())
}

// run runs the worker, and answers until it has stopped. The worker also stops if the server fails.
func (p *probes) run(ctx context.Context, worker *jq.Server) error {
	if p == nil {
		return worker.Run(ctx)
	}
	defer p.metrics.Close()
	p.metrics.Watch(worker)
	ctx, endWork := context.WithCancel(ctx)
	defer endWork()
	answers, endAnswers := context.WithCancel(context.WithoutCancel(ctx))
	defer endAnswers()
	answered := make(chan error, 1)
	go func() {
		defer endWork()
		answered <- answering(answers, p.api, p.listener, nil, p.log, p.ready)
	}()
	err := worker.Run(ctx)
	endAnswers()
	return errors.Join(err, <-answered)
}

package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/dashboard"
	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/jqprom"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	addr     string
	mode     string // mode of the socket
	tokens   string
	audit    string
	cert     string
	key      string
	clientCA string
	hosts    []string
	insecure bool
	readOnly bool

	maxWaiting   int64
	recoverEvery time.Duration
	retainEvery  time.Duration

	ready func(url string) // is called once the server listens
}

func (a *app) serve() *cobra.Command {
	var s serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "serve a store over HTTP and recover the jobs of dead workers",
		Long: "Serve a store over HTTP, for programs in any language. The server documents its API at /docs. It fires the\n" +
			"schedules of the store, recovers jobs whose workers died, and deletes finished jobs when the policy of their queue no longer\n" +
			"keeps them. You can run several servers on one store.\n\n" +
			"The server reloads tokens and certificates when their files change, and on SIGHUP. A reload ends no connection and no\n" +
			"waiting claim, except those of removed tokens. If a file is invalid, the server keeps the values it read before.\n\n" +
			"Without tokens, anyone who can reach the server may do anything. So it listens on this machine only, unless you add\n" +
			"--insecure. It also accepts only requests for localhost, for IP addresses and for the host of --addr, because a web page\n" +
			"could point its own name at the server (DNS rebinding); add other names with --host. With tokens it accepts requests for\n" +
			"any name, unless you add --host.",
		Args:    takesNone(),
		Example: "  SELF serve --store sqlite:jobs.db\n  SELF serve --addr :7070 --tokens tokens --tls-cert cert.pem --tls-key key.pem",
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&s.addr, "addr", "127.0.0.1:7070", "`HOST:PORT` to listen on (port 0 picks a free port), or unix:PATH for a Unix socket")
	f.StringVar(&s.mode, "socket-mode", "0600", "`MODE` of the Unix socket; users who can write to it can call the server")
	f.StringVar(&s.tokens, "tokens", "", "`FILE` of tokens, created with token new")
	f.StringVar(&s.audit, "audit", "", "`FILE` to append a JSON line to for each operator call, or - for standard error; reopened on\nSIGHUP (default: the server's log)")
	f.StringVar(&s.cert, "tls-cert", "", "`FILE` of the server's certificate; enables TLS")
	f.StringVar(&s.key, "tls-key", "", "`FILE` of the private key of the server's certificate")
	f.StringVar(&s.clientCA, "client-ca", "", "`FILE` of CA certificates; clients must present a certificate that one of them signed, in addition\nto a token")
	f.StringArrayVar(&s.hosts, "host", nil, "`NAME` or address, without a port, that requests may use for this server; may be repeated; the server\nrefuses requests for other names")
	f.BoolVar(&s.insecure, "insecure", false, "listen on any address without tokens, or with tokens but without TLS")
	f.Int64Var(&s.maxWaiting, "max-waiting", 0, "approximate limit of waiting jobs per queue; above it, enqueue requests are refused and must be\nretried later; 0 means no limit")
	f.DurationVar(&s.recoverEvery, "recover-every", 10*time.Second, "how often to recover expired leases; negative means never")
	f.DurationVar(&s.retainEvery, "retain-every", time.Minute, retainEvery)
	a.busyTimeout(f, "")
	a.maxLease(f)
	a.maxConns(f)
	a.gathers(f, "notify workers of new jobs in a queue once in this time at most, such as 100ms;\nonly Postgres notifies (default 10ms)")
	a.noMigrate(f)
	f.BoolVar(&s.readOnly, "read-only", false, "refuse every call that changes the store; do not migrate the store, recover leases, delete jobs\nor fire schedules")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		secrets, err := s.secrets()
		if err != nil {
			return err
		}
		if err := s.check(secrets.tokens != nil, secrets.tls != nil); err != nil {
			return err
		}
		a.serves = true
		how := "serving"
		if s.readOnly {
			how = "serving read-only"
		}
		s.ready = func(url string) { fmt.Fprintf(a.std.err, "%s on %s; press Ctrl-C to stop\n", how, url) }
		return a.using(cmd.Context(), !s.readOnly, func(store jq.Store) error {
			defer a.announceEnd(cmd.Context())()
			defer a.limitMemory(store)()
			return a.serving(cmd.Context(), store, &s, secrets, a.logger(slog.LevelInfo))
		})
	}
	return cmd
}

// check returns an error if other machines could reach the server without tokens or without TLS.
func (s *serveFlags) check(tokens, certificates bool) error {
	for _, host := range s.hosts {
		if err := httpapi.CheckHost(host); err != nil {
			return misuse("--host %v", err)
		}
	}
	if _, is, err := socketPath(s.addr); is {
		if certificates && err == nil {
			return misuse("--addr %s needs no TLS, because nothing leaves this machine: omit --tls-cert and --tls-key", s.addr)
		}
		_, badMode := socketMode(s.mode)
		return errors.Join(err, badMode)
	}
	if _, _, err := net.SplitHostPort(s.addr); err != nil {
		return misuse("--addr %q: want HOST:PORT, :PORT for all addresses, or unix:PATH", s.addr)
	}
	switch {
	case s.local() || s.insecure:
		return nil
	case !tokens:
		return misuse("--addr %s lets other machines connect: add --tokens (see token new), or --insecure", s.addr)
	case !certificates:
		return misuse("--addr %s would transmit tokens unencrypted: add --tls-cert and --tls-key, or --insecure if a proxy terminates TLS", s.addr)
	}
	return nil
}

// local reports whether only this machine can reach the server.
func (s *serveFlags) local() bool {
	if _, socket, _ := socketPath(s.addr); socket {
		return true
	}
	host, _, _ := net.SplitHostPort(s.addr)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// names returns the host names that requests may use, and whether they may also use localhost and IP addresses. Requests may use
// any name if hosts is empty and loopback is false.
func (s *serveFlags) names(tokens bool) (hosts []string, loopback bool) {
	switch host, _, _ := net.SplitHostPort(s.addr); {
	case s.local():
		return s.hosts, !tokens || len(s.hosts) > 0
	case tokens || len(s.hosts) > 0:
		return s.hosts, false
	case host != "":
		return []string{host}, true
	default:
		return nil, true
	}
}

// serving serves the store over HTTP until the context ends. Meanwhile it recovers expired leases, fires schedules and deletes old
// jobs, unless it only reads.
func (a *app) serving(ctx context.Context, store jq.Store, s *serveFlags, secrets *secrets, log *slog.Logger) (err error) {
	hangups := make(chan os.Signal, 1) // always handle SIGHUP, which would otherwise kill the process
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	audit, auditFile, err := a.audit(s.audit, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, auditFile.Close()) }()
	metrics := jqprom.New(store, nil)
	defer metrics.Close()
	pages, err := dashboard.Handler()
	if err != nil {
		return err
	}
	hosts, loopback := s.names(secrets.tokens != nil)
	api, err := httpapi.New(store, &httpapi.Options{
		Tokens: secrets.tokens, Hosts: hosts, Loopback: loopback, Logger: log, Audit: audit,
		Metrics: metricsOf(metrics), Counter: metrics, MaxWaitingJobs: s.maxWaiting, ReadOnly: s.readOnly, Home: pages,
	})
	if err != nil {
		return err
	}
	keep, err := s.keeper(store, log, recoveries{metrics, api})
	if err != nil {
		return errors.Join(misuseOfOption(err), api.Close())
	}
	listener, err := s.listen()
	if err != nil {
		return errors.Join(err, api.Close())
	}
	answers, endAnswers := context.WithCancel(ctx)
	var reloads sync.WaitGroup
	reloads.Go(func() { secrets.reload(answers, api.SetTokens, hangups, log) })
	reloads.Go(func() { auditFile.reopen(answers) })
	defer reloads.Wait()
	defer endAnswers()
	keeps, endKeeping := context.WithCancel(context.WithoutCancel(ctx))
	defer endKeeping()
	kept := make(chan error, 1)
	go func() {
		defer endAnswers() // if the recovery fails, the server must stop too
		kept <- keep(keeps)
	}()
	err = answering(answers, api, listener, secrets.tls, log, s.ready)
	endKeeping()
	return errors.Join(err, <-kept)
}

// keeper returns what keeps the store in order until its context ends: a server without queues, which recovers leases, fires
// schedules and deletes old jobs. If serve only reads, it does nothing.
func (s *serveFlags) keeper(store jq.Store, log *slog.Logger, observer jq.Observer) (func(context.Context) error, error) {
	if s.readOnly {
		return func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}, nil
	}
	keeper, err := jq.NewServer(store, nil, &jq.ServerOptions{
		Queues:    map[string]jq.QueueOptions{},
		Recovery:  jq.RecoveryOptions{Interval: s.recoverEvery},
		Retention: jq.RetentionOptions{Interval: s.retainEvery},
		Logger:    log, Observer: observer,
	})
	if err != nil {
		return nil, err
	}
	return keeper.Run, nil
}

// metricsOf returns the handler for the metrics of the process, and of the queues that the caller may see.
func metricsOf(metrics *jqprom.Metrics) func(see func(queue string) bool) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	all := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return func(see func(queue string) bool) http.Handler {
		if see == nil {
			return all
		}
		return promhttp.HandlerFor(jqprom.OnlyQueues(registry, see), promhttp.HandlerOpts{})
	}
}

// memoryLimit is the soft memory limit of a server, unless GOMEMLIMIT is set. It is 2.5 times the budget of requests and answers.
// The first budget is for them, half a budget for their garbage until it is collected, and a whole one for the rest: 4,096 TLS
// connections take 100 MiB, and events, claimed jobs and metrics take some more. The collector does not count SQLite's pages and
// the program itself. With half a budget for those, a server stays below 512 MiB.
const memoryLimit = httpapi.DefaultMaxBytes * 5 / 2

// limitMemory sets the memory limit until undo is called, unless the store keeps jobs in memory or GOMEMLIMIT is set.
func (a *app) limitMemory(store jq.Store) (undo func()) {
	_, inMemory := store.(*jq.MemoryStore)
	if limit, _ := a.std.env("GOMEMLIMIT"); inMemory || limit != "" {
		return func() {}
	}
	before := debug.SetMemoryLimit(memoryLimit)
	return func() { debug.SetMemoryLimit(before) }
}

// listen opens the listener of --addr.
func (s *serveFlags) listen() (net.Listener, error) {
	path, is, err := socketPath(s.addr)
	if err != nil {
		return nil, err
	}
	if is {
		mode, err := socketMode(s.mode)
		if err != nil {
			return nil, err
		}
		return listenUnix(path, mode)
	}
	listener, err := net.Listen("tcp", s.addr)
	if err != nil {
		return nil, fmt.Errorf("%w: choose another address with --addr", err)
	}
	return listener, nil
}

// shownAddress returns the URL of the server.
func shownAddress(listener net.Listener, secure *tls.Config) string {
	if l, ok := listener.(*socketListener); ok {
		return unixScheme + l.path
	}
	if secure != nil {
		return "https://" + listener.Addr().String()
	}
	return "http://" + listener.Addr().String()
}

// lastAnswers is how long shutdown waits for running requests.
const lastAnswers = 30 * time.Second

// answering answers requests until the context ends, and then waits for running requests.
func answering(
	ctx context.Context, api *httpapi.API, listener net.Listener, secure *tls.Config, log *slog.Logger, ready func(url string),
) error {
	server, err := httpapi.NewServer(api, &httpapi.Limits{Logger: log}, secure)
	if err != nil {
		return errors.Join(err, listener.Close(), api.Close())
	}
	limited, err := httpapi.Limit(listener, nil)
	if err != nil {
		return errors.Join(err, listener.Close(), api.Close())
	}
	serve := func() error { return server.Serve(limited) }
	if secure != nil {
		serve = func() error { return server.ServeTLS(limited, "", "") }
	}
	ready(shownAddress(listener, secure))
	failed := make(chan error, 1)
	go func() { failed <- serve() }()
	select {
	case err = <-failed:
		return errors.Join(err, api.Close())
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
	defer cancel()
	err = errors.Join(api.Close(), server.Shutdown(end))
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// recoveries publishes recovered leases and expired jobs as metrics and as events.
type recoveries struct {
	*jqprom.Metrics
	api *httpapi.API
}

// Recovered implements the observer of the server.
func (r recoveries) Recovered(leases []jq.Recovered) {
	r.Metrics.Recovered(leases)
	r.api.Publish(httpapi.RecoveredEvents(leases)...)
}

// Settled implements the observer of the server.
func (r recoveries) Settled(jobs []jq.Settled) {
	r.Metrics.Settled(jobs)
	r.api.Publish(httpapi.SettledEvents(jobs)...)
}

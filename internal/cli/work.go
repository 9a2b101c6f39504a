package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/outside"
)

// workFlags are the flags of work.
type workFlags struct {
	queues  []string
	exec    string
	webhook string
	allow   []string
	snooze  time.Duration
	grace   time.Duration
	name    string
	lease   time.Duration
	timeout time.Duration
	drain   time.Duration
	probes  serveFlags
	retain  time.Duration
	verbose bool

	reaper outside.Reaper
}

// retainEvery is the help of a flag that serve and work share.
const retainEvery = "how often to delete jobs that the policy of their queue no longer keeps; negative means never"

// The variables of the webhook secrets. They are not flags, because other users of the machine can see a command line. Requests
// carry a signature of each secret, so that you can rotate them.
const (
	webhookSecret    = "JQ_WEBHOOK_SECRET"
	oldWebhookSecret = "JQ_WEBHOOK_SECRET_OLD"
)

func (a *app) work() *cobra.Command {
	w := workFlags{probes: serveFlags{mode: "0600"}}
	cmd := &cobra.Command{
		Use:   "work",
		Short: "run a program or call a URL for each job",
		Long: "Claim jobs, and run a program or send a request for each one, until SIGINT or SIGTERM. It then waits\n" +
			"for running jobs, at most as long as --drain says; a second signal ends it at once. The worker also fires the schedules of\n" +
			"the store, and recovers jobs whose workers died.\n\n" +
			"--exec: the program reads the payload from standard input. Its environment has JQ_JOB_ID, JQ_LEASE_TOKEN, JQ_KIND,\n" +
			"JQ_QUEUE and JQ_ATTEMPT, and for the job of a schedule JQ_SCHEDULE and JQ_SCHEDULED_FOR, but no credentials of the store:\n" +
			"JQ_STORE, JQ_TOKEN, DATABASE_URL, PGPASSWORD and the like are removed. Exit code 0 completes the job, with standard output\n" +
			"as the result. 65 fails it without a retry, and 75 snoozes it. Any other code fails the attempt, with the end of standard\n" +
			"error as the error, and the job is retried. When the lease of a job is lost, its program is stopped.\n\n" +
			"--http: the worker POSTs the payload, with the headers Jq-Job-Id, Jq-Lease-Token, Jq-Kind, Jq-Queue and Jq-Attempt. A 2xx\n" +
			"status completes the job, with the body as the result. 410 fails it without a retry. Any other status fails the attempt,\n" +
			"and the job is retried. If you set " + webhookSecret + " (whsec_BASE64 or plain text), the worker signs requests as\n" +
			"Standard Webhooks specifies. To rotate the secret, set " + oldWebhookSecret + " to the previous one until all\n" +
			"receivers know the new one.",
		Args:    takesNone(),
		Example: "  SELF work --exec 'python3 worker.py'\n  SELF work --queue mail=20 --queue reports=2 --http https://example.com/jobs",
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&w.exec, "exec", "", "`PROGRAM` to run for each job, with its arguments; runs without a shell")
	f.StringVar(&w.webhook, "http", "", "`URL` to send each job to")
	f.StringArrayVar(&w.queues, "queue", []string{jq.DefaultQueue + "=10"}, "`NAME=N`: run up to N jobs of this queue at once; may be repeated")
	f.DurationVar(&w.lease, "lease", 30*time.Second, "how long a lease lasts without a heartbeat; if this process dies, its jobs are recovered after that")
	f.DurationVar(&w.timeout, "timeout", 15*time.Minute, "maximum run time of jobs that do not set their own")
	f.DurationVar(&w.drain, "drain", 30*time.Second, "how long to wait for running jobs at shutdown")
	f.DurationVar(&w.retain, "retain-every", time.Minute, retainEvery+";\nwith --server, the server does this unless you set the flag")
	f.DurationVar(&w.grace, "grace", 10*time.Second, "how long to wait after SIGTERM before killing a program")
	f.DurationVar(&w.snooze, "snooze", time.Minute, "how long exit code 75 delays a job")
	f.StringArrayVar(&w.allow, "allow", nil, "`CIDR` of private addresses that --http may reach, such as 10.0.0.0/8; may be repeated")
	f.StringVar(&w.name, "name", "", "`NAME` of this worker (default: host, process id and a random part)")
	f.StringVar(&w.probes.addr, "addr", "", "`HOST:PORT` to serve /healthz and /metrics of this worker on (port 0 picks a free port), or unix:PATH\nfor a Unix socket; without the flag, the worker listens nowhere")
	f.BoolVar(&w.probes.insecure, "insecure", false, "let --addr listen on any address; anyone who can reach it can read the metrics")
	f.BoolVar(&w.verbose, "verbose", false, "log what programs write to standard error; the same as --log-level debug")
	a.maxLease(f)
	a.maxConns(f)
	a.gathers(f, "let jobs that come one after another share claims and writes of results, as\nmany as come in this time, such as 100ms")
	a.busyTimeout(f, ";\nat most a sixth of the lease, unless you set the flag")
	a.noMigrate(f)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if w.verbose {
			if err := a.log.level.Set("debug"); err != nil {
				return err
			}
		}
		log := a.logger(slog.LevelInfo)
		handler, err := w.handler(a, log)
		if err != nil {
			return err
		}
		if err := w.probes.checkProbes(); err != nil {
			return err
		}
		w.retain = a.fitRetention(cmd, w.retain)
		options, err := w.options(a.gather)
		if err != nil {
			return err
		}
		options.Logger = log
		a.fitBusyTimeout(cmd, w.lease)
		return a.using(cmd.Context(), toFill, func(s jq.Store) error {
			var handlers jq.Handlers
			handlers.Otherwise(handler)
			probes, err := a.probes(s, &w.probes, options)
			if err != nil {
				return err
			}
			server, err := jq.NewServer(s, &handlers, options)
			if err != nil {
				return errors.Join(misuseOfOption(err), probes.close())
			}
			defer w.reaper.Start(log)()
			fmt.Fprintf(a.std.err, "working on %s; press Ctrl-C to stop\n", strings.Join(w.queues, ", "))
			defer a.announceEnd(cmd.Context())()
			return probes.run(cmd.Context(), server)
		})
	}
	return cmd
}

// fitRetention turns deletion off if the store is behind a server, which does it. An older server does not return policies, so the
// worker could delete jobs that the server must keep.
func (a *app) fitRetention(cmd *cobra.Command, every time.Duration) time.Duration {
	atServer, err := a.atServer()
	if err != nil || !atServer || cmd.Flags().Changed("retain-every") || a.sources["retain-every"] != "" {
		return every // opening the store returns the error
	}
	return -time.Minute
}

// handler returns the handler that runs a program or sends a request for each job.
func (w *workFlags) handler(a *app, log *slog.Logger) (jq.HandlerFunc, error) {
	switch {
	case (w.exec == "") == (w.webhook == ""):
		return nil, misuse("give either --exec or --http")
	case w.exec != "":
		h, err := outside.Program(w.exec, &outside.ProgramOptions{Snooze: w.snooze, Grace: w.grace, Env: a.inherited(), Reaper: &w.reaper, Logger: log})
		return h, asMisuse("--exec", err)
	}
	secrets, err := a.webhookSecrets()
	if err != nil {
		return nil, err
	}
	o := &outside.WebhookOptions{Secrets: secrets}
	for _, text := range w.allow {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, misuse("--allow %q: want a CIDR such as 10.0.0.0/8 or fd00::/8", text)
		}
		o.Allow = append(o.Allow, prefix)
	}
	h, err := outside.Webhook(w.webhook, o)
	return h, asMisuse("--http", err)
}

// inherited returns the environment for programs, which may call the server of their worker.
func (a *app) inherited() []string {
	env := os.Environ()
	if atServer, err := a.atServer(); err == nil && atServer { // opening the store returns the error
		env = append(env, "JQ_SERVER="+a.server) // the last one counts
	}
	return env
}

// webhookSecrets returns the secrets in the environment, the new one first. An empty variable counts as unset.
func (a *app) webhookSecrets() ([]outside.Secret, error) {
	var secrets []outside.Secret
	for i, name := range []string{webhookSecret, oldWebhookSecret} {
		text, _ := a.std.env(name)
		if text == "" {
			continue
		}
		if len(secrets) < i {
			return nil, misuse("%s is set, but %s is not: put the current secret in %[2]s", oldWebhookSecret, webhookSecret)
		}
		secret, err := outside.ParseSecret(text)
		if err != nil {
			return nil, misuse("%s: %w", name, err)
		}
		secrets = append(secrets, secret)
	}
	return secrets, nil
}

func asMisuse(flag string, err error) error {
	if err == nil {
		return nil
	}
	return misuse("%s: %w", flag, err)
}

func (w *workFlags) options(gather time.Duration) (*jq.ServerOptions, error) {
	queues, slots, err := parseQueues(w.queues)
	if err != nil {
		return nil, err
	}
	if min(w.lease, w.timeout, w.drain, w.grace, w.snooze) <= 0 {
		return nil, misuse("--lease, --timeout, --drain, --grace and --snooze must be more than 0")
	}
	return &jq.ServerOptions{
		Name: w.name, Queues: queues, Slots: slots, Timeout: w.timeout,
		Lease:     jq.LeaseOptions{Duration: w.lease},
		Claim:     jq.ClaimOptions{Interval: gather},
		Commit:    jq.CommitOptions{Interval: gather},
		Abandon:   jq.AbandonOptions{Timeout: w.grace + 5*time.Second}, // wait for a program that has to be killed
		Retention: jq.RetentionOptions{Interval: w.retain},
		Shutdown:  jq.ShutdownOptions{DrainTimeout: w.drain},
	}, nil
}

// flagOfOption maps the library's options to the flags that set them.
var flagOfOption = map[string]string{
	"Claim.Interval":        "--gather",
	"Name":                  "--name",
	"Slots":                 "--queue",
	"Timeout":               "--timeout",
	"Lease.Duration":        "--lease",
	"Abandon.Timeout":       "--grace",
	"Recovery.Interval":     "--recover-every",
	"Retention.Interval":    "--retain-every",
	"Shutdown.DrainTimeout": "--drain",
}

// misuseOfOption replaces the name of the library's option with the flag: --retain-every for Retention.Interval.
func misuseOfOption(err error) error {
	option, ok := errors.AsType[*jq.OptionError](err)
	if !ok {
		return err
	}
	flag, ok := flagOfOption[option.Field]
	switch {
	case strings.HasPrefix(option.Field, "Queues"):
		flag = "--queue"
	case !ok:
		return err
	}
	return misuse("%s %s", flag, option.Rule)
}

// parseQueues parses NAME=N. The name may contain =.
func parseQueues(list []string) (map[string]jq.QueueOptions, int, error) {
	queues, slots := map[string]jq.QueueOptions{}, 0
	for _, text := range list {
		name, number := text, "1"
		if at := strings.LastIndexByte(text, '='); at >= 0 {
			name, number = text[:at], text[at+1:]
		}
		n, err := strconv.Atoi(number)
		_, twice := queues[name]
		switch {
		case name == "" || err != nil || n < 1 || n > 10_000:
			return nil, 0, misuse("--queue %q: want NAME=N, where N is how many of its jobs run at once, 1 to 10000", text)
		case twice:
			return nil, 0, misuse("--queue %q: the queue is named twice", text)
		}
		queues[name] = jq.QueueOptions{Slots: n, Weight: min(n, 1000)}
		slots += n
	}
	return queues, slots, nil
}

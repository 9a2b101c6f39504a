package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/outside"
)

// workFlags are those of work.
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
	retain  time.Duration
	verbose bool

	existing bool
	reaper   outside.Reaper
}

// retainEvery tells of a flag that serve and work share.
const retainEvery = "the time between deletions of jobs that queues set keeps no longer; negative: never"

// Where the secrets of signatures come from: a flag would be seen by everybody on the machine. The old one signs too while receivers
// learn the new one.
const (
	webhookSecret    = "JQ_WEBHOOK_SECRET"
	oldWebhookSecret = "JQ_WEBHOOK_SECRET_OLD"
)

func (a *app) work() *cobra.Command {
	var w workFlags
	cmd := &cobra.Command{
		Use:   "work",
		Short: "run a program, or call a URL, for each job",
		Long: "Claim jobs and run a program for each, or send each to a URL, until SIGINT or SIGTERM.\n\n" +
			"--exec: the payload is the program's standard input; JQ_JOB_ID, JQ_LEASE_TOKEN, JQ_KIND, JQ_QUEUE and JQ_ATTEMPT are in\n" +
			"its environment, and what gives access to the store is not: JQ_STORE, JQ_TOKEN, DATABASE_URL, PGPASSWORD and the like.\n" +
			"Exit code 0 means done, with the output as the result; 65 never to try again; 75 to put the job off; any other to try\n" +
			"again, with the end of the standard error as the reason. Programs end with the lease of their job.\n\n" +
			"--http: a POST of the payload, with Jq-Job-Id, Jq-Lease-Token, Jq-Kind, Jq-Queue and Jq-Attempt as headers. 2xx means\n" +
			"done, with the body as the result; 410 never to try again; any other to try again. With " + webhookSecret + " in the\n" +
			"environment, whsec_BASE64 or plain text, requests are signed by the convention of Standard Webhooks. To replace a secret,\n" +
			"set " + oldWebhookSecret + " to the former one until all receivers know the new one.",
		Args:    takesNone(),
		Example: "  SELF work --exec 'python3 worker.py'\n  SELF work --queue mail=20 --queue reports=2 --http https://example.com/jobs",
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&w.exec, "exec", "", "`PROGRAM` to run for each job, with its arguments; no shell runs it")
	f.StringVar(&w.webhook, "http", "", "`URL` to send each job to")
	f.StringArrayVar(&w.queues, "queue", []string{jq.DefaultQueue + "=10"}, "`NAME=N`: work on this queue, on N jobs at once; may be repeated")
	f.DurationVar(&w.lease, "lease", 30*time.Second, "how soon a job is given to others when this process dies")
	f.DurationVar(&w.timeout, "timeout", 15*time.Minute, "how long a run may take, for jobs that do not say so")
	f.DurationVar(&w.drain, "drain", 30*time.Second, "how long running jobs are waited for at the end")
	f.DurationVar(&w.retain, "retain-every", time.Minute, retainEvery+",\nas with --server, whose server does it, unless it is set")
	f.DurationVar(&w.grace, "grace", 10*time.Second, "how long a program that was told to stop is waited for before it is killed")
	f.DurationVar(&w.snooze, "snooze", time.Minute, "how long exit code 75 puts a job off")
	f.StringArrayVar(&w.allow, "allow", nil, "`CIDR` that --http may reach although it is not public, as 10.0.0.0/8; may be repeated")
	f.StringVar(&w.name, "name", "", "`NAME` among the workers (default host, process and a random part)")
	f.BoolVar(&w.verbose, "verbose", false, "log what programs write to their standard error")
	a.maxLease(f)
	a.busyTimeout(f, ";\na sixth of the lease at most, unless it is set")
	noMigrate(f, &w.existing)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		level := slog.LevelInfo
		if w.verbose {
			level = slog.LevelDebug
		}
		log := a.logger(level)
		handler, err := w.handler(a, log)
		if err != nil {
			return err
		}
		w.retain = a.fitRetention(cmd, w.retain)
		options, err := w.options()
		if err != nil {
			return err
		}
		options.Logger = log
		a.fitBusyTimeout(cmd, w.lease)
		return a.using(cmd.Context(), !w.existing, func(s jq.Store) error {
			var handlers jq.Handlers
			handlers.Otherwise(handler)
			server, err := jq.NewServer(s, &handlers, options)
			if err != nil {
				return misuseOfOption(err)
			}
			defer w.reaper.Start(log)()
			fmt.Fprintf(a.std.err, "working on %s; Ctrl-C ends it\n", strings.Join(w.queues, ", "))
			return server.Run(cmd.Context())
		})
	}
	return cmd
}

// fitRetention leaves deletion to the server that has the store. An older one tells no policies, and may keep jobs for longer than
// the defaults.
func (a *app) fitRetention(cmd *cobra.Command, every time.Duration) time.Duration {
	atServer, err := a.atServer()
	if err != nil || !atServer || cmd.Flags().Changed("retain-every") || a.sources["retain-every"] != "" {
		return every // opening the store tells of the error
	}
	return -time.Minute
}

// logger writes lines for people to the standard error.
func (a *app) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(a.std.err, &slog.HandlerOptions{Level: level}))
}

// handler is what runs the jobs.
func (w *workFlags) handler(a *app, log *slog.Logger) (jq.HandlerFunc, error) {
	switch {
	case (w.exec == "") == (w.webhook == ""):
		return nil, misuse("say what runs the jobs: either --exec or --http")
	case w.exec != "":
		h, err := outside.Program(w.exec, &outside.ProgramOptions{Snooze: w.snooze, Grace: w.grace, Reaper: &w.reaper, Logger: log})
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
			return nil, misuse("--allow %q: want addresses as 10.0.0.0/8 or fd00::/8", text)
		}
		o.Allow = append(o.Allow, prefix)
	}
	h, err := outside.Webhook(w.webhook, o)
	return h, asMisuse("--http", err)
}

// webhookSecrets are those of the environment, the new one first. An empty variable is the same as none.
func (a *app) webhookSecrets() ([]outside.Secret, error) {
	var secrets []outside.Secret
	for i, name := range []string{webhookSecret, oldWebhookSecret} {
		text, _ := a.std.env(name)
		if text == "" {
			continue
		}
		if len(secrets) < i {
			return nil, misuse("%s is set and %s is not: put the secret that is to stay in %[2]s", oldWebhookSecret, webhookSecret)
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

func (w *workFlags) options() (*jq.ServerOptions, error) {
	queues, slots, err := parseQueues(w.queues)
	if err != nil {
		return nil, err
	}
	if min(w.lease, w.timeout, w.drain, w.grace, w.snooze) <= 0 {
		return nil, misuse("--lease, --timeout, --drain, --grace and --snooze must be more than 0")
	}
	return &jq.ServerOptions{
		Name: w.name, Queues: queues, Slots: slots, Lease: w.lease, Timeout: w.timeout, DrainFor: w.drain, RetainEvery: w.retain,
		AbandonAfter: w.grace + 5*time.Second, // a program that has to be killed is waited for
	}, nil
}

// misuseOfOption names the flag in place of the library's option: --retain-every for RetainEvery.
func misuseOfOption(err error) error {
	option, ok := errors.AsType[*jq.OptionError](err)
	if !ok {
		return err
	}
	var flag strings.Builder
	for _, r := range option.Field {
		if unicode.IsUpper(r) {
			flag.WriteByte('-')
		}
		flag.WriteRune(unicode.ToLower(r))
	}
	return misuse("-%s %s", flag.String(), option.Rule)
}

// parseQueues reads NAME=N, where the name may hold any =.
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
			return nil, 0, misuse("--queue %q: want NAME=N, N being how many of its jobs run at once, 1 to 10000", text)
		case twice:
			return nil, 0, misuse("--queue %q: the queue is named twice", text)
		}
		queues[name] = jq.QueueOptions{Slots: n, Weight: min(n, 1000)}
		slots += n
	}
	return queues, slots, nil
}

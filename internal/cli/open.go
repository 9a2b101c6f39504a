package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/postgres"
	"github.com/seed-ed332417/jq/remote"
	"github.com/seed-ed332417/jq/sqlite"
)

const storeForms = "memory:, sqlite:PATH or\npostgres://USER@HOST/DATABASE[?schema=NAME&pooled=true&max_conns=N]"

// addedKind is the kind of places that a Kind opens.
const addedKind = "added"

// A place is the parsed URL of a store or server.
type place struct {
	kind   string // memory, sqlite, postgres, server or addedKind
	path   string // the SQLite file, or the URL of the server
	dsn    string // the Postgres connection string, or the URL of an added kind; may contain a password
	schema string // the Postgres schema, empty for the default
	pooled bool   // connections go through a pooler such as PgBouncer
	added  *Kind  // of addedKind
	shown  string // the URL without its password
}

// migrates reports whether the store has a schema with a version, which programs migrate.
func (p place) migrates() bool { return p.kind == "sqlite" || p.kind == "postgres" }

// parse parses the URL of a store. Its errors do not quote the URL, because a malformed one may have a password anywhere.
func (all kinds) parse(text string) (place, error) {
	scheme, rest, found := strings.Cut(text, ":")
	scheme = strings.ToLower(scheme)
	added, program := all.of(scheme), elsewhere[scheme]
	switch {
	case text == "":
		return place{}, errors.New("the value is empty: unset it, or name a store; " + all.want())
	case !found:
		return place{}, errors.New("not the URL of a store: " + all.want())
	case scheme == "memory" && rest == "":
		return place{kind: "memory", shown: "memory:"}, nil
	case scheme == "memory":
		return place{}, errors.New("memory: takes no path, because it has no file")
	case scheme == "sqlite":
		return parseFile(rest)
	case scheme == "postgres" || scheme == "postgresql":
		return parsePostgres(text)
	case added != nil:
		return added.place(text)
	case program != "":
		return place{}, fmt.Errorf("this program opens no %s: URLs, but another one does: go install %s@latest", scheme, program)
	case regexp.MustCompile(`^[a-z][a-z0-9+.-]{0,20}$`).MatchString(scheme):
		return place{}, fmt.Errorf("unknown kind of store %q: %s", scheme, all.want())
	}
	return place{}, errors.New("not the URL of a store: " + all.want())
}

func parseFile(path string) (place, error) {
	switch {
	case path == "":
		return place{}, errors.New("the path is missing: want sqlite:PATH")
	case strings.HasPrefix(path, "//"): // some programs read sqlite:///a as /a, others as a
		return place{}, errors.New("write sqlite:PATH without //: sqlite:jobs.db, or sqlite:/var/lib/jobs.db")
	case strings.ContainsRune(path, 0):
		return place{}, errors.New("the path contains a NUL byte")
	}
	return place{kind: "sqlite", path: path, shown: "sqlite:" + path}, nil
}

func parsePostgres(text string) (place, error) {
	u, err := url.Parse(text)
	if err != nil {
		return place{}, errors.New("invalid URL: want postgres://USER:PASSWORD@HOST/DATABASE; write special characters in the password as %XX")
	}
	query, err := url.ParseQuery(u.RawQuery)
	_, after, _ := strings.Cut(text, ":")
	misplaced := !strings.HasPrefix(after, "//") || strings.Contains(u.Path, "@") || u.Fragment != "" // it may be a password
	if err != nil || misplaced {
		return place{}, errors.New("invalid URL: want postgres://USER@HOST/DATABASE?NAME=VALUE&NAME=VALUE")
	}
	p := place{kind: "postgres", schema: query.Get("schema")}
	switch pooled := query.Get("pooled"); pooled {
	case "", "false":
	case "true":
		p.pooled = true
	default:
		return place{}, errors.New("pooled must be true or false")
	}
	shown := url.URL{Host: u.Host, Path: u.Path}
	if u.User != nil {
		shown.User = url.User(u.User.Username())
	}
	if query.Has("schema") || query.Has("pooled") {
		query.Del("schema")
		query.Del("pooled")
		u.RawQuery = query.Encode()
	}
	p.dsn, p.shown = u.String(), "postgres://"+strings.TrimPrefix(shown.String(), "//")
	return p, nil
}

// shown returns the URL of a store without its password.
func (all kinds) shown(text string) string {
	p, err := all.parse(text)
	if err != nil {
		return "an invalid URL"
	}
	return p.shown
}

// Whether opening a store may create or migrate it.
const (
	toRead = false
	toFill = true
)

// noMigrate adds a flag to commands that create and migrate a store.
func (a *app) noMigrate(f *pflag.FlagSet) {
	f.BoolVar(&a.existing, "no-migrate", false, "do not create or migrate the store; fail if it needs migrate up")
	fromEnvironment(f, "no-migrate", "JQ_NO_MIGRATE")
}

// busyTimeout adds a flag to long-running commands.
func (a *app) busyTimeout(f *pflag.FlagSet, more string) {
	f.DurationVar(&a.busy, "busy-timeout", sqlite.DefaultBusyTimeout, "how long a write to an SQLite file waits for other processes"+more)
}

// maxLease adds a flag to commands that grant leases, or recover leases that were granted while a clock was ahead.
func (a *app) maxLease(f *pflag.FlagSet) {
	f.DurationVar(&a.longest, "max-lease", contract.DefaultMaxLease, "the longest lease allowed; must be the same in all processes that use the store")
}

// maxConns adds a flag to long-running commands.
func (a *app) maxConns(f *pflag.FlagSet) {
	f.IntVar(&a.conns, "max-conns", 0, "how many connections to Postgres to have at most: by default max_conns of the URL, else 5")
}

// gathers adds a flag to long-running commands.
func (a *app) gathers(f *pflag.FlagSet, what string) {
	f.DurationVar(&a.gather, "gather", 0, "for less load on the store, "+what)
}

// fitBusyTimeout limits the busy timeout to a sixth of the lease, so that a heartbeat does not wait until its lease expires.
func (a *app) fitBusyTimeout(cmd *cobra.Command, lease time.Duration) {
	if !cmd.Flags().Changed("busy-timeout") && a.sources["busy-timeout"] == "" {
		a.busy = max(min(a.busy, lease/6), time.Millisecond)
	}
}

// readTimeout is the limit for a listing or a count. A command has a longer limit than a server, because its user waits for
// just this result.
func (a *app) readTimeout() time.Duration {
	if a.serves {
		return 0 // the default of the store
	}
	return time.Minute
}

// open opens the store that the flags name.
func (a *app) open(ctx context.Context, makes bool) (jq.Store, error) {
	p, err := a.place()
	if err != nil {
		return nil, err
	}
	makes = makes && !a.existing
	if a.longest != 0 {
		if err := contract.CheckMaxLease(a.longest); err != nil {
			return nil, misuse("--max-lease: %w", err)
		}
	}
	if a.conns != 0 && a.conns < postgres.MinConns {
		return nil, misuse("--max-conns is %d: want at least %d", a.conns, postgres.MinConns)
	}
	if a.gather < 0 {
		return nil, misuse("--gather must not be negative")
	}
	switch p.kind {
	case "server":
		secure, err := a.secure()
		if err != nil {
			return nil, err
		}
		return remote.Open(ctx, p.path, &remote.Options{Token: a.bearer, TLS: secure, Logger: a.logger(slog.LevelInfo)})
	case "memory":
		fmt.Fprintln(a.std.err, "memory: keeps jobs only until this command ends")
		return jq.NewMemory(&jq.MemoryOptions{MaxLease: a.longest, Logger: a.logger(slog.LevelInfo)}), nil
	case "sqlite":
		return a.openFile(ctx, p, makes)
	case addedKind:
		return a.openAdded(ctx, p, makes)
	default:
		s, err := postgres.Open(ctx, p.dsn, &postgres.Options{
			Schema: p.schema, Pooled: p.pooled, MaxLease: a.longest, NoMigrate: !makes, Logger: a.logger(slog.LevelInfo), Migrating: a.bar.migrating,
			ReadTimeout: a.readTimeout(), MaxConns: a.conns, NotifyEvery: a.gather, MigrateWait: a.waits, MigrateForce: a.forces,
		})
		a.bar.end()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.shown, err)
		}
		return s, nil
	}
}

// place returns the place that the flags name. An error names the flag or variable with the invalid URL.
func (a *app) place() (place, error) {
	switch atServer, err := a.atServer(); {
	case err != nil:
		return place{}, err
	case atServer:
		return parseServer(a.server)
	}
	p, err := a.kinds.parse(a.store)
	if err != nil {
		return place{}, misuse("%s: %w", cmp.Or(a.sources["store"], "--store"), err)
	}
	return p, nil
}

// atServer reports whether the command uses a server. The command line takes precedence over the environment and the file. If
// both a store and a server come from the same level, the choice is ambiguous and an error.
func (a *app) atServer() (bool, error) {
	server, store := a.flagged["server"], a.flagged["store"]
	switch {
	case server != store:
		return server, nil
	case server:
		return false, misuse("--store and --server cannot be combined: name either a store or a server")
	case a.sources["server"] != "" && a.sources["store"] != "" && a.store != "":
		return false, misuse("%s and %s are both set: unset one, or use --store or --server", a.sources["server"], a.sources["store"])
	}
	return a.server != "", nil
}

func parseServer(text string) (place, error) {
	if strings.HasPrefix(text, unixScheme) {
		return place{kind: "server", path: text, shown: text}, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "http" && u.Scheme != "https" {
		return place{}, misuse("--server: want http://HOST:PORT or https://HOST without user, password or query, or unix:PATH; put a token in JQ_TOKEN")
	}
	return place{kind: "server", path: text, shown: text}, nil
}

// secure returns the TLS configuration of a client. It reads the client certificate again for each connection, so you can renew
// the files.
func (a *app) secure() (*tls.Config, error) {
	if (a.cert == "") != (a.key == "") {
		return nil, misuse("--client-cert and --client-key must be given together")
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.ca != "" {
		pool, _, err := authorities(a.ca)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		secure.RootCAs = pool
	}
	if a.cert != "" {
		files := pair{certFlag: "--client-cert", cert: a.cert, keyFlag: "--client-key", key: a.key}
		if _, err := files.read(); err != nil {
			return nil, err
		}
		secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return files.read() }
	}
	return secure, nil
}

func (a *app) openFile(ctx context.Context, p place, makes bool) (jq.Store, error) {
	_, err := os.Stat(p.path)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing && !makes {
		if _, err := sqlite.SchemaVersion(ctx, p.path); err != nil { // such as a log without its file
			return nil, err
		}
		return nil, fmt.Errorf("there is no store at %s: name another with --store, or create it with migrate up", p.shown)
	}
	s, err := sqlite.Open(ctx, p.path, &sqlite.Options{
		Name: a.called, BusyTimeout: a.busy, MaxLease: a.longest, NoMigrate: !makes, Logger: a.logger(slog.LevelInfo), Migrating: a.bar.migrating,
		ReadTimeout: a.readTimeout(), MigrateWait: a.waits, MigrateForce: a.forces,
	})
	a.bar.end()
	if err != nil {
		return nil, err
	}
	if missing {
		fmt.Fprintf(a.std.err, "created the store %s\n", printable(p.shown))
	}
	return s, nil
}

// using opens the store, calls do, and closes the store.
func (a *app) using(ctx context.Context, makes bool, do func(s jq.Store) error) error {
	s, err := a.open(ctx, makes)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

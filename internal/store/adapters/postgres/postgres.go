// Package postgres keeps jobs in one schema of a Postgres database, for any number of processes.
//
// Each call is one short transaction with its own time-outs. Sessions keep nothing of a call but its prepared statements, and
// through a transaction-pooling proxy (Options.Pooled) not even these. Claims skip locked rows, and remember where they
// stopped: see package cursor.
package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres/cursor"
	"github.com/seed-ed332417/jq/internal/store/sqlkit"
)

var (
	_ store.Store          = (*Store)(nil)
	_ store.Transactor     = (*Store)(nil)
	_ store.Notifier       = (*Store)(nil)
	_ store.PolicyKeeper   = (*Store)(nil)
	_ store.Registry       = (*Store)(nil)
	_ store.Fencer         = (*Store)(nil)
	_ store.Examiner       = (*Store)(nil)
	_ store.Monitor        = (*Store)(nil)
	_ store.ActivityKeeper = (*Store)(nil)
	_ store.Warner         = (*Store)(nil)
	_ store.Repairer       = (*Store)(nil)
	_ store.Accountant     = (*Store)(nil)
	_ store.SnapshotHolder = (*Store)(nil)
)

// A Store keeps its jobs in one schema of a Postgres database.
type Store struct {
	options       Options
	schema        string // quoted
	name          string // of this store among all that use the schema
	now           *now
	hub           *hub
	limiter       *notifyLimiter
	callerLimiter *callerLimiter
	cursors       *cursor.Cursors
	limits        *limits
	server        *server
	sweeper       *sweeper
	group         groupCommit
	toFollow      atomic.Int32  // commits of callers, since the store has followed them all
	stepping      chan struct{} // has an element while a call of this store does what follows from others
	grouped       atomic.Int64  // for so many Acks more, jobs of groups are expected
	uncounted     atomic.Int64  // calls after which nothing followed from the ends of jobs of groups
	roundTrips    roundTrips

	pool    *pool    // the store's own connections
	urgent  *sqlx.DB // takes them for heartbeats and Ping,
	db      *sqlx.DB // for other transactions,
	slow    *sqlx.DB // and for List and Count
	callers *sqlx.DB // for callers' own transactions

	shared bool                                                                                    // others use the same sessions
	listen func(ctx context.Context, channel string, connected func(), heard func(payload string)) // nil if the store polls

	database string             // its name, as the server gives it
	steps    []sqlkit.Migration // all that this program knows

	with openings

	closing sync.Once
	closed  chan struct{}

	mu      sync.Mutex     // excludes Close while a goroutine is added to running
	running sync.WaitGroup // the background work
}

// Options configures Open. Zero fields mean the default.
type Options struct {
	// Schema is the name of the schema: by default "jq". Open creates it if it is missing.
	Schema string

	// Clock gives the store its time: by default the database's own clock, which all processes share. All stores of one schema
	// must use the same clock.
	Clock clock.Clock

	// MaxConns is how many connections the store may have at once: by default max_conns of the DSN, or else 5, and at least 4. One
	// listens, and one is always left to heartbeats and Ping. List and Count have at most half of the rest, so that no other call
	// waits for a slow listing. A connection that nobody uses is closed after three seconds, except the last one. Transactions that
	// you begin on DB may have as many again.
	//
	// If the server has no free connection (SQLSTATE 53300), calls wait for one that the store has, and keep asking the server. A
	// call that gets none within Timeout fails.
	MaxConns int

	// ReadTimeout ends a List or a Count if one of its statements takes longer, or if it waits longer for a connection: by default
	// 10 seconds. The error is a *jq.OverlongError, which is ErrUnavailable. Narrow the filter then.
	ReadTimeout time.Duration

	// Timeout ends any other statement or transaction that takes longer: by default 8 seconds. LockTimeout ends a statement
	// that waits longer for a lock: by default 5 seconds. Both should be well below a third of the time of leases. If the
	// server does not respond at all, a call fails about two seconds after Timeout.
	Timeout     time.Duration
	LockTimeout time.Duration

	// MaxLease is the longest lease: by default an hour. All stores of one schema must have the same MaxLease.
	MaxLease time.Duration

	// Pooled says that the DSN leads to a transaction-pooling proxy, through which LISTEN does not work. ListenDSN is then the
	// DSN of the server itself, for one connection that listens. Without ListenDSN, the store polls for wake-ups.
	Pooled    bool
	ListenDSN string

	// NotifyEvery is the least time between two notifications of new jobs in the same queue: by default 10 milliseconds, since
	// transactions that notify cannot commit at once. With more, jobs that come one by one cost the server less, and may wait for so
	// long; those of a program that ends meanwhile wait for the next poll. Wake-ups within this program do not wait.
	//
	// Callers' own transactions share notifications too. The store asks which of them have been committed: NotifyEvery later, and then
	// less and less often, down to every 100 milliseconds. Jobs of those that are committed after Close wait for the next poll.
	NotifyEvery time.Duration

	// NoMigrate keeps Open from creating and migrating the schema. If the schema is missing or older than this program, Open fails
	// and says what to do.
	NoMigrate bool

	// Logger gets what the store does by itself and operators should know: by default slog.Default().
	Logger *slog.Logger

	// MigrateWait is how long Open waits before a migration that breaks programs of earlier versions, until these have stopped and their
	// leases have ended. It logs whom it waits for. By default Open does not wait: it migrates nothing and fails if one still runs.
	// MigrateForce migrates at once, whoever runs.
	MigrateWait  time.Duration
	MigrateForce bool

	// Migrating is called before each step of a migration. A step over many jobs can take long.
	Migrating func(step, of int)

	steps []sqlkit.Migration // the program knows these: by default all
}

// Open opens the store. It creates or migrates its schema if needed, unless Options.NoMigrate is set. Any number of processes
// may do so at once. The DSN is a URL or a list of key=value pairs, as for lib/pq, which may have max_conns (see
// Options.MaxConns). If it has several hosts, the store uses the one that accepts writes, unless the DSN has
// target_session_attrs, and passes over one that is silent for two seconds, or for connect_timeout. All silent hosts together must take less than
// Options.Timeout.
func Open(ctx context.Context, dsn string, options *Options) (*Store, error) {
	s, err := unprepared(dsn, options)
	if err != nil {
		return nil, err
	}
	return s.opened(ctx)
}

// opened asks the server for what the store needs.
func (s *Store) opened(ctx context.Context) (*Store, error) {
	if err := s.prepare(ctx); err != nil {
		s.disconnect()
		return nil, openError(s.options.Schema, err)
	}
	s.with = s.openings(s.options)
	s.hub, s.limiter, s.callerLimiter = newHub(s), newNotifyLimiter(s), newCallerLimiter(s)
	return s, nil
}

// unprepared returns the store before it has asked the server anything.
func unprepared(dsn string, options *Options) (*Store, error) {
	if strings.TrimSpace(dsn) == "" { // the driver would use a server on this machine
		return nil, errors.New("jq: the DSN is empty: want postgres://user:password@host/database")
	}
	dsn, conns, err := cutMaxConns(dsn)
	if err != nil {
		return nil, err
	}
	filled := *cmp.Or(options, &Options{})
	filled.MaxConns = cmp.Or(filled.MaxConns, conns)
	s, err := newStore(&filled)
	if err != nil {
		return nil, err
	}
	dsn, config, err := toPrimary(dsn)
	if err != nil {
		return nil, dsnError(err)
	}
	if s.listen == nil && !s.options.Pooled {
		s.listen = listenTo(dsn)
	}
	s.shared = s.options.Pooled
	return s, s.connect(config)
}

// newStore returns a store without connections. It listens only if the options name a server for that.
func newStore(options *Options) (*Store, error) {
	o, err := options.filled()
	if err != nil {
		return nil, err
	}
	s := &Store{
		options: o, schema: pq.QuoteIdentifier(o.Schema), name: rand.Text(), now: &now{clock: o.Clock, present: store.Present{Logger: o.Logger}},
		steps: o.steps, cursors: cursor.New(), limits: newLimits(), server: &server{},
		sweeper: newSweeper(), stepping: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	if o.ListenDSN != "" {
		dsn, _, err := cutMaxConns(o.ListenDSN)
		if err != nil {
			return nil, err
		}
		dsn, _, err = toPrimary(dsn)
		if err != nil {
			return nil, dsnError(err)
		}
		s.listen = listenTo(dsn)
	}
	return s, nil
}

// MinConns is the least Options.MaxConns: one that listens, one for heartbeats, one for other calls, and one for listings.
const MinConns = 4

const defaultConns = 5

// errHosts refuses a DSN that has ports behind its hosts.
var errHosts = errors.New("several hosts")

// silence is how many seconds one of several hosts may take to let a connection in, unless the DSN says otherwise: a machine that is dead may
// answer nothing at all, and the next host must have its turn within the time of a call.
const silence = 2

// toPrimary reads the DSN. If it has several hosts and no target_session_attrs, toPrimary selects the host that accepts writes; if it has no
// connect_timeout, it limits how long each may be silent.
func toPrimary(dsn string) (string, pq.Config, error) {
	config, err := pq.NewConfig(dsn)
	if err != nil || len(config.Multi) == 0 {
		return dsn, config, err
	}
	for _, h := range append(config.Multi, pq.ConfigMultihost{Host: config.Host}) {
		if _, notAddress := netip.ParseAddr(h.Host); notAddress != nil && strings.Contains(h.Host, ":") {
			return dsn, config, errHosts
		}
	}
	if config.TargetSessionAttrs == "" {
		dsn = with(dsn, "target_session_attrs", "read-write")
	}
	if config.ConnectTimeout == 0 {
		dsn = with(dsn, "connect_timeout", strconv.Itoa(silence))
	}
	config, err = pq.NewConfig(dsn)
	return dsn, config, err
}

// with sets a setting in a DSN that the driver accepts.
func with(dsn, name, value string) string {
	if u, err := url.Parse(dsn); err == nil && (u.Scheme == "postgres" || u.Scheme == "postgresql") {
		settings := u.Query()
		settings.Set(name, value)
		u.RawQuery, u.Fragment = settings.Encode(), ""
		return u.String()
	}
	return dsn + " " + name + "=" + value
}

func (o *Options) filled() (Options, error) {
	full := *cmp.Or(o, &Options{})
	full.Schema = cmp.Or(full.Schema, "jq")
	full.MaxConns = cmp.Or(full.MaxConns, defaultConns)
	full.ReadTimeout = cmp.Or(full.ReadTimeout, 10*time.Second)
	full.Timeout = cmp.Or(full.Timeout, 8*time.Second)
	full.LockTimeout = cmp.Or(full.LockTimeout, 5*time.Second)
	full.NotifyEvery = cmp.Or(full.NotifyEvery, usualNotifyEvery)
	full.Logger = cmp.Or(full.Logger, slog.Default())
	full.MaxLease = cmp.Or(full.MaxLease, store.DefaultMaxLease)
	if full.steps == nil {
		var err error
		if full.steps, err = folder(); err != nil {
			return full, err
		}
	}
	if err := store.CheckMaxLease(full.MaxLease); err != nil {
		return full, err
	}
	switch {
	case len(full.Schema) > 60 || strings.ContainsRune(full.Schema, 0):
		return full, fmt.Errorf("jq: schema %q: want a name of at most 60 bytes", full.Schema)
	case full.MaxConns < MinConns:
		return full, fmt.Errorf("jq: the number of connections is %d: want at least %d", full.MaxConns, MinConns)
	case full.ReadTimeout < time.Millisecond:
		return full, fmt.Errorf("jq: the read timeout is %v: want at least a millisecond", full.ReadTimeout)
	case full.Timeout < time.Millisecond || full.LockTimeout < time.Millisecond:
		return full, fmt.Errorf("jq: the time-outs are %v and %v: want at least a millisecond", full.Timeout, full.LockTimeout)
	case full.NotifyEvery < 0:
		return full, fmt.Errorf("jq: notify every %v: want more than that", full.NotifyEvery)
	}
	return full, nil
}

// connect makes the pools. BinaryParameters sends a statement together with its parameters: a pooling proxy could otherwise
// send them to different sessions.
func (s *Store) connect(config pq.Config) error {
	config.BinaryParameters = true
	config.ApplicationName = cmp.Or(config.ApplicationName, s.options.Schema)
	plain, err := pq.NewConnectorConfig(config)
	if err != nil {
		return fmt.Errorf("jq: the DSN can not be used: %w", err)
	}
	callers := confirming{Connector: plainConnector{plain}}
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, max(s.options.Timeout, leastPatience))
	if !s.shared {
		config.Options, config.Runtime = config.Options+s.options.startup(), s.options.others(config.Runtime)
		callers.recurring = s.recurring()
	}
	s.pools(connector{config}, callers, true)
	s.callers.SetMaxOpenConns(s.options.MaxConns)
	s.callers.SetMaxIdleConns(s.options.MaxConns)
	s.callers.SetConnMaxIdleTime(idleFor)
	return nil
}

// pools makes the pools, of connections for the store itself and for callers.
func (s *Store) pools(own driver.Connector, callers confirming, keeps bool) {
	most := s.options.MaxConns
	if s.listen != nil {
		most--
	}
	s.use(newPool(sessions{own}, s.options, most, keeps))
	callers.server = s.server
	s.callers = sqlx.NewDb(sql.OpenDB(callers), "postgres")
}

func (s *Store) use(p *pool) {
	s.pool, s.urgent, s.db, s.slow = p, p.of(urgent), p.of(usual), p.of(slow)
}

// prepare creates the schema or migrates it to the newest version, unless the options say not to.
func (s *Store) prepare(ctx context.Context) error {
	var server struct{ Database, Encoding, Mode string }
	if err := s.db.GetContext(ctx, &server, `
		SELECT current_database() AS database, current_setting('server_encoding') AS encoding,
			current_setting('plan_cache_mode') AS mode`); err != nil {
		return err
	}
	s.database = server.Database
	switch {
	case server.Encoding != "UTF8":
		return &unfit{"the database is encoded in " + server.Encoding + ": create one with encoding UTF8"}
	case !s.shared && server.Mode != planMode: // otherwise sessions would share prepared statements
		return &unfit{"the session lost its settings: " + sayPooled}
	}
	if err := s.askable(ctx); err != nil {
		return err
	}
	if s.options.NoMigrate {
		found, err := s.schemaVersion(ctx)
		if err != nil {
			return err
		}
		return sqlkit.Current(found)
	}
	migrator := s.migrator()
	return sqlkit.Await(ctx, s.options.MigrateWait, s.options.Logger, func() error {
		_, err := migrator.Up(ctx)
		return err
	})
}

// sql fills in the schema's name. Values from callers never become a part of a planned statement.
func (s *Store) sql(text string) string { return strings.ReplaceAll(text, "{schema}", s.schema) }

// DB is the database to begin your own transactions on, for InTx, with at most Options.MaxConns connections. Close closes it. The store
// has prepared statements there: after DISCARD ALL or DEALLOCATE ALL, one more transaction fails on that connection.
func (s *Store) DB() *sqlx.DB { return s.callers }

// Close is part of the contract.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.mu.Lock()
		close(s.closed)
		s.mu.Unlock()
		s.hub.Close()
		s.running.Wait()
		s.callerLimiter.lookLast()
		s.disconnect()
	})
	return nil
}

// disconnect closes all connections. Errors are ignored: the connections are gone anyway.
func (s *Store) disconnect() {
	for _, db := range []*sqlx.DB{s.urgent, s.db, s.slow, s.callers} {
		_ = db.Close()
	}
	s.pool.close()
}

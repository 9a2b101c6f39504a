// Package site provides the servers and folders for measuring, and deletes them afterwards.
package site

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/lib/pq"

	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/internal/pgtest"
)

// A Site starts servers on first use. Only one goroutine may use it.
type Site struct {
	folder     string
	postgres   *pgtest.Cluster
	replicated *replicated
	members    *members
	redis      *redis
	node       string // the folder with the packages
	places     int
}

// settings are those of the Postgres server. Commits are synced to the disk.
var settings = []string{"fsync=on", "synchronous_commit=on", "full_page_writes=on", "shared_buffers=512MB", "max_wal_size=4GB"}

// counting loads the module that counts statements, and leaves it off. Runs that want it turn it on for their database.
var counting = []string{"shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=none", "compute_query_id=off"}

// startPostgres starts a server that can count statements, or else one without the module.
func startPostgres(ctx context.Context) (*pgtest.Cluster, error) {
	c, err := pgtest.Start(ctx, pgtest.Options{Durable: true, Settings: slices.Concat(settings, counting)})
	if err == nil || ctx.Err() != nil {
		return c, err
	}
	plain, without := pgtest.Start(ctx, pgtest.Options{Durable: true, Settings: settings})
	if without != nil {
		return nil, err
	}
	return plain, nil
}

// Settings describes the servers' settings, for people.
const Settings = "Postgres with fsync, synchronous_commit, shared_buffers=512MB and max_wal_size=4GB, all else by default, through a " +
	"Unix socket; Redis with appendfsync=everysec and no snapshots, over the loopback"

// New returns a site with its own folder.
func New() (*Site, error) {
	folder, err := os.MkdirTemp("", "jq-bench-")
	return &Site{folder: folder}, err
}

// Close stops the servers and removes the folder.
func (s *Site) Close() error {
	var errs []error
	if s.postgres != nil {
		errs = append(errs, s.postgres.Stop())
	}
	if s.replicated != nil {
		errs = append(errs, s.replicated.stop())
	}
	if s.members != nil {
		errs = append(errs, s.members.stop())
	}
	if s.redis != nil {
		errs = append(errs, s.redis.stop())
	}
	return errors.Join(append(errs, os.RemoveAll(s.folder))...)
}

// An Absence says why a peer cannot be measured here.
type Absence struct{ Reason string }

func (a *Absence) Error() string { return a.Reason }

// Place makes an empty store for the peer. remove deletes it.
func (s *Site) Place(ctx context.Context, p peer.Peer) (place peer.Place, remove func() error, err error) {
	s.places++
	remove = func() error { return nil }
	if p.Node {
		if place.Node, err = s.nodeFolder(ctx); err != nil {
			return place, remove, err
		}
	}
	switch p.Store {
	case peer.Postgres:
		if s.postgres == nil {
			if s.postgres, err = startPostgres(ctx); err != nil {
				return place, remove, err
			}
		}
		place.Admin = s.postgres.DSN
		place.DSN, remove, err = s.database(ctx, place.Admin)
	case peer.Replicated:
		return s.onReplicated(ctx)
	case peer.Etcd:
		place, err = s.onMembers(ctx)
	case peer.SQLite:
		place.Folder, err = os.MkdirTemp(s.folder, "sqlite-")
		remove = func() error { return os.RemoveAll(place.Folder) }
	case peer.Redis:
		place.Redis, err = s.emptyRedis(ctx)
	}
	return place, remove, err
}

// database creates a database, so that no data of other runs is in it. It first writes a checkpoint, so that this run does not
// wait for other runs' writes.
func (s *Site) database(ctx context.Context, admin string) (dsn string, remove func() error, err error) {
	name := fmt.Sprintf("bench_%d", s.places)
	if err := run(ctx, admin, "CREATE DATABASE "+name, "CHECKPOINT"); err != nil {
		return "", nil, err
	}
	remove = func() error {
		return run(context.WithoutCancel(ctx), admin, "DROP DATABASE "+name+" WITH (FORCE)")
	}
	config, err := pq.NewConfig(admin)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=disable", config.Host, config.Port, config.User, name), remove, nil
}

// run runs statements, each by itself.
func run(ctx context.Context, dsn string, statements ...string) error {
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// Hold opens a session that holds a snapshot of the database until it is closed.
func Hold(ctx context.Context, dsn string) (release func() error, err error) {
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return nil, err
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	release = func() error { return errors.Join(tx.Rollback(), db.Close()) }
	var one int
	if err := tx.QueryRowContext(ctx, "SELECT 1 FROM pg_class LIMIT 1").Scan(&one); err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}

package cli

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/benbjohnson/clock"
	"github.com/jmoiron/sqlx"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/conformance"
	"github.com/seed-ed332417/jq/postgres"
	"github.com/seed-ed332417/jq/sqlite"
)

// adapterOf makes stores of the place's kind for the suite, and says how to clear up when it has ended.
func adapterOf(p place) (a conformance.Adapter, remove func() error, err error) {
	switch p.kind {
	case "memory":
		return memoryAdapter(), func() error { return nil }, nil
	case "sqlite":
		folder, err := os.MkdirTemp("", "jq-conformance-")
		if err != nil {
			return a, nil, fmt.Errorf("making a folder for the stores of the cases: %w", err)
		}
		return sqliteAdapter(folder), func() error { return os.RemoveAll(folder) }, nil
	case "server":
		return a, nil, errors.New("this command makes a store for each case, so it needs the store itself: name it with --store")
	case addedKind:
		return a, nil, fmt.Errorf("this command does not run the suite on %s: the tests of its module do", p.added.Name)
	default:
		return postgresAdapter(p), func() error { return nil }, nil
	}
}

func memoryAdapter() conformance.Adapter {
	return conformance.Adapter{
		New: func(_ context.Context, clk clock.Clock) (*conformance.Instance, error) {
			s := jq.NewMemory(&jq.MemoryOptions{Clock: clk})
			return &conformance.Instance{Store: s, DB: s.DB()}, nil
		},
		Exclude: map[string]string{"Reopen/": "memory keeps nothing beyond its process"},
	}
}

// An onDisk is a store that can be opened again.
type onDisk interface {
	jq.Store
	DB() *sqlx.DB
}

// reopenable is an instance of a store that is opened by open, and taken away by remove after it was closed.
func reopenable[S onDisk](ctx context.Context, open func(context.Context) (S, error), remove func() error) (*conformance.Instance, error) {
	s, err := open(ctx)
	if err != nil {
		return nil, err
	}
	instance := &conformance.Instance{Store: s, DB: s.DB().DB}
	instance.Reopen = func(ctx context.Context) (jq.Store, error) {
		if err := s.Close(); err != nil {
			return nil, err
		}
		if s, err = open(ctx); err != nil {
			return nil, err
		}
		instance.DB = s.DB().DB
		return s, nil
	}
	instance.Remove = func() error { return errors.Join(s.Close(), remove()) }
	return instance, nil
}

func sqliteAdapter(folder string) conformance.Adapter {
	return conformance.Adapter{New: func(ctx context.Context, clk clock.Clock) (*conformance.Instance, error) {
		own, err := os.MkdirTemp(folder, "")
		if err != nil {
			return nil, err
		}
		return reopenable(ctx, func(ctx context.Context) (*sqlite.Store, error) {
			// The cases ask what is kept, not whether the disk has it.
			return sqlite.Open(ctx, filepath.Join(own, "jobs.db"), &sqlite.Options{Clock: clk, Synchronous: sqlite.Normal})
		}, func() error { return os.RemoveAll(own) })
	}}
}

func postgresAdapter(p place) conformance.Adapter {
	return conformance.Adapter{New: func(ctx context.Context, clk clock.Clock) (*conformance.Instance, error) {
		schema := "jq_conformance_" + strings.ToLower(rand.Text())
		open := func(ctx context.Context) (*postgres.Store, error) {
			return postgres.Open(ctx, p.dsn, &postgres.Options{Schema: schema, Clock: clk, Pooled: p.pooled})
		}
		own := context.WithoutCancel(ctx) // what was made is taken away also when the case was interrupted
		return reopenable(ctx, open, func() error { return dropSchema(own, p.dsn, schema) })
	}}
}

// dropSchema takes away what a case has made. The name is of letters and digits.
func dropSchema(ctx context.Context, dsn, schema string) error {
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `DROP SCHEMA IF EXISTS `+schema+` CASCADE`)
	return errors.Join(err, db.Close())
}

package remote

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/race"
	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/store/adapters/postgres"
	"github.com/seed-ed332417/jq/internal/store/adapters/sqlite"
	"github.com/seed-ed332417/jq/jqtest"
)

// A place keeps what is stored behind the server: open opens the store on it, again where it was closed.
type place struct {
	open   func(ctx context.Context, clk clock.Clock) (store.Store, error)
	remove func() error
}

// remoteTo makes remote stores, each on a server and a place of its own. The fake clock is that of the store behind the server.
func remoteTo(newPlace func() place, exclude map[string]string) jqtest.Adapter {
	excluded := map[string]string{
		"Tx/": "a caller's transaction does not travel",
		"Notify/FollowsTheCommitOfACallersTransaction": "a caller's transaction does not travel",
		"Notify/FollowsACallThatLeavesSomething":       "the server settles for its clients, and does not wake them for that",
	}
	maps.Copy(excluded, exclude)
	return jqtest.Adapter{Exclude: excluded, New: func(ctx context.Context, clk clock.Clock) (*jqtest.Instance, error) {
		at := newPlace()
		var server *served
		var s *Store
		open := func(ctx context.Context) (store.Store, error) {
			back, err := at.open(ctx, clk)
			if err != nil {
				return nil, err
			}
			if server, err = serve(back, httpapi.Options{}); err != nil {
				return nil, err
			}
			transport := newSettling(server)
			if s, err = Open(ctx, server.url, &Options{Transport: transport, Timeout: time.Minute}); err != nil {
				return nil, err
			}
			transport.store, s.own, s.traced = s, transport.Transport, true
			return counting{s, back}, nil
		}
		shut := func() error { return errors.Join(s.Close(), server.stop()) }
		first, err := open(ctx)
		if err != nil {
			return nil, err
		}
		return &jqtest.Instance{
			Store: first,
			Reopen: func(ctx context.Context) (store.Store, error) {
				if err := shut(); err != nil {
					return nil, err
				}
				return open(ctx)
			},
			Remove: func() error { return errors.Join(shut(), at.remove()) },
		}, nil
	}}
}

// counting is a remote store that adds activity to the store behind the server, where the server adds what its clients do.
type counting struct {
	*Store
	behind store.Store
}

func (c counting) AddActivity(ctx context.Context, items []store.Activity) error {
	return c.behind.(store.ActivityKeeper).AddActivity(ctx, items)
}

func (c counting) Close() error { return errors.Join(c.Store.Close(), c.behind.Close()) }

func inMemory() place {
	return place{
		open: func(_ context.Context, clk clock.Clock) (store.Store, error) {
			return memory.New(memory.Options{Clock: clk}), nil
		},
		remove: func() error { return nil },
	}
}

func inSQLite(t *testing.T) func() place {
	return func() place {
		folder := t.TempDir()
		return place{
			open: func(ctx context.Context, clk clock.Clock) (store.Store, error) {
				return sqlite.Open(ctx, filepath.Join(folder, "jobs.db"), &sqlite.Options{Clock: clk, Synchronous: sqlite.Normal})
			},
			remove: func() error { return os.RemoveAll(folder) },
		}
	}
}

func inPostgres(t *testing.T) func() place {
	t.Helper()
	dsn := pgtest.DSN(t)
	schemas := pgtest.NewSchemas(t, dsn)
	return func() place {
		schema := schemas.Take()
		return place{
			open: func(ctx context.Context, clk clock.Clock) (store.Store, error) {
				return postgres.Open(ctx, dsn, &postgres.Options{Clock: clk, Schema: schema})
			},
			remove: func() error { return schemas.Return(schema) },
		}
	}
}

func TestConformanceOverMemory(t *testing.T) {
	exclude := map[string]string{"Reopen/": "memory keeps nothing beyond its process"}
	if race.Enabled {
		for _, name := range []string{
			"Enqueue/EightMebibytesAndNoMore", "Call/EightMebibytesAndNoMore",
			"Claim/LaneEndsBeforeItWeighsTooMuch", "Claim/WhatWasTooMuchIsClaimedNext", "Inspect/PageEndsBeforeItWeighsTooMuch",
		} {
			exclude[name] = "tens of megabytes of JSON take too long under the race detector; it runs without"
		}
	}
	jqtest.Run(t, remoteTo(inMemory, exclude))
}

// scripts/test-all runs this and the next one: what differs from TestConformanceOverMemory is the store behind the server, which has tests of
// its own.
func TestConformanceOverSQLite(t *testing.T) {
	if race.Enabled {
		t.Skip("not under the race detector: SQLite in Go is many times slower there, and this side is the same as over memory")
	}
	casesAndHistories(t, remoteTo(inSQLite(t), nil))
}

func TestConformanceOverPostgres(t *testing.T) {
	if race.Enabled {
		t.Skip("not under the race detector: this side is the same as over memory")
	}
	casesAndHistories(t, remoteTo(inPostgres(t), nil))
}

// casesAndHistories leaves out the random sequences: this side is compared with the model over memory, and the stores behind the
// server in tests of their own.
func casesAndHistories(t *testing.T, a jqtest.Adapter) {
	t.Helper()
	t.Run("Cases", func(t *testing.T) { jqtest.Cases(t, a) })
	t.Run("Linear", func(t *testing.T) { jqtest.Linear(t, a, 50) })
}
